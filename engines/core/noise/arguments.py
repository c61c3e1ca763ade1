"""The checks that arguments of the samplers pass, and fractions of short terms, with which they are fast.

Units: an entry is whatever the caller counts; nothing here looks at a value except to refuse its type.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from schemas.arrays import IntArray
from schemas.errors import EngineInputError

INT64_MAX = 2**63 - 1


def int64_vector(name: str, values: ArrayLike) -> IntArray:
    """Return `values` as a one-dimensional int64 array, without copying one that already is.

    Args:
        name: what the caller calls this argument; it is all an error says, never a value.
        values: `(n,)` integers that fit into int64.
    Raises: EngineInputError if the entries are not integers (floats are refused, even whole ones: noise that passed
        through a float is not the noise that was proven), if one does not fit, or if the shape is not `(n,)`.

    >>> int64_vector("counts", [3, 0])
    array([3, 0])
    """
    array: NDArray[Any] = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise EngineInputError(f"{name} must be integers, not {array.dtype}: round on a public lattice first")
    if array.ndim != 1:
        raise EngineInputError(f"{name} must have one dimension, not {array.ndim}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > INT64_MAX:
        raise EngineInputError(f"{name} must fit into int64")
    return array.astype(np.int64, copy=False)


def check_fraction(name: str, value: object) -> None:
    """Refuse what is not a positive Fraction: a float is not the number that was proven.

    Raises: EngineInputError; it names the argument.
    """
    if not isinstance(value, Fraction) or value <= 0:
        raise EngineInputError(f"{name} must be a positive Fraction")


def check_count(count: int) -> None:
    """Refuse a negative number of draws.

    Raises: EngineInputError.
    """
    if count < 0:
        raise EngineInputError("count must not be negative")


def whole(values: Any) -> Any:
    """Return an integer, int64, or Python's integers: sums with noise are such, too, so that none is too large.

    Raises: EngineInputError if they are anything else.
    """
    if isinstance(values, int):
        return values
    if np.asarray(values).dtype != object:
        return int64_vector("values", values)
    if values.ndim != 1 or not all(isinstance(value, int) for value in values):
        raise EngineInputError("values must be integers, in one dimension")
    return values


def shortened(value: Fraction, bits: int, *, up: bool) -> Fraction:
    """Return a fraction of short terms, not below a positive value if `up`, else not above it.

    It is off by less than 2**(1 - bits) of the value.

    >>> shortened(Fraction(1000, 3), 8, up=True), shortened(Fraction(1000, 3), 8, up=False)
    (Fraction(334, 1), Fraction(333, 1))
    """
    shift = bits - (value.numerator.bit_length() - value.denominator.bit_length())
    step = Fraction(1, 1 << shift) if shift >= 0 else Fraction(1 << -shift)
    return (-(-value // step) if up else value // step) * step
