"""Every registered engine and mode as a case: canaries in a run of steps through the engine's own `step`, all it
releases seen.

Canaries: events inserted, deleted, or replaced by another where that is what the engine promises to hide; in a dense
or an empty cell, one in most steps. Where the fixture's stream bounds users, a canary is a user with all events that
the bound allows, in one step or spread over several, and the claim is the user's. Modes with a delta are run with one
canary at a time instead (`bounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial

import numpy as np

from engines.auditor.cases import Case, Claim, Fresh, Neighbours, Observe
from engines.auditor.features import Features, of_release
from engines.auditor.fixture import LATE, STEPS, VISITED, AuditFixture, Focus, Key
from engines.auditor.observations import Observations
from engines.auditor.worlds import LAGS, Canary, Measurements, Seen, World, focused
from engines.contract import Batch, Engine, Release
from engines.contract_checks import contents
from engines.noise import NoiseSource
from engines.registry import build_engine, part
from schemas.blocks import Folded
from schemas.config import ENGINES, Stream
from schemas.errors import EngineInputError

LONG, LONGEST = 16, 256
"""Steps without events whose releases are compared between fresh seeds."""
MEASURED = 6
"""Measurements in them, at least."""
FAINT = 0.02
"""Epsilon of that comparison: a noise of scale 50 and more agrees with another one with probability 0.01."""
COLLISION = 0.02**MEASURED
SEEDS = 8
"""Fresh seeds that are compared: a generator with a seed of its own repeats itself at once."""
THREE_KINDS = 1.5
"""Epsilon claimed where each of three kinds of canary has a third of the steps: fewer guesses refute it."""


def world(fixture: AuditFixture, make: Callable[[], Engine], *, visited: int = VISITED) -> World:
    """A canary in each step, of every kind in turns: insert, delete where there is much, replacement. Of users with
    several events every other one of a kind spreads them over steps.
    """
    kinds: list[tuple[str, Key, Key | None, Focus]] = []
    for place, (insert, delete, focus) in fixture.places.items():
        kinds.append((f"insert, {place}", insert, None, focus))
        if delete is not None and fixture.deletes and place == "dense cell":
            kinds.append((f"delete, {place}", delete, None, focus))
    if fixture.replaced:
        focus = all_places({place: focus for place, (_, _, focus) in fixture.places.items()})
        kinds = [(name, put, taken, focus) for name, (taken, put) in fixture.replaced.items()]
    canaries = []
    for step in range(visited):
        kind, put, taken, focus = kinds[step % len(kinds)]
        facts = ("delete",) if kind.startswith("delete") else ()
        steps = fixture.steps_of(step, spread=step // len(kinds) % 2 == 1, last=visited + 1)
        keys = [_numbered(fixture, put, at, index) for index, at in enumerate(steps)]
        more = tuple((at, key, taken) for at, key in zip(steps[1:], keys[1:], strict=True))
        canaries.append(Canary(kind, step, keys[0], by_focus(focus, step), taken, facts, more))
    base = [
        fixture.at(step) if step < visited else Folded.empty(fixture.base.keys.shape[1]) for step in range(visited + 2)
    ]
    return World(make, base, canaries, ("delete",) if fixture.deletes else ())


def _numbered(fixture: AuditFixture, key: Key, step: int, index: int) -> Key:
    return fixture.numbered(key, step, index) if fixture.numbered is not None else key


def all_places(focuses: Mapping[str, Focus]) -> Focus:
    """What every place says, and how much the places differ: a unit that moved is in one of them."""

    def focus(step: int, measurements: Measurements) -> Features:
        found = {place: each(step, measurements) for place, each in focuses.items()}
        features = {f"{name}, {place}": value for place, said in found.items() for name, value in said.items()}
        residuals = [value for name, value in features.items() if name.startswith("residual")]
        return features | ({"difference": residuals[0] - residuals[-1]} if len(residuals) > 1 else {})

    return focus


def by_focus(focus: Focus, step: int, *, lags: int = LAGS) -> Seen:
    """What a focus says of the canary's step and of the following ones, and its residuals of them all together."""

    def seen(steps: Sequence[Measurements]) -> Features:
        features: Features = {}
        total, found = 0.0, False
        for lag, measurements in enumerate(steps[step : step + lags]):
            for name, value in focus(step + lag, measurements).items():
                features[f"{name}, lag {lag}"] = value
                if name.startswith("residual"):
                    total, found = total + value, True
        return focused(features | ({"residuals": total} if found else {}))

    return seen


