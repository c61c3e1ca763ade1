"""The pure filters: what can be said of an event without looking at any other.

In the order of `Reason`, the first that applies is the one reported. They run before the bound, so that a refused
record charges nobody.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agents.protocol.ingest.decode import EventFields
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.partitioner import OTHER, Hashing, partitions_of
from agents.protocol.userhash import KEY_BYTES, IdBytes, UserHash
from engines.core.contract import ClippingDomain, Columns, FaultNamingDomain, PairDomain
from schemas.arrays import IntArray, KeyArray, ReasonArray
from schemas.events import Reason

OPERATIONS = {"insert": 1, "delete": -1}
PLACED_BY: Mapping[Hashing, Reason] = {"murmur2": Reason.PLACED_BY_MURMUR2, "crc32": Reason.PLACED_BY_CRC32}


class RawRecord(NamedTuple):
    """A record of a source topic, where it does not come from aiokafka. `timestamp` is in milliseconds, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Filtered:
    """What the filters say of each event: `reasons` (0 = passed), and what means something only where it passed.

    `doubts` are those of times (`Times`). `clipped` is for domains that move values to their limits; None for those
    that refuse them. `at_fault` is by row the field that the domain refused, or cannot use. `beside` is what is counted
    beside records. `parts` are hashes of what the events are parts of, trips or pairs of user and key; None where each
    is a contribution by itself.
    """

    reasons: ReasonArray
    keys: KeyArray
    steps: IntArray
    hashes: npt.NDArray[np.uint64] | None
    doubts: ReasonArray
    clipped: npt.NDArray[np.bool_] | None = None
    parts: npt.NDArray[np.uint64] | None = None
    at_fault: dict[int, str] = dataclass_field(default_factory=dict)
    beside: dict[Reason, int] = dataclass_field(default_factory=dict)


