"""Trips for coupled runs: rows of keys by trip, streams with and without some trips, outputs that no noise gives."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from engines.checks.contract_checks import contents
from engines.checks.coupling import CouplingBroken, Forced, Losses, OutputAdversary, Recorder, Used, Uses
from engines.core.contract import Batch, Engine
from engines.core.noise.witness import ExceedsLaw, GaussianLaw, LaplaceLaw, Law, WitnessedSource
from engines.trajectory.default.mode import Default
from engines.trajectory.default.questions import FEW_TRIPS
from engines.trajectory.domain import Closing
from engines.trajectory.engine import Trajectories
from engines.trajectory.histograms import UNIT
from engines.trajectory.papers.paper_trees import Paper
from engines.trajectory.trips import LATTICE, LATTICE_BITS
from schemas.blocks import Folded

SEED = bytes(range(32))
SLACK = 1 + 1e-9
"""Sums of floats: log-ratios of bits."""


@dataclass(frozen=True, slots=True)
class Trip:
    """One contribution. Attributes:

    user, number: its name. admitted: step of its admission.
    rows: (step in which the record comes, time, x, y in lattice steps, 1 for an end record).
    """

    user: int
    number: int
    admitted: int
    rows: tuple[tuple[int, int, int, int, int], ...]


def batches(trips: Iterable[Trip], *, steps: int) -> list[Batch]:
    """The steps of a stream of these trips."""
    keys: list[list[tuple[int, ...]]] = [[] for _ in range(steps)]
    for trip in trips:
        for step, time, x, y, ends in trip.rows:
            keys[step].append((trip.user, trip.number, trip.admitted, time, x << LATTICE_BITS | y, ends))
    return [Batch(step, Folded.of(np.array(rows, np.uint64).reshape(-1, 6))) for step, rows in enumerate(keys)]


def drive(
    user: int,
    places: Sequence[tuple[float, float]],
    *,
    step: int = 0,
    number: int = 0,
    ends: bool = True,
    late: int | None = None,
) -> Trip:
    """A trip through these places of the unit square that comes in one step; `late`: one more record then."""
    rows = [
        (step, 10 + at, int(x * LATTICE), int(y * LATTICE), int(ends and at == len(places) - 1))
        for at, (x, y) in enumerate(places)
    ]
    if late is not None:
        rows.append((late, 99, LATTICE // 2, LATTICE // 2, 1))
    return Trip(user, number, step, tuple(rows))


def random_trips(chance: random.Random, *, steps: int, rules: Closing, users: int, each: int) -> list[Trip]:
    """Trips of users, `each` of them in every period at most: spread over the steps, or bunched in one."""
    homes = [(chance.randrange(LATTICE), chance.randrange(LATTICE)) for _ in range(4)]
    trips = []
    for user in range(1, users + 1):
        bunched = chance.random() < 0.4
        for period in range(0, steps, rules.period or steps):
            ends = min(period + (rules.period or steps), steps)
            together = chance.randrange(period, ends)
            for number in range(each):
                admitted = together if bunched else chance.randrange(period, ends)
                trips.append(_random_trip(chance, user, 2**60 + number + period, admitted, homes, rules, steps))
    return trips


def _random_trip(
    chance: random.Random,
    user: int,
    number: int,
    admitted: int,
    homes: Sequence[tuple[int, int]],
    rules: Closing,
    steps: int,
) -> Trip:
    """Stays, walks or jumps; its records come late, twice, in any order, and go on behind its end record."""
    last = min(int(rules.last(np.array([admitted]))[0]), steps - 1)
    stride = chance.choice([0, LATTICE // 60, LATTICE // 12, LATTICE])
    x, y = chance.choice(homes)
    points = chance.choice([1, 2, 5, 12, 30])
    rows = []
    for point in range(points):
        step = admitted if not point else chance.choice([admitted, chance.randint(admitted, last)])
        time = 100 * admitted + chance.choice([point, chance.randrange(20)])
        rows.append((step, time, x, y, int(chance.random() < 0.5 / points)))
        if chance.random() < 0.1:
            rows.append((chance.randint(admitted, last), *rows[-1][1:]))
        x, y = (min(max(at + chance.randint(-stride, stride), 0), LATTICE - 1) for at in (x, y))
    return Trip(user, number, admitted, tuple(rows))


class Capricious(OutputAdversary):
    """Nothing, much more of what is there, wild noise, honest noise: by chance; never more than `most` trips."""

    def __init__(self, seed: int, *, most: int) -> None:
        self._most = most
        self._chance = random.Random(seed)
        self._bits = np.random.default_rng(seed)

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        match law:
            case LaplaceLaw() | GaussianLaw():
                return self._counts(private, drawn)
            case ExceedsLaw():
                return self._chance.choice([drawn, drawn, self._bits.random(len(drawn)) < 0.2, path_bits(private)])
            case _:
                return drawn

    def _counts(self, private: Any, drawn: Any) -> Any:
        made = self._chance.choice([drawn, drawn, 0 * drawn, private * 5000, private * 5000 + drawn, drawn * 15])
        return np.clip(made, -self._most * UNIT, self._most * UNIT)


class Magnifying(OutputAdversary):
    """As if each trip were many, and along every trip all cells are divided."""

    def __init__(self, times: int = 3000) -> None:
        self._times = times

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        if isinstance(law, LaplaceLaw | GaussianLaw):
            return private * self._times
        return path_bits(private)


def path_bits(thresholds: Any) -> Any:
    """True at the root and where something is. Where nothing is, thresholds are at their cap: the largest."""
    if len(thresholds) == 1:
        return thresholds <= 0
    return thresholds < thresholds.max()


def coupled(
    make_engine: Callable[[], Engine],
    recorded: Sequence[Batch],
    *neighbours: Sequence[Batch],
    adversary: OutputAdversary | None = None,
    restarts: Sequence[int] = (),
) -> list[Uses]:
    """Pairs of mechanisms of each neighbour, forced through what the recorded run released.

    Args:
        restarts: steps before which the recorded run goes on from its state in a new engine; a neighbour does so one
            step later.
    Raises: CouplingBroken if a release differs, or another mechanism runs.
    """
    recorder = Recorder(adversary)
    forced = [Forced(recorder) for _ in neighbours]
    engines = [make_engine() for _ in (recorded, *neighbours)]
    for step, batch in enumerate(recorded):
        for at, engine in enumerate(engines):
            if step - (at > 0) in restarts:
                engines[at] = make_engine()
                engines[at].restore(engine.state())
        public = contents(engines[0].step(batch, WitnessedSource(recorder, SEED, "s", step)))
        for engine, other, witness in zip(engines[1:], neighbours, forced, strict=True):
            found = contents(engine.step(other[step], WitnessedSource(witness, SEED, "s", step)))
            witness.check_complete(step)
            if found != public:
                raise CouplingBroken(f"step {step}: releases differ between neighbouring inputs")
    return [witness.pairs for witness in forced]


def epsilon_of(pairs: Uses) -> float:
    return Losses.of(pairs).pure


def _place(used: Used) -> str:
    """Of a histogram, or of a tree, whose bits of all levels belong together."""
    labels = used.place.split("/")
    return "/".join(labels[: labels.index("split") + 1] if "split" in labels else labels)


def by_mechanism(pairs: Uses) -> dict[str, float]:
    """Loss of each histogram and each tree."""
    parts: dict[str, list[Any]] = {}
    for pair in pairs:
        parts.setdefault(_place(pair[0]), []).append(pair)
    return {place: epsilon_of(uses) for place, uses in parts.items()}


def claims_of(engine: Trajectories) -> dict[str, Fraction]:
    """What a trip is charged by each mechanism at most, by place as in `by_mechanism`; in both plans of `default`."""
    guarantee = engine.guarantee()
    claims = {mechanism.name: mechanism.epsilon for mechanism in guarantee.mechanisms}
    if isinstance(engine.config.mode, Default):
        few = {name: guarantee.epsilon * share for name, share in FEW_TRIPS.shares.items()}
        claims |= {name: max(claims[name], epsilon) for name, epsilon in few.items()}
    if isinstance(engine.config.mode, Paper):
        claims["pairs/pairs"] = claims.pop("pairs")
    return {_PLACES.get(name, f"noise/{name}"): epsilon for name, epsilon in claims.items()}


_PLACES = {
    "cells (one bit for each)": "noise/cells/split",
    "pairs of cells (one bit for each)": "noise/pairs/split",
}


def check_price(engine: Trajectories, pairs: Uses, *, trips: int) -> None:
    """Neighbours that differ in so many trips cost no more than is claimed: in all, and by each mechanism.

    Raises: CouplingBroken, naming the mechanism.
    """
    claims = {**claims_of(engine), "all": engine.guarantee().epsilon}
    for place, loss in (*by_mechanism(pairs).items(), ("all", epsilon_of(pairs))):
        if loss > trips * float(claims.get(place, 0)) * SLACK:
            raise CouplingBroken(f"{place}: {trips} trips cost {loss}, not {trips} times {claims.get(place, 0)}")


def scales_of(pairs: Uses) -> dict[str, Fraction]:
    """Scale of the noise of each histogram and each tree, in trips; of the last use."""
    return {
        _place(used): used.law.scale / UNIT if isinstance(used.law, LaplaceLaw) else used.law.scale for used, _ in pairs
    }
