"""Where the latency goes, read off the times of the records on the private topics of a job that has kept them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from agents.kafka.clients import read_to_end
from agents.protocol.partitioner import home_partition
from benchmarks.scale.results import Figures
from schemas.blocks import Block
from schemas.releases import Seed, decode_log_record

if TYPE_CHECKING:
    from schemas.config import Config

PARTS = ("tick_to_block", "block_to_seed", "seed_to_candidate", "candidate_to_public")
"""From a step's end to its last block (tick, flush), to its seed (commit, fetch), to its candidate (commit, compute),
to where a consumer has it (commit, fetch, publish, fetch).
"""


async def spent(config: Config, stream: str, due: Mapping[int, float], seen: Mapping[int, float]) -> Figures:
    """Median milliseconds between the places that a step passes.

    Args: due: step -> its public end. seen: step -> when a consumer had it.
    """
    topics = config.topics
    home = home_partition(stream, topics.partitions)
    blocks: dict[int, dict[int, float]] = {}
    for record in await read_to_end(config.kafka, topics.blocks, home):
        block = Block.decode(record.value)
        if block.stream == stream:
            for step in due:
                if block.tick >= step:
                    blocks.setdefault(step, {}).setdefault(block.partition, record.timestamp / 1e3)
    seeds: dict[int, float] = {}
    candidates: dict[int, float] = {}
    for record in await read_to_end(config.kafka, topics.releases, home):
        entry = decode_log_record(record.value)
        if entry.stream == stream:
            (seeds if isinstance(entry, Seed) else candidates).setdefault(entry.step, record.timestamp / 1e3)
    return between(
        {step: (at, max(blocks[step].values()), seeds[step], candidates[step], seen[step]) for step, at in due.items()}
    )


def between(places: Mapping[int, tuple[float, ...]]) -> Figures:
    """Args: places: step -> when it was at its end, and after each of `PARTS`, in seconds.

    >>> between({0: (1.0, 1.5, 1.75, 2.0, 3.0)})["candidate_to_public_ms"]
    1000.0
    """
    parts = [[1e3 * (after - before) for before, after in pairwise(times)] for times in places.values()]
    return {f"{name}_ms": median(each) for name, each in zip(PARTS, zip(*parts, strict=True), strict=True)}
