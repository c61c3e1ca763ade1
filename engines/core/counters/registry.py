"""Every counter under its name. Registering one gets it tested against the contract, and into the benchmark's table."""

from collections.abc import Callable, Mapping

from engines.core.counters.block import BlockConfig
from engines.core.counters.blt import BltConfig
from engines.core.counters.contract import CounterConfig
from engines.core.counters.epochs import EpochsConfig
from engines.core.counters.hybrid import HybridConfig
from engines.core.counters.kary import KaryConfig
from engines.core.counters.simple import SimpleConfig
from engines.core.counters.toeplitz import ToeplitzConfig
from engines.core.counters.tree import TreeConfig
from engines.core.counters.unbounded_block import UnboundedBlockConfig

COUNTERS: Mapping[str, Callable[[int], CounterConfig]] = {
    "simple": lambda horizon: SimpleConfig(),
    "block8": lambda horizon: BlockConfig(),
    "block": BlockConfig.for_horizon,
    "tree": lambda horizon: TreeConfig(horizon=horizon),
    "kary": lambda horizon: KaryConfig(horizon=horizon),
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
