"""Every registered engine and mode as a case: neighbouring steps through the engine's own `step`, all it releases seen.

Neighbours: one event inserted or deleted, at the first or a later step, in a dense or an empty cell; one event replaced
by another, where that is what the engine promises to hide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np

from engines.auditor.cases import Case, Claim, Fresh, Neighbours, Observe
from engines.auditor.observations import Observations
from engines.auditor.scenes import LATE, SCENES, STEPS, Focus, Key, Scene, of_release, spatial, with_sums
from engines.contract import Batch, Engine, Release
from engines.contract_checks import contents
from engines.noise import NoiseSource
from engines.registry import ENGINES, build_engine
from schemas.blocks import Folded
from schemas.config import ENGINE_MODES, Stream
from schemas.errors import EngineInputError

LONG, LONGEST = 16, 256
"""Steps without events whose releases are compared between fresh seeds."""
MEASURED = 6
"""Measurements in them, at least."""
FAINT = 0.02
"""Epsilon of that comparison: a noise of scale 50 and more agrees with another one with probability 0.01."""
COLLISION = 0.02**MEASURED


def case(
    name: str,
    scene: Scene,
    *,
    make: Callable[[], Engine] | None = None,
    claim: Claim | None = None,
    faint: Callable[[], Engine] | None = None,
) -> Case:
    """Audit an engine on a scene.

    Args:
        make: another engine than the scene's stream names; for those not (yet) registered.
        claim: of one event; what the engine's own guarantee says if absent, times the steps where it is of one step.
        faint: the same engine at epsilon `FAINT`, for the comparison of fresh seeds; absent: not compared.
    """
    built = make or (lambda: build_engine(scene.stream))
    guarantee = built().guarantee()
    focuses = {place: focus for place, (_, _, focus) in scene.places.items()}
    base = Shared(observe(built, scene.base, {}, focuses))
    pairs = [
        Neighbours(
            f"{verb}, {moment} step, {place}", base.beside(observe(built, scene.base, {step: key}, focuses)), times=1
        )
        for moment, step in (("first", 0), ("later", LATE))
        for place, (insert, delete, focus) in scene.places.items()
        for verb, key in (("insert", insert), ("delete", delete))
        if key is not None
    ]
    pairs += [
        Neighbours(
            f"{name}, {moment} step",
            Shared(observe(built, scene.base, {step: taken}, focuses)).beside(
                observe(built, scene.base, {step: put}, focuses)
            ),
            times=1,
        )
        for moment, step in (("first", 0), ("later", LATE))
        for name, (taken, put) in scene.replaced.items()
    ]
    return Case(
        name,
        "engine",
        claim or Claim(guarantee.epsilon * (1 if guarantee.private else STEPS), guarantee.delta),
        neighbours=tuple(pairs),
        fresh=(Fresh(lambda source: _long_run(faint, source), collision=COLLISION),) if faint is not None else (),
    )


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
            if runs not in self._seen:
                self._seen[runs] = self._base(side, runs, source)
            return self._seen[runs]

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
            row: dict[str, float] = {}
            for batch in batches:
                release = engine.step(batch, source.child("run", index, batch.step))
                row |= of_release(release, focuses)
            rows.append(with_sums(row))
        return Observations.of_rows(rows)

    return run


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
    """Every registered engine in each of its modes; spatial also with a ttl."""
    made = []
    for name in sorted(ENGINES):
        for mode in ENGINE_MODES[name]:
            scene = SCENES[name](mode)
            made.append(case(f"engine {name}, mode {mode}", scene, faint=partial(build_engine, faintly(scene.stream))))
    return [*made, *(expiring(mode) for mode in ENGINE_MODES["spatial"])]


def expiring(mode: str) -> Case:
    """A ttl of one step: one event of the stream is an insert and, where expiries are measured, its own delete."""
    scene = spatial(mode, ttl="1h")
    insert, _, focus = scene.places["dense cell"]
    focuses = {"dense cell": focus}

    def make() -> Engine:
        return build_engine(scene.stream)

    base = Shared(observe(make, scene.base, {}, focuses))
    pair = Neighbours(
        "insert that expires, dense cell",
        base.beside(observe(make, scene.base, {0: insert}, focuses)),
        times=1,
    )
    claim = Claim(make().guarantee().epsilon * Fraction(scene.stream.contributions))
    return Case(f"engine spatial, mode {mode}, ttl", "engine", claim, neighbours=(pair,))
