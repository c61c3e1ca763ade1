"""What engine `series` is compared with, all seeds at once and at their best parameters in hindsight.

Noise is in floats, for speed: these give errors, no releases. One user is in every step and moves it by at most 1.
Source: [zhang2022], sections 4 and 8; of each other method, at its function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from engines.core.accounting import gaussian
from engines.series.papers.ar1 import Moments

DELTA = 1e-6
WEIGHTS = (0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
DECAYS = (0.97, 0.98, 0.99, 0.995, 0.998)
FloatArray = np.ndarray
Tried = Mapping[str, FloatArray]
"""Releases `(seeds, steps)` by parameter."""


@dataclass(frozen=True)
class Best:
    """Mean squared errors `(seeds,)` of a method at the parameter with the least mean; which one that was."""

    errors: FloatArray
    parameter: str = ""
    relative: FloatArray | None = None


def best(tried: Tried, truth: FloatArray, limits: tuple[float, float] = (-np.inf, np.inf)) -> Best:
    """Of releases `(seeds, steps)` by parameter, all moved into the public range first."""
    inside = {name: np.clip(released, *limits) for name, released in tried.items()}
    errors = {name: ((released - truth) ** 2).mean(axis=1) for name, released in inside.items()}
    name = min(errors, key=lambda name: float(errors[name].mean()))
    return Best(errors[name], name, relative_error(inside[name], truth))


def relative_error(released: FloatArray, truth: FloatArray) -> FloatArray:
    """RE of [zhang2022], section 8: ||z - x|| / (T max |z|), by seed."""
    return np.linalg.norm(released - truth, axis=1) / (truth.shape[1] * np.abs(truth).max(axis=1))


def mu_squared(epsilon: float, *, exact: bool) -> float:
    """What the squared weights over the noise may add up to: exactly, or by corollary 5.2."""
    if exact:
        return gaussian.mu_for(epsilon, DELTA) ** 2
    return 1 / gaussian.corollary_5_2(epsilon=epsilon, delta=DELTA) ** 2


def releaser(truth: FloatArray, normal: FloatArray, epsilon: float, *, exact: bool) -> Tried:
    """The AR(1) releaser: the best of 20 schedules, and of correcting the correlation for noise or adding 1/(t-1)."""
    seeds, steps = truth.shape
    schedules = {f"w={w:g}": np.full(steps, w) for w in WEIGHTS}
    schedules |= {f"r={r:g}": r ** (np.arange(steps) / 2) for r in DECAYS}
    weights = np.stack(list(schedules.values()))
    weights[:, :2] = 1
    sigma = np.sqrt((weights**2).sum(axis=1) / mu_squared(epsilon, exact=exact))
    tried: dict[str, FloatArray] = {}
    for corrected in (False, True):
        x = np.zeros((seeds, len(weights), steps))
        x[:, :, :2] = truth[:, None, :2] + sigma[:, None] * normal[:, None, :2]
        total, squares = x[:, :, :2].sum(axis=2), (x[:, :, :2] ** 2).sum(axis=2)
        products = x[:, :, 0] * x[:, :, 1]
        for t in range(2, steps):
            mean = total / t
            noisy = np.maximum((squares - t * mean**2) / (t - 1), 1e-9)
            pairs = products - mean * (2 * total - x[:, :, 0] - x[:, :, t - 1]) + (t - 1) * mean**2
            rho = pairs / np.maximum(noisy * (t - 1), 1e-12)
            variance = np.maximum(noisy - sigma**2, 1e-3 * noisy)
            rho = rho * (variance + sigma**2) / variance if corrected else rho + 1 / (t - 1)
            pull = np.clip(rho, 0, 0.99) * variance / (variance + sigma**2)
            guess = mean * (1 - pull) + pull * x[:, :, t - 1]
            w = weights[:, t]
            x[:, :, t] = (1 - w) * guess + w * truth[:, t, None] + sigma * normal[:, t, None]
            total += x[:, :, t]
            squares += x[:, :, t] ** 2
            products += x[:, :, t] * x[:, :, t - 1]
        kind = "corrected" if corrected else "+1/(t-1)"
        tried |= {f"{name}, {kind}": x[:, index] for index, name in enumerate(schedules)}
    return tried


def kalman(truth: FloatArray, normal: FloatArray, epsilon: float) -> Tried:
    """One Kalman filter for one AR(1) process, its parameters learnt from the noisy totals as they come; even noise."""
    variance = truth.shape[1] / mu_squared(epsilon, exact=True)
    noisy = truth + variance**0.5 * normal
    return {"": np.stack([_filtered(series, variance) for series in noisy])}


def _filtered(noisy: FloatArray, variance: float) -> FloatArray:
    moments, released = Moments(), np.empty_like(noisy)
    estimate, spread = 0.0, np.inf
    for t, value in enumerate(noisy):
        moments.add(value, variance)
        known = moments.parameters()
        if known is None:
            estimate, spread = value, variance
        else:
            rho = known.correlation
            before = known.mean + rho * (estimate - known.mean)
            spread = min(spread, known.variance) * rho**2 + known.variance * (1 - rho**2)
            gain = spread / (spread + variance)
            estimate, spread = before + gain * (value - before), gain * variance
        released[t] = estimate
    return released


def plain_gaussian(truth: FloatArray, random: np.random.Generator, epsilon: float) -> Tried:
    """Independent noise with the paper's accounting."""
    sigma = (truth.shape[1] / mu_squared(epsilon, exact=False)) ** 0.5
    return {"": truth + sigma * random.normal(size=truth.shape)}


