"""The recipe of PHDStream."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.counters import Counter, CounterConfig, SimpleConfig
from engines.spatial.domain import SpatialDomain
from engines.spatial.papers.node_counters import check_counter
from engines.spatial.split import SplitRule
from schemas.errors import EngineInputError

SIMPLE = SimpleConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class PHDStreamConfig:
    """All of it is public.

    Args:
        name: of the stream; decides where synthetic points lie.
        domain: what events are.
        epsilon: of ONE event, over the whole stream.
        split: share of epsilon that decides the partition; the rest counts.
        initial_steps: steps 0 .. initial_steps - 1 are gathered into the release of step initial_steps - 1.
        threshold: events above which a cell is divided.
        ttl_steps: steps after which an insert is deleted by itself; the delete is measured like any other.
        counter: of each leaf, over the steps in which it is one.
    Raises: EngineInputError.
    """

    name: str
    domain: SpatialDomain
    epsilon: Fraction
    split: Fraction = Fraction(1, 2)
    initial_steps: int = 1
    threshold: int = 0
    ttl_steps: int | None = None
    counter: CounterConfig = SIMPLE

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or not 0 < self.split < 1:
            raise EngineInputError("epsilon must be positive and split between 0 and 1")
        if self.initial_steps < 1 or self.threshold < 0:
            raise EngineInputError("initial_steps must be at least 1 and threshold at least 0")
        if self.ttl_steps is not None and self.ttl_steps < 1:
            raise EngineInputError("ttl_steps must be at least 1")
        check_counter(self.leaf_counter)

    @property
    def rule(self) -> SplitRule:
        """Of PrivTree."""
        return SplitRule(epsilon=self.epsilon * self.split)

    @property
    def leaf_counter(self) -> Counter:
        """Of the leaves."""
        return self.counter.calibrate(self.epsilon - self.rule.epsilon)

    @property
    def identity(self) -> np.ndarray:
        """`(32,)` uint8: states of configurations with another one mean something else."""
        parts = ("spatial", "paper", self.name, *self.domain.identity, "lambda", 2)
        return np.frombuffer(hashlib.sha256(repr(parts).encode()).digest(), np.uint8)
