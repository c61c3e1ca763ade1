"""What accountants take: positive budgets, and nothing that only looks like one.

Units: epsilon is in nats, delta a probability.
"""

import math
from fractions import Fraction

from schemas.errors import EngineInputError

Real = int | float | Fraction


def check_positive(**values: object) -> None:
    """Refuse what is not a positive finite number.

    Raises: EngineInputError; it names the argument.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)):
            raise EngineInputError(f"{name} must be a number")
        if not (math.isfinite(value) and value > 0):
            raise EngineInputError(f"{name} must be positive and finite")


def check_delta(delta: Real) -> None:
    """Refuse what is not a probability strictly between 0 and 1.

    Raises: EngineInputError.
    """
    check_positive(delta=delta)
    if delta >= 1:
        raise EngineInputError("delta must be below 1: at 1 nothing is promised")


def check_epsilon(epsilon: Fraction) -> None:
    """Refuse what is not a positive Fraction: pure budgets are added exactly.

    Raises: EngineInputError.
    """
    if not isinstance(epsilon, Fraction):
        raise EngineInputError("epsilon must be a Fraction")
    check_positive(epsilon=epsilon)


def check_whole(**values: object) -> None:
    """Refuse what is not an integer of at least 1.

    Raises: EngineInputError; it names the argument.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise EngineInputError(f"{name} must be an integer of at least 1")
