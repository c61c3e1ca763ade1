"""The two witnesses of a coupled pair: one records what mechanisms let out, the other one repeats it.

Source: coupling of neighbouring runs, as in proofs of adaptive composition ([dwork2010b]); ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from engines.noise.source import Label
from engines.noise.witness import (
    BinomialLaw,
    CounterLaw,
    ExceedsLaw,
    ExponentialLaw,
    GaussianLaw,
    LaplaceLaw,
    Law,
    Noise,
    WitnessedSource,
)

T = TypeVar("T")
Key = tuple[tuple[Label, ...], int]


class CouplingBroken(AssertionError):  # noqa: N818 - a verdict, like ContractBroken
    """What is public differs between neighbouring inputs, or noise is not what was declared. Says where."""


@dataclass(frozen=True, slots=True, eq=False)
class Used:
    """One run of a mechanism.

    Attributes:
        key: labels of its source, and how many mechanisms ran on that source before.
        private: `(n,)` integers or one integer, what the noise hid.
        output: what it let out. draws: of its source afterwards.
    """

    key: Key
    law: Law
    private: Any
    output: Any
    draws: int

    @property
    def step(self) -> int:
        """Of the stream: the second label of every source of a step."""
        return cast("int", self.key[0][1])

    @property
    def place(self) -> str:
        """Where it stands, for messages: labels after the step."""
        return "/".join(map(str, self.key[0][2:]))


class OutputAdversary:
    """Chooses outputs of mechanisms, within what their noise can give. This one lets the noise choose.

    Every output has a positive probability on both inputs, so a coupling must hold for any.
    """

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        """Return the output to release, given what the mechanism itself drew."""
        return drawn


class _Watching:
    def __init__(self) -> None:
        self._numbers: dict[tuple[Label, ...], int] = {}
        self._begun: set[tuple[tuple[Label, ...], int]] = set()
        self._expected: Law | None = None
        self._place = ""

    def _key(self, source: WitnessedSource) -> Key:
        if (source.labels, source.draws) in self._begun:
            raise CouplingBroken(f"{source.labels}: two mechanisms have the same noise")
        self._begun.add((source.labels, source.draws))
        number = self._numbers.get(source.labels, 0)
        self._numbers[source.labels] = number + 1
        return source.labels, number

    @contextmanager
    def _inside(self, law: Law, key: Key) -> Iterator[None]:
        before = self._expected, self._place
        self._expected, self._place = law, "/".join(map(str, key[0]))
        try:
            yield
        finally:
            self._expected, self._place = before

    def drawn(self, noise: Noise) -> None:
        """Compare noise with the law that the mechanism around it declared."""
        if self._expected is None:
            raise CouplingBroken(f"noise {noise} is drawn outside of any mechanism")
        if not _agrees(self._expected, noise):
            raise CouplingBroken(f"{self._place}: noise {noise} is drawn where {self._expected} is declared")


def _agrees(law: Law, noise: Noise) -> bool:
    match law, noise:
        case (CounterLaw(), LaplaceLaw(scale)):
            return scale in _node_noise(law)
        case (CounterLaw(), GaussianLaw(sigma_squared)):
            return sigma_squared in _node_noise(law)
        case (LaplaceLaw(), LaplaceLaw()) | (GaussianLaw(), GaussianLaw()) | (BinomialLaw(), BinomialLaw()):
            return law == noise
        case _:
            return False


def _node_noise(law: CounterLaw) -> set[Any]:
    return set(law.counter.node_noise(max(1, int(law.activations.max(initial=1)))))


class Recorder(_Watching):
    """Runs every mechanism, and remembers it.

    Attributes:
        used: by key, in order.
    """

    def __init__(self, adversary: OutputAdversary | None = None) -> None:
        super().__init__()
        self.used: dict[Key, Used] = {}
        self._adversary = adversary or OutputAdversary()

    def released(self, source: WitnessedSource, law: Law, private: Any, draw: Callable[[], T]) -> T:
        key = self._key(source)
        with self._inside(law, key):
            drawn = draw()
        output = self._adversary.output(law, private, drawn)
        self.used[key] = Used(key, law, _kept(private), output, source.draws)
        return cast("T", _kept(output))


class Forced(_Watching):
    """Gives the outputs of a recorded run, whatever the private values are now.

    Attributes:
        pairs: (recorded, now) of every mechanism, in order.
    """

    def __init__(self, recorded: Recorder) -> None:
        super().__init__()
        self._recorded = recorded.used
        self.pairs: list[tuple[Used, Used]] = []
        self._seen: set[Key] = set()

    def released(self, source: WitnessedSource, law: Law, private: Any, draw: Callable[[], T]) -> T:
        key = self._key(source)
        before = self._recorded.get(key)
        if before is None:
            raise CouplingBroken(f"{key}: a mechanism runs on one of two neighbouring inputs only")
        if before.law != law or np.shape(before.private) != np.shape(private):
            raise CouplingBroken(f"{key}: {before.law} on one input, {law} on its neighbour")
        self._seen.add(key)
        source.draws = before.draws
        self.pairs.append((before, Used(key, law, _kept(private), before.output, before.draws)))
        return cast("T", _kept(before.output))

    def check_complete(self, step: int) -> None:
        """After a step. Raises: CouplingBroken if the recorded run used mechanisms there that this one did not."""
        missing = [key for key, used in self._recorded.items() if used.step == step and key not in self._seen]
        if missing:
            raise CouplingBroken(f"{missing[0]}: a mechanism runs on one of two neighbouring inputs only")


def _kept(value: Any) -> Any:
    """A copy that later changes do not reach."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tuple):
        return tuple(_kept(each) for each in value)
    if isinstance(value, dict):
        return {name: _kept(each) for name, each in value.items()}
    return value


__all__ = ["CouplingBroken", "ExceedsLaw", "ExponentialLaw", "Forced", "Key", "OutputAdversary", "Recorder", "Used"]
