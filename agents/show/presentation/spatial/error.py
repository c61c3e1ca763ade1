"""The error that the noise alone makes, in counts, in regions of each size.

A region's count is a sum over its leaves, which all have their own noise: its variance is `leaves * V(releases)`, V
that of a leaf's counter, and, by the central limit theorem, 95 % of it lies within 1.96 standard deviations. V(t) = t v
where every release draws anew, v the variance of one draw. Checked against the engine itself in
tests/cli/test_explain.py.

Not in it: where inside a leaf its events lie (that depends on the data), and what non-negativity and consistency take
off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from agents.show.presentation.error import NORMAL_95, Answer, ErrorModel
from agents.show.presentation.laws import laplace_interval, noise_facts
from engines.core.contract import Engine
from engines.core.counters.simple import SimpleCounter
from engines.core.registry import uncorrected_engine
from engines.spatial.evaluators import SIZES
from engines.spatial.held.engine import GROUPS, HeldLeaves
from engines.spatial.papers.phdstream import PHDStream, PHDStreamConfig
from schemas.config import Stream
from schemas.config.options.spatial import SpatialOptions
from schemas.errors import PrivstreamError
from schemas.guarantee import Guarantee

COUNTS = "event counts of the leaves"
"""What the mechanism is called, at its end, whose noise is in released counts; the others decide where to look."""


@dataclass(frozen=True, slots=True)
class LeafNoise:
    """Attributes:

    after: variance of the noise in one leaf's count after so many releases.
    single: 95 % interval of it after the first, exact, where that is one draw.
    """

    after: Callable[[int], float]
    single: float | None

    @staticmethod
    def of(stream: Stream, guarantee: Guarantee) -> LeafNoise:
        """Raises: PrivstreamError if the engine does not say which of its mechanisms counts."""
        engine = uncorrected_engine(stream)
        if isinstance(engine, PHDStream):
            return LeafNoise._of_counters(engine.config)
        counting = [mechanism for mechanism in guarantee if mechanism.name.endswith(COUNTS)]
        if len(counting) != 1:
            raise PrivstreamError(
                f'engine "{stream.engine}" does not say which of its mechanisms counts. Fix: name it.'
            )
        noise = noise_facts(counting[0])
        return LeafNoise(lambda releases: releases * noise.variance, noise.interval)

    @staticmethod
    def _of_counters(config: PHDStreamConfig) -> LeafNoise:
        counter = config.leaf_counter
        last = counter.horizon
        single = None
        if len(nodes := counter.node_noise(1)) == 1 and counter.resolution == 1:
            single = laplace_interval(nodes[0])
        return LeafNoise(lambda releases: counter.variance(releases if last is None else min(releases, last)), single)

    def deviation(self, *, leaves: int, releases: int = 1) -> float:
        """Standard deviation of a region's count, in events."""
        return math.sqrt(leaves * self.after(releases))

    def interval(self, *, leaves: int, releases: int = 1) -> float:
        """95 % of the errors lie within plus or minus this many events."""
        if leaves * releases == 1 and self.single is not None:
            return self.single  # one draw is not normal: its tails are heavier
        return NORMAL_95 * self.deviation(leaves=leaves, releases=releases)

    def answer(self, name: str, leaves: int, what: str) -> Answer:
        """A region of so many leaves."""
        return Answer.of(
            name,
            leaves,
            what,
            lambda t: self.deviation(leaves=leaves, releases=t),
            lambda t: self.interval(leaves=leaves, releases=t),
        )


def _growth(engine: Engine) -> str:
    if isinstance(engine, PHDStream) and not isinstance(engine.config.leaf_counter, SimpleCounter):
        return "The error grows as that of the leaves' counter (options.counter)"
    return "The error grows with the square root of the number of releases"


def error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    """Regions from one leaf to the whole domain."""
    noise = LeafNoise.of(stream, guarantee)
    most = SpatialOptions.of(stream).max_leaves
    answers = [noise.answer("one leaf", 1, "the smallest cell that is counted")]
    for name, (low, high) in SIZES.items():
        share = math.sqrt(low * high)
        leaves = max(1, math.ceil(share * most))
        answers.append(noise.answer(f"{name} region", leaves, f"about {share:.2%} of all leaves"))
    answers.append(noise.answer("whole domain", most, "all leaves"))
    engine = uncorrected_engine(stream)
    if isinstance(engine, HeldLeaves):
        how = (
            f"L leaves of the region, of at most {most:,} in all (options.max_leaves), each measured once in every one "
            f"of t releases. That is the most, but for the first release and for bursts, which look up to {GROUPS} "
            f"times: a quiet leaf holds its events and is measured every {engine.config.counter.longest} releases, "
            "which makes the noise smaller and the counts later."
        )
    else:
        assert isinstance(engine, PHDStream)
        how = (
            f"L leaves of the region, of {most:,} in all, say (mode {stream.mode} has no limit), each measured in "
            "every one of t releases."
        )
        if engine.config.leaf_counter.horizon is not None:
            how += f" After {engine.config.leaf_counter.horizon:,} releases (options.horizon) the stream stops."
    return ErrorModel(
        tuple(answers),
        sizes="leaves",
        growth=_growth(engine),
        formula="sd(L, t) = sqrt(L · V(t)),  V(t) = Var(noise of one leaf after t releases),  95 % in 1.96 · sd "
        "(one draw: its own law)",
        conditions=f"V(1) = {noise.after(1):.4g} events². {how} Busy places have more and smaller leaves than quiet "
        "ones. "
        "It is the noise alone: where inside a leaf its events lie is a further error, which depends on the data; "
        "counts that add up, none below zero, take some off. privstream simulate measures the error as a whole on your "
        "own data.",
    )
