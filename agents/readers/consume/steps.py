"""Whether what was read of a step is what its ledger entry names. Sans-IO, and the only judge of it.

An entry's `digest` is over the step's synthetic records and measurements as they were published, in their order; its
`chain` is over all entries so far. Any consumer can compute both. A step of which compaction has taken records cannot
be compared, nor can its measurements. Nothing is signed: a match says that topics and ledger agree, and only the
cluster's ACLs say who wrote them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from tempfile import SpooledTemporaryFile
from typing import IO, Literal

from schemas.releases import PublicRecord, frame_records

Verdict = Literal["waiting", "verified", "compacted", "differs"]
"""`compacted`: fewer records are in the topic than were published, as where withdrawn ones were cleaned away."""

IN_MEMORY = 4 << 20
"""Bytes of a step's records, of one topic, beyond which they wait for their digest in a temporary file."""
_READ = 1 << 20


class StepRecords:
    """The public records of a step, until its ledger entry can be compared with them.

    Attributes:
        synthetic: how many synthetic records and tombstones there are.
    """

    def __init__(self, records: Iterable[PublicRecord] = ()) -> None:
        self._framed: dict[str, IO[bytes]] = {}
        self.synthetic = 0
        for record in records:
            self.take(record)

    def take(self, record: PublicRecord) -> None:
        """In the order of its topic."""
        if record.channel not in self._framed:
            self._framed[record.channel] = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  closed by `close`
        self._framed[record.channel].write(frame_records([record]))
        self.synthetic += record.channel == "synthetic"

    def digest(self) -> str:
        """As `schemas.releases.sha256` of the framed records. Leaves each file at its end, where the next goes."""
        files = [self._framed[name] for name in ("synthetic", "measurements") if name in self._framed]
        total = hashlib.sha256(sum(file.tell() for file in files).to_bytes(8, "little"))
        for file in files:
            file.seek(0)
            while piece := file.read(_READ):
                total.update(piece)
        return total.hexdigest()

    def close(self) -> None:
        for file in self._framed.values():
            file.close()


def verdict(records: StepRecords, *, digest: str, published: int) -> Verdict:
    """Of a step of which all that is in the topics was read. Args: published: synthetic records and tombstones."""
    if records.synthetic < published:
        return "compacted"
    return "verified" if records.digest() == digest else "differs"
