"""What comes in from outside: people's events under a wall clock, and files for `privstream replay`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from agents.protocol.partitioner import partitions_of
from agents.protocol.userhash import IdBytes
from tests.simulation.timeline import EPOCH_S

STEP_S = 900.0
SOURCE_PARTITIONS = 2
USERS = 40
HISTORY_STEPS = 6
"""Of a stream that is replayed and then goes live: they end where the simulation begins."""
HISTORY_S = 200.0
"""In which they are replayed, were nothing in the way. Live producers do not wait for that."""


@dataclass(frozen=True)
class Sent:
    """An event of somebody: when it is sent, where it goes, what it says."""

    at_s: float
    partition: int
    key: bytes
    value: bytes


def events(chance: random.Random, *, steps: int, partitions: int) -> Iterator[list[Sent]]:
    """Bursts of events, by time: most on time, some late or early, few unusable, some users beyond the bound."""
    users = [f"u{number}" for number in range(USERS)]
    places = dict(
        zip(
            users,
            partitions_of(IdBytes.from_ids(users), partitioner="murmur2", partitions=partitions).tolist(),
            strict=True,
        )
    )
    for step in range(steps):
        for at_s in sorted(STEP_S * (step + chance.random()) for _ in range(2)):
            burst = []
            for _ in range(chance.randint(1, 5)):
                user = chance.choice(users)
                place = places[user]
                if chance.random() < 0.02:
                    place = (place + 1) % partitions
                burst.append(Sent(at_s, place, user.encode(), _value(chance, user, at_s)))
            yield burst


def _value(chance: random.Random, user: str, at_s: float) -> bytes:
    late = chance.choice((0.0, 0.0, 0.0, -STEP_S, 0.5 * STEP_S))
    at = int(EPOCH_S + max(0.0, at_s + late))
    x = chance.random() if chance.random() > 0.02 else 7.0
    return orjson.dumps({"user": user, "at": at, "x": x, "y": chance.random(), "what": what(x)})


def what(x: float) -> str:
    """The key of an event, for streams of keys."""
    return f"k{int(8 * x)}"


def write_rows(path: Path, chance: random.Random, *, steps: int, begin_s: float = 0.0) -> int:
    """A file of events sorted by time; returns its rows."""
    rows = []
    for step in range(steps):
        for at_s in sorted(STEP_S * (step + chance.random()) for _ in range(2)):
            for _ in range(chance.randint(0 if step else 1, 4)):
                user = f"u{chance.randrange(USERS)}"
                at = int(EPOCH_S + begin_s + at_s)
                x = chance.random()
                rows.append({"user": user, "at": at, "x": x, "y": chance.random(), "what": what(x)})
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return len(rows)