def laplace(truth: FloatArray, random: np.random.Generator, epsilon: float) -> Tried:
    """Scale T / epsilon at every step."""
    return {"": truth + random.laplace(scale=truth.shape[1] / epsilon, size=truth.shape)}


def fast(truth: FloatArray, random: np.random.Generator, epsilon: float) -> Tried:
    """FAST ([fan2014]) without sampling: a random walk's Kalman filter, the walk's variance in hindsight."""
    scale = truth.shape[1] / epsilon
    noisy = truth + random.laplace(scale=scale, size=truth.shape)
    tried = {}
    for ratio in 10.0 ** np.arange(-10, 3):
        walk, noise = ratio * 2 * scale**2, 2 * scale**2
        released = np.empty_like(noisy)
        released[:, 0], variance = noisy[:, 0], noise
        for t in range(1, noisy.shape[1]):
            spread = variance + walk
            gain = spread / (spread + noise)
            released[:, t] = released[:, t - 1] + gain * (noisy[:, t] - released[:, t - 1])
            variance = gain * noise
        tried[f"{ratio:g}"] = released
    return tried


def fourier(truth: FloatArray, random: np.random.Generator, epsilon: float, *, delay: int | None) -> Tried:
    """Lowest Fourier coefficients ([rastogi2010]) of blocks of `delay` steps, or of the whole series (offline).

    Their number is chosen in hindsight. A block moves by at most its length's root in L2, and an orthonormal transform
    keeps that.
    """
    seeds, steps = truth.shape
    block = steps if delay is None else delay
    tried = {}
    for kept in sorted({1, 2, 3, 5, 9, 17, 33, 65, 129, 257} | {block}):
        if kept > block:
            continue
        released = np.empty_like(truth)
        scale = -(-steps // block) * (kept * block) ** 0.5 / epsilon
        for first in range(0, steps, block):
            basis = _basis(min(block, steps - first))[:kept]
            noise = random.laplace(scale=scale, size=(seeds, len(basis)))
            released[:, first : first + block] = (truth[:, first : first + block] @ basis.T + noise) @ basis
        tried[f"d={kept}"] = released
    return tried


def _basis(size: int) -> FloatArray:
    steps = np.arange(size)
    rows = [np.full(size, size**-0.5)]
    for k in range(1, size // 2 + 1):
        turn = 2 * np.pi * k * steps / size
        rows.append(np.cos(turn) * ((1 if 2 * k == size else 2) / size) ** 0.5)
        if 2 * k != size:
            rows.append(np.sin(turn) * (2 / size) ** 0.5)
    return np.stack(rows)


def tree(truth: FloatArray, random: np.random.Generator, epsilon: float) -> Tried:
    """Differences of a binary tree's sums ([chan2011]); one user is in all steps, so each event gets epsilon / T."""
    seeds, steps = truth.shape
    levels = steps.bit_length()
    drawn = random.laplace(scale=steps * levels / epsilon, size=(seeds, steps))
    nodes = np.zeros((seeds, levels))
    before = np.zeros(seeds)
    released = np.empty_like(truth)
    for t in range(1, steps + 1):
        level = (t & -t).bit_length() - 1
        nodes[:, :level] = 0
        nodes[:, level] = drawn[:, t - 1]
        released[:, t - 1] = truth[:, t - 1] + nodes.sum(axis=1) - before
        before = nodes.sum(axis=1)
    return {"": released}


class Window:
    """Budgets of releases in a window of `steps`, `(seeds,)`, in even shares: epsilon / (2 `steps`) each.

    Args:
        absorb: a release may have what the steps before it did not use, and the steps after it give that back (ba); or
            it has half of what the window has left (bd).
    """

    def __init__(self, seeds: int, steps: int, *, absorb: bool) -> None:
        self._steps, self._absorb = steps, absorb
        self.spent, self._since, self._nullified = np.zeros(seeds), np.ones(seeds), np.zeros(seeds)

    def offer(self) -> FloatArray:
        """What a release at this step may have."""
        if self._absorb:
            return np.clip(self._since - self._nullified, 0, self._steps)
        return (self._steps - self.spent) / 2

    def take(self, fresh: FloatArray) -> None:
        """End the step. Args: `fresh`: where there was a release."""
        taken = np.where(fresh, self.offer(), 0)
        self.spent += taken
        self._nullified = np.where(fresh, np.maximum(0, np.round(taken) - 1), self._nullified)
        self._since = np.where(fresh, 1, self._since + 1)


def window(truth: FloatArray, random: np.random.Generator, epsilon: float, *, absorb: bool) -> Tried:
    """BA or BD ([kellaris2014]) with a window as long as the series, so that the promise is the same as of the others.

    A noisy distance says whether the total has moved away from the last release by more than a new one would err.
    """
    seeds, steps = truth.shape
    even = epsilon / (2 * steps)
    released, last, budget = np.empty_like(truth), np.zeros(seeds), Window(seeds, steps, absorb=absorb)
    for t in range(steps):
        distance = np.abs(truth[:, t] - last) + random.laplace(scale=1 / even, size=seeds)
        with np.errstate(divide="ignore"):
            scale = 1 / (budget.offer() * even)
        fresh = distance > scale
        noise = random.laplace(size=seeds)
        last = np.where(fresh, truth[:, t] + noise * np.where(fresh, scale, 0), last)
        budget.take(fresh)
        released[:, t] = last
    return {"": released}


BASELINES: Mapping[str, Callable[[FloatArray, np.random.Generator, float], Tried]] = {
    "gaussian": plain_gaussian,
    "laplace": laplace,
    "fast": fast,
    "dft, delay 24": lambda *arguments: fourier(*arguments, delay=24),
    "dft, offline": lambda *arguments: fourier(*arguments, delay=None),
    "bd": lambda *arguments: window(*arguments, absorb=False),
    "ba": lambda *arguments: window(*arguments, absorb=True),
    "tree": tree,
}
"""By name; all but `gaussian` are pure epsilon-DP."""
