"""Strategies that were optimised for running sums, stored as integers beside this file, and how each is decoded.

A strategy for T activations is S = [diag(own); sums]: a node for each activation, and p nodes that add up activations
with weights. All entries are whole and not negative, and each column adds up to the same `lattice`, which is therefore
the L1 sensitivity of S x, exactly: 2^12, or 1 where no node adds up. `python -m benchmarks.strategies` computes them;
for other T the columns beyond are cut.

A release is f(n), a function of the noisy nodes n = S x + z alone, in units of 1/R events, R = RESOLUTION. Write o for
the first T of n and y for the others, d for own shares, B for sums, and G for weights, whatever they are:
    a_i = nearest(R o_i / d_i)                       an estimate of R x_i
    u   = R y - B a                                  what the other nodes say beyond that
    f_t = a_1 + ... + a_t + nearest(row t of G u)
Lemma. f(S x + z) = R (running sums of x) + f(z), for all whole x and z. Proof: x moves o_i by d_i x_i, R o_i / d_i by
    the whole number R x_i, and a_i by as much. (Nothing lies half-way, where rounding would look at the sign: then d_i
    would be a multiple of 2 R, and it is at most R.) So B a moves by R B x, and so does R y: u does not move at all,
    whatever is done with it afterwards, and f_t moves by R (x_1 + ... + x_t). QED
    So what runs, the noise f(z) added to the running sum, is that function of noisy nodes to the last bit. But for
    rounding, f_t / R is row t of D n, D = [(L - G B) diag(1/d), G], with L the lower triangle of ones: D S = L for any
    G.
All of it is computed in integers, G included: the same draws give the same noise on every machine.
Source: p-identity strategies and their optimisation, [mckenna2018].
"""

import zlib
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from json import loads
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.arrays import FloatArray, IntArray, narrowed
from schemas.errors import EngineInputError

RESOLUTION = 2**12
"""Releases are whole multiples of one event divided by this."""
LATTICE = 2**12
"""What a column adds up to where nodes add up: at most RESOLUTION, as the lemma asks."""
LEAST_SHARE = 2**6
"""Of an activation in its own node, where others add up: bounds what a draw can grow to."""
DIGEST = "520d282dfd928394a1bfbf6b8d2e846fdff3c45012dc4197751df055d8439026"
"""SHA-256 of the stored strategies, unpacked: part of a counter's kind, so that no state outlives its strategy."""

_BITS = 12
_WEIGHT_BITS = 22
"""G is in multiples of 2^-22: that adds less than 1e-4 of the variance."""
_FINE_BITS = 4
"""Before it meets G, u is rounded to 1/16 of a unit of the noise, at epsilon from 1 on."""
COARSEST = _WEIGHT_BITS - _BITS + _FINE_BITS
"""`noise` may round u to 2^COARSEST as much."""


@dataclass(frozen=True, slots=True, eq=False)
class Strategy:
    """A strategy, and the weights that decode it; public constants.

    Attributes:
        own: `(horizon,)` share of each activation in its own node. sums: `(p, horizon)` shares in the other nodes.
        weights: `(horizon, p)` G, in multiples of 2^-22.
    """

    own: IntArray
    sums: IntArray
    weights: IntArray

    @property
    def lattice(self) -> int:
        """What each column adds up to: the L1 sensitivity."""
        return int(self.own[0] + self.sums[:, 0].sum())

    @property
    def nodes(self) -> int:
        """Noises that are drawn."""
        return self.own.size + len(self.sums)

    def matrix(self, t: int) -> IntArray:
        """Return `(nodes, t)` S, its first t columns."""
        return np.concatenate([np.diag(self.own), self.sums])[:, :t]

    def decoder(self, t: int) -> FloatArray:
        """Return `(t, nodes)` D, its first t rows, in events."""
        weights = self.weights[:t] / 2.0**_WEIGHT_BITS
        left: FloatArray = (np.tri(t, self.own.size) - weights @ self.sums) / self.own
        return np.concatenate([left, weights], axis=1)

    def noise(self, draws: IntArray, coarse: int = 0) -> IntArray:
        """Return `(rows, horizon)` f(z): the noise of running sums, in units of 1/RESOLUTION events.

        Args:
            draws: `(rows, nodes)` z. coarse: u is rounded to 2^coarse times as much, 0 to COARSEST.
        """
        own = nearest(draws[:, : self.own.size] << _BITS, self.own)
        beyond = (draws[:, self.own.size :] << _BITS) - own @ self.sums.T
        beyond = nearest(beyond, np.int64(1 << (_BITS - _FINE_BITS + coarse)))
        corrections = nearest(beyond @ self.weights.T, np.int64(1 << (COARSEST - coarse)))
        noise: IntArray = np.cumsum(own, axis=1) + corrections
        return noise


