"""Faults planted where noise is drawn and meets private numbers: in the door, in decisions, in samplers and sources.

None needs data of its own: mechanisms are tried on any numbers and noise, and draws on the words that they were given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from engines.core.counters import linear
from engines.core.noise import NoiseSource, binomial, exponential, laplace, mechanisms, split
from engines.core.noise.uniform import random_bits
from engines.markov import engine as markov
from schemas.arrays import BoolArray, IntArray
from tests.couple.plants import Fault, Plant, Planted, edit, plants, replaced

DRAWN = "noise = draw(np.size(values))"


def _door(owner: Any, more: str) -> Planted:
    """The door for one family of mechanisms, with something done to what was drawn."""
    return edit(owner, "released", DRAWN, f"{DRAWN}; {more}")


def _sampler(owner: Any, name: str, changed: Any) -> Planted:
    """What the mechanisms of a module draw, changed before the door."""
    sampler = getattr(owner, name)

    def drawing(count: int, **options: Any) -> IntArray:
        values: IntArray = changed(sampler(count, **options))
        return values

    return replaced(owner, name, drawing)


class _Left:
    """Fair bits, the unused ones of a word kept for whoever asks next."""

    def __init__(self) -> None:
        self._left: BoolArray = np.zeros(0, np.bool_)
        self._bits = random_bits

    def __call__(self, count: int, source: NoiseSource) -> BoolArray:
        if self._left.size < count:
            self._left = self._bits(-(-count // 64) * 64, source)
        bits, self._left = self._left[:count], self._left[count:]
        return bits


def _kept_bits() -> AbstractContextManager[Any]:
    return replaced(laplace, "random_bits", _Left())()


def _once_for_all() -> AbstractContextManager[Any]:
    """Noise by count and scale, as a cache of a pure function would have it."""
    sampler, seen = laplace.laplace_values, dict[Any, IntArray]()

    def cached(count: int, scale: Any, source: NoiseSource) -> IntArray:
        if (count, scale) not in seen:
            seen[count, scale] = sampler(count, scale, source)
        return seen[count, scale]

    return replaced(laplace, "laplace_values", cached)()


def _begun(self: NoiseSource, context: tuple[Any, ...], labels: bytes) -> None:
    _begin(self, context, labels)
    self._state = hashlib.shake_256(self._seed + self._path[:36])


_begin = NoiseSource._begin

_RELEASED = "whole + (int(noise[0]) if isinstance(values, int) else noise)"
SPATIAL = {
    "busy cells get no noise": _door(mechanisms, "noise = noise * (abs(values) < 2**30)"),
    "a long path forgets its last labels": replaced(NoiseSource, "_begin", _begun),
    "bits that were left are the next mechanism's": _kept_bits,
}
SPATIAL_PAPER = {
    "counters add no noise in activations that are powers of two": edit(
        linear.Counter,
        "step",
        "return drawn(source, law, sample)",
        "return drawn(source, law, sample) * (t & (t - 1) != 0)",
    ),
    "bits of far thresholds are certain": edit(
        split,
        "_bits",
        "return outside ^ (thresholds < 0)",
        "return (outside & (np.abs(thresholds) < 2**44)) ^ (thresholds < 0)",
    ),
}
MARKOV = {
    "empty states get no noise": _door(mechanisms, "noise = noise * (values != 0)"),
    "Laplace noise is rounded to tens": _sampler(mechanisms, "discrete_laplace", lambda drawn: drawn // 10 * 10),
    "the number of a call has two bits": edit(NoiseSource, "words", "number.to_bytes", "(number % 4).to_bytes"),
}
MARKOV_PAPER = {
    "a crowd leaves beside the door": edit(
        markov, "laplace_mechanism", "return noisy", "return np.where(values > 2**50, values, noisy)", np=np
    ),
}
TABULAR: Mapping[str, Planted | Fault] = {
    "a counter's noise is late": _door(linear, "noise = np.roll(noise, 1)"),
    "noise of a count and scale is drawn once": _once_for_all,
    # At the door itself, so that no law shows it.
    "marginals above 4,096 cells get no noise": Fault(
        edit(mechanisms, "released", _RELEASED, f"whole if np.size(values) > 4096 else {_RELEASED}"),
        wide=1,
        shown_by=5,
    ),
}
TABULAR_PAPER = {
    "a choice by gaps to zero where all utilities are below": edit(
        exponential, "_chosen", "utilities.max().view", "utilities.max(initial=0).view"
    ),
}
PLANTS: tuple[Plant, ...] = (
    *plants("spatial", "default", SPATIAL),
    *plants("spatial", "paper", SPATIAL_PAPER),
    *plants("markov", "default", MARKOV),
    *plants("markov", "paper", MARKOV_PAPER),
    *plants("tabular", "default", TABULAR),
    *plants("tabular", "paper", TABULAR_PAPER),
    *plants(
        "series",
        "default",
        {"the first number gets half the noise, in place": _door(mechanisms, "noise[:1] //= 2")},
    ),
    *plants(
        "series",
        "paper-binomial",
        {"half of what coins gave": _sampler(binomial, "centred_binomials", lambda values: values // 2)},
    ),
    *plants(
        "trajectory",
        "default",
        {"noise is cut at 40 scales": _door(mechanisms, "noise = noise.clip(-2**36, 2**36)")},
    ),
)
