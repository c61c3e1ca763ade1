"""One partition of a source whose users may lie anywhere: records in, copies on the partitions of their users out.

No Kafka, no clock. Where producers place records is then of no matter: ingest reads the copies, of which all of a user
lie on one partition, and checks it as it checks what producers place (`agents.protocol.ingest.events`). So the bound on
users rests on nothing here.

Of a split stream each part has copies of its own records, and of no others.

A copy is the record with one header more, its last: where in the source the record stands. It goes to the partition
that murmur2 gives its user. A record that ingest refuses whatever its place, because no user can be read of it, goes to
the partition of its offset. So neither depends on any other record, and copies of a source partition keep their order.

Life: `load`, `resume`; then `take`, and now and then `seal` -> one transaction with copies, progress and source offset.
The state runs ahead of what is committed, so after a failed transaction the machine is thrown away.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from agents.protocol.formats.contract import Headers
from agents.protocol.formats.reader import SourceRecord
from agents.protocol.ingest.snapshots import Snapshot
from agents.protocol.ingest.spec import Readings, SourceSpec
from agents.protocol.partitioner import partitions_of
from agents.protocol.userhash import IdBytes
from schemas.errors import GapError
from schemas.events import TICK_HEADER, Reason
from schemas.wire import Kind, decode, encode

_OFFSET = attrgetter("offset")
_USER = attrgetter("user")

PLACE_HEADER = "privstream-source"
"""Last header of a copy: partition and offset of its record in the source, as `b"3/1174"`."""
LOST_HEADER = "privstream-lost"
"""Last header of a record that stands for source records that were deleted before they were read: how many."""
_PLACE = re.compile(rb"(\d{1,10})/(\d{1,19})")
_LOST = re.compile(rb"\d{1,19}")

ELSEWHERE = -1
"""In place of the routed partition of a record that this stream has no event of."""
HOP_RECORDS = 50_000
HOP_BYTES = 8 << 20
"""Of one transaction, about: what waits is in memory."""
RECORD_BYTES = 64
"""What a record costs beside its key, headers and value, about."""
MOST_BESIDE_BYTES = 1 << 20
"""Of key and headers of a record: with those of a value it fits into the routed topic."""


class Copy(NamedTuple):
    """A record for the routed topic. `timestamp` is in milliseconds."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Hop:
    """What one transaction holds: all of it is committed, or nothing.

    Attributes:
        copies: routed partition -> records to append, in order.
        hi: source offset up to which they reach.
        progress: the same, for whoever comes next; beside contribution bounds, where nothing expires.
    """

    copies: Mapping[int, Sequence[Copy]]
    hi: int
    progress: Snapshot


