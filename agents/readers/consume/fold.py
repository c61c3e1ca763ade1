"""Adds and tombstones folded into a table, step by step, each step checked against the ledger's digest.

Pure and sans-IO: whoever reads the topics hands over one step at a time, in order. `agents.readers.consume.steps`
judges each; of one of which compaction has taken records only the number of rows is checked, which does not tell a
changed record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from agents.readers.consume.entries import PublicRecordsError
from agents.readers.consume.steps import StepRecords, verdict
from schemas.ledger import LedgerEntry
from schemas.releases import PublicRecord


@dataclass(slots=True)
class FoldedTable:
    """The synthetic records alive after the steps taken so far.

    Attributes:
        rows: key -> (step that added it, its JSON). verified: steps whose bytes are those of the ledger's digest.
        compacted: steps of which the broker has deleted records that later ones replaced: not to be checked any more.
    """

    stream: str
    rows: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    verified: int = 0
    compacted: list[int] = field(default_factory=list)

    def take(self, entry: LedgerEntry, synthetic: Sequence[PublicRecord], measurements: Sequence[PublicRecord]) -> None:
        """A step's records, each topic's in their order.

        Raises: PublicRecordsError where they are not those that the ledger names.
        """
        records = StepRecords([*synthetic, *measurements])
        found = verdict(records, digest=entry.digest, published=entry.records)
        records.close()
        if found == "verified":
            self.verified += 1
        elif found == "compacted":
            self.compacted.append(entry.step)
        else:
            raise PublicRecordsError(
                f"stream {self.stream}: the records of step {entry.step} are not those of its ledger entry: the "
                f"digest of {self.stream}.synthetic and {self.stream}.measurements differs. Fix: do not use them; find "
                "out who else may write to these topics (privstream topics CONFIG --acls), and whether measurements "
                "were deleted."
            )
        for record in synthetic:
            if record.value is None:
                self.rows.pop(record.key, None)
            else:
                self.rows[record.key] = (entry.step, record.value)

    def whole(self, entry: LedgerEntry) -> None:
        """That the table after `entry`, the last one taken, is complete. Raises: PublicRecordsError where it is not."""
        if len(self.rows) != entry.synthetic_records:
            raise PublicRecordsError(
                f"stream {self.stream}: the table of step {entry.step} is no longer there whole: {len(self.rows):,} "
                f"of its {entry.synthetic_records:,} records are. Kafka has compacted {self.stream}.synthetic since, "
                "which keeps the last record of each key. Fix: export a later step; to keep history, set "
                "min.cleanable.dirty.ratio=1 of the topic, which is then never compacted, or export each step while it "
                "is new."
            )

    def records(self) -> Iterable[tuple[str, int, Mapping[str, Any]]]:
        """(synthetic id, step that added it, fields) of each row, in the order in which they were added."""
        for key, (step, value) in self.rows.items():
            yield key.decode(), step, orjson.loads(value)
