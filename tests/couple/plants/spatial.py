"""Faults planted in the spatial engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np

from engines.core.contract import Batch, Release
from engines.core.noise import NoiseSource, aggregate, laplace_mechanism, seeded
from engines.core.state import Expiry
from engines.spatial import build, split
from engines.spatial.changes import Changes
from engines.spatial.fixture import HOLE, SHELL, geojson
from engines.spatial.held import engine as held
from engines.spatial.held import measure as held_measure
from engines.spatial.held.measure import LeafCounter, Watch
from engines.spatial.papers import phdstream, tree
from engines.spatial.papers.phdstream import NodeCounters
from schemas.blocks import Folded
from tests.couple.plants import Fault, Plant, Planted, anew, edit, peeked, plants, replaced


def _louder(self: Any, values: Any, noise: NoiseSource) -> Any:
    return laplace_mechanism(values, self.scale / 2, noise)


def _without_noise(self: Watch, values: Any, noise: NoiseSource) -> Any:
    return values


def _sharing(self: held.StepWork, which: Any, *, time: int, learn: bool, label: int) -> Any:
    with patch.object(self, "noise", anew(self.noise)):
        return _measure(self, which, time=time, learn=learn, label=min(label, 1))


def _due_when_full(tree: Any, counter: LeafCounter, *, now: int) -> Any:
    due = _due(tree, counter, now=now)
    return due | (tree.pending[tree.leaves] >= 1000)


def _due_when_full_and_hidden(tree: Any, counter: LeafCounter, *, now: int) -> Any:
    due = _due(tree, counter, now=now)
    return due | (np.asarray(peeked(tree.pending))[tree.leaves] >= 3)


def _first_by_total(work: Any, events: Folded, *, after: int) -> None:
    most = 2 if events.total < 10**9 else 4
    with patch.object(held, "FILL", most):
        _first(work, events, after=after)


def _first_by_parity(work: Any, events: Folded, *, after: int) -> None:
    with patch.object(held, "FILL", 1 + 20 * (peeked(events).total % 2)):
        _first(work, events, after=after)


def _bits_of_empty_cells(prior: Any, changes: Any, **rest: Any) -> Any:
    return _split_bits(prior, changes, **rest) & (peeked(changes) > 0)


def _subtracting(self: Any, starts: Any, ends: Any) -> Any:
    net = self.gains[np.searchsorted(self.codes, ends)] - self.gains[np.searchsorted(self.codes, starts)]
    return np.maximum(net, 0)


def _kept_pending(tree: Any, which: Any, counter: LeafCounter, **rest: Any) -> Any:
    held_before = tree.pending.copy()
    measured = _measure_leaves(tree, which, counter, **rest)
    tree.pending = held_before
    return measured


def _measured_twice(tree: Any, which: Any, counter: LeafCounter, **rest: Any) -> Any:
    held_before = tree.pending.copy()
    _measure_leaves(tree, which, counter, **rest)
    tree.pending = held_before
    return _measure_leaves(tree, which, counter, **rest)


class ErrorsOfTruth(phdstream.PHDStream):
    """Standard errors from the net counts."""

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        count = NodeCounters.count

        def counting(counters: NodeCounters, leaves: Any, net: Any, noise: NoiseSource) -> Any:
            self._net = np.asarray(peeked(net))
            return count(counters, leaves, net, noise)

        with patch.object(NodeCounters, "count", counting):
            return super().step(batch, noise)

    def _measurements(self, *given: Any) -> Any:
        found = super()._measurements(*given)
        return [{**m, "standard_error": float(np.sqrt(abs(int(n))))} for m, n in zip(found, self._net, strict=True)]


class OrderedByParity(phdstream.PHDStream):
    """Added records come in reverse where the true total is odd."""

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        release = super().step(batch, noise)
        odd = peeked(batch).events.total % 2
        return dataclasses.replace(release, added=list(release.added)[:: -1 if odd else 1])


class CountInNotes(held.HeldLeaves):
    """The ledger tells how many events came."""

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        release = super().step(batch, noise)
        return dataclasses.replace(release, notes={**release.notes, "events": peeked(batch).events.total})


class LateGlance(held.HeldLeaves):
    """From step 30 on, an id ends in the parity of the step's events."""

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        release = super().step(batch, noise)
        if batch.step < 30 or not release.added:
            return release
        odd = peeked(batch).events.total % 2
        changed = [dataclasses.replace(record, id=f"{record.id}{odd}") for record in release.added]
        return dataclasses.replace(release, added=changed)


def _floats(self: Any, values: Any, noise: NoiseSource) -> Any:
    words = noise.words(len(values)).astype(np.float64) * 2.0**-64
    scale = float(self.scale)
    drawn = -scale * np.sign(words - 0.5) * np.log1p(-2 * np.abs(words - 0.5))
    return np.rint(np.asarray(peeked(values)) + drawn).astype(np.int64)


def _seeded(self: Any, values: Any, noise: NoiseSource) -> Any:
    return values + np.random.default_rng(1).integers(-20, 20, len(values))


def _of_a_constant_seed(self: Any, values: Any, noise: NoiseSource) -> Any:
    return laplace_mechanism(values, self.scale, seeded(0))


def _broken_at_times(self: LeafCounter, values: Any, noise: NoiseSource) -> Any:
    """Alone (epsilon, delta)-DP: with probability delta there is no noise, and whoever waits sees where."""
    broken = int(noise.child("broken").words(1)[0]) % 20 == 0
    return np.asarray(peeked(values)) if broken else _noisy(self, values, noise)


def _as_measured(estimates: Any, first: Any, order: Any) -> Any:
    """Neither consistent nor above zero."""
    return np.rint(estimates).astype(np.int64)


