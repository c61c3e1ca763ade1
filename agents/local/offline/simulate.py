"""`simulate`: a configured stream over a file, without a broker. FOR THE OPERATOR: its output holds true values.

Nothing here is its own: rows become the records that a replay writes (`replay_plan`), go through `PartitionIngest` and
`Stepper`, and `HeldOutAudit` measures what came out; the same classes run in the job, which with the same insecure
seed gives the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agents.local.offline.rows.columns import rows_for
from agents.local.offline.rows.files import FileError, RowFile
from agents.local.offline.rows.lines import Row
from agents.local.offline.rows.seen import LEAST_USABLE, RefusedRows, read_back
from agents.local.offline.rows.times import LOOKED_AT, how_to_read
from agents.local.offline.simulate_output import Output
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.held_out import HeldOutAudit
from agents.protocol.release.public_records import instant
from agents.protocol.release.stepper import Stepper
from agents.protocol.replay import Planned, Progress, clock_of, plan_of, steps_of, times_of
from agents.protocol.userhash import user_key
from agents.show.view import StepRow
from engines.core.noise import fresh_seed, repeated_seed
from engines.core.registry import build_domain
from schemas.releases import unframe_records

if TYPE_CHECKING:
    from schemas.config import Config, Stream

BATCH_ROWS = 4096
INSECURE = "An insecure seed made the noise, so anybody can repeat and subtract it: nothing in this folder is private."
COUNTED = (
    "Steps were closed by the number of events (--steps-by-count): one more event moves others to another step, so NO "
    "guarantee holds. Times are nominal. The job itself never does this."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """How to simulate.

    Attributes:
        seed: repeats a run and makes it insecure; None draws from the operating system.
        overwrite: replace a simulation that is in the folder.
        snapshot_every: write the synthetic records alive after each so many steps; after the last step always.
        steps_by_count: close a step after each so many rows instead of by their times. Not private.
    """

    seed: int | None = None
    overwrite: bool = False
    snapshot_every: int | None = None
    steps_by_count: int | None = None

    @property
    def caveats(self) -> list[str]:
        """What takes the guarantee away, in sentences."""
        seed = [INSECURE] if self.seed is not None else []
        return seed + ([COUNTED] if self.steps_by_count is not None else [])


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulation of one stream did. True values, but for `epsilon` and `records`.

    Attributes:
        refused: rows that could not be used, the most frequent reason first. misfit: fewer than half are used, because
            of them or of bounds on users. left_out: much that bounds and limits took from what is used, in sentences.
        over_bound: rows beyond their user's bound. clipped: rows that were used with a value moved to its limit.
        warning: where noise is larger than all that there is. verdict: what the release is good for, in sentences.
    """

    stream: str
    folder: Path
    rows: int
    events: int
    steps: int
    records: int
    epsilon: float
    metrics: dict[str, float]
    refused: tuple[RefusedRows, ...]
    refused_share: float
    misfit: bool
    left_out: tuple[str, ...]
    over_bound: int
    clipped: int
    warning: str | None
    verdict: tuple[str, ...]


def simulate(
    config: Config,
    path: Path,
    out: Path,
    options: SimulateOptions,
    *,
    stream: str | None = None,
    begun: Callable[[int], None] = lambda rows: None,
    progress: Callable[[int], None] = lambda rows: None,
    now: Callable[[str], None] = lambda what: None,
) -> list[Simulated]:
    """Run one stream into `out`, or all streams of several one after another, each into a folder of its name.

    Args:
        begun: told once how many rows there are to read, for all streams together.
        progress: told the rows that were read since it was last called. now: what is done at the moment.
    Raises: FileError, ReplayError, ConfigError.
    """
    streams = [config.stream(stream)] if stream is not None else list(config.streams)
    files = [rows_for(path, each, timed=options.steps_by_count is None) for each in streams]
    summary = files[0].summary()
    if summary.rows == 0:
        raise FileError.empty(path)
    begun(summary.rows * len(streams))
    done = []
    for each, file in zip(streams, files, strict=True):
        driven = driven_by_ticks(each, file, counted=options.steps_by_count is not None)
        folder = out if len(streams) == 1 else out / each.name
        with Output(
            folder, driven, source=file.path.name, caveats=options.caveats, overwrite=options.overwrite
        ) as output:
            run = Simulation(driven, output, options)
            now(f"simulate {each.name}")
            run.read(_parts(driven, file, options), source=summary.digest, progress=progress)
            now(f"drawing the report of {each.name}")
            done.append(run.done())
    return done


