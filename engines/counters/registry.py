"""Every counter under its name. Registering one gets it tested against the contract, and into the benchmark's table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from engines.counters.block import BlockConfig
from engines.counters.blt import BltConfig
from engines.counters.contract import CounterConfig
from engines.counters.epochs import EpochsConfig
from engines.counters.hybrid import HybridConfig
from engines.counters.kary import KaryConfig, KaryCounter
from engines.counters.optimal.counter import LEAST_EPSILON, OptimalConfig, OptimalCounter
from engines.counters.optimal.strategies import stored
from engines.counters.simple import SimpleConfig
from engines.counters.toeplitz import ToeplitzConfig
from engines.counters.tree import TreeConfig
from engines.counters.unbounded_block import UnboundedBlockConfig

COUNTERS: Mapping[str, Callable[[int], CounterConfig]] = {
    "simple": lambda horizon: SimpleConfig(),
    "block8": lambda horizon: BlockConfig(),
    "block": BlockConfig.for_horizon,
    "tree": lambda horizon: TreeConfig(horizon=horizon),
    "kary": lambda horizon: KaryConfig(horizon=horizon),
    "optimal": lambda horizon: OptimalConfig(horizon=horizon),
    "hybrid": lambda horizon: HybridConfig(),
    "unbounded-block-paper": lambda horizon: UnboundedBlockConfig(growth="paper"),
    "unbounded-block": lambda horizon: UnboundedBlockConfig(),
    "unbounded-kary": lambda horizon: EpochsConfig(family="kary"),
    "toeplitz": lambda horizon: ToeplitzConfig(horizon=horizon),
    "blt": lambda horizon: BltConfig(horizon=horizon),
    "unbounded-toeplitz": lambda horizon: ToeplitzConfig(),
    "unbounded-blt": lambda horizon: EpochsConfig(family="blt"),
}
"""Recipes by name, each made from a horizon; those without one ignore it."""


NO_TIE = 0.999
"""Of the other's variance, that another machine's last digits decide nothing: a state is its counter's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeastConfig:
    """The recipe of the counter of pure DP that has the least mean variance up to a horizon."""

    horizon: int

    def calibrate(self, epsilon: Fraction, /) -> KaryCounter | OptimalCounter:
        """Return `optimal` where its mean variance at this horizon and epsilon is less, and `kary` elsewhere.

        Where epsilon is large and the horizon short, noise on whole events is less than on a fine lattice. A public
        choice, by the variances of discrete noise.

        Raises: EngineInputError if epsilon is not a positive Fraction, or horizon is not a positive whole number.

        >>> [type(LeastConfig(horizon=30).calibrate(Fraction(n))).__name__ for n in (1, 4)]
        ['OptimalCounter', 'KaryCounter']
        """
        kary = KaryConfig(horizon=self.horizon).calibrate(epsilon)
        if self.horizon > max(stored()) or epsilon < LEAST_EPSILON:
            return kary
        optimal = OptimalConfig(horizon=self.horizon).calibrate(epsilon)
        times = range(1, self.horizon + 1)
        total = sum(optimal.variance(t) for t in times)
        return optimal if total < NO_TIE * sum(kary.variance(t) for t in times) else kary


def default_config(horizon: int | None) -> CounterConfig:
    """Return the counter of pure DP for any horizon: that of least variance where it is known, else balanced k-ary in
    epochs.

    Raises: EngineInputError, by `calibrate`, if the horizon is not a positive whole number.

    >>> default_config(100)
    LeastConfig(horizon=100)
    """
    return EpochsConfig(family="kary") if horizon is None else LeastConfig(horizon=horizon)
