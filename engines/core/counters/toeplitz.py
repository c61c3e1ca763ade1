"""Square-root Toeplitz counters: Gaussian noise that is correlated over time, for rho-zCDP (and so approximate DP).

With r_j = binom(2j, j) / 4^j the Toeplitz matrix R of r_0, r_1, ... squared is the lower triangle of ones, so noise
R z has variance sigma^2 (r_0^2 + ... + r_(t-1)^2), near sigma^2 ln(t)/pi, at sensitivity r_0^2 + ... + r_(T-1)^2.

Integers. A real-valued R x can not carry integer noise: the fraction of the sum would tell of x. So coefficients are
rounded and not products. With s = 65537, c_0 = s and c_j = s r_j rounded, C x is a vector of integers. The mechanism is
n = C x + z with z discrete Gaussian on the integers, and one event moves n by one column of C: exactly, for any data.
    Released is y, s times an estimate of x, found from n by y_t = n_t - round((c_1 y_(t-1) + c_2 y_(t-2) + ...) / s).
    Now put y_t = s x_t + w_t: in the bracket the data are multiples of s, which pass through division and rounding
    unchanged and cancel those in n_t. What is left is w_t = z_t - round((c_1 w_(t-1) + c_2 w_(t-2) + ...) / s). So
    y = s x + w, with noise w made in integers from z alone, is to the last bit that post-processing of n: it is what
    runs. s is odd: nothing lies half-way between two whole numbers, so w is symmetric and the release unbiased.

Guarantee: rho-zCDP for one event. sigma_squared >= (c_0^2 + ... + c_(T-1)^2) / (2 rho), an exact integer in it. Also
    under adaptive continual release: C is lower triangular, so n_t is a discrete Gaussian mechanism of its own on data
    that earlier n may have chosen. Once the event is in, at s, its shifts c_0, c_1, ... are fixed and their squares
    sum up under adaptive composition ([bun2016]); before it nothing differs.
Unbounded horizon: r_0^2 + r_1^2 + ... diverges. Each r_j is divided by 1 + kappa L(j) with kappa = 3/20 and L(j) =
    floor(log2 j) + (j / 2^floor(log2 j) - 1), and rounded down. By r_j^2 <= 1 / (pi j) the squares of entries from 2^m
    on sum to at most (ln 2 + 2^-m) / pi * [q^2 + q / kappa], q = 1 / (1 + kappa m); those before are summed exactly.
Source: [henzinger2023]; [fichtenberger2023]. Damping coefficients
    by a logarithm is of [jacobsen2025]; the damping
    used here is ours.
Cost: O(t) time and memory for each coordinate. `blt` needs O(log t).
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt, log, pi
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from engines.core.counters.contract import check_activation
from engines.core.counters.draws import check_cost, check_whole, gaussian_node, largest_gaussian, rounded_up
from engines.core.counters.linear import GaussianCounter, Memory
from engines.core.noise import NoiseSource
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

_SCALE = 2**16 + 1
_FIXED = 80
_KAPPA = (3, 20)
_SUMMED = 14
"""Coefficients below 2^14 enter the sensitivity of an unbounded counter exactly, the others by their bound."""
_LONGEST = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class ToeplitzConfig:
    """The recipe: how many activations there may be; None for no limit, at about half as much variance again."""

    horizon: int | None = None

    def calibrate(self, rho: Fraction, /) -> "ToeplitzCounter":
        """Return the counter that spends `rho` on one event. For mu-GDP, nearly, take rho = mu^2 / 2.

        Raises: EngineInputError if rho is not a positive Fraction, horizon is not a positive whole number up to 2^20,
            or rho is so small that noise could leave int64.

        >>> counter = ToeplitzConfig(horizon=100).calibrate(Fraction(1, 2))
        >>> round(counter.l2_sensitivity_squared / counter.resolution**2, 3), round(counter.variance(100), 2)
        (2.531, 6.41)
        """
        return ToeplitzCounter(rho=rho, horizon=self.horizon)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToeplitzCounter(GaussianCounter):
    """Square-root Toeplitz noise; holds a budget and no data."""

    rho: Fraction
    horizon: int | None

    resolution: ClassVar[int] = _SCALE

    def __post_init__(self) -> None:
        if self.horizon is not None:
            check_whole("horizon", self.horizon)
        check_cost("rho", self.rho)
        longest = self.horizon or _LONGEST
        if longest > _LONGEST:
            raise EngineInputError("horizon of a Toeplitz counter must be at most 2**20: take blt")
        # c_1 + ... + c_T is at most 1.2 s sqrt(T).
        if self._largest() * 2 * _SCALE * (isqrt(longest) + 1) >= 2**61:
            raise EngineInputError("rho is too small: noise could leave int64")

    @property
    def l2_sensitivity_squared(self) -> int:
        """Sum of the squares of all coefficients, in units of 1/65537^2 events; a bound where there is no horizon."""
        return _sensitivity_squared(self.horizon)

    @property
    def sigma_squared(self) -> Fraction:
        """l2_sensitivity_squared / (2 rho), rounded up to short terms; in units of 1/65537^2 events."""
        return rounded_up(self.l2_sensitivity_squared / (2 * self.rho))

    def _largest(self) -> int:
        """More than |w| can be: the coefficients of the inverse of C sum to 2 in absolute value, before rounding."""
        return 3 * largest_gaussian(self.sigma_squared)

    def _memory(self, width: int) -> dict[str, IntArray]:
        # Noise of each activation, first one first; as long as the oldest coordinate, and a power of two.
        return {"noise": np.zeros((width, 1), dtype=np.int64)}

    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        longest, past = int(t.max(initial=1)), memory["noise"]
        if longest > _LONGEST:
            raise EngineInputError("a Toeplitz counter ends after 2**20 activations: take blt")
        drawn = gaussian_node(t.size, self.sigma_squared, source)
        spare = (1 << (longest - 1).bit_length()) - past.shape[1] if longest > past.shape[1] else 0
        past = np.pad(past, ((0, 0), (0, spare)))
        noise = np.zeros(t.size, dtype=np.int64)
        for now in np.unique(t).tolist():
            rows = np.flatnonzero(t == now)
            # Coordinates of one age, the usual case, are not gathered first: that would copy all that they remember.
            history = past if rows.size == t.size else past[rows]
            sums = history[:, : now - 1] @ _coefficients(now, self.horizon is None)[:0:-1]
            noise[rows] = drawn[rows] - (2 * sums + _SCALE) // (2 * _SCALE)
            past[rows, now - 1] = noise[rows]
        if int(np.abs(noise).max(initial=0)) > self._largest():
            raise EngineInputError("source is not uniform: its noise is too large")
        return noise, {"noise": past}

    def variance(self, t: int) -> float:
        """Return sigma^2 times the sum of the squares of the first t coefficients of the decoder."""
        check_activation(t, self.horizon)
        return float(np.sum(_decoding(t, self.horizon is None) ** 2)) * self.node_variance

    def strategy(self, t: int) -> IntArray:
        """Return the lower triangular Toeplitz matrix of the coefficients, a row for each activation."""
        return toeplitz(_coefficients(t, self.horizon is None))

    def decoder(self, t: int) -> FloatArray:
        """Return the lower triangular Toeplitz matrix that turns noisy rows of the strategy into running sums."""
        return toeplitz(_decoding(t, self.horizon is None)) / _SCALE


def toeplitz(column: NDArray[Any]) -> NDArray[Any]:
    """Return the lower triangular Toeplitz matrix with this first column."""
    lags = np.subtract.outer(np.arange(column.size), np.arange(column.size))
    return np.where(lags >= 0, column[lags], column.dtype.type(0))


def _coefficients(t: int, damped: bool) -> IntArray:
    """Return c_0, ..., c_(t-1), of at least one."""
    return _all_coefficients(max(t - 1, 1).bit_length(), damped)[:t]


@lru_cache(maxsize=32)
def _all_coefficients(bits: int, damped: bool) -> IntArray:
    """Return 2**bits coefficients, in integers throughout: the same on every machine."""
    exact, coefficients = 1 << _FIXED, [_SCALE]
    for j in range(1, 1 << bits):
        exact = exact * (2 * j - 1) // (2 * j)
        if damped:
            whole = j.bit_length() - 1
            # 1 + kappa L(j), times 20 * 2^whole.
            divisor = (_KAPPA[1] + _KAPPA[0] * (whole - 1) << whole) + _KAPPA[0] * j
            coefficients.append(exact * _SCALE * (_KAPPA[1] << whole) // divisor >> _FIXED)
        else:
            coefficients.append((exact * _SCALE + (1 << (_FIXED - 1))) >> _FIXED)
    return np.array(coefficients, dtype=np.int64)


@lru_cache(maxsize=64)
def _sensitivity_squared(horizon: int | None) -> int:
    coefficients = _coefficients(horizon or 2**_SUMMED, horizon is None).astype(object)
    summed = int((coefficients**2).sum())
    if horizon is not None:
        return summed
    kappa = _KAPPA[0] / _KAPPA[1]
    q = 1 / (1 + kappa * _SUMMED)
    rest = (log(2) + 2.0**-_SUMMED) / pi * (q * q + q / kappa)
    # FloatArray here only bound a sensitivity from above: a part in 10^9 is more than they can be wrong by.
    return summed + ceil(rest * (1 + 1e-9) * _SCALE**2)


def _decoding(t: int, damped: bool) -> FloatArray:
    """Return the first column of (ones) C^-1 with c_0 = 1: c is inverted as a power series, then added up."""
    return _all_decoding(max(t - 1, 1).bit_length(), damped)[:t]


@lru_cache(maxsize=32)
def _all_decoding(bits: int, damped: bool) -> FloatArray:
    from scipy.signal import lfilter  # here, because it takes a worker a second to load, and few need it

    coefficients = _all_coefficients(bits, damped) / _SCALE
    impulse = np.zeros(coefficients.size)
    impulse[0] = 1
    return np.cumsum(np.asarray(lfilter([1.0], coefficients, impulse), dtype=np.float64))
