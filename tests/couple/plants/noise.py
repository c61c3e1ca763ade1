"""Faults planted where noise is drawn and meets private numbers: in the door, in decisions, in samplers and sources.

None needs data of its own: mechanisms are tried on any numbers and noise, and draws on the words that they were given.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from engines.core.counters import linear
from engines.core.noise import NoiseSource, exponential, laplace, mechanisms, split
from engines.markov import engine as markov
from schemas.arrays import BoolArray, IntArray
from tests.couple.plants import Plant
from tests.couple.plants.edits import edited
from tests.couple.plants.remembered import Planted, replaced

DRAWN = "noise = draw(np.size(values))"


def _door(owner: Any, more: str) -> Planted:
    """The door for one family of mechanisms, with something done to what was drawn."""
    return partial(edited, owner, "released", DRAWN, f"{DRAWN}; {more}")


def _sampler(name: str, changed: Any) -> Planted:
    """What a mechanism draws, changed before the door."""
    sampler = getattr(mechanisms, name)

    def drawing(count: int, **options: Any) -> IntArray:
        values: IntArray = changed(sampler(count, **options))
        return values

    return replaced(mechanisms, name, drawing)


class _Left:
    """Fair bits, the unused ones of a word kept for whoever asks next."""

    def __init__(self) -> None:
        self._left: BoolArray = np.zeros(0, np.bool_)
        self._bits = laplace.random_bits

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


def _begun(self: NoiseSource, context: tuple[Any, ...]) -> None:
    _begin(self, context)
    self._state = hashlib.shake_256(self._seed + self._path[:36])


_begin = NoiseSource._begin


def _plant(engine: str, mode: str, name: str, planted: Planted) -> Plant:
    return Plant(name=name, engine=engine, mode=mode, planted=planted)


DOOR = (
    _plant("spatial", "default", "busy cells get no noise", _door(mechanisms, "noise = noise * (abs(values) < 2**30)")),
    _plant("markov", "default", "empty states get no noise", _door(mechanisms, "noise = noise * (values != 0)")),
    _plant("series", "default", "the first number gets half the noise, in place", _door(mechanisms, "noise[:1] //= 2")),
    _plant(
        "trajectory", "default", "noise is cut at 40 scales", _door(mechanisms, "noise = noise.clip(-2**36, 2**36)")
    ),
    _plant("tabular", "default", "a counter's noise is late", _door(linear, "noise = np.roll(noise, 1)")),
    _plant(
        "spatial",
        "paper",
        "counters add no noise in activations that are powers of two",
        partial(
            edited,
            linear._Noise,
            "__call__",
            "return drawn(self._source, self.law, self._sample)",
            "return drawn(self._source, self.law, self._sample) * (self._t & (self._t - 1) != 0)",
        ),
    ),
    _plant(
        "series", "paper-binomial", "half of what coins gave", _sampler("centred_binomials", lambda values: values // 2)
    ),
    _plant(
        "markov",
        "default",
        "Laplace noise is rounded to tens",
        _sampler("discrete_laplace", lambda drawn: drawn // 10 * 10),
    ),
    _plant(
        "spatial",
        "paper",
        "bits of far thresholds are certain",
        partial(
            edited,
            split,
            "_bits",
            "return outside ^ (thresholds < 0)",
            "return (outside & (np.abs(thresholds) < 2**44)) ^ (thresholds < 0)",
        ),
    ),
    _plant(
        "tabular",
        "paper",
        "a choice by gaps to zero where all utilities are below",
        partial(edited, exponential, "_chosen", "utilities.max().view", "utilities.max(initial=0).view"),
    ),
    _plant(
        "markov",
        "paper",
        "a crowd leaves beside the door",
        partial(edited, markov, "laplace_mechanism", "return noisy", "return np.where(values > 2**50, values, noisy)"),
    ),
)
"""Other noise than was drawn, or added to some numbers only."""

WORDS = (
    _plant(
        "markov",
        "default",
        "the number of a call has two bits",
        partial(edited, NoiseSource, "words", "number.to_bytes", "(number % 4).to_bytes"),
    ),
    _plant("spatial", "default", "a long path forgets its last labels", replaced(NoiseSource, "_begin", _begun)),
    _plant("spatial", "default", "bits that were left are the next mechanism's", _kept_bits),
    _plant("tabular", "default", "noise of a count and scale is drawn once", _once_for_all),
)
"""Words of noise that are used twice, or by another draw than the one that they were given to."""

PLANTS = DOOR + WORDS
