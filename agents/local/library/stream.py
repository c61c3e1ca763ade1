"""One stream of the library: the protocol of the job for rows of a notebook, without Kafka and without a clock.

Rows become the records of a raw topic of one partition, and go through `PartitionIngest`, with the bounds on users, and
`Stepper`, as in the job and in `simulate`. With the same insecure seed all three release the same bytes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NoReturn

import orjson
import pyarrow as pa

from agents.kafka.lifecycle.refusals import Seen, by_reason_and_field
from agents.local.job import LocalIngest, LocalJob
from agents.local.library.batches import CHUNK_ROWS, BatchReader, BatchRows, any_waits, digest_of, waiting_with
from agents.local.library.journal import Journal
from agents.local.library.promise import Promise
from agents.local.library.release import StepRelease, Taken
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.times import TimeParser
from agents.protocol.release.stepper import Stepper
from agents.protocol.replay import RowTimes, clock_of, steps_of
from agents.readers.consume.columns import table_of
from engines.core.noise import fresh_seed, repeated_seed
from schemas.config import Stream
from schemas.errors import BatchError, StateFileError, StepOrderError, without_context
from schemas.events import Reason
from schemas.releases import Candidate, EncodedState, unframe_records

INSECURE = "an insecure seed made the noise, so anybody can repeat and subtract it."
SNAPSHOT_BYTES = 8 << 20
"""Size of stored blocks beyond which the bounds are stored as snapshots, so that blocks can be deleted."""


class PrivateStream:
    """A stream of one engine, which `configure` makes. Two threads may not use it at once.

    Guarantee: `guarantee()` returns it, for all releases together. As in the job, users are bounded, each step is
    answered once, and the operating system seeds the noise.
    """

    def __init__(self, stream: Stream, journal: Journal, *, insecure_seed: int | None = None) -> None:
        self._stream = stream
        self._journal = journal
        self._insecure = insecure_seed
        self._busy = threading.Lock()
        self._process = os.getpid()
        self._whole = False
        self._last: StepRelease | None = None
        self._promise: Promise | None = None
        self._open = Taken()
        self._restore()
        self._reader = BatchReader(stream, self._job.spec)

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self._stream.name

    @property
    def next_step(self) -> int:
        """The step that is released next."""
        return self._stepper.step

    @property
    def last(self) -> StepRelease | None:
        """The newest release; None before any."""
        return self._last

    def guarantee(self) -> Promise:
        """Return the guarantee, in words and symbols."""
        if self._promise is None:
            self._promise = Promise.from_stream(self._stream, caveat=self._caveat)
        return self._promise

    def synthetic(self) -> pa.Table:
        """Return all synthetic records alive after the last release, as an Arrow table. Public."""
        return table_of([orjson.loads(value) for value in self._journal.entry.alive.values()])

    def __repr__(self) -> str:
        privacy = self._stream.privacy
        return (
            f"PrivateStream {self.name}: engine {self._stream.engine} ({self._stream.mode}), epsilon {privacy.epsilon} "
            f"for one {privacy.unit}; next is step {self.next_step}"
        )

    # --- what it does -----------------------------------------------------------------------------------------------

    def add(self, batch: object, *, repeated: bool = False) -> Taken:
        """Take in rows without releasing anything. Rows of later steps wait for them.

        Args: batch: see `agents.local.library.batches`. repeated: take in a batch that was taken in before.
        Returns: what became of the rows; PRIVATE.
        Raises: BatchError, also where no row can be used: nothing was taken in.
        """
        with self._exclusive():
            if self._journal.entry.seed:
                self._finish_and_refuse()
            return self._take(self._fresh(batch, repeated=repeated), close=False)

    def step(self, batch: object = None, *, number: int | None = None, repeated: bool = False) -> StepRelease:
        """Release the next step: of these rows, and of those added before that belong to it.

        Rows of the step's past join it, as late events do in the job; rows of later steps wait. A call that was
        interrupted is finished by calling again with the same batch: its rows count once, and its noise is the same.

        Args:
            batch: see `add`; None: no further rows. An empty step is released too.
            number: of the step that you mean. Pass it where a cell may be run twice: a released step is refused.
            repeated: as of `add`.
        Raises: StepOrderError if `number` is not the next step; BatchError, also where no row can be used: nothing was
            taken in, nothing released; BudgetError.
        """
        with self._exclusive():
            if self._journal.entry.seed:
                same = number in (None, self._stepper.step) and self._seen(self._reader.read(batch)) == self.next_step
                return self._finish() if same else self._finish_and_refuse()
            self._check(number)
            taken = self._take(self._fresh(batch, repeated=repeated), close=True)
            return self._answer(self._open + taken)

    def run(self, batch: object, *, until: int, repeated: bool = False) -> list[StepRelease]:
        """Release every step before step `until`, each with the rows of its own time. For history.

        `until` is public: it must not depend on the rows. Rows of released steps, and of steps from `until` on, are
        left alone, so that a longer batch, or the same one after an interrupt, goes on where this stopped; `left`
        of the last release's `taken` counts them. A batch with rows that `add` or `step` took in for one of these
        steps is refused.

        Args: repeated: take in such rows once more.
        Raises: StepOrderError where no step is left; BatchError: nothing was taken in, nothing released; as `step`.
        """
        with self._exclusive():
            first, begun = self._stepper.step, bool(self._journal.entry.seed)
            if first >= until:
                raise StepOrderError(
                    f"{self._called}: all steps before {until} are released, and each step has one answer; the "
                    f"next is {first}. Fix: pass a larger `until`, with the rows up to there."
                )
            rows = self._reader.read(batch)
            parts, left = self._by_step(rows, first=first + begun, until=until)
            if not repeated:
                self._refuse_waiting(parts)
            if not left:  # else rows of it could be used before
                self._refuse_unusable(parts)
            released = [self._finish()] if begun else []
            for step in range(self._stepper.step, until):
                taken = self._take(parts.get(step, BatchRows([], [])), close=True, digest=digest_of(rows))
                if step == until - 1:
                    taken = replace(taken, left=left)
                released.append(self._answer(self._open + taken))
            return released

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a PrivateStream is neither copied nor pickled: a copy would answer its steps again")

    def close(self) -> None:
        """Release the state file. This object cannot be used any more; a new one can continue from the file."""
        self._journal.close()

    def __enter__(self) -> PrivateStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    @property
    def _stepper(self) -> Stepper:
        return self._job.stepper

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Run one call at a time, on a stream in the state of its journal."""
        if not self._busy.acquire(blocking=False):
            raise StepOrderError(f"stream {self.name} is at work in another thread. Fix: wait until it is done.")
        try:
            if self._journal.closed:
                raise StateFileError(
                    f"stream {self.name}: its state file was closed, or opened again. Fix: use the stream that was "
                    "opened last, or open it anew."
                )
            if self._process != os.getpid():
                raise StateFileError(
                    f"stream {self.name}: this process is a fork of the one that has the stream, and two would answer "
                    "a step twice. Fix: use it there; hand rows in, and releases out."
                )
            entry = self._journal.entry
            if not self._whole or self._stepper.step != entry.begun - bool(entry.seed):
                self._restore()
            with without_context():
                yield
        except (BatchError, StepOrderError):
            raise  # refused before anything was done
        except BaseException:
            self._whole = False  # whatever was half done is undone by the next call: only the journal counts
            raise
        finally:
            self._busy.release()

    def _restore(self) -> None:
        """Restore the stream from its journal. Raises: GapError, WireError, if the journal contradicts itself."""
        entry = self._journal.entry
        self._job = LocalJob(self._stream, key=entry.key, rows=False, caveat=self._caveat)
        self._open = _taken(entry.taken.get("open"))
        candidate = Candidate.decode(entry.candidate, EncodedState.decode(entry.state)) if entry.candidate else None
        if candidate is not None:
            taken = _taken(entry.taken.get("last"))
            self._last = StepRelease.from_candidate(candidate, unframe_records(candidate.payload), taken)
        self._job.restore(candidate, entry.blocks, first_block=entry.first_block, snapshots=entry.snapshots)
        self._whole = True

    def _check(self, number: int | None) -> None:
        step = self._stepper.step
        if number is not None and number < step:
            raise StepOrderError(
                f"{self._called}: step {number} is released, and a step has one answer. Fix: use that release (the "
                f"newest is `last`); the next step is {step}."
            )
        if number is not None and number > step:
            raise StepOrderError(
                f"stream {self.name}: step {number} is not the next one, {step} is, and steps come in order. Fix: "
                "release the steps before it, also those without rows: step()."
            )

    def _fresh(self, batch: object, *, repeated: bool) -> BatchRows:
        """Return the rows of a batch that was not taken in before. Raises: BatchError."""
        rows = self._reader.read(batch)
        before = self._seen(rows)
        if before is not None and not repeated:
            raise BatchError(
                f"{self._called} took in the same rows before, for step {before}; was a cell run twice? Nothing "
                "was taken in or released. Fix: use the release that there is (the newest is `last`); if the rows are "
                "meant to count again, pass repeated=True."
            )
        self._refuse_unusable({self._stepper.step: rows})
        return rows

    def _seen(self, rows: BatchRows) -> int | None:
        """Return the step for which the same batch was ingested; for a batch without rows, the step that is begun."""
        if not rows.records:
            return self._stepper.step if self._journal.entry.seed else None
        return self._journal.entry.batches.get(digest_of(rows))

    def _refuse_waiting(self, parts: Mapping[int, BatchRows]) -> None:
        """Raise BatchError if `add` or `step` ingested one of these rows for the step of its part."""
        entry = self._journal.entry
        if any_waits(entry.waiting, parts.items(), key=entry.key):
            raise BatchError(
                f"{self._called}: rows of the batch were taken in before, by `add` or `step`, for a step that "
                "`run` is asked for, and would count twice. Nothing was taken in or released. Fix: pass the batch "
                "without them, or release those steps by step(); if they are meant to count again, pass repeated=True."
            )

    def _refuse_unusable(self, parts: Mapping[int, BatchRows]) -> None:
        """Raises: BatchError where there are rows, and none of them can be used in the part of its step: mostly the
        configuration does not fit them, and a step that is released without them has had its answer.

        Bounds are not asked: their users have a say in no other row. Mostly the first rows tell.
        """
        ingest, tally = LocalIngest(self._job.spec), Counter[tuple[str, str]]()
        for step, rows in sorted(parts.items()):
            for at in range(0, len(rows.records), CHUNK_ROWS):
                ingest.machines[0].tick(step - 1)
                block, _ = ingest.take(_raw(rows.records[at : at + CHUNK_ROWS], first=ingest.machines[0].next_offset))
                assert block is not None, "it holds rows"
                if block.counts.get(Reason.ACCEPTED.name):
                    return
                tally.update(by_reason_and_field(block))
        for left_out in (Reason.DROPPED, Reason.OTHER_PART):  # a batch of such rows alone is one without rows
            del tally[left_out.name, ""]
        if taken := tally.total():
            advice = "; ".join(Taken.from_tally(tally, rows=taken, waiting=0, late=0).advice())
            raise BatchError(
                f"{self._called}: no row of the batch can be used: {advice}. Nothing was taken in or released. Fix: "
                "correct the configuration or the rows; to release the step without rows, call step()."
            )

    def _by_step(self, rows: BatchRows, *, first: int, until: int) -> tuple[dict[int, BatchRows], int]:
        """Return rows by their own step, from `first` to that before `until`, and how many are left. Rows that have no
        step go with the first one, which refuses them.
        """
        left = 0
        parts: dict[int, BatchRows] = {}
        for own, record, time in zip(self._steps(rows), *rows, strict=True):
            if own is not None and (own >= until or 0 <= own < first):
                left += 1
                continue
            part = parts.setdefault(first if own is None else max(own, first), BatchRows([], []))
            part.records.append(record)
            part.times.append(time)
        return parts, left

    def _steps(self, rows: BatchRows) -> list[int | None]:
        """Return the step of each row's own time; None where that cannot be read."""
        time = self._stream.time
        times = RowTimes(time.field, TimeParser(time.format, time.zone)).parse([{time.field: at} for at in rows.times])
        return steps_of(clock_of(self._stream), times)

    def _take(self, rows: BatchRows, *, close: bool, digest: str = "") -> Taken:
        """Take in rows; with `close` the next step is begun: everything that it will be computed of is in the journal.

        Args: digest: of the batch that the rows are of, where they are not all of it.
        """
        entry, step, [ingest] = self._journal.entry, self._stepper.step, self._job.machines
        blocks = list(entry.blocks)
        tally: Counter[tuple[str, str]] = Counter()
        waiting = 0
        for at in range(0, len(rows.records), CHUNK_ROWS):
            block, _ = self._job.take(_raw(rows.records[at : at + CHUNK_ROWS], first=ingest.next_offset))
            assert block is not None, "it holds rows"
            blocks.append(block.encode())
            tally.update(by_reason_and_field(block))
            waiting += sum(events.total for joins, events in block.steps.items() if joins > step)
        own = self._steps(rows)
        late = sum(0 <= each < step for each in own if each is not None)
        taken = Taken.from_tally(tally, rows=len(rows.records), waiting=waiting, late=late)
        snapshots = dict(entry.snapshots)
        if close:
            ingest.tick(step)
            if sum(map(len, blocks)) > SNAPSHOT_BYTES:
                snapshots |= {each.key.decode(): each.value for each in ingest.snapshots(sys.maxsize)}
            block, _ = self._job.seal()
            assert block is not None, "it closes a step"
            blocks.append(block.encode())
        total = self._open + taken
        open_steps = range(step + close, step + self._stream.time.max_ahead + 1)
        self._journal.commit(
            waiting=waiting_with(entry.waiting, rows, own, key=entry.key, open_steps=open_steps),
            blocks=tuple(blocks),
            snapshots=snapshots,
            batches={**entry.batches, digest or digest_of(rows): step} if rows.records else entry.batches,
            taken={"last": _plain(total), "open": _plain(Taken())} if close else {**entry.taken, "open": _plain(total)},
            **({"seed": self._seed(step), "begun": step + 1} if close else {}),
        )
        if not close:
            self._open = total
        if Seen(tally).much:
            warnings.warn(f"stream {self.name} refused many of the rows: see `taken`, and its advice()", stacklevel=4)
        return taken

    def _answer(self, taken: Taken) -> StepRelease:
        """Compute and commit the answer of the step that is begun; a repeated call after a failure gives the same."""
        entry = self._journal.entry
        candidate = self._stepper.compute(entry.seed)
        published = unframe_records(candidate.payload)
        alive = dict(entry.alive)
        for record in published:
            if record.channel == "synthetic" and record.value is None:
                alive.pop(record.key.decode(), None)
            elif record.channel == "synthetic" and record.value is not None:
                alive[record.key.decode()] = record.value
        floor = self._stepper.merge.floor
        encoded = candidate.encode()
        self._journal.commit(
            candidate=encoded.release,
            state=encoded.state.body,
            seed=b"",
            alive=alive,
            blocks=entry.blocks[floor - entry.first_block :],
            first_block=floor,
        )
        self._open = Taken()
        self._last = StepRelease.from_candidate(candidate, published, taken)
        return self._last

    def _finish(self) -> StepRelease:
        """Answer the step that was begun before an interrupt."""
        return self._answer(_taken(self._journal.entry.taken.get("last")))

    def _finish_and_refuse(self) -> NoReturn:
        done = self._finish()
        raise StepOrderError(
            f"{self._called}: step {done.step} had been begun when it was interrupted; it is now released, as "
            "`last`, and nothing else was done. Fix: look at `last`, then call again."
        )

    @property
    def _called(self) -> str:
        return f"stream {self.name}" + (f" of {self._journal.place}" if self._journal.place else "")

    @property
    def _caveat(self) -> str:
        return "" if self._insecure is None else INSECURE

    def _seed(self, step: int) -> bytes:
        if self._insecure is None:
            return fresh_seed()
        return repeated_seed(self._insecure, self.name, step)


def _raw(values: Sequence[bytes], *, first: int) -> list[RawRecord]:
    return [RawRecord(first + row, -1, None, value) for row, value in enumerate(values)]


def _plain(taken: Taken) -> dict[str, Any]:
    return {**asdict(taken), "refused": [[*key, rows] for key, rows in taken.refused.items()]}


def _taken(plain: Mapping[str, Any] | None) -> Taken:
    if plain is None:
        return Taken()
    return Taken(**{**plain, "refused": {(reason, name): rows for reason, name, rows in plain["refused"]}})
