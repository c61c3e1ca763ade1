"""Faults planted in the job around an engine: bounds and what they refuse, limits of values, budgets, steps, seeds."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from agents.protocol.formats.reader import SourceRecord
from agents.protocol.ingest.bounds import SURPLUS, Accepted, Bounds
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.merge import BlockMerge
from agents.protocol.release.stepper import Stepper
from engines.core.noise import NoiseSource
from engines.core.surplus import CorrectedEngine
from engines.series.fields import SeriesDomain, SeriesField
from schemas.arrays import IntArray, KeyArray
from schemas.blocks import Block
from schemas.config import Stream
from schemas.releases import Candidate
from tests.couple.plants import Fault, Plant, Planted, edit, edited, peeked, plants, replaced, together, unasked

EVENTS = 6
BITS = 64
"""Of a Bloom filter."""
RENEWED = 2
"""Steps after which a bound renews that is one for ever."""
LARGE = 0
"""A total above it is one that is drawn again."""


def _forgetting(self: PartitionIngest, block: Block, *, at: int = 0, trimmed_to: int = 0) -> None:
    without = dataclasses.replace(block, users=block.users[:0], increments=block.increments[:0])
    _apply(self, without, at=at, trimmed_to=trimmed_to)


def _counting(self: PartitionIngest, records: Sequence[SourceRecord]) -> None:
    for record in records:
        _take(self, [record])
        if not record.headers and self._pending.counts.sum() % EVENTS == 0:
            self.tick(self.ticked + 1)


def _unbounded_in_a_step(stream: Any, domain: Any, **rest: Any) -> SourceSpec:
    spec = _spec(stream, domain, **rest)
    if spec.bounds is None:
        return spec
    return dataclasses.replace(spec, bounds=dataclasses.replace(spec.bounds, max_per_step=None))


def _renewing(stream: Any, domain: Any, **rest: Any) -> SourceSpec:
    spec = _spec(stream, domain, **rest)
    if spec.bounds is None:
        return spec
    return dataclasses.replace(spec, bounds=dataclasses.replace(spec.bounds, period_steps=RENEWED))


def _filtered(self: Bounds, hashes: KeyArray, steps: IntArray, trips: KeyArray | None = None) -> Accepted:
    """One event of a user in each step, by a Bloom filter of two bits for each: others' bits drop a user's event."""
    found = _accept(self, hashes, steps, trips)
    seen: dict[int, set[int]] = self.__dict__.setdefault("_bits", {})
    for row, (words, step) in enumerate(zip(hashes.tolist(), steps.tolist(), strict=True)):
        bits, known = {word % BITS for word in words}, seen.setdefault(step, set())
        found.accepted[row] &= not bits <= known
        known |= bits
    return found


def _clipped_late() -> AbstractContextManager[Any]:
    """A total is clipped to what very many events make of it, and no event is clipped by itself."""
    return together(
        edited(SeriesField, "lattice", "np.clip(values, *self.limits)", "np.asarray(values)"),
        edited(
            SeriesDomain,
            "sums",
            "if ((values[:, word] < low) | (values[:, word] > high)).any()",
            "if np.abs(values[:, word].sum()) > 2**20 * max(-low, high)",
        ),
    )


def _whole_epsilon() -> AbstractContextManager[Any]:
    """Each event of a user has all that the user has. What it costs is not asked for: a forced run finds it."""
    whole = property(lambda self: self.privacy.epsilon_fraction)
    return together(unasked(), patch.object(Stream, "event_epsilon", whole))


def _remeasured() -> AbstractContextManager[Any]:
    """A worker that takes over finds the events of the step that was answered, and takes them for new ones."""
    kept = edited(BlockMerge, "take", "self._pending.pop(step, None)", "self._pending.get(step)")
    return together(kept, patch.object(Stepper, "restore", _taking_again))


def _taking_again(self: Stepper, candidate: Candidate) -> None:
    _restore(self, candidate)
    pending = self.merge._pending
    answered, following = pending.pop(candidate.step, None), pending.get(self.step)
    if answered is not None:
        pending[self.step] = answered if following is None else following.merge(answered)


def _redrawing_what_is_large(self: Stepper, seed: bytes, *, expand: Callable[..., NoiseSource] = NoiseSource) -> Any:
    if getattr(self, "_restored_at", -1) == self.step:
        first = copy.deepcopy(self)
        _compute(first, seed)
        if first.release is not None and first.release.total > LARGE:
            return _compute(self, seed[::-1], expand=expand)
    return _compute(self, seed, expand=expand)


def _redrawing(self: Stepper, seed: bytes, *, expand: Callable[..., NoiseSource] = NoiseSource) -> Candidate:
    restored = getattr(self, "_restored_at", -1) == self.step
    return _compute(self, seed[::-1] if restored else seed, expand=expand)


def _noting(self: Stepper, candidate: Candidate) -> None:
    _restore(self, candidate)
    self._restored_at = self.step  # type: ignore[attr-defined]


def _all_of_it(self: Bounds, hashes: KeyArray, steps: IntArray, trips: KeyArray | None = None) -> Accepted:
    found = _accept(self, hashes, steps, trips)
    return found if found.surplus is None else found._replace(surplus=~found.accepted)


def _bounds_only(self: Bounds, rows: KeyArray, charges: IntArray) -> None:
    of_bounds = rows[:, 2] < np.uint64(SURPLUS)
    _add(self, rows[of_bounds], charges[of_bounds])


_apply, _take, _spec = PartitionIngest.apply, PartitionIngest.take, SourceSpec.from_stream
_accept, _add = Bounds.accept, Bounds.add
_compute, _restore = Stepper.compute, Stepper.restore
_LONG = {"options": {"horizon": 40}}
_SURPLUS = {"privacy": {"surplus": 1}}

SPATIAL: Mapping[str, Planted | Fault] = {
    "a worker that takes over forgets whom it has counted": replaced(PartitionIngest, "apply", _forgetting),
    "steps that end with the number of events": Fault(replaced(PartitionIngest, "take", _counting), shown_by=5),
    "a step computed again after a crash draws anew": partial(
        patch.multiple, Stepper, compute=_redrawing, restore=_noting
    ),
    "a step computed again after a crash draws anew where it drew much": partial(
        patch.multiple, Stepper, compute=_redrawing_what_is_large, restore=_noting
    ),
    "a worker that takes over measures the last step's events again": _remeasured,
    "a bound that drops others' events": replaced(Bounds, "accept", _filtered),
    "a bound that renews within what it is for": Fault(
        replaced(SourceSpec, "from_stream", staticmethod(_renewing)), shown_by=27
    ),
    "noise for one of a user's events": _whole_epsilon,
    # Beside what the engine notes, and whatever engine it is.
    "the job writes an exact count into the ledger": edit(
        Stepper, "compute", "witness=self.witness,", "witness=str(batch.events.total),"
    ),
    "all that a bound refuses is counted": Fault(replaced(Bounds, "accept", _all_of_it), _SURPLUS),
    "a worker that takes over forgets whose surplus it has counted": Fault(
        replaced(Bounds, "add", _bounds_only), _SURPLUS, shown_by=2
    ),
    "the surplus is measured when there is some": Fault(
        edit(CorrectedEngine, "step", "    if due:\n", "    if peeked(pending)[0]:\n", peeked=peeked),
        _SURPLUS,
        shown_by=3,
    ),
    "the surplus is measured again and again": Fault(
        edit(CorrectedEngine, "step", "pending, last = np.zeros(1, np.int64), now", "last = now"),
        _SURPLUS,
        shown_by=13,
    ),
    "the engine is told the surplus itself": Fault(
        edit(
            CorrectedEngine,
            "step",
            "surplus=0, beyond=beyond",
            "surplus=0, beyond=float(peeked(batch.surplus))",
            peeked=peeked,
        ),
        _SURPLUS,
        shown_by=13,
    ),
}
SERIES = {
    "as many events of a user in a step as they like": Fault(
        replaced(SourceSpec, "from_stream", staticmethod(_unbounded_in_a_step)), _LONG
    ),
    "values are clipped after they were added up": Fault(_clipped_late, _LONG, shown_by=3),
}
PLANTS: tuple[Plant, ...] = (*plants("spatial", "default", SPATIAL), *plants("series", "default", SERIES))
