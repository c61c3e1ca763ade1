"""Neighbouring series and Markov streams as an engine sees them, and what a forced run on them shows.

What a unit may be is said by the stream's configuration: events of a user, readings that a user moves, a member of a
population who is elsewhere. The claim is the configured one, worked out here and not by the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isqrt
from random import Random
from typing import Any

import numpy as np

from engines.accounting import gaussian
from engines.contract import Batch, Engine, Release
from engines.contract_checks import contents
from engines.coupling import CouplingBroken, Forced, Losses, OutputAdversary, Recorder, Uses
from engines.coupling.loss import composed_epsilon
from engines.noise.witness import BinomialLaw, GaussianLaw, LaplaceLaw, Law, Witness, WitnessedSource
from engines.registry import build_domain, build_engine
from engines.series.fields import SeriesDomain, SeriesField
from schemas.blocks import Folded
from schemas.config import Stream

SEED = bytes(range(32))
ROUNDING = 1e-9
_EDGE = 2**10

Rows = dict[int, list[tuple[int, ...]]]
"""Step -> keys of events."""
Arrangement = Mapping[int, int]
"""Step -> events of the unit there."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Neighbouring inputs, step by step from 0."""

    first: Sequence[Batch]
    second: Sequence[Batch]

    @staticmethod
    def of(steps: int, words: int, first: Rows, second: Rows) -> Pair:
        return Pair(*([_batch(step, words, rows.get(step, [])) for step in range(steps)] for rows in (first, second)))

    def turned(self) -> Pair:
        """The other way round."""
        return Pair(self.second, self.first)


def _batch(step: int, words: int, rows: Sequence[tuple[int, ...]]) -> Batch:
    return Batch(step, Folded.of(np.array(rows, np.int64).reshape(-1, words).view(np.uint64)))


def spans(stream: Stream, steps: int) -> list[range]:
    """Steps over which the promise is made, each by itself: periods, or all steps."""
    per_us = stream.privacy.per_us
    if per_us is None:
        return [range(steps)]
    length = stream.period_steps
    return [range(at, at + length) for at in range(0, steps, length)]


def bunched(stream: Stream, steps: int) -> Arrangement:
    """All events of a user in the first steps of each span, as many in each as there may be."""
    most, per_step = _bounds(stream)
    return {
        step: min(per_step, max(0, most - per_step * at))
        for span in _periods(stream, steps)
        for at, step in enumerate(span)
    }


def spread(stream: Stream, steps: int) -> Arrangement:
    """One event at a time, over as many steps of each span as there are events."""
    most, _ = _bounds(stream)
    return {step: 1 for span in _periods(stream, steps) for step in _even(span, min(most, len(span)))}


def anyhow(stream: Stream, steps: int, chance: Random) -> Arrangement:
    """Within the bounds."""
    most, per_step = _bounds(stream)
    arrangement = dict.fromkeys(range(steps), 0)
    for span in _periods(stream, steps):
        left = most
        for step in chance.sample(span, len(span)):
            arrangement[step] = min(left, chance.randint(0, per_step))
            left -= arrangement[step]
    return arrangement


