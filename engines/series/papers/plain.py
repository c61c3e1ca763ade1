"""Measurements released as they are: the baselines `gaussian` and `laplace`.

Guarantee: post-processing (none at all).
Source: [zhang2022], section 3 and 8.
Units: lattice steps.
"""

from __future__ import annotations

from engines.contract import State


class Plain:
    """An estimator without memory, see `modes`."""

    def update(self, value: float, variance: float) -> tuple[float, float]:
        """The measurement itself."""
        return value, variance

    def skip(self) -> None:
        """Nothing to do."""

    def arrays(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """Nothing to take over."""
