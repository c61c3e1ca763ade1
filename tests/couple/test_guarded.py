"""No engine reads a private value without a mechanism: every registered engine, mode and variant on sealed events."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest

from engines.checks.contract_case import contract_case
from engines.checks.coupling import check_guarded
from engines.checks.coupling.sealed import sealed
from engines.core.contract import Batch
from engines.core.noise import NoiseSource
from engines.core.noise.private import PrivateValueRead
from engines.core.registry import build_engine
from schemas.blocks import Folded
from tests.contracts.test_engines import CASES

pytestmark = pytest.mark.seconds(0.5)

STEPS = 12
SEED = bytes(range(32))


def batches(name: str, mode: str, seed: int) -> list[Batch]:
    """Steps of few events, a crowd now and then, and empty ones."""
    case, chance = contract_case(name), random.Random(f"{name}/{mode}/{seed}")
    made = []
    for step in range(STEPS):
        size = chance.choice([0, 1, 5, 12])
        rows = [(case.keys(chance.randint), chance.randint(1, 40)) for _ in range(size)]
        if step % 5 == 3:
            rows.append((case.crowd, 500))
        keys = np.array([key for key, _ in rows], np.uint64).reshape(-1, case.words)
        events = Folded.from_keys(keys, np.array([count for _, count in rows], np.int64))
        made.append(Batch(step, events, surplus=chance.randint(0, 9)))
    return made


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_sealed_events_are_released_as_plain_ones(name: str, mode: str) -> None:
    for number, variant in enumerate(contract_case(name).tried(mode)):
        stream = contract_case(name).stream(mode, variant)
        steps = batches(name, mode, number)
        check_guarded(partial(build_engine, stream), steps, lambda step: NoiseSource(SEED, "s", step))


@pytest.mark.parametrize("peek", [bool, int, float, str.format, list.__len__, np.asarray])
def test_private_numbers_cannot_be_read(peek: object) -> None:
    counts = sealed(np.array([3, 5]))
    with pytest.raises((PrivateValueRead, TypeError)):
        peek(counts[0])  # type: ignore[operator]


def test_a_threshold_on_private_counts_is_found_far_from_it() -> None:
    counts = sealed(np.array([3, 5])) + 1
    with pytest.raises(PrivateValueRead, match="condition"):
        _ = 1 if counts[0] > 1000 else 0
    with pytest.raises(PrivateValueRead, match="index"):
        np.zeros(10)[0] + sealed(np.zeros(10))[counts]
    public = np.zeros(2, np.int64)
    with pytest.raises(PrivateValueRead, match="public array"):
        public += counts
    with pytest.raises(PrivateValueRead, match="becomes"):
        public[:] = counts


def test_sealed_events_show_neither_size_nor_keys() -> None:
    events = sealed(Folded.from_keys(np.array([[1]], np.uint64)))
    for read in (lambda: events.keys, lambda: events.total, lambda: len(events.counts)):
        with pytest.raises(PrivateValueRead):
            read()
