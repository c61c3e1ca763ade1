"""Buffered linear Toeplitz counters: square-root Toeplitz noise, nearly, from a handful of decaying buffers.

The coefficients are c_0 = 1 and c_j = sum over buffers a of omega_a * theta_a^(j-1), with theta_a = 1 - 4^-a and
weights omega_a >= 0 that are fitted to r_j = binom(2j, j) / 4^j, of which the Toeplitz matrix squared is the lower
triangle of ones ([henzinger2023], [fichtenberger2023]). A coordinate needs log4(T) + 2 numbers and as much time.
Noise is w_t = z_t - sum_a omega_a b_a, and b_a <- theta_a b_a + w_t, where b_a = w_(t-1) + theta_a w_(t-2) + ...

Integers. A linear recursion that decays can not run in integers (its matrix would have to be nilpotent), so what this
counter measures is not exactly linear, and the rounding is in the sensitivity. w and z are whole multiples of 1/s, with
s = 2^20, and buffers of 1/(s G), G = 2^12. An activation draws z_t and takes w_t = z_t - M_t and b_a <- b_a -
round(b_a / 4^a) + G w_t, with M_t = round(sum_a omega_a round(b_a / G)). M_t is a function of w before t, so z is a
function of w: z = F(w).
    Take one release and the two noises w, w' that explain it with and without an event at time u: w' = w -+ s e_u.
    F(w') and F(w) agree before u and differ by s at u. Afterwards each rounding moves a difference by at most 1, so a
    buffer's differs from s G theta_a^(j-1) by at most e_aj = (1 - theta_a^(j-1)) 4^a (0 where a = 0), and z_(u+j) by at
    most D_j = floor(s c_j + 1 + sum_a omega_a (1 + e_aj / G)): `strategy` is the matrix of these bounds.
Guarantee: rho-zCDP for one event, sigma_squared >= (s^2 + D_1^2 + D_2^2 + ...) / (2 rho). Given the past, z_t is a
    discrete Gaussian on integers whose shift is a whole number of at most D_j, so costs add up by adaptive composition
    ([bun2016]): it holds under adaptive continual release too. Rounding costs some 10^-5 of rho at T = 100.
Unbounded horizon: `epochs`.
Units: variance, decoder and unbiasedness leave out the rounding, below 10^-5 of an event in each increment. It is odd
    in the noise, so that the release stays unbiased.
Source: [mcmahan2024]; [dvijotham2024]. Decays at powers of four and the fit are ours.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from engines.core.counters.linear import (
    Counter,
    Measure,
    Memory,
    check_activation,
    check_whole,
    gaussian_node,
    largest_gaussian,
)
from engines.core.noise import DiscreteGaussian, NoiseSource
from engines.core.noise.arguments import check_fraction, shortened
from engines.core.noise.gaussian import SHORT_BITS
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

_SCALE = 2**20
_GUARD_BITS = 12
_WEIGHT_BITS = 16
_LARGEST_BUFFER = 2**57
_LONGEST = 2**20


@dataclass(frozen=True, slots=True)
class Buffers:
    """Decays 1 - 2^-shifts[a] and weights in units of 2^-16; public."""

    shifts: tuple[int, ...]
    weights: tuple[int, ...]

    def coefficients(self, t: int) -> FloatArray:
        """Return c_0, ..., c_(t-1)."""
        lags = np.arange(max(t - 1, 0))
        column = np.ones(t)
        column[1:] = sum(
            w / 2**_WEIGHT_BITS * (1 - 2.0**-m) ** lags for m, w in zip(self.shifts, self.weights, strict=True)
        )
        return column

    def shift_bounds(self, t: int, scale: int) -> IntArray:
        """Return s, D_1, ..., D_(t-1): by how much one event can move the noise that explains a release."""
        lags = np.arange(max(t - 1, 0))
        column, slack = np.zeros(lags.size), np.ones(lags.size)
        for m, w in zip(self.shifts, self.weights, strict=True):
            # The powers, of up to 2^20 lags, are nearly all of the time.
            weight, powers = w / 2**_WEIGHT_BITS, (1 - 2.0**-m) ** lags
            column += weight * powers
            slack += weight * (1 + ((1 - powers) * 2**m / 2**_GUARD_BITS if m else 0.0))
        # Floats, but only to bound whole numbers from above: they are wrong by far less than what is added.
        bounds = np.floor((scale * column + slack) * (1 + 1e-9) + 1e-6)
        return np.concatenate([[scale], bounds]).astype(np.int64)[:t]

    def advance(self, drawn: IntArray, buffers: IntArray) -> tuple[IntArray, IntArray]:
        """Return `(width,)` noise w of this activation, and the next `(width, buffers)`."""
        whole = _halved(buffers, _GUARD_BITS)
        noise = drawn - _halved(whole @ np.array(self.weights, dtype=np.int64), _WEIGHT_BITS)
        decayed = buffers - np.stack([_halved(buffers[:, a], m) for a, m in enumerate(self.shifts)], axis=1)
        following: IntArray = decayed + (noise << _GUARD_BITS)[:, np.newaxis]
        if following.size and int(np.abs(following).max()) > _LARGEST_BUFFER:
            raise EngineInputError("source is not uniform: its noise is too large")
        return noise, following


def _halved(values: IntArray, times: int) -> IntArray:
    """Return values / 2**times, rounded to the nearest, halves away from zero: odd, so symmetric noise stays so."""
    if times == 0:
        return values
    halves: IntArray = np.sign(values) * ((np.abs(values) + (1 << (times - 1))) >> times)
    return halves


@lru_cache(maxsize=64)
def fitted(horizon: int) -> Buffers:
    """Return the buffers for a horizon: weights by non-negative least squares, relative to lag^(3/4) r_lag."""
    from scipy.optimize import nnls

    shifts = tuple(range(0, horizon.bit_length() + 2, 2))
    lags = np.arange(1, max(horizon, 2))
    exact = np.cumprod(1 - 0.5 / lags)
    if lags.size > 2**14:
        # Beyond 2^13 a few thousand lags, ever farther apart, stand for all.
        keep = np.unique(np.geomspace(2**13, lags.size, 2**12).astype(np.int64)) - 1
        keep = np.concatenate([np.arange(2**13 - 1), keep])
        lags, exact = lags[keep], exact[keep]
    importance = np.sqrt(np.gradient(lags.astype(np.float64)) if lags.size > 1 else 1.0) / (exact * lags**0.75)
    decays = 1 - 2.0 ** -np.array(shifts)
    weights, _ = nnls(decays ** (lags[:, np.newaxis] - 1) * importance[:, np.newaxis], exact * importance)
    return Buffers(shifts, tuple(int(w) for w in np.rint(weights * 2**_WEIGHT_BITS)))


@dataclass(frozen=True, kw_only=True, slots=True)
class BltCounter(Counter):
    """Noise from buffers; `fitted_to` makes one.

    Args: resolution: s, steps of the lattice to an event.
    Raises: EngineInputError if rho is not a positive Fraction, or so small that noise could leave int64.
    """

    measure: ClassVar[Measure] = "rho"

    rho: Fraction
    horizon: int
    buffers: Buffers
    resolution: int = _SCALE

    def __post_init__(self) -> None:
        check_fraction("rho", self.rho)
        # A buffer adds up some 4^a entries; since they are anticorrelated it grows as their root.
        reach = 2 ** (self.buffers.shifts[-1] // 2 + 2)
        if largest_gaussian(self.sigma_squared) * reach << _GUARD_BITS >= _LARGEST_BUFFER:
            raise EngineInputError("rho is too small: noise could leave int64")

    @classmethod
    def fitted_to(cls, horizon: int, rho: Fraction, resolution: int = _SCALE) -> "BltCounter":
        """Return the counter that spends `rho` on one event. For mu-GDP, nearly, take rho = mu^2 / 2.

        Args:
            horizon: activations that there may be, at most 2^20. Without a horizon: `epochs`.
            resolution: a coarser lattice leaves room for more noise, which a small rho needs; roundings then cost more
                of it: at 2^14 and T = 2^18 two parts in a thousand.
        Raises: EngineInputError, also if horizon is not a positive whole number up to 2^20.

        >>> counter = BltCounter.fitted_to(100, Fraction(1, 2))
        >>> counter.buffers.shifts, round(counter.variance(100), 1)
        ((0, 2, 4, 6, 8), 6.4)
        """
        check_whole("horizon", horizon)
        if horizon > _LONGEST:
            raise EngineInputError("horizon of a blt counter must be at most 2**20: take epochs")
        check_whole("resolution", resolution)
        return cls(rho=rho, horizon=horizon, buffers=fitted(horizon), resolution=resolution)

    @property
    def cost(self) -> Fraction:
        """Rho of one event."""
        return self.rho

    @property
    def node_variance(self) -> float:
        """Variance of one draw, in squared events."""
        return DiscreteGaussian(self.sigma_squared).variance / self.resolution**2

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        """Return sigma_squared, once for each activation."""
        return (self.sigma_squared,) * t

    @property
    def l2_sensitivity_squared(self) -> int:
        """s^2 + D_1^2 + D_2^2 + ..., in squares of 1/s events."""
        return _sensitivity_squared(self.buffers, self.horizon, self.resolution)

    @property
    def sigma_squared(self) -> Fraction:
        """l2_sensitivity_squared / (2 rho), rounded up to short terms; in squares of 1/s events."""
        return shortened(self.l2_sensitivity_squared / (2 * self.rho), SHORT_BITS, up=True)

    def _memory(self, width: int) -> dict[str, IntArray]:
        return {"buffers": np.zeros((width, len(self.buffers.shifts)), dtype=np.int64)}

    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        noise, buffers = self.buffers.advance(gaussian_node(t.size, self.sigma_squared, source), memory["buffers"])
        return noise, {"buffers": buffers}

    def variance(self, t: int) -> float:
        """Return sigma^2 times the sum of the squares of the first t coefficients of the decoder."""
        check_activation(t, self.horizon)
        return float(np.sum(_decoding(self.buffers, t) ** 2)) * self.node_variance

    def strategy(self, t: int) -> IntArray:
        """Return bounds: entry (r, u) is by how much an event at u can move the noise that explains a release at r."""
        return _toeplitz(self.buffers.shift_bounds(t, self.resolution))

    def decoder(self, t: int) -> FloatArray:
        """Return the lower triangular Toeplitz matrix from noise to running sums, of the counter without rounding."""
        return _toeplitz(_decoding(self.buffers, t)) / self.resolution


def _toeplitz(column: NDArray[Any]) -> NDArray[Any]:
    """Return the lower triangular Toeplitz matrix with this first column."""
    lags = np.subtract.outer(np.arange(column.size), np.arange(column.size))
    return np.where(lags >= 0, column[lags], column.dtype.type(0))


@lru_cache(maxsize=64)
def _sensitivity_squared(buffers: Buffers, horizon: int, scale: int) -> int:
    # At most 2^20 squares of at most 2^41, most of them far smaller: they fit into int64.
    return int(np.sum(buffers.shift_bounds(horizon, scale) ** 2))


def _decoding(buffers: Buffers, t: int) -> FloatArray:
    return _all_decoding(buffers, max(t - 1, 1).bit_length())[:t]


@lru_cache(maxsize=64)
def _all_decoding(buffers: Buffers, bits: int) -> FloatArray:
    from scipy.signal import lfilter

    impulse = np.zeros(1 << bits)
    impulse[0] = 1
    return np.cumsum(np.asarray(lfilter([1.0], buffers.coefficients(1 << bits), impulse), dtype=np.float64))
