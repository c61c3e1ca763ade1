"""One continual counter for each cell of a tree, of which a step activates those of its leaves.

Guarantee: what one counter costs, for one event, however many cells there are: an event is counted at its own step, by
    the one leaf that holds it (selective counting: [kumar2024], algorithm 11, theorem 3.5.1;
    `engines.core.counters.selective` has the two conditions). Which leaves there are depends on releases, so the
    counter must be private under adaptive continual release; one that is not is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engines.core.contract import State
from engines.core.counters import Counter, CounterState, concatenate, select
from engines.core.noise import NoiseSource
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

_PREFIX = "counters/"
_NODES = "counters/of"


def check_counter(counter: Counter) -> None:
    """Refuse a counter that a pure guarantee cannot rest on, as what was released decides when it is activated.

    Raises: EngineInputError.
    """
    if counter.measure != "epsilon":
        raise EngineInputError("the counter adds Gaussian noise, which is never epsilon-DP: choose one of pure DP")
    if not counter.adaptive:
        raise EngineInputError("the counter is not private where releases decide when it is activated: choose another")


@dataclass(frozen=True, slots=True, eq=False)
class NodeCounters:
    """Counters by cell. A value: `count` returns the next one.

    Attributes:
        counter: the same for all. nodes: `(cells,)` int64 heap numbers of cells that were ever a leaf, ascending.
        state: their states, PRIVATE: they may hold noise that is still to be used.
    """

    counter: Counter
    nodes: IntArray
    state: CounterState

    @staticmethod
    def none(counter: Counter) -> NodeCounters:
        return NodeCounters(counter, np.zeros(0, np.int64), counter.initial(0))

    def count(self, leaves: IntArray, values: IntArray, noise: NoiseSource) -> tuple[IntArray, NodeCounters]:
        """Activate the counters of these leaves.

        Args:
            leaves: heap numbers, ascending. values: `(leaves,)` net events of this step alone; private.
        Returns: `(leaves,)` noisy increments, in events / `counter.resolution`; and the next counters.
        Raises: EngineInputError if one was activated as often as its horizon allows; nothing is drawn then.
        """
        if np.array_equal(leaves, self.nodes):
            increments, state = self.counter.step(values, self.state, noise)
            return increments, NodeCounters(self.counter, leaves, state)
        known = np.isin(leaves, self.nodes, assume_unique=True)
        rest = ~np.isin(self.nodes, leaves, assume_unique=True)
        old, new = leaves[known], leaves[~known]
        states = concatenate([select(self.state, np.searchsorted(self.nodes, old)), self.counter.initial(len(new))])
        order = np.argsort(np.concatenate([old, new]))
        increments, stepped = self.counter.step(values, select(states, order), noise)
        nodes = np.concatenate([self.nodes[rest], leaves])
        order = np.argsort(nodes)
        return increments, NodeCounters(
            self.counter, nodes[order], select(concatenate([select(self.state, rest), stepped]), order)
        )

    def variances(self, nodes: IntArray) -> FloatArray:
        """`(nodes,)` exact variances of the noise in all that these cells' counters released; 0 where there is none."""
        result = np.zeros(len(nodes))
        if len(self.nodes):
            at = np.minimum(np.searchsorted(self.nodes, nodes), len(self.nodes) - 1)
            activations = np.where(self.nodes[at] == nodes, self.counter.activations(self.state)[at], 0)
            times, which = np.unique(activations, return_inverse=True)
            result = np.array([self.counter.variance(t) for t in times.tolist()])[which]
        return result

    def arrays(self) -> State:
        return {_NODES: self.nodes.copy()} | {f"{_PREFIX}state/{name}": a.copy() for name, a in self.state.items()}

    def restored(self, arrays: Mapping[str, np.ndarray]) -> NodeCounters:
        """Raises: EngineInputError if the state is missing or is of another counter or cost."""
        if _NODES not in arrays:
            raise EngineInputError(f"state lacks '{_NODES}'")
        prefix = f"{_PREFIX}state/"
        state = {name.removeprefix(prefix): array.copy() for name, array in arrays.items() if name.startswith(prefix)}
        nodes = np.array(arrays[_NODES], np.int64)
        if self.counter.activations(state).shape != nodes.shape:
            raise EngineInputError("the state's counters do not fit their cells")
        return NodeCounters(self.counter, nodes, state)