class PartitionRoute:
    """The router of one source partition, as the module says.

    Attributes:
        next_offset: source offset from which to read on.
    """

    ticked = -1
    """It closes no step: ingest does, on routed partitions."""

    def __init__(self, spec: SourceSpec, partition: int, readings: Readings | None = None) -> None:
        self.spec = spec
        self.partition = partition
        self.next_offset = 0
        self.decoder = spec.decoder(readings)
        self.has_history = False
        self.pending = 0
        self._copies: dict[int, list[Copy]] = defaultdict(list)
        self._bytes = 0
        self._sealed = 0
        # A value that the topic takes, and ingest refuses as it refuses the larger one that it stands for.
        self._too_large = b" " * (spec.max_value_bytes + 1)

    @property
    def snapshot_keys(self) -> tuple[bytes, ...]:
        return (f"{self.spec.stream}/{self.partition}/route".encode(),)

    def load(self, snapshots: Sequence[bytes]) -> None:
        """Go on where the last committed transaction ended. Raises: WireError, GapError if it is another router's."""
        [progress] = snapshots
        header, _ = decode(Kind.ROUTE, progress)
        if (header["stream"], header["partition"]) != (self.spec.stream, self.partition):
            raise GapError(f"{self}: the progress of another router")
        self.next_offset, self.has_history = header["next"], True

    def __str__(self) -> str:
        return f"stream {self.spec.stream}, router of source partition {self.partition}"

    def resume(self, next_offset: int) -> None:
        """Read on from here."""
        self.advance(next_offset)
        self._sealed = self.next_offset

    def take(self, records: Sequence[SourceRecord]) -> None:
        """Take in the next records; missing offsets hold nothing. Raises: GapError if offsets go back."""
        if not records:
            return
        if records[0].offset < self.next_offset:
            raise GapError(f"{self}: records from offset {records[0].offset}, but {self.next_offset} comes next")
        copies = list(map(self._copy, records))
        kept = []
        for copy, home in zip(copies, self._homes(records), strict=True):
            closes = self._closes_steps(copy)
            if home == ELSEWHERE and not closes:
                continue
            for each in range(self.spec.partitions) if closes else (home,):
                self._copies[each].append(copy)
            kept.append(copy)
        self._count(kept)
        self.next_offset = records[-1].offset + 1

    def _homes(self, records: Sequence[SourceRecord]) -> list[int]:
        """Return the routed partition of each record; `ELSEWHERE` where all of its events are of another part."""
        offsets = np.fromiter(map(_OFFSET, records), np.int64, len(records))
        homes = offsets % self.spec.partitions
        events = self.decoder.unfold(records)
        decoded, reasons, _ = self.decoder.decode_unfolded(events)
        ids = IdBytes.from_ids(list(map(_USER, decoded)))
        of_users = partitions_of(ids, partitioner="murmur2", partitions=self.spec.partitions)
        # Several events of one record are of one user, or it is refused as a whole.
        of_events = np.fromiter(map(_OFFSET, events), np.int64, len(events))
        rows = np.searchsorted(offsets, of_events[reasons == 0][ids.usable])
        homes[rows] = of_users[ids.usable]
        if self.spec.part is not None:
            own = np.isin(offsets, of_events[reasons != Reason.OTHER_PART])
            homes[~own] = ELSEWHERE
        placed: list[int] = homes.tolist()
        return placed

    def _closes_steps(self, copy: Copy) -> bool:
        """Return whether it is a tick of a replay, which goes to all routed partitions."""
        return self.spec.replay and any(name == TICK_HEADER for name, _ in copy.headers[:-1])

    def _copy(self, record: SourceRecord) -> Copy:
        key, value, headers = record.key, record.value, record.headers
        place = (PLACE_HEADER, b"%d/%d" % (self.partition, record.offset))
        if headers or key is not None:
            if (beside := _bytes_beside(key, headers)) > MOST_BESIDE_BYTES:
                return Copy(None, self._too_large, record.timestamp, [place])
            self._bytes += beside
        if value is not None and len(value) >= len(self._too_large):
            value = self._too_large
        return Copy(key, value, record.timestamp, [*headers, place])

    def _count(self, copies: Sequence[Copy]) -> None:
        self.pending += len(copies)
        self._bytes += RECORD_BYTES * len(copies) + sum([len(value) for _, value, _, _ in copies if value])

    def advance(self, next_offset: int) -> None:
        """Pass over what is empty up to `next_offset`."""
        self.next_offset = max(self.next_offset, next_offset)

    def lose(self, next_offset: int) -> None:
        """Let ingest count, as offsets, what was there up to `next_offset` and was deleted before it was read."""
        self.pass_over(next_offset - self.next_offset)
        self.advance(next_offset)

    def pass_over(self, records: int) -> None:
        """Let ingest count records as lost."""
        if records > 0:
            lost = Copy(None, None, 0, [(LOST_HEADER, b"%d" % records)])
            self._copies[self.next_offset % self.spec.partitions].append(lost)
            self._count([lost])

    @property
    def room(self) -> int:
        """Records that still fit into the transaction; seal at 0."""
        return 0 if self._bytes >= HOP_BYTES else max(0, HOP_RECORDS - self.pending)

    def seal(self) -> Hop | None:
        """Return all that was taken since the last seal as one transaction; None where there was nothing."""
        if self.next_offset == self._sealed and not self._copies:
            return None
        copies, self._copies = self._copies, defaultdict(list)
        self.pending = self._bytes = 0
        self._sealed = self.next_offset
        header = {"stream": self.spec.stream, "partition": self.partition, "next": self.next_offset}
        [key] = self.snapshot_keys
        return Hop(copies, self.next_offset, Snapshot(key, encode(Kind.ROUTE, header, {})))


def _bytes_beside(key: bytes | None, headers: Headers) -> int:
    """Return the bytes of a record beside its value."""
    size = 0 if key is None else len(key)
    return size + sum(len(name) + len(value or b"") for name, value in headers) if headers else size


def place_of(headers: Headers) -> tuple[int, int] | None:
    """Return partition and offset in the source of a copy's record; None where nothing says it.

    >>> place_of([("trace", b"1"), (PLACE_HEADER, b"3/1174")])
    (3, 1174)
    """
    name, value = headers[-1] if headers else ("", None)
    found = _PLACE.fullmatch(value or b"") if name == PLACE_HEADER else None
    return None if found is None else (int(found[1]), int(found[2]))


def is_plain_copy(headers: Headers) -> bool:
    """Return whether these are the headers of the copy of a record that had none."""
    return len(headers) == 1 and headers[0][0] == PLACE_HEADER


def lost_records(headers: Headers) -> int | None:
    """Return how many lost records of the source a record stands for; None where it is a copy."""
    name, value = headers[-1] if headers else ("", None)
    return int(value or b"") if name == LOST_HEADER and _LOST.fullmatch(value or b"") else None
