"""Living seeds and judging them."""

from __future__ import annotations

import gc
import hashlib
import logging
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tzdata  # noqa: F401

# What is loaded by name, or when a mode is built: the process of each seed would load it anew.
import engines.spatial.build
import engines.spatial.papers.phdstream  # noqa: F401
from tests.simulation.faults import Switches
from tests.simulation.oracle import violations
from tests.simulation.plants import PLANTS
from tests.simulation.world import Length, World


@dataclass(frozen=True)
class Verdict:
    """Of one seed. `digest`: of all that any topic ever held; equal where a seed is lived again."""

    seed: int
    violations: tuple[str, ...]
    faults: tuple[str, ...]
    days: float
    cpu_s: float
    digest: str
    starts: int
    rebalances: int


def live(seed: int, *, length: Length, switches: Switches | None = None, plant: str = "") -> Verdict:
    """Simulate one seed and judge it."""
    began = time.process_time()
    logging.disable(logging.CRITICAL)
    gc.disable()
    with tempfile.TemporaryDirectory() as folder:
        world = World(seed, length, Path(folder), switches or Switches(), PLANTS[plant]() if plant else None)
        world.run()
        found = violations(world)
        digest = hashlib.sha256()
        for place, log in sorted(world.broker.logs.items()):
            # Not their timestamps: aiokafka's builder is compiled and asks the true clock.
            said = [
                (record.offset, record.key, record.value, record.headers) for record in log.records(committed=False)
            ]
            places = [(batch.base, batch.last, batch.epoch, batch.at_s) for batch in log.everything]
            digest.update(repr((place, places, said)).encode())
    faults = (*world.plan.done, *world.network.sprung)
    return Verdict(
        seed, tuple(found), faults, world.end_s / 86_400, time.process_time() - began, digest.hexdigest()[:12],
        world.observed.starts, world.broker.groups.rebalances,
    )  # fmt: skip
