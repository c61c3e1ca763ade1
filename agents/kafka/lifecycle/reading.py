"""Whether what waits in Kafka is read: one look after the other at where reading is and where partitions end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from schemas.topics import TopicAndPartition

READ_S = 1200.0
"""Records that wait and are not read. Longer than the longest open transaction that a broker allows (15 minutes):
a reader of committed records waits behind it."""
APART_S = 60.0
"""Between two looks, at most."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where reading of a partition is, and where the partition ends."""

    position: int
    end: int


@dataclass(eq=False)
class Reading:
    """Which partitions are not read though records wait there. Fed with one look after the other."""

    limit_s: float = READ_S
    now: Callable[[], float] = time.monotonic
    _waited: dict[TopicAndPartition, tuple[int, float]] = field(default_factory=dict)
    _last: float | None = None
    _first: dict[TopicAndPartition, int] = field(default_factory=dict)

    def caught_up(
        self, places: Mapping[TopicAndPartition, Reach], busy: Collection[TopicAndPartition]
    ) -> set[TopicAndPartition]:
        """Partitions of which all is read and worked on that was there at the first look at them."""
        self._first = {tp: self._first.get(tp, place.end) for tp, place in places.items()}
        return {tp for tp, place in places.items() if place.position >= self._first[tp] and tp not in busy}

    def look(self, places: Mapping[TopicAndPartition, Reach], busy: Collection[TopicAndPartition] = ()) -> list[str]:
        """Args: busy: partitions whose reader is at work, or told to wait: it reads on when it has ended that."""
        now = self.now()
        # Between two looks far apart the process stood still: nobody can say what it would have read.
        elapsed = 0.0 if self._last is None else min(now - self._last, APART_S)
        before, self._waited, self._last = self._waited, {}, now
        stuck = []
        for tp, place in places.items():
            position, waited = before.get(tp, (place.position, -elapsed))
            moved = position != place.position or place.position >= place.end or tp in busy
            self._waited[tp] = place.position, 0.0 if moved else waited + elapsed
            if self._waited[tp][1] > self.limit_s:
                stuck.append(f"{tp[0]}-{tp[1]} is not read though records wait there")
        return sorted(stuck)
