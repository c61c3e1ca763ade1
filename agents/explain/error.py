"""The error that the noise alone makes, in counts, in regions of each size.

A region's count is a sum of noisy increments: one for each measurement of each of its leaves, all with their own noise.
So its noise has variance `leaves * releases * v`, v the variance of one draw, and, by the central limit theorem, 95 %
of it lies within 1.96 standard deviations. Checked against the engine itself in tests/cli/test_explain.py.

Not in it: where inside a leaf its events lie (that depends on the data), and what non-negativity and consistency take
off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agents.explain.laws import noise_facts
from engines.registry import build_engine
from engines.spatial.held import HeldLeaves
from engines.spatial.held_step import GROUPS
from engines.spatial.queries import SIZES
from schemas.config import Stream
from schemas.errors import PrivstreamError
from schemas.guarantee import Guarantee

NORMAL_95 = 1.959963984540054
RELEASES = (1, 10, 100, 1000)


@dataclass(frozen=True, slots=True)
class Region:
    """A size of region: what it is called, and how many leaves of a release it covers."""

    name: str
    leaves: int
    what: str


@dataclass(frozen=True, slots=True)
class ErrorModel:
    """Attributes:

    variance: of the noise of one leaf in one release. single: 95 % interval of that one draw, exact.
    regions: from small to large.
    formula: in symbols. conditions: what it takes for granted.
    """

    variance: float
    single: float
    regions: tuple[Region, ...]
    formula: str
    conditions: str

    def deviation(self, *, leaves: int, releases: int = 1) -> float:
        """Standard deviation of a region's count, in events."""
        return math.sqrt(leaves * releases * self.variance)

    def interval(self, *, leaves: int, releases: int = 1) -> float:
        """95 % of the errors lie within plus or minus this many events."""
        if leaves * releases == 1:
            return self.single  # one draw is not normal: its tails are heavier
        return NORMAL_95 * self.deviation(leaves=leaves, releases=releases)


COUNTS = "event counts of the leaves"
"""What the mechanism is called, at its end, whose noise is in released counts; the others decide where to look."""


def _spatial(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    counting = [mechanism for mechanism in guarantee if mechanism.name.endswith(COUNTS)]
    if len(counting) != 1:
        raise PrivstreamError(f'engine "{stream.engine}" does not say which of its mechanisms counts. Mend: name it.')
    noise = noise_facts(counting[0])
    most = stream.options.max_leaves
    regions = [Region("one leaf", 1, "the smallest cell that is counted")]
    for name, (low, high) in SIZES.items():
        share = math.sqrt(low * high)
        regions.append(Region(f"{name} region", max(1, math.ceil(share * most)), f"about {share:.2%} of all leaves"))
    regions.append(Region("whole domain", most, "all leaves"))
    engine = build_engine(stream)
    if isinstance(engine, HeldLeaves):
        how = (
            f"L leaves of the region, of at most {most:,} in all (options.max_leaves), each measured once in every "
            "one of "
            f"t releases. That is the most, but for the first release and for bursts, which look up to {GROUPS} "
            "times: a "
            f"quiet leaf holds its events and is measured every {engine.config.counter.longest} releases, which makes "
            "the "
            "noise smaller and the counts later."
        )
    else:
        how = (
            f"L leaves of the region, of {most:,} in all, say (mode {stream.mode} has no limit), each measured in "
            "every one of t releases."
        )
    return ErrorModel(
        noise.variance,
        noise.interval,
        tuple(regions),
        "sd(L, t) = sqrt(L · t · v),  v = Var(noise of one leaf),  95 % within 1.96 · sd (one draw: by its own law)",
        f"{how} Busy places have more and smaller leaves than quiet ones. It is the noise alone: where inside a leaf "
        "its events lie is a further error, which depends on the data; counts that add up, none below zero, take some "
        "off. privstream simulate measures the error as a whole on your own data.",
    )


MODELS: Mapping[str, Callable[[Stream, Guarantee], ErrorModel]] = {"spatial": _spatial}


def error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    """The error model of a stream's engine. Raises: PrivstreamError if there is none: an error is never left out."""
    try:
        model = MODELS[stream.engine]
    except KeyError:
        raise PrivstreamError(
            f'explain has no error model of engine "{stream.engine}". Mend: add it to agents/explain/error.py.'
        ) from None
    return model(stream, guarantee)
