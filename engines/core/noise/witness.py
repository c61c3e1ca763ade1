"""What watches mechanisms as they run: the coupling tests' window on an engine. A running job has none.

A mechanism says which law its noise has (`Law`), and how it lets private integers out; a `Witness` may look, and may
decide what comes out. Samplers report every draw, and give what the witness makes of it: so it is seen whether what
left is the private number with that noise, of the law that was declared, and of no word that was used before.
Guarantee: none; a source with a witness is for tests and audits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np

from engines.core.noise.source import Label, NoiseSource
from schemas.arrays import IntArray, WordArray

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LaplaceLaw:
    """Discrete Laplace noise on integers. `scale` in their units."""

    resolution: ClassVar[int] = 1
    scale: Fraction


@dataclass(frozen=True, slots=True)
class GaussianLaw:
    """Discrete Gaussian noise on integers."""

    resolution: ClassVar[int] = 1
    sigma_squared: Fraction


@dataclass(frozen=True, slots=True)
class BinomialLaw:
    """Centred binomial noise of 2 `half` coins on an integer."""

    resolution: ClassVar[int] = 1
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
    """One activation of continual counters: what it adds to the noise of their running sums.

    Attributes:
        counter: `engines.core.counters.Counter`. activations: `(n,)` int64 of each coordinate, this one included;
        public.
    """

    counter: Any
    activations: IntArray

    __hash__ = None  # type: ignore[assignment]

    @property
    def resolution(self) -> int:
        """Noise is in whole multiples of one event divided by this."""
        return int(self.counter.resolution)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CounterLaw)
            and self.counter == other.counter
            and np.array_equal(self.activations, other.activations)
        )


@dataclass(frozen=True, slots=True)
class ListedLaw:
    """One test of a private table of keys (`engines.core.noise.listing`).

    Attributes:
        counter: `engines.keys.selection.NormalisedCounter` of each key. test: its number in the period, from 1.
        threshold: of noisy sums, in steps of the counter's lattice; None: the keys of the table are public, and each is
            listed at every test. least_count: people that a key must truly have.
        every: steps from one test to the next. sums: counters of what the people of a key bring, beside their number;
            each sum is let out with the count, and lists nothing.
    """

    counter: Any
    test: int
    threshold: int | None
    least_count: int
    every: int = 1
    sums: tuple[Any, ...] = ()

    @property
    def counters(self) -> tuple[Any, ...]:
        """Of all numbers of a key: people first."""
        return (self.counter, *self.sums)

    def begin(self, step: int) -> int:
        """Return what names the period of a test at this step."""
        return step - self.test * self.every

    @property
    def nodes(self) -> tuple[Fraction, ...]:
        """Sigma squared of the Gaussian noise of each test so far, of one counter after the other."""
        return tuple(each for counter in self.counters for each in counter.node_noise(self.test))


@dataclass(frozen=True, slots=True)
class UniformLaw:
    """So many integers below a bound: sides of a fair coin, proposals."""

    bound: int
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class CoinsLaw:
    """Coins that show heads with probability exp(-multiples * rate). `multiples` `(n,)` are private."""

    multiples: IntArray | WordArray
    rate: Fraction


NoiseLaw = LaplaceLaw | GaussianLaw | BinomialLaw | CounterLaw
"""Of noise that is added. Private numbers times `resolution` are in its units."""
Law = NoiseLaw | ExceedsLaw | ExponentialLaw | ListedLaw
Drawn = NoiseLaw | UniformLaw | CoinsLaw | ListedLaw


class Witness(Protocol):
    """Sees every mechanism of an engine."""

    def released(self, source: WitnessedSource, law: Law, private: Any, mechanism: Callable[[Any], T]) -> T:
        """Return what the mechanism lets out: `mechanism(private)`, or something else of its kind.

        Args:
            private: what the noise hides, an integer or `(n,)` integers.
            mechanism: what is let out of any such numbers.
        """
        ...

    def drawn(self, source: WitnessedSource, law: Drawn, sample: Callable[[NoiseSource], T]) -> T:
        """Return what a sampler gives: `sample(source)`, or something else of its kind."""
        ...

    def gave(self, source: WitnessedSource, words: WordArray) -> None:
        """Note that a source gave these words."""
        ...


class WitnessedSource(NoiseSource):
    """A source whose mechanisms, and those of its children, are watched."""

    __slots__ = ("witness",)

    def __init__(self, witness: Witness, seed: bytes, *labels: Label) -> None:
        super().__init__(seed, *labels)
        self.witness: Witness = witness

    def _alike(self) -> Self:
        made = super()._alike()
        made.witness = self.witness
        return made

    @property
    def labels(self) -> tuple[Label, ...]:
        """Of the source, from the stream's name on."""
        return self._context

    def words(self, count: int) -> WordArray:
        words = super().words(count)
        self.witness.gave(self, words)
        return words


def drawn(source: NoiseSource, law: Drawn, sample: Callable[[NoiseSource], T]) -> T:
    """Draw `sample(source)`, or what the witness of the source makes of it.

    Args:
        sample: a function of the source alone: equal words, equal draws.
    """
    if isinstance(source, WitnessedSource):
        return source.witness.drawn(source, law, sample)
    return sample(source)
