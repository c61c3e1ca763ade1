"""The collector is calmed when a worker begins to read, and what its start left behind is gone by then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from agents.worker.ingest.service import _calm_collector


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.disable()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    gc.enable()


@pytest.mark.usefixtures("thresholds")
def test_nothing_that_nobody_has_any_more_stays_for_good() -> None:
    left, held = weakref.ref(Cycle()), Cycle()
    assert left() is not None
    _calm_collector()
    assert left() is None
    assert held.itself is held
    assert gc.get_freeze_count() > 0
