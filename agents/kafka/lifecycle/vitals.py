"""What each part of a worker is doing, so that a probe can tell an idle worker from one that is silently dead.

A part that waits for something outside is alive however long it waits. One that has begun a piece of work and does not
end it within its limit is not: restarting the process is then all that helps, and costs nothing but the time to read
committed records again. `Vitals` acts on nothing; it is written by the event loop and read by the thread that answers
probes.

A client can also lose its way to a partition and say nothing: the worker then looks idle while records wait. So each
look asks the brokers how far every assigned partition goes and holds it against the place where reading is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka.errors import KafkaError
from mode import Service

from agents.kafka.lifecycle.cancellations import LongService
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
        """Return the partitions of which all is read and worked on that was there at the first look at them."""
        self._first = {tp: self._first.get(tp, place.end) for tp, place in places.items()}
        return {tp for tp, place in places.items() if place.position >= self._first[tp] and tp not in busy}

    def look(self, places: Mapping[TopicAndPartition, Reach], busy: Collection[TopicAndPartition] = ()) -> list[str]:
        """Return what is not read though records wait there, in words.

        Args: busy: partitions whose reader is at work, or told to wait: it reads on when it has ended that.
        """
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


LOOP = "event loop"
BEAT_S = 1.0
LOOP_S = 30.0
"""The event loop turns many times a second; what is slow runs in threads."""
WORK_S = 300.0
"""A piece of work on Kafka: each request in it ends within a minute, or with an error."""
COMPUTE_S = 3600.0
"""A step of an engine, in a thread, or reading back all that is committed."""


@dataclass(eq=False)
class Pulse:
    """One part of a worker.

    Attributes:
        ready: whether it has what it needs to work: assigned, restored, connected.
        doing: what it works on, or waits for. since: when it began that, or last went on with it.
        limit_s: how long that may take; None while it waits.
    """

    name: str
    now: Callable[[], float] = time.monotonic
    ready: bool = False
    doing: str = "has not begun"
    limit_s: float | None = None
    since: float = field(init=False)

    def __post_init__(self) -> None:
        self.since = self.now()

    def works(self, what: str, limit_s: float = WORK_S) -> None:
        """Note that a piece of work begins, or went on by a bit."""
        self.doing, self.limit_s, self.since = what, limit_s, self.now()

    def waits(self, why: str) -> None:
        """Wait for something outside, for as long as it takes."""
        self.doing, self.limit_s, self.since = why, None, self.now()

    def goes_on(self) -> None:
        """Note that a bit of a long piece of work is done."""
        self.since = self.now()

    @contextlib.contextmanager
    def at(self, what: str, limit_s: float = WORK_S) -> Iterator[None]:
        """Work on something while the context lasts; afterwards go on with what was before."""
        before = self.doing, self.limit_s
        self.works(what, limit_s)
        try:
            yield
        finally:
            self.doing, self.limit_s = before
            self.since = self.now()

    @property
    def stuck(self) -> str | None:
        """What the part has been at for too long; None where nothing is."""
        # Read once each: the other thread may go on meanwhile.
        doing, limit_s, lasted = self.doing, self.limit_s, self.now() - self.since
        if limit_s is None or lasted <= limit_s:
            return None
        return f"{self.name}: {doing} for {lasted:.0f} s, at most {limit_s:.0f} are expected"


@dataclass(eq=False)
class Vitals:
    """All parts of a worker, and how far it has come on its way to work.

    Attributes:
        phase: what the worker as a whole waits for before its parts begin; "" once they have.
        lags: by whose consumer, where reading of each partition is. caught_up: of which partitions all is read that
            was there when it began with them.
    """

    now: Callable[[], float] = time.monotonic
    phase: str = "starts"
    lags: dict[str, Mapping[TopicAndPartition, Reach]] = field(default_factory=dict)
    caught_up: dict[str, set[TopicAndPartition]] = field(default_factory=dict)
    _parts: dict[str, Pulse] = field(default_factory=dict)
    _faults: dict[str, str] = field(default_factory=dict)

    def beat(self) -> None:
        """Note that the event loop turns; called every `BEAT_S`.

        Where it comes much later, the whole process stood still (it was stopped, or its machine was): no part is to
        blame, so that time does not count. A loop that is frozen does not come here at all.
        """
        pulse = self._parts.get(LOOP) or self.part(LOOP)
        late = self.now() - pulse.since - BEAT_S if pulse.limit_s is not None else 0.0
        if late > BEAT_S:
            for each in self.parts:
                each.since += late
        pulse.ready = True
        pulse.works("turns", LOOP_S)

    def part(self, name: str) -> Pulse:
        """Add a part that begins; another one of this name is over."""
        pulse = self._parts[name] = Pulse(name, self.now)
        self._faults.pop(name, None)
        return pulse

    def take(self, pulse: Pulse) -> None:
        """Add a part that was made elsewhere."""
        pulse.now = self.now
        pulse.since = self.now()
        self._parts[pulse.name] = pulse

    def ends(self, pulse: Pulse) -> None:
        """Forget a part that is over: nothing is expected of it."""
        if self._parts.get(pulse.name) is pulse:
            del self._parts[pulse.name]

    def fault(self, name: str, what: str | None) -> None:
        """Note a fault that only a restart helps; None: it is gone."""
        if what is None:
            self._faults.pop(name, None)
        else:
            self._faults[name] = what

    @property
    def dead(self) -> list[str]:
        """Why the process should be restarted; empty while it lives."""
        stuck = [told for pulse in list(self._parts.values()) if (told := pulse.stuck) is not None]
        return stuck + [f"{name}: {what}" for name, what in sorted(self._faults.copy().items())]

    @property
    def unready(self) -> list[str]:
        """What the worker waits for before it serves all that it was assigned; empty once it does."""
        if self.phase:
            return [self.phase]
        return [f"{pulse.name}: {pulse.doing}" for pulse in list(self._parts.values()) if not pulse.ready]

    @property
    def parts(self) -> list[Pulse]:
        """The parts, for whoever shows them."""
        return list(self._parts.values())


LOOK_S = 10.0


class VitalsWatch(LongService):
    """A Faust service. Args: roles: role -> topic whose partitions its tasks read."""

    def __init__(self, app: Any, vitals: Vitals, roles: Mapping[str, str], **service_settings: Any) -> None:
        super().__init__(**service_settings)
        self._app = app
        self._vitals = vitals
        self._roles = roles
        self._reading = Reading()

    @Service.task
    async def _beat(self) -> None:
        while not self.should_stop:
            self._vitals.beat()
            await self.sleep(BEAT_S)

    @Service.task
    async def _look(self) -> None:
        pulse = self._vitals.part("consumer of the private topics")
        pulse.ready = True
        while not self.should_stop:
            pulse.waits("until the next look")
            await self.sleep(LOOK_S)
            try:
                with pulse.at("is asked where it reads", READ_S):
                    places = await self._places()
            except (KafkaError, OSError, TimeoutError):
                continue  # a cluster that does not answer says nothing of what waits in it
            self._vitals.lags["private topics"] = places
            busy = self._busy()
            self._vitals.caught_up["private topics"] = self._reading.caught_up(places, busy)
            told = self._reading.look(places, busy)
            self._vitals.fault("consumer of the private topics", "; ".join(told) or None)

    async def _places(self) -> dict[TopicAndPartition, Reach]:
        consumer, topics = self._app.consumer, set(self._roles.values())
        tps = [tp for tp in consumer.assignment() if tp.topic in topics]
        ends = await consumer.highwaters(*tps) if tps else {}
        return {
            (tp.topic, tp.partition): Reach(position, end)
            for tp, end in ends.items()
            if (position := await consumer.position(tp)) is not None
        }

    def _busy(self) -> set[TopicAndPartition]:
        """Return the partitions whose task is at work, or not there."""
        idle = {pulse.name for pulse in self._vitals.parts if pulse.ready and pulse.limit_s is None}
        return {
            (tp.topic, tp.partition)
            for tp in self._app.consumer.assignment()
            for role, topic in self._roles.items()
            if topic == tp.topic and f"{role} of partition {tp.partition}" not in idle
        }
