"""Faults planted in the job around an engine: bounds, steps, seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from agents.protocol.ingest.partition import PartitionIngest, SourceRecord
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.stepper import Stepper
from engines.noise import NoiseSource
from schemas.blocks import Block
from schemas.releases import Candidate
from tests.couple.plants import Plant

EVENTS = 6


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


def _redrawing(self: Stepper, seed: bytes, *, expand: Callable[..., NoiseSource] = NoiseSource) -> Candidate:
    restored = getattr(self, "_restored_at", -1) == self.step
    return _compute(self, seed[::-1] if restored else seed, expand=expand)


def _noting(self: Stepper, candidate: Candidate) -> None:
    _restore(self, candidate)
    self._restored_at = self.step  # type: ignore[attr-defined]


def _redraw() -> AbstractContextManager[Any]:
    return patch.multiple(Stepper, compute=_redrawing, restore=_noting)


_apply, _take, _spec = PartitionIngest.apply, PartitionIngest.take, SourceSpec.of
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
)
