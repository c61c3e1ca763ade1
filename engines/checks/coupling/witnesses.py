"""The two witnesses of a coupled pair: one records what mechanisms let out, the other one repeats it.

Both hold every mechanism to its form: what leaves is the private number and the noise that the sampler drew by the
declared law, or a decision by coins that have the probability it asks for (`door`). Every draw must be a function of
its law and of words that no other draw was given.
Source: coupling of neighbouring runs, as in proofs of adaptive composition ([dwork2010b]); ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np

from engines.checks.coupling.door import PROBES, Given, expected, giving, probes
from engines.checks.coupling.listing import CoupledKeys, expected_listing, listing_probes, same_listing
from engines.core.noise.source import Label, NoiseSource
from engines.core.noise.witness import (
    CoinsLaw,
    CounterLaw,
    Drawn,
    ExceedsLaw,
    ExponentialLaw,
    GaussianLaw,
    LaplaceLaw,
    Law,
    ListedLaw,
    UniformLaw,
    WitnessedSource,
)
from schemas.arrays import WordArray

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
        output: what it let out.
    """

    key: Key
    law: Law
    private: Any
    output: Any

    @property
    def step(self) -> int:
        """Step of the stream: the second label of every source of a step."""
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


@dataclass(slots=True)
class _Watched:
    """One run of a mechanism.

    Attributes:
        given: what samplers give in place of drawing; None: they draw. drawn: what they gave, in order.
        words: that the draw under way was given; None outside of one.
    """

    law: Law
    place: str
    given: Given | None = None
    drawn: list[tuple[Drawn, Any]] = field(default_factory=list)
    words: list[WordArray] | None = None


FIRST_WORDS = 1 << 14
"""Of a call of a source, which are remembered for a whole run: a binomial draw of small budgets takes a gigabyte."""


class _Watching:
    def __init__(self) -> None:
        self._numbers: dict[tuple[Label, ...], int] = {}
        self._decided: set[tuple[Label, ...]] = set()
        self._run: _Watched | None = None
        self._words: list[WordArray] = []

    def _key(self, source: WitnessedSource) -> Key:
        self._check_open(source)
        number = self._numbers.get(source.labels, 0)
        self._numbers[source.labels] = number + 1
        return source.labels, number

    def _let_out(
        self, law: Law, key: Key, mechanism: Callable[[Any], T], private: Any, given: Given | None = None
    ) -> T:
        """Run a mechanism. Raises: CouplingBroken if it lets out anything but private numbers with what was drawn."""
        self._run = run = _Watched(law, "/".join(map(str, key[0])), given)
        try:
            output = mechanism(private)
        finally:
            self._run = None
        if not _as_declared(law, private, run.drawn, output):
            raise CouplingBroken(
                f"{run.place}: what leaves is not what {law} makes of the private numbers and the draw"
            )
        if isinstance(law, ExceedsLaw | ExponentialLaw | ListedLaw):
            self._decided.add(key[0])
        return output

    def drawn(self, source: WitnessedSource, law: Drawn, sample: Callable[[NoiseSource], T]) -> T:
        """Hold a draw against the law that the mechanism around it declared, and against its words."""
        run = self._run
        if run is None:
            raise CouplingBroken(f"noise {law} is drawn outside of any mechanism")
        if not _agrees(run.law, law):
            raise CouplingBroken(f"{run.place}: noise {law} is drawn where {run.law} is declared")
        if run.given is not None:
            values = cast("T", run.given(law))
        elif run.words is not None:
            # Noise of a counter's nodes: a part of its own draw, which is repeated as a whole.
            values = sample(source)
        else:
            run.words = []
            values = sample(source)
            _check_repeats(run, law, values, sample)
            run.words = None
        run.drawn.append((law, _kept(values)))
        return values

    def gave(self, source: WitnessedSource, words: WordArray) -> None:
        if self._run is None:
            self._check_open(source)
        # A copy: a part of an array keeps all of it.
        self._words.append(words if words.size <= FIRST_WORDS else words[:FIRST_WORDS].copy())
        if self._run is not None and self._run.words is not None:
            self._run.words.append(words)

    def _check_open(self, source: WitnessedSource) -> None:
        if source.labels in self._decided:
            raise CouplingBroken(f"{source.labels}: words follow of which private numbers decided how many came before")

    def check_words(self) -> None:
        """Check the words after a run, of each call the first ones: equal ones are noise used twice.

        A call that is given what another one was has its words from the first on (`NoiseSource`). Of n fresh words some
        are equal with probability n^2 / 2^65.

        Raises: CouplingBroken.
        """
        words = np.concatenate(self._words) if self._words else np.zeros(0, np.uint64)
        words.sort()  # numpy finds unique numbers by their hashes, which takes three times as long
        if (words[1:] == words[:-1]).any():
            raise CouplingBroken("words of noise were given twice")


class _Repeated(NoiseSource):
    """Gives the words of a draw again, call by call."""

    __slots__ = ("left",)

    def __init__(self, words: list[WordArray]) -> None:
        super().__init__(bytes(32))
        self.left = words[::-1]

    def words(self, count: int) -> WordArray:
        if not self.left or self.left[-1].size != count:
            raise CouplingBroken("a draw repeated with its words asks for others")
        return self.left.pop()

    def child(self, *labels: Label) -> _Repeated:
        raise CouplingBroken("a draw has one source")