def nearest(numerators: IntArray, divisors: Any) -> IntArray:
    """Return the nearest whole numbers; away from zero what is half-way, so that the negative gives the negative.

    >>> nearest(np.array([-3, 3, 4, 5]), 2)
    array([-2,  2,  2,  3])
    """
    rounded: IntArray = np.sign(numerators) * ((2 * np.abs(numerators) + divisors) // (2 * divisors))
    return rounded


def packed(strategies: dict[int, IntArray]) -> bytes:
    """Return strategies as bytes, a line of JSON first; the other way round of `unpacked`."""
    head = "{" + ", ".join(f'"{horizon}": {len(sums)}' for horizon, sums in sorted(strategies.items())) + "}\n"
    return head.encode() + b"".join(narrowed(sums, "<i2").tobytes() for _, sums in sorted(strategies.items()))


def unpacked(content: bytes) -> dict[int, IntArray]:
    """Return what `packed` packed."""
    head, _, body = content.partition(b"\n")
    entries, at, strategies = np.frombuffer(body, "<i2").astype(np.int64), 0, {}
    for horizon, rows in loads(head).items():
        size = int(horizon) * rows
        strategies[int(horizon)] = entries[at : at + size].reshape(rows, int(horizon))
        at += size
    return strategies


@lru_cache(maxsize=1)
def stored() -> dict[int, IntArray]:
    """Return the `sums` of the stored strategies by their horizons, ascending.

    Raises: EngineInputError if the file is not the one that this version was made with.
    """
    content = zlib.decompress(files("engines.counters.optimal").joinpath("strategies.bin").read_bytes())
    if sha256(content).hexdigest() != DIGEST:
        raise EngineInputError("stored strategies are not those of this version: install it anew")
    return unpacked(content)


@lru_cache(maxsize=256)
def strategy_for(horizon: int) -> Strategy:
    """Return the least stored strategy that reaches the horizon, cut to it.

    Raises: EngineInputError if there is none, or the stored ones are not those of this version.
    """
    reaching = [longest for longest in stored() if longest >= horizon]
    if not reaching:
        raise EngineInputError(
            f'horizon must be at most {max(stored())}: take counter "kary", or "unbounded-kary" which needs none'
        )
    return cut(stored()[min(reaching)], horizon)


def cut(sums: IntArray, horizon: int) -> Strategy:
    """Return the strategy of the first columns of `sums`, with its weights.

    Raises: EngineInputError if an entry is negative, or an activation's own share is below LEAST_SHARE.
    """
    own = LATTICE - sums.sum(axis=0)
    if bool((sums < 0).any()) or int(own.min()) < LEAST_SHARE:
        raise EngineInputError("shares must not be negative, and own ones at least LEAST_SHARE")
    own, sums = own[:horizon], sums[:, :horizon]
    sums = sums[sums.any(axis=1)]
    if not len(sums):
        # The simple counter: whole events are as good as any lattice, and discrete noise on them is a little less.
        own = np.ones(horizon, dtype=np.int64)
    return Strategy(own, sums, _weights(own, sums))


def _weights(own: IntArray, sums: IntArray) -> IntArray:
    """Return `(horizon, p)` the weights of least squares, G = K C^-1 with the K and C below, in multiples of 2^-22.

    They need not be exact, only the same everywhere: so fixed-point numbers, and products that stay inside int64.
    """
    ratios = nearest(sums << 20, own)
    # C = 1 + ratios ratios', of 40 binary digits; K: running sums of ratios / own, of 28.
    normal = (np.eye(len(sums), dtype=np.int64) << 40) + ratios @ ratios.T
    running = nearest(np.cumsum(nearest(ratios << 20, own), axis=1), np.int64(1 << 12))
    return nearest(running.T @ _inverse(normal), np.int64(1 << (28 + 26 - _WEIGHT_BITS)))


def _inverse(normal: IntArray) -> IntArray:
    """Return the inverse of a positive definite matrix of 40 binary digits, to 26: elimination with 96, in integers."""
    size, one = len(normal), 1 << 96
    rows: NDArray[Any] = np.concatenate([normal.astype(object) << 56, np.eye(size, dtype=object) * one], axis=1)
    for at in range(size):
        pivot = rows[at] * one // rows[at, at]
        rows -= (rows[:, at, None] * pivot) >> 96
        rows[at] = pivot
    return ((rows[:, size:] + (1 << 69)) >> 70).astype(np.int64)


def coarse_for(epsilon: Fraction) -> int:
    """Return how many binary digits of u may be rounded away: as the noise grows, as many are lost in it.

    >>> [coarse_for(Fraction(1, n)) for n in (1, 3, 4, 1000)]
    [0, 1, 2, 9]
    """
    return max(0, int(1 / epsilon).bit_length() - 1)
