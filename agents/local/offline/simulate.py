"""`simulate`: a configured stream over a file, without a broker. FOR THE OPERATOR: its output holds true values.

Rows become the records that a replay writes (`agents.protocol.replay`) and go through `LocalJob`, and
`HeldOutAudit` measures what came out; the same classes run in the job, which with the same insecure seed gives the same
bytes. In the folder steps.csv and report.html hold true values; the rest is as the job has it.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

import orjson

from agents.kafka.lifecycle.refusals import MUCH, OUTCOMES, percent
from agents.local.job import LocalIngest, LocalJob, planned
from agents.local.offline.files import FileError, RowFile, private_folder, rows_for
from agents.local.offline.seen import LEAST_USABLE, LOOKED_AT, RefusedRows, RowsSeen, how_to_read, replayed_from
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.held_out import HeldOutAudit
from agents.protocol.replay import clock_of, times_of
from agents.protocol.userhash import user_key
from agents.show.explain.words import promise, record_time
from agents.show.report import render_report
from agents.show.view import StepRow, expected_error, metrics_of, verdict, view_of
from engines.core.noise import fresh_seed, repeated_seed
from schemas.config import Config, Stream
from schemas.ledger import LedgerEntry
from schemas.releases import unframe_records
from schemas.steps import instant

FRAMES = 8
"""Largest number of steps in a report for which the engine shows a frame."""
INSECURE = "An insecure seed made the noise, so anybody can repeat and subtract it: nothing in this folder is private."


@dataclass(frozen=True, slots=True)
class Simulated:
    """Results of a simulation of one stream. All but `epsilon` and `records` are true values.

    Attributes:
        misfit: whether fewer than half of the rows are used, because of refusals or bounds.
        left_out: sentences about large losses by bounds and limits. counts: rows by `Reason` name.
        warning: a sentence if the noise is larger than all the data; else None.
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
    counts: Mapping[str, int]
    warning: str | None
    verdict: tuple[str, ...]


