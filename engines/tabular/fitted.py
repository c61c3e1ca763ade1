"""What a fit leaves: shares of the rows in marginals that agree with each other. Public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engines.core.contract import State
from engines.core.state import reading
from schemas.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """Attributes:

    ones: `(cells of one-ways,)` shares of the rows, 1 in all for each marginal. larger: the same for larger ones.
    apart: `(larger marginals,)` L1 distance from the prior of lower order, as a share; 0 before they were measured.
    drift: the largest believed L1 change of an attribute since the last settled block, as a share of the rows.
    edges: `(edges,)` indices of the forest's pairs.
    """

    ones: FloatArray
    larger: FloatArray
    apart: FloatArray
    drift: float
    edges: IntArray

    def arrays(self) -> State:
        return {
            "fitted/ones": self.ones.copy(),
            "fitted/larger": self.larger.copy(),
            "fitted/apart": self.apart.copy(),
            "fitted/drift": np.array([self.drift]),
            "fitted/edges": self.edges.copy(),
        }

    @staticmethod
    def of(state: Mapping[str, np.ndarray]) -> Fitted | None:
        """None where nothing was fitted yet. Raises: EngineInputError if an array is missing."""
        if "fitted/ones" not in state:
            return None
        with reading():
            ones, larger, apart, drift = (
                np.array(state[f"fitted/{name}"], np.float64) for name in ("ones", "larger", "apart", "drift")
            )
            return Fitted(ones, larger, apart, float(drift[0]), np.array(state["fitted/edges"], np.int64))
