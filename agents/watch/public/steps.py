"""Whether what was read of a step is what its ledger entry names. Sans-IO.

An entry's `digest` is over the step's synthetic records and measurements as they were published, in their order; its
`chain` is over all entries so far. Any consumer can compute both.
"""

from __future__ import annotations

import hashlib
import tempfile
from typing import IO, Literal

from schemas.releases import PublicRecord, frame_records

Verdict = Literal["waiting", "verified", "compacted", "differs"]
"""`compacted`: fewer records are in the topic than were published, as where withdrawn ones were cleaned away."""

IN_MEMORY = 4 << 20
"""Bytes of a step's records beyond which they are kept in a temporary file until their digest is known."""
_READ = 1 << 20


class StepRecords:
    """The public records of a step, until its ledger entry can be compared with them."""

    def __init__(self) -> None:
        self.synthetic = 0
        self._digest: str | None = None
        self._files: dict[str, IO[bytes]] = {}

    def take(self, record: PublicRecord) -> None:
        """In the order of its topic."""
        if record.channel not in self._files:
            self._files[record.channel] = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115
        self._files[record.channel].write(frame_records([record]))
        self._digest = None
        self.synthetic += record.channel == "synthetic"

    def digest(self) -> str:
        """As `schemas.releases.sha256` of the framed records."""
        if self._digest is not None:
            return self._digest
        size, total = 0, hashlib.sha256()
        parts = [self._files[name] for name in ("synthetic", "measurements") if name in self._files]
        for part in parts:
            size += part.tell()
        total.update(size.to_bytes(8, "little"))
        for part in parts:
            part.seek(0)
            while piece := part.read(_READ):
                total.update(piece)
        self._digest = total.hexdigest()
        return self._digest

    def close(self) -> None:
        for part in self._files.values():
            part.close()


def verdict(records: StepRecords, *, digest: str, published: int) -> Verdict:
    """Of a step of which all that is in the topics was read. Args: published: synthetic records and tombstones."""
    if records.synthetic < published:
        return "compacted"
    return "verified" if records.digest() == digest else "differs"
