"""Continual counters: running sums under differential privacy, a vector of them at a time. One counter, one file."""

from engines.counters.block import BlockConfig, BlockCounter
from engines.counters.blt import BltConfig, BltCounter
from engines.counters.contract import Counter, CounterConfig, CounterState, Measure, concatenate, select, spent
from engines.counters.epochs import EpochsConfig, EpochsCounter
from engines.counters.hybrid import HybridConfig, HybridCounter
from engines.counters.kary import KaryConfig, KaryCounter
from engines.counters.registry import COUNTERS
from engines.counters.selective import SelectiveCounting
from engines.counters.simple import SimpleConfig, SimpleCounter
from engines.counters.toeplitz import ToeplitzConfig, ToeplitzCounter
from engines.counters.tree import TreeConfig, TreeCounter
from engines.counters.unbounded_block import UnboundedBlockConfig, UnboundedBlockCounter

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
