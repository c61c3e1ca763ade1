"""What watches mechanisms as they run: the coupling tests' window on an engine. A running job has none.

A mechanism says which law its noise has (`Law`), which private integers go in, and how to draw; a `Witness` may look,
and may decide what comes out. Samplers report every draw, so that the noise a mechanism HAS can be compared with the
law that it DECLARES.
Guarantee: none; a source with a witness is for tests and audits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeVar

import numpy as np

from engines.noise.source import Label, NoiseSource
from schemas.arrays import IntArray

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LaplaceLaw:
    """Discrete Laplace noise on integers. `scale` in their units."""

    scale: Fraction


@dataclass(frozen=True, slots=True)
class GaussianLaw:
    """Discrete Gaussian noise on integers."""

    sigma_squared: Fraction


@dataclass(frozen=True, slots=True)
class BinomialLaw:
    """Centred binomial noise of 2 `half` coins on an integer."""

    half: int


@dataclass(frozen=True, slots=True)
class ExceedsLaw:
    """Bits: whether Laplace(`scale`) noise exceeds a private threshold, in whole multiples of `unit`."""

    unit: Fraction
    scale: Fraction


@dataclass(frozen=True, slots=True)
class ExponentialLaw:
    """An index, by private utilities in multiples of `quantum`."""

    quantum: Fraction
    sensitivity: Fraction
    epsilon: Fraction


@dataclass(frozen=True, slots=True, eq=False)
class CounterLaw:
    """One activation of continual counters.

    Attributes:
        counter: `engines.counters.Counter`. activations: `(n,)` int64 of each coordinate, this one included; public.
    """

    counter: Any
    activations: IntArray

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CounterLaw)
            and self.counter == other.counter
            and np.array_equal(self.activations, other.activations)
        )


Law = LaplaceLaw | GaussianLaw | BinomialLaw | ExceedsLaw | ExponentialLaw | CounterLaw
Noise = LaplaceLaw | GaussianLaw | BinomialLaw


class Witness(Protocol):
    """Sees every mechanism of an engine."""

    def released(self, source: WitnessedSource, law: Law, private: Any, draw: Callable[[], T]) -> T:
        """Return what the mechanism lets out: `draw()`, or something else of its kind.

        Args:
            private: what the noise hides, an integer or `(n,)` integers.
        """
        ...

    def drawn(self, noise: Noise) -> None:
        """A sampler was asked for noise of this law."""
        ...


class WitnessedSource(NoiseSource):
    """A source whose mechanisms, and those of its children, are watched.

    Attributes:
        labels: of the source, from the stream's name on.
        draws: how often it was drawn from.
    """

    __slots__ = ("_seed_bytes", "labels", "witness")

    def __init__(self, witness: Witness, seed: bytes, *labels: Label) -> None:
        super().__init__(seed, *labels)
        self.witness: Witness = witness
        self.labels = labels
        self._seed_bytes = seed

    @property
    def draws(self) -> int:
        return self._draws

    @draws.setter
    def draws(self, count: int) -> None:
        self._draws = count

    def child(self, *labels: Label) -> WitnessedSource:
        return WitnessedSource(self.witness, self._seed_bytes, *self.labels, *labels)


def released(source: NoiseSource, law: Law, private: Any, draw: Callable[[], T]) -> T:
    """Run a mechanism: `draw()`, or what the witness of the source makes of it."""
    if isinstance(source, WitnessedSource):
        return source.witness.released(source, law, private, draw)
    return draw()


def drawn(source: NoiseSource, noise: Noise) -> None:
    """Report a draw to the witness of the source, if it has one."""
    if isinstance(source, WitnessedSource):
        source.witness.drawn(noise)
