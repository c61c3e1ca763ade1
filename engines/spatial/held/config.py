"""The recipe of held leaf counters, and what follows from it: budgets, cells of the watch, rules of a step.

Guarantee: the budgets of watch and leaves add up to epsilon exactly; all of it is public.
Source: ours; docs/notes/0030-held-leaf-counters.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.spatial.domain import SpatialDomain, nodes_to
from engines.spatial.held.measure import LeafCounter
from engines.spatial.held.step import Rules
from engines.spatial.held.watch import Watch
from engines.spatial.placement import Placement
from engines.spatial.points import node_depths
from schemas.errors import EngineInputError

WATCH_SHARE = Fraction(1, 20)
"""Of the budget, for the watch."""
START_DEPTH = 6
"""The watch counts in cells of this depth, where `max_leaves` allows."""
LONGEST = 12
"""Steps that an event is held at most, or half of its ttl if that is less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldConfig:
    """The recipe. All of it is public.

    Args:
        name: of the stream; decides where synthetic points lie.
        domain: what events are.
        epsilon: of ONE event, over the whole stream.
        initial_steps: steps 0 .. initial_steps - 1 are gathered into the release of step initial_steps - 1.
        max_leaves: of the tree; work and memory of a step are proportional to it.
        ttl_steps: steps after which an insert is gone by itself, at no further cost. A delete fades after it, too.
    Raises: EngineInputError.
    """

    name: str
    domain: SpatialDomain
    epsilon: Fraction
    initial_steps: int = 1
    max_leaves: int = 4096
    ttl_steps: int | None = None

    def __post_init__(self) -> None:
        if self.epsilon <= 0:
            raise EngineInputError("epsilon must be positive")
        if self.initial_steps < 1 or self.max_leaves < 2:
            raise EngineInputError("initial_steps must be at least 1, max_leaves at least 2")
        if self.ttl_steps is not None and self.ttl_steps < 1:
            raise EngineInputError("ttl_steps must be at least 1")

    @property
    def start_depth(self) -> int:
        """Its cells are an eighth of `max_leaves` at most, or the whole domain."""
        return max(0, min(START_DEPTH, self.domain.depth, self.max_leaves.bit_length() - 4))

    @property
    def watch(self) -> Watch:
        depth = self.start_depth
        nodes = nodes_to(self.domain, depth)
        # A finest cell above stands at the first of the places below it.
        first = (nodes << (depth - node_depths(nodes))) - (1 << depth)
        missing = np.setdiff1d(np.arange(1 << depth), first)
        epsilon = self.epsilon * WATCH_SHARE
        return Watch(epsilon=epsilon, depth=depth, domain_depth=self.domain.depth, missing=tuple(missing.tolist()))

    @property
    def counter(self) -> LeafCounter:
        longest = LONGEST if self.ttl_steps is None else min(LONGEST, max(1, self.ttl_steps // 2))
        return LeafCounter(epsilon=self.epsilon - self.watch.epsilon, longest=longest)

    @property
    def rules(self) -> Rules:
        return Rules(self.counter, self.watch, Placement(self.name, self.domain), self.max_leaves, self.ttl_steps)

    @property
    def identity(self) -> np.ndarray:
        """`(32,)` uint8: states of configurations with another one mean something else."""
        text = repr(("spatial", "held", self.name, *self.domain.identity, self.start_depth))
        return np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
