"""What an engine is audited on: a small public world with a dense cell and an empty one, and what is read off releases.

Each engine has its own in `engines/<engine>/fixture.py`, named by its `EngineSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engines.auditor.features import Features
from schemas.blocks import Folded
from schemas.config import Stream

STEPS = 5
LATE = 2
"""Step of late events; there are steps after it because an engine may hold events before it counts them."""
VISITED = 12
"""Steps of which the events are known, and in which canaries come where several are in one run."""
DENSE = 30

Key = int | tuple[int, ...]
"""Of an event: its word, or words."""
Focus = Callable[[int, Sequence[Mapping[str, Any]]], Features]
"""What a step's measurements say of one place."""


@dataclass(frozen=True, slots=True, eq=False)
class AuditFixture:
    """Attributes:

    stream: configured as for production, but small, so that outputs repeat often enough to be counted. Where it bounds
        users, each audited unit is one with as many events as the bound lets through.
    base: events of every step, the same in both inputs; the first step's where they are `changing`.
    places: name -> (key of an insert there, key of a delete there or None, focus).
    replaced: name -> (key of an event of one input, key of the one that stands in its place in the other).
    deletes: whether what is in the dense cell may be deleted.
    numbered: from a key, a step and a number, 0 of a user's first event, to a key of that step's and user's own, where
        keys name contributions.
    changing: events of each step, where they may not be the same ones in each.
    """

    stream: Stream
    base: Folded
    places: Mapping[str, tuple[Key, Key | None, Focus]]
    replaced: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    deletes: bool = False
    numbered: Callable[[Key, int, int], Key] | None = None
    changing: Callable[[int], Folded] | None = None

    def at(self, step: int) -> Folded:
        """Events of a step that both inputs have."""
        return self.base if self.changing is None else self.changing(step)

    @property
    def contributions(self) -> int:
        """Events of one unit."""
        privacy = self.stream.privacy
        if privacy.unit == "event" or privacy.max_contributions is None:
            return 1
        return privacy.max_contributions // self.stream.insert_charge

    def steps_of(self, step: int, *, spread: bool, last: int) -> list[int]:
        """Steps of the events of a unit whose first one is in `step`: as many in each as may be, or one in each.

        Args: last: step beyond which there are none; nor are there beyond the period of the first one.
        """
        privacy = self.stream.privacy
        if (period := self.stream.period_steps) is not None:
            last = min(last, (step // period + 1) * period - 1)
        together = 1 if spread else min(privacy.max_per_step or self.contributions, self.contributions)
        return [at for at in (step + index // together for index in range(self.contributions)) if at <= last]
