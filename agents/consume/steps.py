"""Whether what was read of a step is what its ledger entry names. Sans-IO, and the only judge of it.

An entry's `digest` is over the step's synthetic records and measurements as they were published, in their order; its
`chain` is over all entries so far. Any consumer can compute both. A step of which compaction has taken records cannot
be compared, nor can its measurements. Nothing is signed: a match says that topics and ledger agree, and only the
cluster's ACLs say who wrote them.

An earlier version could publish the first records of a step, and then all of it: the same bytes, see CHANGELOG.md. Of
records that are the same the last one counts: compaction may have taken those before it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Literal

from schemas.releases import PublicRecord, frame_records

Verdict = Literal["waiting", "verified", "compacted", "differs"]
"""`compacted`: fewer records are in the topic than were published, as where withdrawn ones were cleaned away."""

IN_MEMORY = 4 << 20
"""Bytes of a step's records, of one topic, beyond which they wait for their digest in a temporary file."""
_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class StepDigest:
    """Records of a step as they were read, or each of them once: their digest, and how many are synthetic."""

    digest: str
    synthetic: int


class StepRecords:
    """The public records of a step, until its ledger entry can be compared with them."""

    def __init__(self, records: Iterable[PublicRecord] = ()) -> None:
        self._runs: dict[str, _FramedBytes] = {}
        self._read: StepDigest | None = None
        self._once: StepDigest | None = None
        self._known: dict[str, frozenset[bytes]] = {}
        for record in records:
            self.take(record)

    def take(self, record: PublicRecord) -> None:
        """In the order of its topic."""
        self._runs.setdefault(record.channel, _FramedBytes()).write(frame_records([record]))
        self._read = self._once = None
        self._known.clear()

    @property
    def synthetic(self) -> int:
        """Synthetic records and tombstones, with those that came again."""
        return len(self._runs["synthetic"].sizes) if "synthetic" in self._runs else 0

    def read(self) -> StepDigest:
        """As they were read."""
        if self._read is None:
            self._read = self._digested({name: run.whole() for name, run in self._runs.items()}, self.synthetic)
        return self._read

    def once(self) -> StepDigest:
        """Each of them once."""
        if self._once is None:
            kept = {name: run.last_ones() for name, run in self._runs.items()}
            self._once = self._digested(kept, kept["synthetic"].records if "synthetic" in kept else 0)
        return self._once

    def has(self, record: PublicRecord) -> bool:
        """Whether this very record is among them."""
        run = self._runs.get(record.channel)
        if run is None:
            return False
        if record.channel not in self._known:
            self._known[record.channel] = frozenset(map(_name, run.frames()))
        return _name(frame_records([record])) in self._known[record.channel]

    def _digested(self, runs: dict[str, _Framed], synthetic: int) -> StepDigest:
        """As `schemas.releases.sha256` of the framed records."""
        of = [runs[name] for name in ("synthetic", "measurements") if name in runs]
        total = hashlib.sha256(sum(run.size for run in of).to_bytes(8, "little"))
        for run in of:
            for piece in run.pieces:
                total.update(piece)
        return StepDigest(total.hexdigest(), synthetic)

    def close(self) -> None:
        for run in self._runs.values():
            run.close()


@dataclass(frozen=True, slots=True)
class _Framed:
    size: int
    records: int
    pieces: Iterable[bytes]


class _FramedBytes:
    """Framed records one behind the other: in memory, and beyond `IN_MEMORY` in a temporary file.

    Attributes:
        sizes: bytes of each.
    """

    def __init__(self) -> None:
        self.sizes = array("Q")
        self._size = 0
        self._memory = bytearray()
        self._file: IO[bytes] | None = None

    def write(self, frame: bytes) -> None:
        self.sizes.append(len(frame))
        self._size += len(frame)
        self._memory += frame
        if len(self._memory) > IN_MEMORY:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`
            self._file.seek(0, os.SEEK_END)
            self._file.write(self._memory)
            self._memory.clear()

    def whole(self) -> _Framed:
        return _Framed(self._size, len(self.sizes), self._pieces())

    def last_ones(self) -> _Framed:
        """Without records that come again."""
        kept = frozenset({_name(frame): at for at, frame in enumerate(self.frames())}.values())
        pieces = (frame for at, frame in enumerate(self.frames()) if at in kept)
        return _Framed(sum(self.sizes[at] for at in kept), len(kept), pieces)

    def frames(self) -> Iterator[bytes]:
        """Of each record."""
        read, at, pieces = b"", 0, self._pieces()
        for size in self.sizes:
            while len(read) - at < size:
                read, at = read[at:] + next(pieces), 0
            yield read[at : at + size]
            at += size

    def _pieces(self) -> Iterator[bytes]:
        if self._file is not None:
            self._file.seek(0)
            while piece := self._file.read(_READ):
                yield piece
        yield bytes(self._memory)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _name(frame: bytes) -> bytes:
    return hashlib.sha256(frame).digest()


def verdict(records: StepRecords, *, digest: str, published: int) -> Verdict:
    """Of a step of which all that is in the topics was read. Args: published: synthetic records and tombstones."""
    if records.synthetic < published:
        return "compacted"
    if records.read().digest == digest or records.once().digest == digest:
        return "verified"
    return "compacted" if records.once().synthetic < published else "differs"
