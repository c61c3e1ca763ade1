"""Faults planted in the job around an engine: bounds, limits of values, the budget of an event, steps, seeds."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from agents.protocol.formats.reader import SourceRecord
from agents.protocol.ingest.bounds import Bounds
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.merge import BlockMerge
from agents.protocol.release.stepper import Stepper
from engines.core.noise import NoiseSource
from engines.series.fields import SeriesDomain, SeriesField
from schemas.arrays import BoolArray, IntArray, KeyArray
from schemas.blocks import Block
from schemas.config import Stream
from schemas.releases import Candidate
from tests.couple.plants import Plant, unasked
from tests.couple.plants.edits import edited
from tests.couple.plants.tabular_faults import together

EVENTS = 6
BITS = 64
"""Of a Bloom filter."""
RENEWED = 2
"""Steps after which a bound renews that is one for ever."""
LARGE = 0
"""A total above it is one that is drawn again."""


def _replaced(owner: Any, name: str, value: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(owner, name, value)


def _forgetting(self: PartitionIngest, block: Block, *, at: int = 0, trimmed_to: int = 0) -> None:
    without = dataclasses.replace(block, users=block.users[:0], increments=block.increments[:0])
    _apply(self, without, at=at, trimmed_to=trimmed_to)


def _counting(self: PartitionIngest, records: Sequence[SourceRecord]) -> None:
    for record in records:
        _take(self, [record])
        events = sum(self._pending.counts.values()) if hasattr(self._pending, "counts") else record.offset
        if not record.headers and events % EVENTS == 0:
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


def _filtered(self: Bounds, hashes: KeyArray, steps: IntArray) -> tuple[BoolArray, KeyArray, IntArray]:
    """One event of a user in each step, by a Bloom filter of two bits for each: others' bits drop a user's event."""
    accepted, rows, charges = _accept(self, hashes, steps)
    seen: dict[int, set[int]] = self.__dict__.setdefault("_bits", {})
    for row, (words, step) in enumerate(zip(hashes.tolist(), steps.tolist(), strict=True)):
        bits, known = {word % BITS for word in words}, seen.setdefault(step, set())
        accepted[row] &= not bits <= known
        known |= bits
    return accepted, rows, charges


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


def _redraw() -> AbstractContextManager[Any]:
    return patch.multiple(Stepper, compute=_redrawing, restore=_noting)


def _redraw_what_is_large() -> AbstractContextManager[Any]:
    return patch.multiple(Stepper, compute=_redrawing_what_is_large, restore=_noting)


def _told_in_the_ledger() -> AbstractContextManager[Any]:
    """Beside what the engine notes, and whatever engine it is."""
    return edited(Stepper, "compute", "witness=self.witness,", "witness=str(batch.events.total),")


_apply, _take, _spec = PartitionIngest.apply, PartitionIngest.take, SourceSpec.of
_accept = Bounds.accept
_compute, _restore = Stepper.compute, Stepper.restore

PLANTS = (
    Plant(
        name="a worker that takes over forgets whom it has counted",
        engine="spatial",
        mode="default",
        planted=_replaced(PartitionIngest, "apply", _forgetting),
    ),
    Plant(
        name="steps that end with the number of events",
        engine="spatial",
        mode="default",
        planted=_replaced(PartitionIngest, "take", _counting),
        shown_by=1,
    ),
    Plant(
        name="as many events of a user in a step as they like",
        engine="series",
        mode="default",
        variant={"options": {"horizon": 40}},
        planted=_replaced(SourceSpec, "of", staticmethod(_unbounded_in_a_step)),
        shown_by=9,
    ),
    Plant(name="a step computed again after a crash draws anew", engine="spatial", mode="default", planted=_redraw),
    Plant(
        name="a step computed again after a crash draws anew where it drew much",
        engine="spatial",
        mode="default",
        planted=_redraw_what_is_large,
    ),
    Plant(
        name="a worker that takes over measures the last step's events again",
        engine="spatial",
        mode="default",
        planted=_remeasured,
    ),
    Plant(
        name="a bound that drops others' events",
        engine="spatial",
        mode="default",
        planted=_replaced(Bounds, "accept", _filtered),
        shown_by=1,
    ),
    Plant(
        name="a bound that renews within what it is for",
        engine="spatial",
        mode="default",
        planted=_replaced(SourceSpec, "of", staticmethod(_renewing)),
        shown_by=4,
    ),
    Plant(name="noise for one of a user's events", engine="spatial", mode="default", planted=_whole_epsilon),
    Plant(
        name="values are clipped after they were added up",
        engine="series",
        mode="default",
        variant={"options": {"horizon": 40}},
        planted=_clipped_late,
        shown_by=3,
    ),
    Plant(
        name="the job writes an exact count into the ledger",
        engine="spatial",
        mode="default",
        planted=_told_in_the_ledger,
    ),
)
