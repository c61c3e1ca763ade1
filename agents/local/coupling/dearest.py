"""The pair of runs in which a unit uses up its claim, for every setting: a claim that no pair reaches is not tested.

The unit makes as many contributions as its bounds let through, one like the other and as early in one period as they
may be, each what the engine's case calls dearest; or moves every reading by all that it may. Outputs are chosen so that
engines go where a unit pays most: trees as deep as they can be, tables and trips of a crowd that is not there. Random
pairs seldom meet all of that at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np

from agents.local.coupling.inputs import DRAWN, UNIT, Sent, other, span_of
from agents.local.coupling.runs import STEPS, RareOutputs, Verdict, couple
from engines.checks.contract_case import contract_case
from engines.checks.coupling import OutputAdversary
from engines.core.noise.witness import CounterLaw, ExceedsLaw, ExponentialLaw, GaussianLaw, LaplaceLaw, Law
from schemas.config import Stream

BEGINS = (0, 1, 2, 5)
"""Steps in which the unit may come first: engines account for what is early apart."""
TRIES = 40
"""Seeds, each with one of `ADVERSARIES` in turn."""
SHORT, LONGEST = 12, 200
"""Steps of a pair whose unit is over soon, and of one whose unit is not over for long."""
FEW = 8
"""Events of a burst."""


class DeepTrees(OutputAdversary):
    """Divides all cells along every path; everything else is as drawn."""

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        return np.ones_like(drawn) if isinstance(law, ExceedsLaw) else drawn


class MagnifiedCounts(OutputAdversary):
    """Releases counts as if each event were so many, without noise; where something is, cells are divided."""

    def __init__(self, times: int) -> None:
        self._times = times

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        match law:
            case LaplaceLaw() | GaussianLaw():
                return private * self._times
            case CounterLaw(counter):
                return drawn + self._times * counter.resolution
            case ExceedsLaw():
                # Where nothing is, thresholds are at their cap: the largest.
                return private <= 0 if len(private) == 1 else private < private.max(initial=0)
            case _:
                return drawn


class ExtremeNoise(OutputAdversary):
    """Draws noise of so many times its size, or none, and makes any choice and deep trees."""

    def __init__(self, chance: random.Random, times: int) -> None:
        self._chance, self._times = chance, times

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        match law:
            case LaplaceLaw(scale):
                return drawn + self._far(drawn, int(scale) + 1)
            case GaussianLaw(sigma_squared):
                return drawn + self._far(drawn, int(float(sigma_squared) ** 0.5) + 1)
            case CounterLaw(counter):
                return drawn + self._far(drawn, 40 * counter.resolution)
            case ExponentialLaw():
                return self._chance.randrange(len(private))
            case ExceedsLaw():
                return np.ones_like(drawn)
            case _:
                return drawn

    def _far(self, like: Any, size: int) -> Any:
        if isinstance(like, int):
            # One number, or a distance that must be found long.
            return self._times * size
        signs = [self._chance.choice([-1, 0, 1]) for _ in range(like.size)]
        return np.array(signs, np.int64).reshape(like.shape) * (self._times * size)


ADVERSARIES: tuple[Callable[[random.Random], OutputAdversary], ...] = (
    lambda chance: OutputAdversary(),
    lambda chance: MagnifiedCounts(40),
    lambda chance: ExtremeNoise(chance, 3),
    lambda chance: DeepTrees(),
    lambda chance: MagnifiedCounts(1),
    lambda chance: ExtremeNoise(chance, 30),
    lambda chance: MagnifiedCounts(400),
    RareOutputs,
)


def dearer(name: str, stream: Stream, *, tries: int = TRIES) -> Iterator[Verdict]:
    """Couple pairs whose unit is the dearest, up to the first one that costs what the engine's case says of the stream,
    or that breaks.
    """
    reach = contract_case(stream.engine).reach(stream)
    for seed in range(tries):
        verdict = dearest_of(name, stream, seed)
        yield verdict
        if verdict.broken or verdict.share >= reach:
            return


def dearest(name: str, stream: Stream) -> Verdict:
    """Return the dearest pair of `dearer`, or the one that breaks."""
    return max(dearer(name, stream), key=lambda verdict: (bool(verdict.broken), verdict.share))


def dearest_of(name: str, stream: Stream, seed: int) -> Verdict:
    """Couple a pair whose unit is the dearest, under one of `ADVERSARIES` by the seed."""
    adversary = ADVERSARIES[seed % len(ADVERSARIES)](random.Random(f"{name}/{seed}"))
    return couple(
        name, stream, seed, steps=_steps(stream), crowd=FEW, sealing=False, unit=dearest_unit, adversary=adversary
    )


def _steps(stream: Stream) -> int:
    most, per_step = _bounds(stream)
    last = max(BEGINS[-1], gathered_steps(stream)) + -(-most // per_step) + (stream.ttl_steps or 0)
    if last < SHORT and not getattr(stream.domain, "readings", False):
        return SHORT
    return min(max(STEPS, last + 1), LONGEST)


def gathered_steps(stream: Stream) -> int:
    """Return how many steps at the begin are one release together."""
    found: int = getattr(stream.options, "initial_steps", 0)
    return found


def _bounds(stream: Stream) -> tuple[int, int]:
    """Return the contributions of a unit altogether, those counted beyond its bound included, and in one step."""
    most = (stream.privacy.max_contributions or 1) + stream.surplus
    return most, stream.privacy.max_per_step or most


def dearest_unit(stream: Stream, chance: random.Random, steps: int) -> list[Sent]:
    """Return all that one unit may do, as dear as can be."""
    # In the first period nothing was spent before; in later ones what was spent must have come back. Beyond a horizon
    # nothing is released.
    span = (
        list(range(min(steps, stream.period_steps or stream.horizon or steps)))
        if chance.random() < 0.5
        else span_of(stream, chance, steps)
    )
    if getattr(stream.domain, "readings", False):
        return _readings(stream, steps, span)
    most, per_step = _bounds(stream)
    # Of gathered steps some mechanisms see nothing.
    begins = (*BEGINS, gathered_steps(stream))
    return _contributions(stream, chance, span, max(0, min(chance.choice(begins), len(span) - -(-most // per_step))))


def unit_of_two_periods(stream: Stream, chance: random.Random, steps: int) -> list[Sent]:
    """Return all that one unit may do within as long as a period: as late as can be in one, and early in the next."""
    period = stream.period_steps
    assert period is not None, "the bound renews"
    first, second = range(period), range(period, 2 * period)
    if getattr(stream.domain, "readings", False):
        return _readings(stream, steps, [*first, *second])
    most, per_step = _bounds(stream)
    late, drawn = max(0, period - -(-most // per_step)), chance.getstate()
    before = _contributions(stream, chance, first, late)
    chance.setstate(drawn)  # the same events again
    return before + _contributions(stream, chance, second, 0)


def window_of(name: str, stream: Stream, seed: int) -> Verdict:
    """Couple a pair whose unit is in two periods, under one of `ADVERSARIES` by the seed."""
    assert stream.period_steps is not None, "the bound renews"
    adversary = ADVERSARIES[seed % len(ADVERSARIES)](random.Random(f"{name}/{seed}"))
    steps = max(2 * stream.period_steps + (stream.ttl_steps or 0), _steps(stream))
    unit = unit_of_two_periods
    return couple(
        name, stream, seed, steps=steps, crowd=FEW, sealing=False, unit=unit, adversary=adversary, window=True
    )


def _contributions(stream: Stream, chance: random.Random, span: Sequence[int], begin: int) -> list[Sent]:
    """Return as many contributions as the bounds let through, from a step of the span on.

    One is like the other; but where contributions are pairs, each is of another key, as long as there is one, with all
    events that it may have.
    """
    most, per_step = _bounds(stream)
    steps_of = [span[min(begin + number // per_step, len(span) - 1)] for number in range(most)]
    seed, life, events = chance.random(), stream.trip_life, list[Sent]()
    had: list[Sequence[dict[str, Any]]] = []
    for number, step in enumerate(steps_of):
        drawn = chain([random.Random(seed)], repeat(chance, DRAWN))
        tried = (contract_case(stream.engine).dearest_of(stream.domain, each) for each in drawn)
        records = next((each for each in tried if not stream.counts_pairs or each not in had), None)
        if records is None:  # all keys of a public list
            break
        had.append(records)
        if life is None:
            placed = [(step, fields) for fields in records] * max(stream.pair_events, 1)
        else:
            # Under way until the last one begins, and over in that step: then one release has all of them.
            records = [{**fields, stream.domain.trip_field or "": f"trip {number}"} for fields in records]
            over = max(at for at in steps_of if at < step + life)
            placed = [(step, fields) for fields in records[:-1]]
            placed += [(at, records[-2]) for at in range(step + 1, over)] + [(over, records[-1])]
        for at, fields in placed:
            instead = other(stream, chance, fields) if stream.privacy.unit == "replace" else None
            events.append(Sent(at, at, UNIT, fields, unit=True, instead=instead, dearest=True))
    return events


def _readings(stream: Stream, steps: int, span: list[int]) -> list[Sent]:
    """Return a reading for every step, all of them moved the same way."""
    domain: Any = stream.domain
    low = {field.name: field.limits[0] for field in domain.series}
    moved = {field.name: field.limits[0] + field.sensitivity for field in domain.series}
    return [
        Sent(at, at, "", low, unit=at in span, instead=moved if at in span else None, dearest=True)
        for at in range(steps)
    ]
