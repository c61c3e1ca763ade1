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
"""Bytes of a step's records, of one topic, beyond which they wait for their digest in a temporary file."""
_READ = 1 << 20


class StepRecords:
    """The public records of a step, until its ledger entry can be compared with them."""

    def __init__(self) -> None:
        self.synthetic = 0
        self._digest: str | None = None
        self._runs: dict[str, _FramedBytes] = {}

    def take(self, record: PublicRecord) -> None:
        """In the order of its topic."""
        self._runs.setdefault(record.channel, _FramedBytes()).write(frame_records([record]))
        self._digest = None
        self.synthetic += record.channel == "synthetic"

    def digest(self) -> str:
        """As `schemas.releases.sha256` of the framed records."""
        if self._digest is None:
            runs = [self._runs[name] for name in ("synthetic", "measurements") if name in self._runs]
            total = hashlib.sha256(sum(run.size for run in runs).to_bytes(8, "little"))
            for run in runs:
                run.into(total)
            self._digest = total.hexdigest()
        return self._digest

    def close(self) -> None:
        for run in self._runs.values():
            run.close()


class _FramedBytes:
    """Bytes one behind the other: in memory, and beyond `IN_MEMORY` in a temporary file."""

    def __init__(self) -> None:
        self.size = 0
        self._memory = bytearray()
        self._file: IO[bytes] | None = None

    def write(self, data: bytes) -> None:
        self.size += len(data)
        self._memory += data
        if len(self._memory) > IN_MEMORY:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`
            self._file.write(self._memory)
            self._memory.clear()

    def into(self, total: hashlib._Hash) -> None:
        if self._file is not None:
            self._file.seek(0)
            while piece := self._file.read(_READ):
                total.update(piece)
        total.update(self._memory)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def verdict(records: StepRecords, *, digest: str, published: int) -> Verdict:
    """Of a step of which all that is in the topics was read. Args: published: synthetic records and tombstones."""
    if records.synthetic < published:
        return "compacted"
    return "verified" if records.digest() == digest else "differs"
