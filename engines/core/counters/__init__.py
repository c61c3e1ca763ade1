"""Continual counters: running sums under differential privacy, a vector of them at a time. One family, one file."""

from collections.abc import Callable
from fractions import Fraction

from engines.core.counters.linear import Counter, CounterState, Measure, concatenate, select, spent

__all__ = ["Counter", "CounterState", "Measure", "Recipe", "concatenate", "select", "spent"]

Recipe = Callable[[Fraction], Counter]
"""Returns the counter that spends this epsilon, or rho, on one event over all its activations."""
