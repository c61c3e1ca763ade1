"""Continual counters: running sums under differential privacy, a vector of them at a time. One family, one file."""

from collections.abc import Callable, Mapping
from fractions import Fraction

from engines.core.counters.linear import Counter, CounterState, Measure, concatenate, select, spent

__all__ = ["COUNTERS", "Counter", "CounterState", "Measure", "Recipe", "concatenate", "select", "spent"]

Recipe = Callable[[Fraction], Counter]
"""Returns the counter that spends this epsilon, or rho, on one event over all its activations."""


# Each loads its own file: a worker needs one or two of them.
def _simple(horizon: int, epsilon: Fraction) -> Counter:
    from engines.core.counters.simple import SimpleCounter

    return SimpleCounter(epsilon=epsilon)


def _block8(horizon: int, epsilon: Fraction) -> Counter:
    from engines.core.counters.block import BlockCounter

    return BlockCounter(epsilon=epsilon)


def _block(horizon: int, epsilon: Fraction) -> Counter:
    from engines.core.counters.block import BlockCounter

    return BlockCounter(epsilon=epsilon, length=BlockCounter.best_length(horizon))


def _tree(horizon: int, epsilon: Fraction) -> Counter:
    from engines.core.counters.tree import TreeCounter

    return TreeCounter(epsilon=epsilon, horizon=horizon)


def _kary(horizon: int, epsilon: Fraction) -> Counter:
    from engines.core.counters.kary import KaryCounter

    return KaryCounter.with_best_arity(epsilon, horizon)


def _hybrid(horizon: int, epsilon: Fraction) -> Counter:
    from engines.core.counters.tree import HybridCounter

    return HybridCounter(epsilon=epsilon)


def _unbounded_block_paper(horizon: int, epsilon: Fraction) -> Counter:
    from engines.core.counters.block import UnboundedBlockCounter

    return UnboundedBlockCounter(epsilon=epsilon, growth="paper")


def _unbounded_block(horizon: int, epsilon: Fraction) -> Counter:
    from engines.core.counters.block import UnboundedBlockCounter

    return UnboundedBlockCounter(epsilon=epsilon)


def _unbounded_kary(horizon: int, epsilon: Fraction) -> Counter:
    from engines.core.counters.epochs import EpochsCounter

    return EpochsCounter(cost=epsilon, family="kary")


def _blt(horizon: int, rho: Fraction) -> Counter:
    from engines.core.counters.blt import BltCounter

    return BltCounter.fitted_to(horizon, rho)


def _unbounded_blt(horizon: int, rho: Fraction) -> Counter:
    from engines.core.counters.epochs import EpochsCounter

    return EpochsCounter(cost=rho, family="blt")


COUNTERS: Mapping[str, Callable[[int, Fraction], Counter]] = {
    "simple": _simple,
    "block8": _block8,
    "block": _block,
    "tree": _tree,
    "kary": _kary,
    "hybrid": _hybrid,
    "unbounded-block-paper": _unbounded_block_paper,
    "unbounded-block": _unbounded_block,
    "unbounded-kary": _unbounded_kary,
    "blt": _blt,
    "unbounded-blt": _unbounded_blt,
}
"""Counters by name, each made from a horizon, which those without one ignore, and what one event may cost.

Registering one gets it tested against the contract, and into the benchmark's table.
"""