class PureFilter:
    def __init__(self, spec: SourceSpec, partition: int) -> None:
        self._spec = spec
        self._partition = partition
        self._times = spec.time_parser()
        # To ask a protocol whether an object has it looks at each of its methods.
        self._clips = spec.domain if isinstance(spec.domain, ClippingDomain) else None

    @cached_property
    def _user_hash(self) -> UserHash:
        return UserHash(self._key)

    @cached_property
    def _trip_hash(self) -> UserHash:
        return self._hash_of(b"trip")

    @cached_property
    def _pair_hash(self) -> UserHash:
        return self._hash_of(b"pair")

    def _hash_of(self, kind: bytes) -> UserHash:
        """Return a hash under a key of its own, so that two hashes together are like a hash of both."""
        return UserHash(hmac.digest(self._key, kind, "sha256")[:KEY_BYTES])

    @property
    def _key(self) -> bytes:
        return self._spec.key or bytes(KEY_BYTES)

    def run(self, events: list[Any], ticked: IntArray, arrivals_us: IntArray | None) -> Filtered:
        """Filter and encode decoded events.

        Args:
            ticked: last closed step before each event.
            arrivals_us: Kafka timestamps, see `StepClock.assign`.
        """
        count = len(events)
        reasons = np.zeros(count, np.uint8)
        beside: dict[Reason, int] = {}
        hashes = None if self._spec.key is None else self._users(events, reasons, beside)
        at_fault: dict[int, str] = {}
        trips = None if self._spec.fields.trip is None else self._trips(events, reasons, hashes, at_fault)
        times, readable, doubts = self._times.parse(list(map(attrgetter("time"), events)))
        _mark(reasons, Reason.BAD_TIME, ~readable)
        steps, step_reasons = self._spec.clock.assign(times, ticked=ticked, arrivals_us=arrivals_us)
        _fill(reasons, step_reasons)
        operations = self._operations(events)
        columns, domain = self._columns(events, operations), self._spec.domain
        keys, domain_reasons = domain.encode(columns)
        at_fault |= self._at_fault(columns, np.flatnonzero((reasons == 0) & (domain_reasons != 0)))
        _fill(reasons, domain_reasons)
        _mark(reasons, Reason.BAD_OPERATION, operations == 0)
        clipped = None if self._clips is None else self._clips.clipped(columns)
        if trips is not None:
            filled = self._spec.filled
            keys[:, list(filled.trip)] = trips
            # Ascending as unsigned numbers, also before 1970.
            keys[:, filled.time] = times.view(np.uint64) ^ np.uint64(1 << 63)
        parts = self._pairs(hashes, keys) if self._spec.bounds is not None and self._spec.bounds.pairs else trips
        return Filtered(reasons, keys, steps, hashes, doubts, clipped, parts, at_fault, beside)

    def _at_fault(self, columns: Columns, rows: IntArray) -> dict[int, str]:
        if len(rows) == 0:
            return {}
        domain, places = self._spec.domain, rows.tolist()
        if not isinstance(domain, FaultNamingDomain):
            every = " and ".join((*domain.number_fields, *domain.text_fields, *domain.value_fields))
            return dict.fromkeys(places, every)
        refused = Columns(
            {name: numbers[rows] for name, numbers in columns.numbers.items()},
            {name: [texts[row] for row in places] for name, texts in columns.texts.items()},
            columns.operations[rows],
            {name: [values[row] for row in places] for name, values in columns.values.items()},
        )
        return dict(zip(places, domain.at_fault(refused), strict=True))

    def _users(self, events: list[Any], reasons: ReasonArray, beside: dict[Reason, int]) -> npt.NDArray[np.uint64]:
        spec = self._spec
        assert spec.partitioner is not None
        ids = IdBytes.from_ids(list(map(attrgetter("user"), events)))
        _mark(reasons, Reason.BAD_USER, ~ids.usable)
        homes = partitions_of(ids, partitioner=spec.partitioner, partitions=spec.partitions)
        _mark(reasons, Reason.WRONG_PARTITION, homes != self._partition)
        if (misplaced := np.flatnonzero(reasons == Reason.WRONG_PARTITION).tolist()) and spec.partitioner != "none":
            other = OTHER[spec.partitioner]
            theirs = IdBytes.from_ids([events[row].user for row in misplaced])
            elsewhere = partitions_of(theirs, partitioner=other, partitions=spec.partitions)
            beside[PLACED_BY[other]] = int((elsewhere == self._partition).sum())
        return self._user_hash.of_ids(ids)

    def _trips(
        self,
        events: list[Any],
        reasons: ReasonArray,
        users: npt.NDArray[np.uint64] | None,
        at_fault: dict[int, str],
    ) -> npt.NDArray[np.uint64]:
        """Hash user and trip; the trip alone where users are not told apart, for the operator's truth."""
        ids = IdBytes.from_ids(list(map(attrgetter("trip"), events)))
        assert self._spec.fields.trip is not None
        unusable = np.flatnonzero(~ids.usable & (reasons == 0)).tolist()
        at_fault.update(dict.fromkeys(unusable, self._spec.fields.trip))
        _mark(reasons, Reason.WRONG_TYPE, ~ids.usable)
        trips = self._trip_hash.of_ids(ids)
        if users is not None:
            trips ^= users
        trips[trips[:, 0] == 0, 0] = 1
        return trips

    def _pairs(self, users: npt.NDArray[np.uint64] | None, keys: KeyArray) -> npt.NDArray[np.uint64]:
        """Hash user and key, the key as the domain encodes it: texts that it reads as one are one."""
        assert users is not None, "where pairs are bounded users are told apart"
        domain = self._spec.domain
        words = domain.pairs(keys) if isinstance(domain, PairDomain) else keys
        return self._pair_hash.of_rows(np.concatenate((users, words), axis=1))

    def _operations(self, events: list[Any]) -> npt.NDArray[np.int8]:
        """Return +1, -1, or 0 for a text that is neither."""
        if self._spec.fields.operation is None:
            return np.ones(len(events), np.int8)
        return np.fromiter(
            map(OPERATIONS.get, map(attrgetter("operation"), events), repeat(0)),
            np.int8,
            len(events),
        )

    def _columns(self, events: list[Any], operations: npt.NDArray[np.int8]) -> Columns:
        fields = self._spec.fields
        numbers = {
            name: np.fromiter(map(attrgetter(f"number{index}"), events), np.float64, len(events))
            for index, name in enumerate(fields.numbers)
        }
        texts = {name: list(map(attrgetter(f"text{index}"), events)) for index, name in enumerate(fields.texts)}
        values = {name: list(map(attrgetter(f"scalar{index}"), events)) for index, name in enumerate(fields.scalars)}
        if fields.user is not None and fields.user in self._spec.domain.value_fields:
            values[fields.user] = list(map(attrgetter("user"), events))
        # An unusable operation is reported last; until then the event must still be one that the domain can encode.
        return Columns(numbers, texts, np.where(operations == 0, np.int8(1), operations), values)


def reason_fields(fields: EventFields) -> dict[Reason, str]:
    """Return the field that a reason is about, where that does not depend on the record."""
    about = {
        fields.time: (Reason.BAD_TIME, Reason.BEFORE_START, Reason.TOO_FAR_AHEAD),
        fields.user: (Reason.BAD_USER, Reason.WRONG_PARTITION),
        fields.operation: (Reason.BAD_OPERATION,),
    }
    return {reason: name for name, reasons in about.items() if name is not None for reason in reasons}


def _mark(reasons: ReasonArray, reason: Reason, where: npt.NDArray[np.bool_]) -> None:
    reasons[where & (reasons == 0)] = reason


def _fill(reasons: ReasonArray, later: ReasonArray) -> None:
    if later.any():
        np.copyto(reasons, later, where=reasons == 0)
