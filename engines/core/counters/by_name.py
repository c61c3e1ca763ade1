"""Every counter under the name that a configuration gives it.

A module of its own, since it loads all of them: a worker needs one or two.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction

from engines.core.counters.block import BlockCounter, UnboundedBlockCounter
from engines.core.counters.blt import BltCounter
from engines.core.counters.epochs import EpochsCounter
from engines.core.counters.kary import KaryCounter
from engines.core.counters.linear import Counter
from engines.core.counters.simple import SimpleCounter
from engines.core.counters.tree import HybridCounter, TreeCounter

COUNTERS: Mapping[str, Callable[[int, Fraction], Counter]] = {
    "simple": lambda _, epsilon: SimpleCounter(epsilon=epsilon),
    "block8": lambda _, epsilon: BlockCounter(epsilon=epsilon),
    "block": lambda horizon, epsilon: BlockCounter(epsilon=epsilon, length=BlockCounter.best_length(horizon)),
    "tree": lambda horizon, epsilon: TreeCounter(epsilon=epsilon, horizon=horizon),
    "kary": lambda horizon, epsilon: KaryCounter.with_best_arity(epsilon, horizon),
    "hybrid": lambda _, epsilon: HybridCounter(epsilon=epsilon),
    "unbounded-block-paper": lambda _, epsilon: UnboundedBlockCounter(epsilon=epsilon, growth="paper"),
    "unbounded-block": lambda _, epsilon: UnboundedBlockCounter(epsilon=epsilon),
    "unbounded-kary": lambda _, epsilon: EpochsCounter(cost=epsilon, family="kary"),
    "blt": BltCounter.fitted_to,
    "unbounded-blt": lambda _, rho: EpochsCounter(cost=rho, family="blt"),
}
"""Each is made from a horizon, which those without one ignore, and what one event may cost.

Registering one gets it tested against the contract, and into the benchmark's table.
"""
