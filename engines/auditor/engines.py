"""Every registered engine and mode as a case: canaries in a run of steps through the engine's own `step`, all it
releases seen.

Canaries: events inserted, deleted, or replaced by another where that is what the engine promises to hide; in a dense
or an empty cell, one in most steps. Modes with a delta are run with one canary at a time instead (`bounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial

import numpy as np

from engines.auditor.cases import Canaries, Case, Claim, Fresh, Neighbours, Observe
from engines.auditor.features import Features, of_release
from engines.auditor.life import TTL, first, life, stream
from engines.auditor.observations import Observations
from engines.auditor.scenes.every import SCENES
from engines.auditor.scenes.scene import LATE, STEPS, VISITED, Focus, Key, Scene
from engines.auditor.scenes.spatial import spatial
from engines.auditor.scenes.tabular import tabular
from engines.auditor.worlds import LAGS, Canary, Measurements, Seen, World, focused
from engines.contract import Batch, Engine, Release
from engines.contract_checks import contents
from engines.noise import NoiseSource
from engines.registry import ENGINES, build_engine
from schemas.blocks import Folded
from schemas.config import ENGINE_MODES, Stream
from schemas.config.engines import ENGINE_FACTS, measures_expiry
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
FIRSTS = 6
"""Runs of a first release for each one that is asked for: they are short, and have one canary."""


def world(scene: Scene, make: Callable[[], Engine], *, visited: int = VISITED) -> World:
    """A canary in each step, of every kind in turns: insert, delete where there is much, replacement."""
    kinds: list[tuple[str, Key, Key | None, Focus]] = []
    for place, (insert, delete, focus) in scene.places.items():
        kinds.append((f"insert, {place}", insert, None, focus))
        if delete is not None and scene.deletes and place == "dense cell":
            kinds.append((f"delete, {place}", delete, None, focus))
    if scene.replaced:
        focus = all_places({place: focus for place, (_, _, focus) in scene.places.items()})
        kinds = [(name, put, taken, focus) for name, (taken, put) in scene.replaced.items()]
    canaries = []
    for step in range(visited):
        kind, put, taken, focus = kinds[step % len(kinds)]
        facts = ("delete",) if kind.startswith("delete") else ()
        canaries.append(Canary(kind, step, _numbered(scene, put, step), by_focus(focus, step), taken, facts))
    base = [scene.at(step) if step < visited else Folded.empty(scene.base.keys.shape[1]) for step in range(visited + 2)]
    return World(make, base, canaries, ("delete",) if scene.deletes else ())


def _numbered(scene: Scene, key: Key, step: int) -> Key:
    return scene.numbered(key, step) if scene.numbered is not None else key


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


class Shared:
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
    extra: Mapping[int, Key],
    focuses: Mapping[str, Focus],
    *,
    steps: int = STEPS,
) -> Observe:
    """Runs of `steps` steps of `base`, and on either side the events `extra`: step -> key."""
    batches = []
    for at in range(steps):
        keys = [key for step, key in extra.items() if step == at]
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


def one_at_a_time(scene: Scene, make: Callable[[], Engine]) -> tuple[Neighbours, ...]:
    """One unit more in the first or a later step; the only way for a claim with delta."""
    focuses = {place: focus for place, (_, _, focus) in scene.places.items()}
    base = Shared(observe(make, scene.base, {}, focuses))
    return tuple(
        Neighbours(
            f"insert, {moment} step, {place}", base.beside(observe(make, scene.base, {step: key}, focuses)), times=4
        )
        for moment, step in (("first", 0), ("later", LATE))
        for place, (key, _, _) in scene.places.items()
    )


def case(name: str, scene: Scene, *, make: Callable[[], Engine] | None = None, faint: Stream | None = None) -> Case:
    """Audit an engine on a scene.

    Args:
        make: another engine than the scene's stream names; for those not (yet) registered.
        faint: the same stream at epsilon `FAINT`, for the comparison of fresh seeds; absent: not compared.
    """
    built = make or partial(build_engine, scene.stream)
    guarantee = built().guarantee()
    alone = guarantee.delta > 0
    visited = world(scene, built)
    return Case(
        name,
        "engine",
        # Where an event is counted anew in each step, it costs epsilon in each.
        Claim(guarantee.epsilon * (1 if guarantee.private else len(visited.base)), guarantee.delta),
        neighbours=one_at_a_time(scene, built) if alone else (),
        fresh=fresh(faint),
        canaries=() if alone else (visited.canaries_case("one after the other"),),
    )


def living(mode: str, *, ttl: int | None = None, make: Callable[[], Engine] | None = None) -> Case:
    """A spatial mode in the world of `life`; an expiry that is measured is the event's second change.

    Args: make: another engine than the mode's, for those that are planted.
    """
    guarantee = (make or partial(build_engine, stream(mode, ttl=ttl)))().guarantee()
    twice = ttl is not None and measures_expiry("spatial", mode)
    worlds: list[Canaries] = [life(mode, ttl=ttl, make=make).canaries_case("a life")]
    if ttl is None:
        worlds.append(first(mode, make=make).canaries_case("the beginning", times=FIRSTS))
    return Case(
        f"engine spatial, mode {mode}" + (", ttl" if ttl is not None else ""),
        "engine",
        Claim(guarantee.epsilon * (2 if twice else 1)),
        fresh=fresh(faintly(stream(mode))) if make is None and ttl is None else (),
        canaries=tuple(worlds),
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
        raise EngineInputError("this engine measures too little for seeds to be compared: lengthen its scene")
    return repr([contents(release) for release in releases]).encode()


def faintly(stream: Stream) -> Stream:
    """The same stream with so small an epsilon that noise is all there is."""
    epsilon = Decimal(str(FAINT)) * stream.contributions
    return stream.model_copy(update={"privacy": stream.privacy.model_copy(update={"epsilon": epsilon})})


def cases() -> list[Case]:
    """Every registered engine in each of its modes; spatial also with a ttl, tabular also with deletes."""
    return [made for name in sorted(ENGINES) for mode in ENGINE_MODES[name] for made in _cases(name, mode)]


def _cases(name: str, mode: str) -> Iterator[Case]:
    title = f"engine {name}, mode {mode}"
    facts = ENGINE_FACTS[name]
    if name == "spatial" and mode not in facts.not_private:
        yield living(mode)
        yield living(mode, ttl=TTL)
        return
    # Of all steps together, epsilon is 1.5 here: an event that is counted anew in each costs as much in each.
    scene = spatial(mode, epsilon=THREE_KINDS / (VISITED + 2)) if name == "spatial" else SCENES[name](mode)
    yield case(title, scene, faint=faintly(scene.stream))
    if name == "tabular":
        yield case(f"{title}, deletes", tabular(mode, op=True, epsilon=THREE_KINDS))