def simulate(
    config: Config,
    path: Path,
    out: Path,
    *,
    seed: int | None = None,
    overwrite: bool = False,
    stream: str | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> list[Simulated]:
    """Run one stream into `out`, or all streams of several one after another, each into a folder of its name.

    Args:
        seed: makes the run repeatable and insecure; None for noise of the operating system.
        overwrite: whether to replace an existing simulation in the folder.
        progress: told what is done at the moment, how much of it, and of how much (an estimate for CSV).
    Raises: FileError, ReplayError, ConfigError.
    """
    streams = [config.stream(stream)] if stream is not None else list(config.streams)
    files = [rows_for(path, each) for each in streams]
    summary = files[0].summary()
    if summary.rows == 0:
        raise FileError.empty(path)
    done = []
    for each, file in zip(streams, files, strict=True):
        driven = driven_by_ticks(each, file)
        folder = out if len(streams) == 1 else out / each.name
        with Simulation(driven, folder, source=file.path.name, seed=seed, overwrite=overwrite) as run:
            for rows in run.read(file, digest=summary.digest):
                progress(f"simulate {each.name}", rows, summary.rows)
            progress(f"draw the report of {each.name}", 0, 1)
            done.append(run.done())
            progress(f"draw the report of {each.name}", 1, 1)
    return done


class Simulation:
    """The simulation of one stream, which reads rows of a file and writes a folder of files about its steps."""

    def __init__(
        self, stream: Stream, folder: Path, *, source: str, seed: int | None = None, overwrite: bool = False
    ) -> None:
        """Prepare the simulation. Args: source: name of the file, for the report. Others: see `simulate`."""
        self.folder = folder
        self.stream = stream
        self.steps: list[StepRow] = []
        self.counts: Counter[str] = Counter()
        self._seed, self._overwrite = seed, overwrite
        self._caveats = [] if seed is None else [INSECURE]
        self._source = source
        self._clock = clock_of(stream)
        # Users are identified only within this run, so the key of their hash need not be kept.
        key = user_key(seed_of(stream, -1, seed), stream=stream.name)
        self._job = LocalJob(stream, key=key, caveat=" ".join(self._caveats))
        self._audit = HeldOutAudit(stream, 1)
        held_out = SourceSpec.held_out(stream, self._audit.evaluator.domain, partitions=1, rows=True)
        self._truth = LocalIngest(held_out, self._audit.fold)
        self._events: Counter[int] = Counter()
        self._synthetic_offset = 0
        self._rows_seen = RowsSeen(stream.time, mapping=self._job.spec.mapping)
        self._last_entry: LedgerEntry | None = None
        self._every = 1
        self._files = ExitStack()

    def __enter__(self) -> Self:
        """Create the folder and its files. Raises: FileError if it cannot be written, or holds a simulation."""
        if not self._overwrite and (self.folder / "steps.csv").exists():
            raise FileError(f"{self.folder}: holds a simulation already. Fix: name another folder, or say --overwrite.")
        with private_folder(self.folder):
            self._ledger = self._files.enter_context(self._open("ledger.jsonl"))
            self._table = csv.writer(self._files.enter_context(self._open("steps.csv")), lineterminator="\n")
        self._table.writerow(["step", "time", "events", "released_total", *self._audit.evaluator.metrics])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def read(self, file: RowFile, *, digest: str) -> Iterator[int]:
        """Ingest all rows and answer all steps; yield the number of rows read so far, from time to time.

        Raises: ReplayError for rows that are not sorted by time.
        """
        done = 0
        for records, rows in planned(self.stream, file.batches(), source=digest):
            block, letters = self._job.take_planned(records)
            if block is not None:
                self.counts.update(block.counts)
                self._rows_seen.take(records, block, letters)
                self._events.update({step: events.total for step, events in block.steps.items()})
            self._truth.take_planned(records)
            while self._job.stepper.closable:
                self._answer()
            done += rows
            yield done

    def _answer(self) -> None:
        step = self._job.stepper.step
        candidate = self._job.stepper.compute(seed_of(self.stream, step, self._seed))
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
        self.write(row, candidate.ledger)

    def write(self, row: StepRow, ledger: bytes) -> None:
        """Write an answered step; a step that is gathered has no errors yet."""
        self.steps.append(self._framed(row))
        metrics = [row.metrics.get(name, "") for name in self._audit.evaluator.metrics]
        self._table.writerow([row.step, row.start.isoformat(), row.events, row.released_total, *metrics])
        self._ledger.write(ledger.decode() + "\n")
        self._last_entry = LedgerEntry.decode(ledger, self.stream.name)

    def _framed(self, row: StepRow) -> StepRow:
        """Return a step with its frame; of more than `FRAMES` frames, every other one is dropped."""
        frame = view_of(self.stream).frame
        if frame is None or row.gathered or row.step % self._every:
            return row
        framed = [index for index, each in enumerate(self.steps) if each.frame is not None]
        if len(framed) >= FRAMES:
            self._every *= 2
            for index in framed:
                if self.steps[index].step % self._every:
                    self.steps[index] = replace(self.steps[index], frame=None)
            if row.step % self._every:
                return row
        return replace(row, frame=frame(self.stream, self._audit))

    def _write_alive(self) -> None:
        """Write the synthetic records alive after the last step, as a consumer of all records has them."""
        fields = (self.stream.time.field, *self.stream.record_fields)
        with self._open("synthetic.csv") as target:
            writer = csv.DictWriter(target, fields, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._audit.alive.values())

    def done(self) -> Simulated:
        """Write the synthetic records and the report."""
        stream, seen, steps, entry = self.stream, self._rows_seen, self.steps, self._last_entry
        last = steps[-1] if steps else None
        if last is not None:
            self._write_alive()
        judged = view_of(stream).judged(stream, self._audit, steps) if steps else ()
        said = verdict(stream, judged, metrics_of(stream), steps)
        warning, left_out = drowned(stream, steps), self._left_out()
        page = render_report(
            stream,
            steps,
            self._audit,
            source=self._source,
            judged=judged,
            verdict=said,
            drowned=warning,
            promise=promise(stream),
            record_time=record_time(stream),
            ledger=entry,
            rows={"used": self.counts["ACCEPTED"], **{said: self.counts[name] for name, said in OUTCOMES.items()}},
            refused=[each.cells for each in seen.refused],
            refused_much=seen.seen.sentence() if seen.seen.much else None,
            said_first=[*filter(None, [stream.privacy.epsilon_warning]), *left_out],
            caveats=self._caveats,
        )
        with self._open("report.html") as target:
            target.write(page)
        return Simulated(
            stream=stream.name,
            folder=self.folder,
            rows=seen.rows,
            events=self.counts["ACCEPTED"],
            steps=len(steps),
            records=len(self._audit.alive),
            epsilon=0.0 if entry is None else entry.epsilon_spent,
            metrics=dict(last.metrics) if last else {},
            refused=seen.refused,
            refused_share=seen.seen.share,
            misfit=self.counts["ACCEPTED"] + self.counts["REPEATED"] < LEAST_USABLE * seen.seen.records,
            left_out=tuple(left_out),
            counts=dict(self.counts),
            warning=warning,
            verdict=tuple(" ".join(filter(None, each)) for each in said),
        )

    def _left_out(self) -> list[str]:
        """Return sentences about large losses by bounds and limits, with advice."""
        rows, found = max(1, self._rows_seen.rows), []
        if (over := self.counts["OVER_BOUND"]) > LEAST_USABLE * rows:
            found.append(
                f"{percent(over / rows)} of the rows are over the bound of their user, max_contributions = "
                f"{self.stream.privacy.max_contributions}, and are left out. What to do: compare bounds with "
                "privstream tune, or let surplus say how many there were"
            )
        if (moved := self.counts["CLIPPED"]) > MUCH * rows:
            found.append(
                f"{percent(moved / rows)} of the rows have a value beyond a limit, which was moved there, in the truth "
                "that is compared with, too. What to do: write limits into [streams.domain] that values stay within"
            )
        return found

    def _open(self, name: str) -> TextIO:
        return (self.folder / name).open("w", encoding="utf-8", newline="")


def seed_of(stream: Stream, step: int, seed: int | None) -> bytes:
    """Return the seed of a step; with a seed of the run, the same as that of `run --insecure-seed`."""
    return fresh_seed() if seed is None else repeated_seed(seed, stream.name, step)


def drowned(stream: Stream, steps: Sequence[StepRow]) -> str | None:
    """Return a warning if the noise is larger than the true total of the last step; else None."""
    if not steps:
        return None
    released = sum(not row.gathered for row in steps)
    return expected_error(stream).drowned(steps[-1].true_total, releases=released)


def driven_by_ticks(stream: Stream, file: RowFile) -> Stream:
    """Return the stream with `clock = "replay"`; a stream that starts "now" starts with the time of the first row.

    Raises: FileError if the stream starts "now" and no row has a time.
    """
    if stream.time.start_us is not None:
        return replayed_from(stream, 0)
    first = next((at for rows in file.batches() for at in times_of(stream).parse(rows) if at is not None), None)
    if first is None:
        name = stream.time.field
        there = (row for rows in file.batches() for row in rows if isinstance(row, dict))
        written = [row.get(name) for row in islice(there, LOOKED_AT)]
        raise FileError(
            f'{file.path}: stream {stream.name}: no row has a time in {name} that reads as format = "'
            f'{stream.time.format}". Fix: {how_to_read(written, stream.time.format)}; or name another field.'
        )
    return replayed_from(stream, first)