class SharedRuns:
    """Runs of the input that many neighbours share are made once. Each finding keeps its own error rate."""

    def __init__(self, base: Observe) -> None:
        self._base = base
        self._seen: dict[int, Observations] = {}

    def beside(self, other: Observe) -> Observe:
        """Side 0 is shared, side 1 is `other`'s."""

        def run(side: int, runs: int, source: NoiseSource) -> Observations:
            if side:
                return other(side, runs, source)
            longest = max(self._seen, default=0)
            if longest < runs:
                longest = runs + runs // 8
                self._seen = {longest: self._base(side, longest, source)}
            return self._seen[longest].part(0, runs)

        return run


def observe(
    make: Callable[[], Engine],
    base: Folded,
    extra: Sequence[tuple[int, Key]],
    focuses: Mapping[str, Focus],
    *,
    steps: int = STEPS,
) -> Observe:
    """Runs of `steps` steps of `base`, and on either side the events `extra`, by step."""
    batches = []
    for at in range(steps):
        keys = [key for step, key in extra if step == at]
        events = base.merge(Folded.of(np.array(keys, np.uint64).reshape(len(keys), -1))) if keys else base
        batches.append(Batch(at, events))

    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        rows = []
        for index in range(runs):
            engine = make()
            row: Features = {}
            for batch in batches:
                release = engine.step(batch, source.child("run", index, batch.step))
                row |= {f"step {batch.step}/{name}": value for name, value in of_release(release).items()}
                for place, focus in focuses.items():
                    said = focus(batch.step, list(release.measurements))
                    row |= focused({f"step {batch.step}, {place}, {name}": value for name, value in said.items()})
            rows.append(row)
        return Observations.of_rows(rows)

    return run


def one_at_a_time(fixture: AuditFixture, make: Callable[[], Engine]) -> tuple[Neighbours, ...]:
    """One unit more in the first or a later step; the only way for a claim with delta. A user with several events has
    all of them in the first step that may be, or from the later one on one in each step.
    """
    focuses = {place: focus for place, (_, _, focus) in fixture.places.items()}
    base = SharedRuns(observe(make, fixture.base, (), focuses))
    pairs = []
    for moment, step in (("first", 0), ("later", LATE)):
        at = fixture.steps_of(step, spread=step > 0, last=STEPS - 1)
        for place, (key, _, _) in fixture.places.items():
            there = observe(make, fixture.base, [(each, key) for each in at], focuses)
            pairs.append(Neighbours(f"insert, {moment} step, {place}", base.beside(there), times=4))
    return tuple(pairs)


def case(
    name: str, fixture: AuditFixture, *, make: Callable[[], Engine] | None = None, faint: Stream | None = None
) -> Case:
    """Audit an engine on a fixture.

    Args:
        make: another engine than the fixture's stream names; for those not (yet) registered.
        faint: the same stream at epsilon `FAINT`, for the comparison of fresh seeds; absent: not compared.
    """
    built = make or partial(build_engine, fixture.stream)
    guarantee = built().guarantee()
    alone = guarantee.delta > 0
    visited = world(fixture, built)
    return Case(
        name,
        "engine",
        Claim(guarantee.epsilon * fixture.stream.contributions, guarantee.delta),
        neighbours=one_at_a_time(fixture, built) if alone else (),
        fresh=fresh(faint),
        canaries=() if alone else (visited.canaries_case("one after the other"),),
        contributions=fixture.contributions,
    )


def fresh(faint: Stream | None) -> tuple[Fresh, ...]:
    """The comparison of seeds for a stream at epsilon `FAINT`, if there is one."""
    if faint is None:
        return ()
    make = partial(build_engine, faint)
    return (Fresh(lambda source: _long_run(make, source), collision=COLLISION, runs=SEEDS),)


def _long_run(make: Callable[[], Engine], source: NoiseSource) -> bytes:
    """All that is released over `LONG` steps without events, which is noise alone; over more of them where an engine
    holds what is rare. Where noise repeats, so does the number of steps.

    Raises: EngineInputError if it has too few measurements to be told from another run's.
    """
    engine, empty = make(), Folded.empty(1)
    releases: list[Release] = []
    measured = 0
    while len(releases) < LONG or (measured < MEASURED and len(releases) < LONGEST):
        releases.append(engine.step(Batch(len(releases), empty), source.child(len(releases))))
        measured += len(releases[-1].measurements)
    if measured < MEASURED:
        raise EngineInputError("this engine measures too little for seeds to be compared: lengthen its fixture")
    return repr([contents(release) for release in releases]).encode()


def faintly(stream: Stream) -> Stream:
    """The same stream with so small an epsilon that noise is all there is."""
    epsilon = Decimal(str(FAINT)) * stream.contributions
    return stream.model_copy(update={"privacy": stream.privacy.model_copy(update={"epsilon": epsilon})})


def cases() -> list[Case]:
    """Those of every installed engine in each of its modes."""
    return [made for name, spec in ENGINES.items() for mode in spec.facts.modes for made in part(name, "audit")(mode)]