def _even(span: range, count: int) -> list[int]:
    return [span[at * len(span) // count] for at in range(count)]


def _periods(stream: Stream, steps: int) -> list[range]:
    """Aligned ones: what bounds a user's events."""
    per_us = stream.privacy.per_us
    length = steps if per_us is None else stream.period_steps
    return [range(at, min(at + length, steps)) for at in range(0, steps, length)]


def _bounds(stream: Stream) -> tuple[int, int]:
    most = stream.privacy.max_contributions or 1
    return most, min(stream.privacy.max_per_step or most, most)


def series_pair(stream: Stream, steps: int, arrangement: Arrangement, chance: Random, *, full: bool) -> Pair:
    """A user's events, or none of them; or readings, and those that a user has moved in every step.

    Args:
        full: each event moves its total as far as one may; else by any amount.
    """
    domain = build_domain(stream)
    assert isinstance(domain, SeriesDomain)
    if domain.readings:
        return _readings(domain, steps, chance, full=full)

    def key(*, full: bool) -> tuple[int, ...]:
        return tuple(max(field.bounds, key=abs) if full else chance.randint(*field.bounds) for field in domain.fields)

    others = {step: [key(full=False) for _ in range(chance.choice([0, 0, 1, 7, 40]))] for step in range(steps)}
    rows = {step: [*others[step], *(key(full=full) for _ in range(arrangement.get(step, 0)))] for step in range(steps)}
    return Pair.of(steps, domain.words, rows, others)


def _readings(domain: SeriesDomain, steps: int, chance: Random, *, full: bool) -> Pair:
    def before(field: SeriesField) -> int:
        low, high = field.bounds
        # On the edge of a coarser lattice, so that no rounding hides a part of the way; or anywhere.
        return (chance.randint(low, high - field.shift - _EDGE) | (_EDGE - 1)) if full else chance.randint(low, high)

    def after(field: SeriesField, value: int) -> int:
        low, high = field.bounds
        by = field.shift if full else chance.randint(-field.shift, field.shift)
        return min(max(value + by, low), high)

    counts = [1 if full else chance.choice([0, 1, 1, 1, 3]) for _ in range(steps)]
    rows = {step: [tuple(map(before, domain.fields)) for _ in range(count)] for step, count in enumerate(counts)}
    moved = {step: [tuple(map(after, domain.fields, key)) for key in keys] for step, keys in rows.items()}
    return Pair.of(steps, domain.words, rows, moved)


def markov_pair(stream: Stream, steps: int, arrangement: Arrangement, chance: Random, *, full: bool) -> Pair:
    """A member of the population who is elsewhere; unless `full`, here and there in no state, or at another time."""
    states = len(stream.domain.values)
    first: Rows = {
        step: [(chance.randrange(states),) for _ in range(chance.choice([0, 3, 60]))] for step in range(steps)
    }
    second = {step: list(keys) for step, keys in first.items()}
    for step, count in arrangement.items():
        for _ in range(count):
            here = chance.randrange(states)
            there = (here + 1 + chance.randrange(states - 1)) % states
            if full or chance.random() < 0.6:
                first[step].append((here,))
                second[step].append((there,))
            else:
                chance.choice([first, second])[step].append((here,))
    return Pair.of(steps, 1, first, second)


def _driven(
    make: Callable[[], Engine], batches: Sequence[Batch], witness: Witness, restarts: Sequence[int]
) -> Iterator[Release]:
    engine = make()
    for batch in batches:
        if batch.step in restarts:
            after = make()
            after.restore(engine.state())
            engine = after
        yield engine.step(batch, WitnessedSource(witness, SEED, "s", batch.step))


def coupled(
    stream: Stream, pair: Pair, *, adversary: OutputAdversary | None = None, restarts: Sequence[int] = ()
) -> Uses:
    """Mechanisms of both runs, the second one forced through what the first released.

    Args:
        restarts: steps before which the engine is built anew and restored.
    Raises: CouplingBroken if the two release anything different.
    """
    recorder = Recorder(adversary)
    make = _maker(stream)
    told = [contents(release) for release in _driven(make, pair.first, recorder, restarts)]
    forced = Forced(recorder)
    for step, release in enumerate(_driven(make, pair.second, forced, restarts)):
        forced.check_complete(step)
        if contents(release) != told[step]:
            raise CouplingBroken(f"step {step}: equal noisy values, and another release")
    return forced.pairs


def _maker(stream: Stream) -> Callable[[], Engine]:
    return lambda: build_engine(stream)


def cost(stream: Stream, pairs: Uses, steps: int) -> float:
    """What a unit pays, as part of the claim: 1 is all of it. The dearest span decides."""
    return max(_part(stream, Losses.of(one for one in pairs if one[0].step in span)) for span in spans(stream, steps))


def _part(stream: Stream, losses: Losses) -> float:
    epsilon, delta = stream.privacy.epsilon_fraction, stream.privacy.delta
    parts = float(losses.epsilon / epsilon)
    assert not losses.bits
    if losses.mu_squared:
        parts += float(losses.mu_squared / Fraction(gaussian.mu_for(epsilon, delta)) ** 2) if delta else inf
    if losses.coins:
        parts += composed_epsilon(losses.coins, delta) / float(epsilon) if delta else inf
    return parts


def check_pair(
    stream: Stream, pair: Pair, *, adversary: OutputAdversary | None = None, restarts: Sequence[int] = ()
) -> float:
    """What `cost` gives. Raises: CouplingBroken if releases differ, or cost more than is claimed."""
    part = cost(stream, coupled(stream, pair, adversary=adversary, restarts=restarts), len(pair.first))
    if part > 1 + ROUNDING:
        raise CouplingBroken(f"a unit pays {part:.6g} times what is claimed")
    return part


class Wild(OutputAdversary):
    """Noise that is none, on an edge, or far out, as chance has it."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        match law:
            case LaplaceLaw(scale):
                size = max(1, int(scale))
            case GaussianLaw(sigma_squared):
                size = isqrt(int(sigma_squared))
            case BinomialLaw(half):
                return private + self._chance.choice([-half, half, 0, drawn - private])
            case _:
                # A counter's state goes with its output.
                return drawn
        edge = self._chance.choice([None, 0, size, size + 1])
        return drawn + size * self._chance.choice([0, 0, 30, -30, 300]) if edge is None else drawn * 0 + edge
