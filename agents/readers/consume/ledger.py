"""The public ledger as a chain, and whether what was read of a step is what its entry names. Pure, without IO.

Each entry names the bytes of its step and the entry before it: its `digest` is over the step's synthetic records and
measurements as they were published, in their order; its `chain` is over all entries so far. Any consumer can compute
both. A step of which compaction has taken records cannot be compared, nor can its measurements. Nothing is signed: a
match says that topics and ledger agree, and only the cluster's ACLs say who wrote them.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Literal

import orjson

from schemas.errors import PrivstreamError, WireError
from schemas.ledger import LedgerEntry
from schemas.releases import GENESIS, PublicRecord, frame_records, link


class PublicRecordsError(PrivstreamError):
    """Public topics do not hold what their ledger says, or no longer hold it whole. Names steps and topics only."""


def entry_of(value: bytes, stream: str) -> tuple[LedgerEntry, bool]:
    """Return the entry that a record of a stream's ledger holds, and whether its chain is that of its words.

    Raises: PublicRecordsError if it is no entry.
    """
    try:
        entry = LedgerEntry.decode(value, stream)
        chain = link(entry.previous_chain, stream=stream, step=entry.step, digest=entry.digest, ledger=value)
    except WireError as error:
        raise PublicRecordsError(
            f"{error}. Fix: only the job may write to its public topics; look at who else can (privstream topics "
            "CONFIG --acls)."
        ) from None
    return entry, chain == entry.chain


class Ledger:
    """Entries in order of steps, each linked to the one before it."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.entries: list[LedgerEntry] = []

    def take(self, value: bytes) -> None:
        """Take in the next record of the topic. A copy of one that is known is passed over.

        Raises: PublicRecordsError if it is no entry of this stream, leaves a step out, or is not linked to the chain.
        """
        topic = f"{self.stream}.ledger"
        entry, linked = entry_of(value, self.stream)
        step = entry.step
        if step < len(self.entries) and entry.chain == self.entries[step].chain:
            return
        if step != len(self.entries):
            raise PublicRecordsError(
                f"topic {topic} goes on with step {step} where step {len(self.entries)} is due: entries are missing. "
                "Fix: the topic must keep one record for each step (cleanup.policy=compact, as privstream topics "
                "makes it)."
            )
        before = self.entries[-1].chain if self.entries else GENESIS
        if entry.previous_chain != before or not linked:
            raise PublicRecordsError(
                f"the entry of step {step} on topic {topic} is not linked to the chain: its words or those before it "
                "were changed. Fix: do not use these topics before you know who wrote to them."
            )
        self.entries.append(entry)

    @staticmethod
    def of(stream: str, values: Iterable[bytes]) -> Ledger:
        """Return the ledger of these records. Raises: PublicRecordsError."""
        ledger = Ledger(stream)
        for value in values:
            ledger.take(value)
        return ledger

    def at(self, wanted: str | None) -> LedgerEntry:
        """Return an entry. Raises: PublicRecordsError that says which steps there are.

        Args: wanted: the number of a step, or a time (ISO 8601), for the last step that ended by it; None: the last.
        """
        if not self.entries:
            raise PublicRecordsError(
                f"stream {self.stream} has published no step yet. Fix: wait for its first one (privstream status "
                "CONFIG)."
            )
        last = self.entries[-1]
        if wanted is None:
            return last
        if wanted.isascii() and wanted.isdigit():
            if int(wanted) > last.step:
                raise PublicRecordsError(
                    f"step {wanted} of stream {self.stream} is not public yet: the last one is {last.step} (until "
                    f"{last.ends.isoformat()}). Fix: name a step from 0 to {last.step}."
                )
            return self.entries[int(wanted)]
        return self.entries[self.step_ended(instant_of(wanted, self.entries[0].begins))]

    def step_ended(self, when: datetime.datetime) -> int:
        """Return the last step that ends at or before a time. Raises: PublicRecordsError where none has."""
        steps = [entry.step for entry in self.entries if entry.ends <= when]
        if not steps:
            raise PublicRecordsError(
                f"no step of stream {self.stream} has ended by {when.isoformat()}: step 0 ends at "
                f"{self.entries[0].ends.isoformat()}. Fix: name a later time, or a step."
            )
        return steps[-1]


def instant_of(text: str, like: datetime.datetime) -> datetime.datetime:
    """Return a time as a person writes it; without an offset it is UTC. Raises: PublicRecordsError."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise PublicRecordsError(
            f"{text!r} is neither a step nor a time. Fix: write the number of a step, or a time such as "
            "2026-01-31T00:00."
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=like.tzinfo)


Verdict = Literal["waiting", "verified", "compacted", "differs"]
"""`compacted`: fewer records are in the topic than were published, as where withdrawn ones were cleaned away."""

IN_MEMORY = 4 << 20
"""Bytes of a step's records, of one topic, beyond which they wait for their digest in a temporary file."""
_READ = 1 << 20


class StepRecords:
    """The public records of a step, `synthetic` of them records and tombstones, until its entry can be compared."""

    def __init__(self, records: Iterable[PublicRecord] = ()) -> None:
        self._framed: dict[str, IO[bytes]] = {}
        self.synthetic = 0
        for record in records:
            self.take(record)

    def take(self, record: PublicRecord) -> None:
        """Take in a record, in the order of its topic."""
        if record.channel not in self._framed:
            self._framed[record.channel] = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  closed by `close`
        self._framed[record.channel].write(frame_records([record]))
        self.synthetic += record.channel == "synthetic"

    def digest(self) -> str:
        """Return `schemas.releases.sha256` of the framed records. Each file is left at its end, where the next goes."""
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
    """Judge a step of which all was read that is in the topics. Args: published: synthetic records and tombstones."""
    if records.synthetic < published:
        return "compacted"
    return "verified" if records.digest() == digest else "differs"


@dataclass(slots=True)
class FoldedTable:
    """The synthetic records alive after the steps taken so far.

    Attributes:
        read: of a value of a synthetic record its fields (`RecordFormat.read`).
        rows: key -> (step that added it, its value). verified: steps whose bytes are those of the ledger's digest.
        compacted: steps of which the broker has deleted records that later ones replaced: not to be checked any more.
        measured: (step, measurement) in order, where they were asked for.
    """

    stream: str
    read: Callable[[bytes], Mapping[str, Any]] = orjson.loads
    rows: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    verified: int = 0
    compacted: list[int] = field(default_factory=list)
    measured: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)

    def take(self, entry: LedgerEntry, synthetic: Sequence[PublicRecord], measurements: Sequence[PublicRecord]) -> None:
        """Fold a step's records, each topic's in their order.

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
        """Raise PublicRecordsError where the table after `entry`, the last one taken, is not complete."""
        if len(self.rows) != entry.synthetic_records:
            raise PublicRecordsError(
                f"stream {self.stream}: the table of step {entry.step} is no longer there whole: {len(self.rows):,} "
                f"of its {entry.synthetic_records:,} records are. Kafka has compacted {self.stream}.synthetic since, "
                "which keeps the last record of each key. Fix: export a later step; to keep history, set "
                "min.cleanable.dirty.ratio=1 of the topic, which is then never compacted, or export each step while it "
                "is new."
            )

    def records(self) -> Iterable[tuple[str, int, Mapping[str, Any]]]:
        """Yield (synthetic id, step that added it, fields) of each row, in the order in which they were added."""
        for key, (step, value) in self.rows.items():
            yield key.decode(), step, self.read(value)
