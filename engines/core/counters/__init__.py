"""Continual counters: running sums under differential privacy, a vector of them at a time. One counter, one file."""

from engines.core.counters.block import BlockConfig, BlockCounter
from engines.core.counters.blt import BltConfig, BltCounter
from engines.core.counters.contract import Counter, CounterConfig, CounterState, Measure, concatenate, select, spent
from engines.core.counters.epochs import EpochsConfig, EpochsCounter
from engines.core.counters.hybrid import HybridConfig, HybridCounter
from engines.core.counters.kary import KaryConfig, KaryCounter
from engines.core.counters.registry import COUNTERS
from engines.core.counters.selective import SelectiveCounting
from engines.core.counters.simple import SimpleConfig, SimpleCounter
from engines.core.counters.toeplitz import ToeplitzConfig, ToeplitzCounter
from engines.core.counters.tree import TreeConfig, TreeCounter
from engines.core.counters.unbounded_block import UnboundedBlockConfig, UnboundedBlockCounter

__all__ = [
    "COUNTERS",
    "BlockConfig",
    "BlockCounter",
    "BltConfig",
    "BltCounter",
    "Counter",
    "CounterConfig",
    "CounterState",
    "EpochsConfig",
    "EpochsCounter",
    "HybridConfig",
    "HybridCounter",
    "KaryConfig",
    "KaryCounter",
    "Measure",
    "SelectiveCounting",
    "SimpleConfig",
    "SimpleCounter",
    "ToeplitzConfig",
    "ToeplitzCounter",
    "TreeConfig",
    "TreeCounter",
    "UnboundedBlockConfig",
    "UnboundedBlockCounter",
    "concatenate",
    "select",
    "spent",
]
