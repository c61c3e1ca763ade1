"""A world: steps of events that everybody knows of, and canaries, each of which is there or not by its own coin.

Canaries of one run are different protected units, in steps or cells of their own as far as there are enough. What is
seen of one is the whole release of its step and of the following ones, and what was measured at its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from engines.auditor.audit import coins
from engines.auditor.cases import Canaries, Trials
from engines.auditor.features import Features, of_release
from engines.auditor.observations import FOCUS, Marked, Observations
from engines.contract import Batch, Engine, Release
from engines.noise import NoiseSource
from schemas.arrays import FloatArray
from schemas.blocks import Folded

LAGS = 3
"""Releases that are looked at from the canary's own on."""

Key = int | tuple[int, ...]
"""Of an event: its word, or words."""
Measurements = Sequence[Mapping[str, Any]]
Seen = Callable[[Sequence[Measurements]], Features]
"""From the measurements of all steps of a run to what they say of one canary. Under `FOCUS` if it says the same of any
canary of that kind."""


@dataclass(frozen=True, slots=True)
class Canary:
    """Attributes:

    kind: a row of the audit.
    step: in which it comes.
    put: key of its event. taken: of the one that is there in its place where it is not; None: none.
    seen: what is looked at.
    facts: what of `cases.COVERED` it stands for.
    more: step, `put` and `taken` of other events of the same unit, where it is a user with several.
    """

    kind: str
    step: int
    put: Key
    seen: Seen = lambda steps: {}
    taken: Key | None = None
    facts: tuple[str, ...] = ()
    more: tuple[tuple[int, Key, Key | None], ...] = ()

    def in_step(self, step: int, *, there: bool) -> list[Key]:
        """Keys of what it has in a step, or of what is there in its place."""
        events = ((self.step, self.put, self.taken), *self.more)
        keys = [put if there else taken for at, put, taken in events if at == step]
        return [key for key in keys if key is not None]


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Attributes:

    make: the engine, before its first step.
    base: events of each step.
    canaries: who may be there; not in a step beyond.
    """

    make: Callable[[], Engine]
    base: Sequence[Folded]
    canaries: Sequence[Canary]
    covers: tuple[str, ...] = ()
    batches: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "batches", cache(self._batch))

    def canaries_case(self, name: str, *, times: int = 1) -> Canaries:
        each = Counter(canary.kind for canary in self.canaries)
        return Canaries(name, each, self.observe, times=times, covers=self.covers)

    def _batch(self, step: int, bits: tuple[bool, ...]) -> Batch:
        keys = [
            key for canary, bit in zip(self._here(step), bits, strict=True) for key in canary.in_step(step, there=bit)
        ]
        more = [Folded.of(np.array(key, np.uint64).reshape(1, -1)) for key in keys]
        base = self.base[step]
        if not len(base.counts) and more:
            return Batch(step, more[0].merge(*more[1:]))
        return Batch(step, base.merge(*more) if more else base)

    def _here(self, step: int) -> list[Canary]:
        return [canary for canary in self.canaries if step in (canary.step, *(at for at, _, _ in canary.more))]

    def observe(self, runs: int, source: NoiseSource) -> Trials:
        """See `Canaries.observe`."""
        bits = coins(runs * len(self.canaries), source.child("coins")).reshape(runs, -1)
        coverage: Counter[str] = Counter()
        whole: list[list[Features]] = []
        seen: list[list[Features]] = []
        for run in range(runs):
            releases = self._run(bits[run], source.child("run", run))
            coverage += covered(releases)
            coverage.update(fact for canary in self.canaries for fact in canary.facts)
            whole.append([of_release(release) for release in releases])
            measured = [list(release.measurements) for release in releases]
            seen.append([canary.seen(measured) for canary in self.canaries])
        steps = [canary.step for canary in self.canaries]
        return trials([canary.kind for canary in self.canaries], bits, steps, whole, seen, coverage)

    def _run(self, bits: Any, source: NoiseSource) -> list[Release]:
        engine = self.make()
        releases = []
        there = dict(zip(map(id, self.canaries), map(bool, bits), strict=True))
        for step in range(len(self.base)):
            here = tuple(there[id(canary)] for canary in self._here(step))
            releases.append(engine.step(self.batches(step, here), source.child("step", step)))
        return releases


def trials(
    kinds: Sequence[str],
    bits: Any,
    steps: Sequence[int],
    whole: Sequence[Sequence[Features]],
    seen: Sequence[Sequence[Features]],
    coverage: Mapping[str, int],
) -> Trials:
    """All that was seen, put together.

    Args:
        kinds, steps: of each canary; its step counts among the features of `whole`.
        bits: `(runs, canaries)`. whole: features of each step of each run. seen: of each canary of each run.
    """
    releases, places = _table(whole), _table(seen)
    marked = {}
    for kind in dict.fromkeys(kinds):
        which = [index for index, each in enumerate(kinds) if each == kind]
        columns = {name: table[:, which].reshape(-1) for name, table in places.items()}
        for lag in range(LAGS):
            at = np.array([steps[index] + lag for index in which])
            for name, table in releases.items():
                there = at < table.shape[1]
                column = np.where(there, table[:, np.where(there, at, 0)], np.nan).reshape(-1)
                if np.isfinite(column).any():
                    columns[f"{name}, lag {lag}"] = column
        rows = len(bits) * len(which)
        marked[kind] = Marked(bits[:, which].reshape(-1), Observations(columns, rows), len(which))
    return Trials(marked, coverage)


def _table(rows: Sequence[Sequence[Features]]) -> dict[str, FloatArray]:
    """name -> `(runs, steps or canaries)`, NaN where a name is not there."""
    names = {name: None for row in rows for part in row for name in part}
    tables = {name: np.full((len(rows), len(rows[0])), np.nan) for name in names}
    for run, row in enumerate(rows):
        for at, part in enumerate(row):
            for name, value in part.items():
                tables[name][run, at] = value
    return tables


def covered(releases: Sequence[Release]) -> Counter[str]:
    """What one run came across, read off its public notes: leaves come and go by divisions and merges."""
    leaves = [release.notes["leaves"] for release in releases if "leaves" in release.notes]
    held = [release for release in releases if "hot" in release.notes]
    found = Counter({"burst": sum(release.notes["hot"] > 0 for release in held)})
    if held:
        found["merge"] = sum(after < before for before, after in pairwise(leaves))
        found["divide"] = sum(after > before for before, after in pairwise(leaves))
    return found


def focused(features: Features) -> Features:
    """Under the names that `scores` looks for."""
    return {f"{FOCUS}{name}": value for name, value in features.items()}
