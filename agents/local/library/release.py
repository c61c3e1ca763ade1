"""The result of a step of the library: the release, which is public, and counts of its rows, which are private."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import orjson
import pyarrow as pa

from agents.kafka.lifecycle.refusals import REPORT_ROWS, WHAT_TO_DO
from agents.readers.consume.columns import table_of
from agents.show.text import number_of
from schemas.events import Reason
from schemas.ledger import LedgerEntry
from schemas.releases import Candidate, PublicRecord

_COUNTED = {
    "accepted": Reason.ACCEPTED.name,
    "over_bound": Reason.OVER_BOUND.name,
    "repeated": Reason.REPEATED.name,
    "clipped": Reason.CLIPPED.name,
    "ambiguous": Reason.AMBIGUOUS_TIME.name,
    "nonexistent": Reason.NONEXISTENT_TIME.name,
    "dropped": Reason.DROPPED.name,
    "of_others": Reason.OTHER_PART.name,
}
"""Counts of `Taken` by the reasons that are no refusal."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of the rows of a step. PRIVATE: true counts, for whoever may see the rows; never publish them.

    Attributes:
        rows: rows of the batch.
        accepted: rows that are part of a release.
        waiting: accepted rows that are part of a later release.
        over_bound: rows beyond the bound of their user.
        repeated: rows that repeat a key of their user, which counts once in a period.
        clipped: accepted rows with a value that was moved to a public limit.
        ambiguous: accepted rows with a local time that clocks showed twice; the earlier time counts.
        nonexistent: accepted rows with a local time that clocks skipped; it is read as if they had not skipped it.
        late: rows of steps that were already released; they join the open step.
        dropped: rows that `[streams.map]` leaves out.
        of_others: rows of other parts of a split stream.
        left: rows outside of the steps of `run`; they were not ingested.
        refused: unusable rows by (reason, column); the column is "" if the row as a whole is at fault.
    """

    rows: int = 0
    accepted: int = 0
    waiting: int = 0
    over_bound: int = 0
    repeated: int = 0
    clipped: int = 0
    ambiguous: int = 0
    nonexistent: int = 0
    late: int = 0
    dropped: int = 0
    of_others: int = 0
    left: int = 0
    refused: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @staticmethod
    def from_tally(tally: Counter[tuple[str, str]], *, rows: int, waiting: int, late: int) -> Taken:
        """Return the counts, given those by (reason, column)."""
        counted = _COUNTED.values()
        return Taken(
            rows=rows,
            waiting=waiting,
            late=late,
            refused={key: n for key, n in tally.most_common() if key[0] not in counted and n},
            **{count: tally[reason, ""] for count, reason in _COUNTED.items()},
        )

    def __add__(self, other: Taken) -> Taken:
        refused = Counter(dict(self.refused)) + Counter(dict(other.refused))
        counts = {name: getattr(self, name) + getattr(other, name) for name in self.__slots__ if name != "refused"}
        return Taken(**counts, refused=dict(refused.most_common()))

    def advice(self) -> tuple[str, ...]:
        """Return what to do about each reason, the most frequent first."""
        return tuple(
            f"{reason}{f' of {name}' if name else ''}, {rows:,} rows: {WHAT_TO_DO.get(reason, REPORT_ROWS)}"
            for (reason, name), rows in self.refused.items()
        )


@dataclass(frozen=True, slots=True)
class StepRelease:
    """The one answer of one step. Everything but `taken`, which its `repr` omits, is public.

    Attributes:
        step: number of the step, from 0.
        start, end: begin and end of the step.
        records: synthetic records that appear, with the column names of the batches; their time is the start of the
            step that each stands for, with `ttl`, `op` or `records = "released"` that of this one.
        ids: id of each of `records`.
        removed: ids of synthetic records that are withdrawn.
        measurements: measurements, with their variances.
        ledger: the ledger entry that the job would publish: digest, budget, guarantee, and a chain over all earlier
            steps.
        gathered: True while the engine gathers its first steps and releases no data; `epsilon_spent` includes the cost
            of a surplus.
        taken: what became of the rows. PRIVATE.
    """

    step: int
    start: datetime
    end: datetime
    records: Sequence[Mapping[str, Any]] = field(repr=False)
    ids: Sequence[str] = field(repr=False)
    removed: Sequence[str] = field(repr=False)
    measurements: Sequence[Mapping[str, Any]] = field(repr=False)
    ledger: Mapping[str, Any] = field(repr=False)
    gathered: bool
    taken: Taken = field(repr=False)

    @staticmethod
    def from_candidate(answer: Candidate, published: Sequence[PublicRecord], taken: Taken) -> StepRelease:
        """Return the release in the public bytes of an answer."""
        ledger = LedgerEntry.decode(answer.ledger, answer.stream)
        ids, records, removed, measurements = [], [], [], []
        for record in published:
            if record.channel == "measurements":
                measurements.append(orjson.loads(record.value or b"null"))
            elif record.value is None:
                removed.append(record.key.decode())
            else:
                ids.append(record.key.decode())
                records.append(orjson.loads(record.value))
        return StepRelease(
            step=ledger.step,
            start=ledger.begins,
            end=ledger.ends,
            records=records,
            ids=ids,
            removed=removed,
            measurements=measurements,
            ledger=ledger.as_json(),
            gathered=ledger.gathered,
            taken=taken,
        )

    @property
    def epsilon_spent(self) -> float:
        """Largest privacy loss of a user over this step and all before it."""
        return float(self.ledger["epsilon_spent"])

    def to_arrow(self) -> pa.Table:
        """Return `records` as an Arrow table."""
        return table_of(self.records)

    def to_pandas(self) -> Any:
        """Return `records` as a pandas DataFrame. Needs pandas."""
        return self.to_arrow().to_pandas()

    def __str__(self) -> str:
        length = self.end - self.start
        when = self.start.isoformat(" ", "seconds" if length >= timedelta(seconds=1) else "auto")
        if self.gathered:
            paid = f"; epsilon spent {self.epsilon_spent:g}" if self.epsilon_spent else ""
            return f"step {self.step}, from {when}: gathered, no data is released yet{paid}"
        return (
            f"step {self.step}, from {when}: {number_of(len(self.records), 'synthetic record')} came, "
            f"{len(self.removed):,} went, {number_of(len(self.measurements), 'measurement')}; "
            f"epsilon spent {self.epsilon_spent:g}"
        )

    __repr__ = __str__