class Simulation:
    """One stream: planned records in, steps out."""

    def __init__(self, stream: Stream, output: Output, options: SimulateOptions) -> None:
        self.stream = stream
        self._output = output
        self._options = options
        self._clock = clock_of(stream)
        self._stepper = Stepper.of(stream, 1, caveat=" ".join(options.caveats))
        self._audit = HeldOutAudit(stream, 1)
        # Users are told apart within this run only, so the key of their hash is thrown away with it.
        key = user_key(self._seed(-1), stream=stream.name)
        self._ingest = PartitionIngest(SourceSpec.of(stream, build_domain(stream), key=key, partitions=1, rows=True), 0)
        self._truth = PartitionIngest(
            SourceSpec.held_out(stream, self._audit.evaluator.domain, partitions=1, rows=True), 0
        )
        self._events: Counter[int] = Counter()
        self._synthetic_offset = 0
        self._rows = 0

    def read(self, parts: Iterator[list[Row]], *, source: str, progress: Callable[[int], None]) -> None:
        """Take in every row, and answer every step. Raises: ReplayError for rows that are not sorted by time."""
        for records, rows in planned(self.stream, parts, source=source):
            self._take(records)
            self._rows += rows
            progress(rows)

    def done(self) -> Simulated:
        """Write the last snapshot and the report."""
        output = self._output
        output.finish(self._audit)
        last = output.steps[-1] if output.steps else None
        return Simulated(
            stream=self.stream.name,
            folder=output.folder,
            rows=self._rows,
            events=output.counts["ACCEPTED"],
            steps=len(output.steps),
            records=last.released_total if last else 0,
            epsilon=0.0 if output.ledger is None else output.ledger.epsilon_spent,
            metrics=dict(last.metrics) if last else {},
            refused=output.rows_seen.refused,
            refused_share=output.rows_seen.seen.share,
            misfit=output.counts["ACCEPTED"] < LEAST_USABLE * self._rows,
            left_out=tuple(output.left_out),
            over_bound=output.counts["OVER_BOUND"],
            clipped=output.counts["CLIPPED"],
            warning=output.drowned,
            verdict=tuple(" ".join(filter(None, said)) for said in output.verdict),
        )

    def _take(self, records: Sequence[Planned]) -> None:
        self._fold(self._ingest, self._stepper, records)
        self._fold(self._truth, self._audit, records)
        while self._stepper.closable:
            self._answer()

    def _fold(self, ingest: PartitionIngest, into: Stepper | HeldOutAudit, records: Sequence[Planned]) -> None:
        """What ingest does with the next records of the one partition, up to the block's way through Kafka."""
        ingest.take(read_back(records, first=ingest.next_offset))
        block, letters = ingest.seal()
        if block is None:
            return
        offset = into.merge.position
        ingest.committed(at=offset)
        into.fold(offset, block)
        if ingest is self._ingest:
            self._output.counts.update(block.counts)
            self._output.rows_seen.take(records, block, letters)
            self._events.update({step: events.total for step, events in block.steps.items()})

    def _answer(self) -> None:
        step = self._stepper.step
        candidate = self._stepper.compute(self._seed(step))
        for record in unframe_records(candidate.payload):
            if record.channel == "synthetic":
                self._audit.on_synthetic(self._synthetic_offset, step, record.key, record.value)
                self._synthetic_offset += 1
        self._audit.on_ledger(candidate.ledger)
        utility = orjson.loads(self._audit.measure())
        row = StepRow(
            step=step,
            start=instant(self._clock.start_of(step)).astimezone(self.stream.time.zone),
            events=self._events.pop(step, 0),
            released_total=utility["synthetic_points"],
            metrics=utility["metrics"],
            true_total=self._audit.evaluator.size(self._audit.truth),
            gathered=utility["gathered"],
        )
        self._output.step(row, candidate.ledger, self._audit)
        every = self._options.snapshot_every
        if every is not None and (step + 1) % every == 0:
            self._output.snapshot(step, self._audit)

    def _seed(self, step: int) -> bytes:
        """The seed that the job draws: with `run --insecure-seed N` the very same."""
        if self._options.seed is None:
            return fresh_seed()
        return repeated_seed(self._options.seed, self.stream.name, step)


def planned(stream: Stream, parts: Iterable[list[Row]], *, source: str) -> Iterator[tuple[Sequence[Planned], int]]:
    """Records as a replay writes them to a source of one partition, with the number of rows that each part of them has.

    Raises: ReplayError for rows that are not sorted by time.
    """
    clock, times = clock_of(stream), times_of(stream)
    plan = plan_of(stream, {stream.source: 1}, Progress(source=source), written=False)
    for rows in parts:
        yield plan.chunk(rows, steps_of(clock, times.of(rows))).records[stream.source, 0], len(rows)
    yield plan.finish().records[stream.source, 0], 0


def _parts(stream: Stream, file: RowFile, options: SimulateOptions) -> Iterator[list[Row]]:
    """Batches of rows."""
    number = 0
    clock = clock_of(stream)
    for rows in file.batches(batch_rows=BATCH_ROWS):
        if options.steps_by_count is not None:
            for row in rows:
                if isinstance(row, dict):
                    row[stream.time.field] = clock.start_of(number // options.steps_by_count)
                number += 1
        yield rows


def driven_by_ticks(stream: Stream, file: RowFile, *, counted: bool = False) -> Stream:
    """The stream with its clock in the file's rows; one that starts "now" starts with the first row's second.

    Args:
        counted: the rows' times are nominal, see `SimulateOptions.steps_by_count`.
    Raises: FileError where no row has a time to start with.
    """
    changes: dict[str, Any] = {"clock": "replay"}
    if counted:
        changes["format"] = "us"
    if stream.time.start_us is None:
        first = next((at for rows in file.batches() for at in times_of(stream).of(rows) if at is not None), None)
        if first is None:
            name = stream.time.field
            there = (row for rows in file.batches() for row in rows if isinstance(row, dict))
            written = [row.get(name) for row in islice(there, LOOKED_AT)]
            raise FileError(
                f'{file.path}: stream {stream.name}: no row has a time in {name} that reads as format = "'
                f'{stream.time.format}". Fix: {how_to_read(written, stream.time.format)}; or name another field.'
            )
        changes["start"] = stream.time.started_at(instant(first).astimezone(stream.time.zone))
    return stream.model_copy(update={"time": stream.time.model_copy(update=changes)})
