"""Planted faults of engine `markov`: peeks outside of any aggregate, and what hides inside or costs too much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from engines.core.contract import Batch, Release, SyntheticRecord
from engines.core.noise import NoiseSource, aggregate, laplace_mechanism
from engines.markov import engine as markov
from engines.markov.domain import StatesDomain
from engines.markov.engine import Markov
from engines.markov.filters import Collective
from engines.markov.learning import Learner
from schemas.arrays import IntArray
from schemas.blocks import Folded
from tests.couple.plants import Fault, Plant, Planted, edit, peeked, plants, remembered, replaced

_LONG: Mapping[str, Any] = {"options": {"horizon": 16}, "privacy": {"max_contributions": 16}}
_UNKNOWN: Mapping[str, Any] = {**_LONG, "domain": {"transition": None}}
_PERIODS: Mapping[str, Any] = {"options": {"horizon": None}, "privacy": {"max_contributions": 4, "per": "4h"}}
_FROM = 8
"""Step from which a release tells: no short test goes so far."""


def _told(change: Callable[[Release, Any], Release]) -> Planted:
    """A release as true counts would have it; they are counted once more, beside the mechanism."""
    step = Markov.step

    def telling(self: Markov, batch: Batch, noise: NoiseSource) -> Release:
        return change(step(self, batch, noise), self.config.domain.counts(batch.events))

    return replaced(Markov, "step", telling)


def _with_first(release: Release, name: str, value: Any) -> Release:
    """The first record with another field."""
    if not release.added:
        return release
    first, *others = release.added
    return replace(release, added=[replace(first, fields={**first.fields, name: value}), *others])


def _parity(release: Release, counts: Any) -> Release:
    if release.step < _FROM or not release.added:
        return release
    return _with_first(release, "count", release.added[0].fields["count"] + float(counts[0] % 2) / 1000)


def _error_of_truth(release: Release, counts: Any) -> Release:
    return _with_first(release, "standard_error", round(float(counts[0]) ** 0.5, 1))


def _ordered(release: Release, counts: Any) -> Release:
    """States that hold more come first."""
    states = range(len(counts))
    now = list(release.added)[: len(counts)]
    order = sorted(states, key=lambda state: -counts[state]) if len(now) == len(counts) else []
    return replace(release, added=[now[state] for state in order] + list(release.added)[len(order) :])


def _odd_id(release: Release, counts: Any) -> Release:
    def named(record: SyntheticRecord) -> SyntheticRecord:
        return replace(record, id=record.id + "'")

    return replace(release, added=list(map(named, release.added))) if counts[0] % 2 else release


def _noted(release: Release, counts: Any) -> Release:
    """More came than are declared: not here, and not in any test."""
    return replace(release, notes={**release.notes, "crowded": bool(counts.sum() > 10**9)})


def _busy(release: Release, counts: Any) -> Release:
    return replace(release, notes={**release.notes, "quiet": bool(counts[0] == 0)})


@contextmanager
def _told_inside(change: Callable[[Release, Any], Release]) -> Iterator[None]:
    """The same with counts that an aggregate has kept."""
    step = Markov.step
    with remembered(StatesDomain, "counts") as seen:

        def telling(self: Markov, batch: Batch, noise: NoiseSource) -> Release:
            return change(step(self, batch, noise), seen[0])

        with patch.object(Markov, "step", telling):
            yield


@contextmanager
def _true_estimate(owner: Any, from_step: int) -> Iterator[None]:
    """An estimator is given true counts from a step on: to learn a chain of, or to start from."""
    observe = owner.observe
    with remembered(StatesDomain, "counts") as seen:

        def learning(self: Any, state: Any, step: int, noisy: Any, scale: Fraction, *, last: bool) -> Any:
            known = np.asarray(seen[0], np.float64) if step >= from_step else noisy
            return observe(self, state, step, known, scale, last=last)

        with patch.object(owner, "observe", learning):
            yield


def _counts(change: Callable[[IntArray], IntArray]) -> Planted:
    """Counts as an aggregate should not make them."""
    counts = StatesDomain.counts

    @aggregate
    def changed(self: StatesDomain, events: Folded) -> IntArray:
        return change(counts(self, events))

    return replaced(StatesDomain, "counts", changed)


def _carried_over() -> Planted:
    """Who was seen in a step counts in the next one, too."""
    before: list[IntArray] = []

    def carrying(now: IntArray) -> IntArray:
        carried = now + (before[0] if before and before[0].shape == now.shape else 0)
        before[:] = [now]
        return carried

    return _counts(carrying)


def _twice() -> Planted:
    """All states are measured a second time, and the mean is released."""
    mechanism = laplace_mechanism

    def again(values: Any, scale: Fraction, source: NoiseSource) -> Any:
        first, second = (mechanism(values, scale, source.child(which)) for which in ("first", "second"))
        return (first + second) // 2

    return replaced(markov, "laplace_mechanism", again)


def _rounded_first() -> Planted:
    """Noise only where a state holds more than a few: rare ones are released as they are."""
    mechanism = laplace_mechanism

    def sparing(values: Any, scale: Fraction, source: NoiseSource) -> Any:
        return np.where(peeked(values) > 2, mechanism(values, scale, source), peeked(values))

    return replaced(markov, "laplace_mechanism", sparing)


_HALF = replaced(Markov, "_sensitivity", 1)
"""Noise for a member who comes or goes, where one is replaced."""
_SCALE = "scale = scale_for(self._sensitivity, budget)"
PEEKS = {
    "parity of a true count in the last digit": Fault(_told(_parity), _LONG, shown_by=0),
    "standard error of a true count": Fault(_told(_error_of_truth), _LONG),
    "parity of a true count in an id": Fault(_told(_odd_id), _LONG),
}
PAPER_PEEKS = {
    "states ordered by true counts": Fault(_told(_ordered), _LONG),
    "true total compared with the population": Fault(_told(_noted), _LONG),
}
"""Read a private value outside of any aggregate: sealed events show them, whatever the data."""

HIDDEN = {
    "kept parity of a true count in the last digit": Fault(partial(_told_inside, _parity), _LONG, shown_by=4),
    "standard error of a kept count": Fault(partial(_told_inside, _error_of_truth), _LONG, shown_by=3),
    "parity of a kept count in an id": Fault(partial(_told_inside, _odd_id), _LONG, shown_by=3),
    "a chain learnt of true counts": Fault(partial(_true_estimate, Learner, 0), _UNKNOWN),
    "a filter fed with true counts from some step on": Fault(
        partial(_true_estimate, Collective, _FROM), _LONG, shown_by=0
    ),
    "a record counts twice": Fault(_counts(lambda now: 2 * now), _PERIODS),
    "states are measured twice": Fault(_twice(), _PERIODS),
    "a replaced member at half sensitivity": Fault(_HALF, _PERIODS),
    "a replaced member at half sensitivity, of an unknown chain": Fault(_HALF, _UNKNOWN, shown_by=2),
    "a sixteenth of the noise for many states": Fault(
        edit(Markov, "step", _SCALE, f"{_SCALE} / (16 if config.states > 128 else 1)"), wide=0, shown_by=1
    ),
}
PAPER_HIDDEN = {
    "states ordered by kept counts": Fault(partial(_told_inside, _ordered), _LONG),
    "a note of an empty state": Fault(partial(_told_inside, _busy), _LONG, shown_by=3),
    "a record counts in two steps": Fault(_carried_over(), _PERIODS),
    "rare states without noise": Fault(_rounded_first(), _LONG),
    "a replaced member at half sensitivity": Fault(_HALF, _PERIODS),
    "a replaced member at half sensitivity, for ever": Fault(_HALF, _LONG, shown_by=6),
}
"""Look inside an aggregate, or cost more than is claimed: forced runs show them."""

PLANTS: tuple[Plant, ...] = (
    *plants("markov", "default", PEEKS | HIDDEN),
    *plants("markov", "paper", PAPER_PEEKS | PAPER_HIDDEN),
)
