"""What a simulation leaves in its folder. steps.csv and report.html hold true values; the rest is as the job has it."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from agents.kafka.lifecycle.refusals import MUCH, percent
from agents.local.offline.rows.files import FileError
from agents.local.offline.rows.seen import LEAST_USABLE, RowsSeen
from agents.protocol.release.held_out import HeldOutAudit
from agents.show.explain.words import promise, record_time
from agents.show.report import StreamReport, render_report
from agents.show.view import StepRow, expected_error, metrics_of, verdict, view_of
from engines.core.registry import build_evaluator
from schemas.config import format_length
from schemas.ledger import LedgerEntry

if TYPE_CHECKING:
    from schemas.config import Stream

FRAMES = 8
"""Of a report: of so many steps at most the engine keeps what it shows over time."""


class Output:
    """The folder of one stream.

    Attributes:
        steps: the lines of steps.csv so far. counts: `Reason` name -> rows. rows_seen: those refused. ledger: its last
        entry. drowned: a sentence where noise is larger than all that the last step had. verdict: what the release is
        good for. Both are there after `finish`.
    """

    def __init__(
        self, folder: Path, stream: Stream, *, source: str, caveats: list[str], overwrite: bool = False
    ) -> None:
        self.folder = folder
        self._overwrite = overwrite
        self.stream = stream
        self.steps: list[StepRow] = []
        self.counts: Counter[str] = Counter()
        self.rows_seen = RowsSeen(stream.time)
        self.ledger: LedgerEntry | None = None
        self.drowned: str | None = None
        self.verdict: Sequence[tuple[str, str]] = ()
        self._every = 1
        self._source = source
        self._caveats = caveats
        self._metrics = build_evaluator(stream).metrics
        self._files = ExitStack()

    def __enter__(self) -> Self:
        """Raises: FileError where it may not be written, or holds a simulation already."""
        if not self._overwrite and (self.folder / "steps.csv").exists():
            raise FileError(f"{self.folder}: holds a simulation already. Fix: name another folder, or say --overwrite.")
        try:
            # True values: not for other users of the machine.
            (self.folder / "synthetic").mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise FileError(f"{self.folder}: {reason}. Fix: name a folder that this user may write to.") from None
        for old in self.folder.glob("synthetic/step-*.csv"):
            old.unlink()
        self._ledger = self._files.enter_context(self._open("ledger.jsonl"))
        self._table = self._files.enter_context(self._open("steps.csv"))
        self._line(["step", "time", "events", "released_total", *self._metrics])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def step(self, row: StepRow, ledger: bytes, audit: HeldOutAudit) -> None:
        """A step is answered; a step that gathers has no errors yet."""
        self.steps.append(self._framed(row, audit))
        metrics = [row.metrics.get(name, "") for name in self._metrics]
        self._line([row.step, row.start.isoformat(), row.events, row.released_total, *metrics])
        self._ledger.write(ledger.decode() + "\n")
        self.ledger = LedgerEntry.decode(ledger, self.stream.name)

    def _framed(self, row: StepRow, audit: HeldOutAudit) -> StepRow:
        """With what the engine keeps of it. How many steps come is not known: where they are many, each second goes."""
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
        return replace(row, frame=frame(self.stream, audit))

    def snapshot(self, step: int, audit: HeldOutAudit) -> None:
        """The synthetic records alive after `step`, as a consumer holds them who has read them all."""
        known = (self.stream.time.field, *self.stream.domain.fields)
        # An engine may say more of a record than raw events do: a standard error, an interval.
        fields = dict.fromkeys([*known, *(name for record in audit.alive.values() for name in record)])
        with self._open(f"synthetic/step-{step:06d}.csv") as target:
            writer = csv.DictWriter(target, list(fields), lineterminator="\n")
            writer.writeheader()
            writer.writerows(audit.alive.values())

    def finish(self, audit: HeldOutAudit) -> None:
        """Write the last snapshot and the report."""
        if self.steps:
            self.snapshot(self.steps[-1].step, audit)
        stream, show, metrics = self.stream, view_of(self.stream), metrics_of(self.stream)
        judged = show.judged(stream, audit, self.steps) if self.steps else ()
        self.verdict = verdict(stream, judged, metrics, self.steps)
        self.drowned = drowned(stream, self.steps)
        report = StreamReport(
            name=stream.name,
            engine=stream.engine,
            mode=stream.mode,
            source=self._source,
            verdict=self.verdict,
            judged=judged,
            promise=promise(stream),
            caveats=self._caveats,
            record_time=record_time(stream),
            step_length=format_length(stream.time.step),
            drowned=self.drowned,
            charged=f"one {stream.privacy.unit}" if stream.whole_unit else f"one {stream.contribution}",
            guarantee={} if self.ledger is None else self.ledger.as_json(),
            rows={
                "used": self.counts["ACCEPTED"],
                "of them moved to a limit": self.counts["CLIPPED"],
                "over the bound of their user": self.counts["OVER_BOUND"],
            },
            refused=[each.cells for each in self.rows_seen.refused],
            said_first=[*filter(None, [stream.privacy.epsilon_warning]), *self.left_out],
            refused_much=self.rows_seen.seen.sentence() if self.rows_seen.seen.much else None,
            steps=self.steps,
            alive=audit.evaluator.scope == "alive",
            events=show.events(stream),
            records=show.records(stream),
            metrics=metrics,
            terms=show.terms,
            sections=show.sections(stream, audit, self.steps) if self.steps else (),
        )
        with self._open("report.html") as target:
            target.write(render_report(report))

    @property
    def left_out(self) -> list[str]:
        """What bounds on users and limits of values took away, where it is much, and what to do."""
        rows, found = max(1, self.rows_seen.rows), []
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

    def _line(self, cells: list[Any]) -> None:
        csv.writer(self._table, lineterminator="\n").writerow(cells)


def drowned(stream: Stream, steps: Sequence[StepRow]) -> str | None:
    """A sentence where noise is larger than all that the last step had; None where it is not."""
    if not steps:
        return None
    released = sum(not row.gathered for row in steps)
    return expected_error(stream).drowned(steps[-1].true_total, releases=released)
