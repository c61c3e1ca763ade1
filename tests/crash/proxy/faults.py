"""What the proxy does to which request, and plans of it: one fault at a chosen place, or many, drawn from a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tests.crash.proxy.frames import Request

TARGETS = (
    "EndTxn", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", "InitProducerId", "Fetch",
    "JoinGroup", "Heartbeat", "OffsetCommit",
)  # fmt: skip


MOST_DUE = 2
"""APIs at most that wait for their next request: else, where hardly anything is tried, each try of a transaction, with
its five requests, would meet a fault, and none would ever succeed."""


class Kind(StrEnum):
    """One fault of a network, as seen by one request."""

    DELAY = "delay"  # the request and what follows on its connection come later
    DROP = "drop"  # the request never comes
    CUT = "cut"  # half of the request comes, then the connection ends
    CUT_ANSWER = "cut-answer"  # the request is carried out, half of its answer comes, then the connection ends
    HOLD = "hold"  # the request comes long after its sender gave up; other connections overtake it
    LATE_ANSWER = "late-answer"  # the request is carried out, its answer comes later
    THROTTLE = "throttle"  # the request trickles in


@dataclass(frozen=True, slots=True)
class Fault:
    """`seconds`: how long; None holds until somebody releases it."""

    kind: Kind
    seconds: float | None = None


Plan = Callable[[Request], Fault | None]


def no_faults(request: Request) -> Fault | None:
    """A network as it should be."""
    return None


@dataclass
class Once:
    """One fault: at the `nth` request of an API (from 1) after the plan was made."""

    api: str
    fault: Fault
    nth: int = 1
    seen: int = 0

    def __call__(self, request: Request) -> Fault | None:
        if request.name != self.api:
            return None
        self.seen += 1
        return self.fault if self.seen == self.nth else None


@dataclass
class Seeded:
    """Faults drawn from a seed: which, for how long, and how many targeted requests apart.

    APIs take turns, so that rare ones (`JoinGroup`) get their share although others come a thousand times as often: a
    drawn API's next request gets the fault, and at most `MOST_DUE` wait for theirs. Equal seeds and equal requests give
    equal faults.

    Args:
        most: faults in all; None is without end.
        apart: targeted requests between two faults, at least and at most.
        seconds: of a delay, a late answer or a trickle, at least and at most.
        hold: seconds a request is held; longer than its sender waits, or it is a delay.
    """

    seed: int
    most: int | None = None
    targets: Sequence[str] = TARGETS
    kinds: Sequence[Kind] = tuple(Kind)
    apart: tuple[int, int] = (5, 60)
    seconds: tuple[float, float] = (0.2, 3.0)
    hold: tuple[float, float] = (9.0, 14.0)
    done: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._wait = self._chance.randint(*self.apart)
        self._due: set[str] = set()
        self._turn: list[str] = []

    @property
    def faults(self) -> int:
        """How many there were."""
        return self.done.total()

    def __call__(self, request: Request) -> Fault | None:
        name = request.name
        if name not in self.targets or (self.most is not None and self.faults >= self.most):
            return None
        self._wait -= 1
        if self._wait <= 0 and len(self._due) < MOST_DUE:
            self._wait = self._chance.randint(*self.apart)
            self._due.add(self._next())
        if name not in self._due:
            return None
        self._due.discard(name)
        kind = self._chance.choice(self.kinds)
        seconds = self._chance.uniform(*(self.hold if kind is Kind.HOLD else self.seconds))
        self.done[name, kind.value] += 1
        return Fault(kind, seconds)

    def _next(self) -> str:
        if not self._turn:
            self._turn = list(self.targets)
            self._chance.shuffle(self._turn)
        return self._turn.pop()


def only(plan: Plan, clients: Collection[str]) -> Plan:
    """The plan for these client ids; the others' network is as it should be."""
    return lambda request: plan(request) if request.client in clients else None