def _check_repeats(run: _Watched, law: Drawn, values: Any, sample: Callable[[NoiseSource], Any]) -> None:
    words = run.words or []
    source = _Repeated(words)
    again = sample(source)
    # Noise without a word would be that of another draw.
    wordless = isinstance(law, LaplaceLaw | GaussianLaw) and np.size(values) > 0 and not words
    if source.left or wordless or not np.array_equal(values, again):
        raise CouplingBroken(f"{run.place}: noise {law} is no function of the words that its draw was given")


def _as_declared(law: Law, private: Any, drawn: Sequence[tuple[Drawn, Any]], output: Any) -> bool:
    if isinstance(law, ListedLaw):
        [(_, nodes)] = [each for each in drawn if each[0] == law] or [(law, ())]
        return same_listing(output, expected_listing(law, private, list(map(int, nodes))))
    return np.array_equal(np.asarray(output), np.asarray(expected(law, private, drawn)))


def _agrees(law: Law, drawn: Drawn) -> bool:
    match law, drawn:
        case (ListedLaw(), GaussianLaw(sigma_squared)):
            return sigma_squared in law.nodes
        case (CounterLaw(), LaplaceLaw(scale)):
            return scale in _node_noise(law)
        case (CounterLaw(), GaussianLaw(sigma_squared)):
            return sigma_squared in _node_noise(law)
        case (ExceedsLaw() | ExponentialLaw(), _):
            return isinstance(drawn, UniformLaw | CoinsLaw)
        case _:
            return law == drawn


def _node_noise(law: CounterLaw) -> set[Any]:
    return set(law.counter.node_noise(max(1, int(law.activations.max(initial=1)))))


class Recorder(_Watching):
    """Runs every mechanism, and remembers it.

    Each also runs on numbers and noise that data hardly ever have (`probes`), whatever the data are.

    Attributes:
        used: by key, in order.
    """

    def __init__(self, adversary: OutputAdversary | None = None) -> None:
        super().__init__()
        self.used: dict[Key, Used] = {}
        self._adversary = adversary or OutputAdversary()

    def released(self, source: WitnessedSource, law: Law, private: Any, mechanism: Callable[[Any], T]) -> T:
        key = self._key(source)
        number = len(self.used)
        if isinstance(law, ListedLaw):
            probing = listing_probes(law, private, range(PROBES * number, PROBES * (number + 1)))
        else:
            probing = probes(law, private, number)
        for values, given in probing:
            self._let_out(law, key, mechanism, values, given)
        output = self._let_out(law, key, mechanism, private)
        chosen = self._adversary.output(law, private, output)
        if chosen is not output:
            # As if the noise had been such: it takes the same way out.
            output = self._let_out(law, key, mechanism, private, giving(law, private, chosen))
        self.used[key] = Used(key, law, _kept(private), output)
        return cast("T", _kept(output))


class Forced(_Watching):
    """Gives the outputs of a recorded run, whatever the private values are now: by the noise that makes them so."""

    def __init__(self, recorded: Recorder) -> None:
        super().__init__()
        self._recorded = recorded.used
        self.pairs: list[tuple[Used, Used]] = []
        """(recorded, now) of every mechanism, in order."""
        self._seen: set[Key] = set()
        self._keys: CoupledKeys | None = None

    def released(self, source: WitnessedSource, law: Law, private: Any, mechanism: Callable[[Any], T]) -> T:
        key = self._key(source)
        before = self._recorded.get(key)
        if before is None:
            raise CouplingBroken(f"{key}: a mechanism runs on one of two neighbouring inputs only")
        if isinstance(law, ListedLaw):
            return self._listed(key, before, law, private, mechanism)
        if before.law != law or np.shape(before.private) != np.shape(private):
            raise CouplingBroken(f"{key}: {before.law} on one input, {law} on its neighbour")
        self._seen.add(key)
        self._let_out(law, key, mechanism, private)
        output = self._let_out(law, key, mechanism, private, giving(law, private, before.output))
        if not np.array_equal(np.asarray(output), np.asarray(before.output)):
            raise CouplingBroken(f"{key}: no noise of {law} gives what left on the neighbouring input")
        self.pairs.append((before, Used(key, law, _kept(private), before.output)))
        return output

    def _listed(self, key: Key, before: Used, law: ListedLaw, table: Any, mechanism: Callable[[Any], T]) -> T:
        """Give what the recorded test let out: each run remembers the noise that it had for it."""
        if before.law != law:
            raise CouplingBroken(f"{key}: {before.law} on one input, {law} on its neighbour")
        self._seen.add(key)
        self._let_out(law, key, mechanism, table)
        if self._keys is None:
            every = self._recorded.values()
            self._keys = CoupledKeys(
                [
                    (each.step, each.law, each.private, each.output[1])
                    for each in every
                    if isinstance(each.law, ListedLaw)
                ]
            )
        nodes = self._keys.nodes(before.step, law, table)
        output: Any = self._let_out(law, key, mechanism, table, lambda _: nodes)
        if output[0] != before.output[0]:
            raise CouplingBroken(f"{key}: a key that one input alone has enough people for is listed, or sums differ")
        self.pairs.append((before, Used(key, law, table, before.output)))
        return cast("T", output)

    def check_complete(self, step: int) -> None:
        """Check after a step that all of it ran.

        Raises: CouplingBroken if the recorded run used mechanisms there that this one did not.
        """
        missing = [key for key, used in self._recorded.items() if used.step == step and key not in self._seen]
        if missing:
            raise CouplingBroken(f"{missing[0]}: a mechanism runs on one of two neighbouring inputs only")


def _kept(value: Any) -> Any:
    """Return a copy that later changes do not reach."""
    return value.copy() if isinstance(value, np.ndarray) else value
