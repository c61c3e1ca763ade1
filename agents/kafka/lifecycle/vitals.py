"""What each part of a worker is doing, so that a probe can tell an idle worker from one that is silently dead.

A part that waits for something outside is alive however long it waits. One that has begun a piece of work and does not
end it within its limit is not: restarting the process is then all that helps, and costs nothing but the time to read
committed records again. Nothing here acts; it is written by the event loop and read by the thread that answers probes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from agents.kafka.lifecycle.reading import Reach
from schemas.topics import TopicAndPartition

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
        """A piece of work begins, or went on by a bit."""
        self.doing, self.limit_s, self.since = what, limit_s, self.now()

    def waits(self, why: str) -> None:
        """For something outside, for as long as it takes."""
        self.doing, self.limit_s, self.since = why, None, self.now()

    def goes_on(self) -> None:
        """A bit of a long piece of work is done."""
        self.since = self.now()

    @contextlib.contextmanager
    def at(self, what: str, limit_s: float = WORK_S) -> Iterator[None]:
        """While a piece of work lasts; afterwards goes on with what was before."""
        before = self.doing, self.limit_s
        self.works(what, limit_s)
        try:
            yield
        finally:
            self.doing, self.limit_s = before
            self.since = self.now()

    @property
    def stuck(self) -> str | None:
        """What it has been at for too long."""
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
        """The event loop turns; called every `BEAT_S`.

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
        """A part that begins; another one of this name is over."""
        pulse = self._parts[name] = Pulse(name, self.now)
        self._faults.pop(name, None)
        return pulse

    def take(self, pulse: Pulse) -> None:
        """A part that was made elsewhere begins."""
        pulse.now = self.now
        pulse.since = self.now()
        self._parts[pulse.name] = pulse

    def ends(self, pulse: Pulse) -> None:
        """A part is over, and nothing is expected of it."""
        if self._parts.get(pulse.name) is pulse:
            del self._parts[pulse.name]

    def fault(self, name: str, what: str | None) -> None:
        """Something that only a restart helps is seen, or no longer."""
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
        """For whoever shows them."""
        return list(self._parts.values())