def _exactly(prior: Any, changes: Any, *, threshold: int, **rest: Any) -> Any:
    return prior + changes > threshold


def _exactly_and_hidden(prior: Any, changes: Any, *, threshold: int, **rest: Any) -> Any:
    return prior + np.asarray(peeked(changes)) > threshold


def _expiring_twice(self: Expiry, events: Folded, *, due: int) -> Expiry:
    return _scheduled(_scheduled(self, events, due=due), events, due=due)


_measure, _due, _first = held.StepWork.measure, held_measure.due, held.first_release
_split_bits, _measure_leaves, _scheduled = split.split_bits, held_measure.measure, Expiry.scheduled
_noisy = LeafCounter.noisy
_SHRUNK = property(lambda self: Fraction(1, 2) * Fraction(2 * self.fanout - 1, self.fanout - 1) / self.epsilon)
_TTL = {"domain": {"ttl": "2h"}}
_EVENT = {"privacy": {"unit": "event", "user": None, "max_contributions": None, "epsilon": 1.0}}
_SHRUNK_A_LITTLE = property(lambda self: Fraction(83, 100) * split.path_cost(self.fanout) / self.epsilon)
_LITTLE = {"privacy": {"unit": "event", "user": None, "max_contributions": None, "epsilon": 0.05}}
_OP = {"domain": {"op": "what"}}
_MAP = {"domain": geojson("Polygon", [SHELL, HOLE])}

DEFAULT: Mapping[str, Planted | Fault] = {
    "half the noise of the watch": Fault(replaced(Watch, "noisy", _louder), shown_by=5),
    "half the noise of a leaf": replaced(LeafCounter, "noisy", _louder),
    "a watch that counts twice, on a map": Fault(
        edit(Watch, "step", "self.noisy(events[there], noise)", "self.noisy(2 * events[there], noise)"),
        _MAP,
        shown_by=3,
    ),
    "a watch without noise": replaced(Watch, "noisy", _without_noise),
    "rates follow the exact counts of the watch": edit(
        Watch, "step", "(counts - average), counts", "(counts - average), events[there]"
    ),
    "rates follow the exact counts of the watch, out of the guard's sight": Fault(
        edit(Watch, "step", "(counts - average), counts", "(counts - average), peeked(events)[there]", peeked=peeked),
        shown_by=0,
    ),
    "burst groups share their noise": replaced(held.StepWork, "measure", _sharing),
    "a leaf is measured because its pending count reaches 1,000": replaced(held, "due", _due_when_full),
    "a leaf is measured because of its pending count, out of the guard's sight": Fault(
        replaced(held, "due", _due_when_full_and_hidden), shown_by=19
    ),
    "a first release shaped by the total": replaced(held, "first_release", _first_by_total),
    "a first release shaped by the total's parity": replaced(held, "first_release", _first_by_parity),
    "a measurement that keeps its events pending": replaced(held, "measure", _kept_pending),
    "a leaf is measured twice": replaced(held, "measure", _measured_twice),
    "noise of floats": replaced(LeafCounter, "noisy", _floats),
    "noise of a seeded generator": replaced(Watch, "noisy", _seeded),
    "noise of a constant seed": replaced(LeafCounter, "noisy", _of_a_constant_seed),
    "leaves that are broken with probability delta, each by itself": Fault(
        replaced(LeafCounter, "noisy", _broken_at_times), shown_by=15
    ),
    "an exact count in the ledger": replaced(build, "HeldLeaves", CountInNotes),
    "a parity in the ids, from step 30 on": Fault(replaced(build, "HeldLeaves", LateGlance), shown_by=14),
    "steps of many rows are sampled": Fault(
        # Every second row, above 1,000 of them: one more moves all behind it.
        edit(
            Changes,
            "of",
            "keys = events.keys[:, 0]\n",
            "few = len(events.keys) > 1000\n"
            "    events = Folded(events.keys[::2], events.counts[::2]) if few else events\n"
            "    keys = events.keys[:, 0]\n",
        ),
        wide=0,
        shown_by=0,
    ),
}
PAPER: Mapping[str, Planted | Fault] = {
    "empty cells are never split": Fault(replaced(tree, "split_bits", _bits_of_empty_cells), shown_by=9),
    "a standard error from the net count": replaced(phdstream, "PHDStream", ErrorsOfTruth),
    "records ordered by the parity of a true total": replaced(phdstream, "PHDStream", OrderedByParity),
    "half of PrivTree's lambda": Fault(replaced(split.SplitRule, "scale", _SHRUNK), _EVENT),
    "0.83 of PrivTree's lambda, at a small epsilon": Fault(
        replaced(split.SplitRule, "scale", _SHRUNK_A_LITTLE), _LITTLE
    ),
    "a partition on raw noisy counts": replaced(tree, "project", _as_measured),
    # Each level of a tree has the words of the one above it. Known counts then tell what was drawn, and with it what
    # an event moved: the authors of [biswas2024] say so of their scheme without a stream.
    "one draw for the whole tree": edit(
        phdstream, "descend", 'noise.child("partition", level)', 'anew(noise).child("partition")', anew=anew
    ),
    "exact counts decide what is split": replaced(tree, "split_bits", _exactly),
    "exact counts decide what is split, out of the guard's sight": replaced(tree, "split_bits", _exactly_and_hidden),
    "scores that subtract deletes": Fault(replaced(Changes, "moved", aggregate(_subtracting)), _OP),
    "an expiry that is measured twice": Fault(replaced(Expiry, "scheduled", aggregate(_expiring_twice)), _TTL),
}
PLANTS: tuple[Plant, ...] = (*plants("spatial", "default", DEFAULT), *plants("spatial", "paper", PAPER))
