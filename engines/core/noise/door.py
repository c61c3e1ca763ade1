"""The door: the one place where private numbers are opened, and the one place where noise is added to them.

A mechanism is a law and private integers. Its noise is drawn by the law alone, through a function that is told how
many numbers there are and nothing else; what is added to what is decided here. Decisions by private numbers
(`laplace_exceeds`, `exponential_mechanism`) are opened here too, and made in their own modules.
Guarantee: none of its own. Under test values are sealed on the way here (`engines.core.noise.private`), and a witness
    holds what leaves against what samplers drew (`engines.core.noise.witness`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from engines.core.noise.private import revealed
from engines.core.noise.source import NoiseSource
from engines.core.noise.witness import Law, NoiseLaw, WitnessedSource
from schemas.arrays import IntArray

T = TypeVar("T")


def released(
    private: Any, law: NoiseLaw, draw: Callable[[int], IntArray], source: NoiseSource, *, checked: Callable[[Any], Any]
) -> Any:
    """Return private integers, times the resolution of the law, with noise.

    Args:
        private: one integer, or `(n,)`. draw: gives so many noises `(n,)`; knows the law and a source, never a value.
        checked: refuses what are no integers.
    Returns: the same shape; safe to publish.
    """

    def added(values: Any) -> Any:
        noise = draw(np.size(values))
        whole = values if law.resolution == 1 else law.resolution * values
        return whole + (int(noise[0]) if isinstance(values, int) else noise)

    return opened(private, law, added, source, checked=checked)


def opened(
    private: Any, law: Law, mechanism: Callable[[Any], T], source: NoiseSource, *, checked: Callable[[Any], Any]
) -> T:
    """Return what a mechanism of this law lets out of private numbers, or what the source's witness makes of it."""
    values = checked(revealed(private))
    if isinstance(source, WitnessedSource):
        return source.witness.released(source, law, values, mechanism)
    return mechanism(values)


def check_zero(values: IntArray, what: str) -> None:
    """Stop where private values are not all zero that are so by construction, whatever the data. Says no value.

    Raises: AssertionError naming `what`.
    """
    if np.any(revealed(values)):
        raise AssertionError(what)
