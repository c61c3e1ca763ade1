"""The world in which spatial engines are audited: a tree that lives, with everything that can happen to a leaf.

16 finest cells, two of which hold events in each step. A quarter of the domain fills up, is emptied by deletes that
really delete, and is merged. In mode `default` cells that were quiet burst, with as many events as the alarm of the
watch just does not answer to: it is for the noise, and the canary, to say whether the cell is hot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import floor
from typing import Any

import numpy as np

from engines.auditor.cases import Canaries, Case, Claim
from engines.auditor.engines import faintly, fresh
from engines.auditor.features import Features
from engines.auditor.fixture import DENSE
from engines.auditor.worlds import Canary, Measurements, Seen, World, focused
from engines.contract import Engine
from engines.registry import build_engine
from engines.spatial.domain import BoxDomain
from engines.spatial.focus import centre, within
from engines.spatial.held.config import HeldConfig
from engines.spatial.held.watch import ALARM, MEMORY
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.config.discovery import measures_expiry

DEPTH, MAX_LEAVES = 4, 64
DENSE_CELL, BESIDE, EMPTY = 5, 4, 15
FILLED, EMPTIED_AT, FILL = (8, 9, 10, 11), 3, 20
"""Cells that hold `FILL` events of each step before `EMPTIED_AT`, when all of these are deleted."""
BURSTING, TIMES, FIRST_BURST = (0, 2, 6, 12), 3, 5
"""Cells that burst, one in a step, `TIMES` times each; every one is a cell of the watch, or half of one."""
TTL = 2

FIRSTS = 6
"""Runs of a first release for each one that is asked for: they are short, and have one canary."""

Cell = tuple[int, int]
"""Code of a finest cell, and 0 for inserts or 1 for deletes there."""


@dataclass(slots=True)
class Life:
    """A world in the making.

    Attributes: counts: of each step's events. canaries: (kind, step, cell, what it covers).
    """

    mode: str
    ttl: int | None
    steps: int
    counts: list[Counter[Cell]] = field(default_factory=list)
    canaries: list[tuple[str, int, Cell, tuple[str, ...]]] = field(default_factory=list)

    def known(self, *, but: int) -> Iterator[tuple[int, int, float]]:
        """Step, cell and number of events to be expected without a canary; of the other canaries, half of each."""
        measured = self.ttl is not None and measures_expiry("spatial", self.mode)
        events = [(step, *cell, float(count)) for step, here in enumerate(self.counts) for cell, count in here.items()]
        events += [(step, *cell, 0.5) for index, (_, step, cell, _) in enumerate(self.canaries) if index != but]
        for step, code, operation, count in events:
            yield step, code, -count if operation else count
            if measured and self.ttl is not None:
                yield step + self.ttl, code, count if operation else -count


def stream(mode: str, *, ttl: int | None = None, epsilon: float = 2.0) -> Stream:
    """Small, so that much of what an event can move is seen; epsilon is that of one event."""
    domain: dict[str, Any] = {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]}
    if ttl is not None:
        domain["ttl"] = f"{ttl}h"
    return Stream.model_validate(
        {
            "name": "audit",
            "engine": "spatial",
            "mode": mode,
            "source": "raw.audit",
            "privacy": {"epsilon": epsilon, "unit": "event"},
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            "domain": domain,
            "options": {"depth": DEPTH, "initial_steps": 1, "max_leaves": MAX_LEAVES},
        }
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


def life(mode: str, *, ttl: int | None = None, make: Callable[[], Engine] | None = None) -> World:
    """All that happens after the first release; with a `ttl` inserts and their expiry only.

    Args: make: another engine than the mode's, for those that are planted.
    """
    configured = stream(mode, ttl=ttl)
    bursts = mode == "default" and ttl is None
    made = Life(mode, ttl, steps=FIRST_BURST + (TIMES + 2) * len(BURSTING) if bursts else 15)
    made.counts = [Counter({(DENSE_CELL, 0): DENSE, (BESIDE, 0): 3}) for _ in range(made.steps)]
    if ttl is None:
        _fill_and_empty(made)
    bursting = _burst(made, configured) if bursts else set()
    _visits(made, but=bursting)
    covers = ["burst", "merge", "divide"] if bursts else []
    covers += ["delete"] if ttl is None else ["ttl"]
    return _world(made, make or (lambda: build_engine(configured)), covers)


def first(mode: str, *, make: Callable[[], Engine] | None = None) -> World:
    """The first release alone, with one canary where there is much, and the step after it."""
    made = Life(mode, None, steps=2)
    made.counts = [Counter({(DENSE_CELL, 0): DENSE, (BESIDE, 0): 3}) for _ in range(2)]
    made.canaries = [("insert", 0, (DENSE_CELL, 0), ("first release",))]
    configured = stream(mode)
    return _world(made, make or (lambda: build_engine(configured)), ["first release"])


def _fill_and_empty(made: Life) -> None:
    for code in FILLED:
        for step in range(EMPTIED_AT):
            made.counts[step][code, 0] += FILL
        made.counts[EMPTIED_AT][code, 1] += FILL * EMPTIED_AT


def _burst(made: Life, configured: Stream) -> set[int]:
    """Bursts as large as a watch without noise would just not call hot; returns their steps."""
    engine = build_engine(configured)
    config = engine.config  # type: ignore[attr-defined]
    assert isinstance(config, HeldConfig)
    watch = config.watch
    shift = DEPTH - watch.depth
    steps = set()
    for at in range(TIMES * len(BURSTING)):
        # Every fifth step is left to merges and visits.
        step, code = FIRST_BURST + at + at // len(BURSTING) * 2, BURSTING[at % len(BURSTING)]
        average = 0.0
        for before in range(2, step):
            there = sum(
                count * (-1 if operation else 1)
                for (other, operation), count in made.counts[before].items()
                if other >> shift == code >> shift
            )
            average += MEMORY * (there - average)
        habit = abs(average)
        made.counts[step][code, 0] += floor(average + ALARM * float(watch.scale) + max(habit, 4 * habit**0.5))
        made.canaries.append(("insert at a burst", step, (code, 0), ("burst",)))
        steps.add(step)
    return steps


def _visits(made: Life, *, but: set[int]) -> None:
    """A canary in each other step: an insert or a delete in turns where there is much; now and then one in the void."""
    last = made.steps - 1 if made.ttl is None else made.steps - 1 - made.ttl
    steps = [step for step in range(1, last + 1) if step not in but]
    for index, step in enumerate(steps):
        if made.ttl is not None:
            made.canaries.append(("insert that expires", step, (DENSE_CELL, 0), ("ttl",)))
            continue
        deleted = index % 2
        kind = "delete, dense cell" if deleted else "insert, dense cell"
        made.canaries.append((kind, step, (DENSE_CELL, deleted), ("delete",) if deleted else ()))
    if made.ttl is not None:
        return
    for code, step in zip((EMPTY, *FILLED, EMPTY - 1), range(EMPTIED_AT + 1, last, 2), strict=False):
        made.canaries.append(("insert, empty cell", step, (code, 0), ()))


def _world(made: Life, make: Callable[[], Engine], covers: Sequence[str]) -> World:
    base = []
    for counts in made.counts:
        keys = np.array([[code << 1 | operation] for code, operation in counts], np.uint64)
        base.append(Folded.of(keys, np.array(list(counts.values()))))
    canaries = [
        Canary(kind, step, code << 1 | operation, _seen(made, index), facts=facts)
        for index, (kind, step, (code, operation), facts) in enumerate(made.canaries)
    ]
    return World(make, base, canaries, tuple(covers))


def _seen(made: Life, index: int) -> Seen:
    """What was measured where a canary is, in the first step that counts it, beyond what is expected."""
    box = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), DEPTH)
    _, step, (code, operation), _ = made.canaries[index]
    x, y = centre(box, code)
    known = [(at, *centre(box, other), count) for at, other, count in made.known(but=index)]
    sign = -1.0 if operation else 1.0
    expired = made.ttl is not None and measures_expiry("spatial", made.mode)

    def at(steps: Sequence[Measurements], begin: int) -> Features:
        for now in range(begin, len(steps)):
            here = [each for each in steps[now] if within(each["cell"], x, y)]
            here = [each for each in here if each.get("since", now - 1) < begin or each.get("since", now - 1) == now]
            if here:
                return _residual(here, known, now, sign)
        return {}

    def seen(steps: Sequence[Measurements]) -> Features:
        features = at(steps, step)
        if expired and made.ttl is not None:
            gone = at(steps, step + made.ttl)
            features |= {f"gone: {name}": -value for name, value in gone.items()}
        rounds = {name: value for name, value in features.items() if "round" in name}
        return rounds | focused({name: value for name, value in features.items() if "round" not in name})

    return seen


def _residual(
    here: Sequence[Mapping[str, Any]], known: Sequence[tuple[int, float, float, float]], now: int, sign: float
) -> Features:
    cell, since = here[-1]["cell"], min(each.get("since", now - 1) for each in here)
    there = sum(count for at, x, y, count in known if since < at <= now and within(cell, x, y))
    found = sum(each["increment"] for each in here)
    rounds = {f"round {each.get('round', 0)}": sign * each["increment"] for each in here}
    return {"residual": sign * (found - there), "depth": float(here[-1]["depth"]), **rounds}
