"""What PHDStream and the papers' baselines are made of: four parts, and a name for each combination that has one.

| mode | events counted at a step | partition | prior of a cell | cells that keep what they counted |
|---|---|---|---|---|
| `paper` | new | PrivTree, each step | last release | this step's |
| `offline` (NOT private over time) | all alive | PrivTree, each step | none | none: each step starts anew |
| `offline-increments` | new | PrivTree, each step | none | all that ever were |
| `fixed-tree` | new | PrivTree or a grid, at the first step | none | the first step's |

Source: [kumar2024], section 3.6.6, baselines 1 to 3 ([kumar2024b], section 5.3), and algorithm 1 for the increments:
their releases add up. (The papers' baseline 2 scales each step's release to the exact number alive, which is private.)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from engines.counters import Counter, CounterConfig, SimpleConfig
from engines.spatial.domain import SpatialDomain
from engines.spatial.papers.node_counters import check_counter
from engines.spatial.split import SplitRule
from schemas.errors import EngineInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class PHDStreamParts:
    """One combination, see the module.

    Attributes:
        mode: its name. events: what is counted at a step. partition: when it is drawn.
        prior: what a cell's score starts from. cells: which ones make up a release.
    """

    mode: str
    events: Literal["new", "alive"] = "new"
    partition: Literal["each step", "first step"] = "each step"
    prior: Literal["last release", "none"] = "none"
    cells: Literal["this step's", "all"] = "this step's"

    @property
    def private(self) -> bool:
        """False where every event is counted again at every step."""
        return self.events == "new"


PAPER = PHDStreamParts(mode="paper", prior="last release")
OFFLINE = PHDStreamParts(mode="offline", events="alive")
OFFLINE_INCREMENTS = PHDStreamParts(mode="offline-increments", cells="all")
FIXED_TREE = PHDStreamParts(mode="fixed-tree", partition="first step")
SIMPLE = SimpleConfig()
PARTS = {parts.mode: parts for parts in (PAPER, OFFLINE, OFFLINE_INCREMENTS, FIXED_TREE)}
"""By mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PHDStreamConfig:
    """The recipe. All of it is public.

    Args:
        name: of the stream; decides where synthetic points lie.
        domain: what events are.
        epsilon: of ONE event, over the whole stream; where `parts.private` is False, of one event in ONE step.
        split: share of epsilon that decides the partition, at steps that draw one; the rest counts.
        initial_steps: steps 0 .. initial_steps - 1 are gathered into the release of step initial_steps - 1.
        threshold: events above which a cell is divided.
        ttl_steps: steps after which an insert is deleted by itself; the delete is measured like any other.
        parts: see the module.
        counter: of each leaf, over the steps in which it is one. Only the simple one where steps start anew.
        grid: with a partition of the first step: cells of this depth, at no cost, in place of PrivTree's.
    Raises: EngineInputError.
    """

    name: str
    domain: SpatialDomain
    epsilon: Fraction
    split: Fraction = Fraction(1, 2)
    initial_steps: int = 1
    threshold: int = 0
    ttl_steps: int | None = None
    parts: PHDStreamParts = PAPER
    counter: CounterConfig = SIMPLE
    grid: int | None = None

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or not 0 < self.split < 1:
            raise EngineInputError("epsilon must be positive and split between 0 and 1")
        if self.initial_steps < 1 or self.threshold < 0:
            raise EngineInputError("initial_steps must be at least 1 and threshold at least 0")
        if self.ttl_steps is not None and self.ttl_steps < 1:
            raise EngineInputError("ttl_steps must be at least 1")
        if self.grid is not None and (self.parts.partition != "first step" or not 1 <= self.grid <= self.domain.depth):
            raise EngineInputError('grid is for mode "fixed-tree", from 1 to the depth of the domain')
        if not self.parts.private and not isinstance(self.counter, SimpleConfig):
            raise EngineInputError(f'mode "{self.parts.mode}" counts anew at each step: its counter is "simple"')
        check_counter(self.leaf_counter, adaptive=self.parts.partition == "each step")

    @property
    def rule(self) -> SplitRule | None:
        """Of PrivTree; None where there is none."""
        return None if self.grid is not None else SplitRule(epsilon=self.epsilon * self.split)

    @property
    def partition_epsilon(self) -> Fraction:
        """Of one event of a step that draws a partition."""
        return Fraction(0) if self.rule is None else self.rule.epsilon

    @property
    def first_counter(self) -> Counter | None:
        """Of events of the first release, where the partition took a share of their budget and of no later one's."""
        if self.parts.partition == "first step" and self.rule is not None:
            return SimpleConfig().calibrate(self.epsilon - self.partition_epsilon)
        return None

    @property
    def leaf_counter(self) -> Counter:
        """Of the leaves: of all events, or of those after the first release."""
        share = self.partition_epsilon if self.parts.partition == "each step" else Fraction(0)
        return self.counter.calibrate(self.epsilon - share)

    def leaf_variance(self, releases: int) -> float:
        """Variance of the noise in a cell's count that was a leaf in all of so many releases, the first included."""
        if not self.parts.private:
            return self.leaf_counter.variance(1)
        if self.first_counter is None:
            return self.leaf_counter.variance(releases)
        return self.first_counter.variance(1) + self.leaf_counter.variance(releases - 1)

    @property
    def identity(self) -> np.ndarray:
        """`(32,)` uint8: states of configurations with another one mean something else."""
        parts = (self.parts.mode, self.name, *self.domain.identity, self.grid)
        if self.rule is not None:
            parts = (*parts, "lambda", 2)
        return np.frombuffer(hashlib.sha256(repr(("spatial", *parts)).encode()).digest(), np.uint8)
