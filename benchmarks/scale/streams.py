"""What is run: one spatial stream with many events, and beside it streams of every engine with few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from agents.protocol.partitioner import partitions_of
from agents.protocol.userhash import IdBytes
from benchmarks.size import sized

MAIN = "main"
"""The spatial stream that is measured."""
ENGINES = ("spatial", "tabular", "series", "markov", "trajectory")
USERS = sized(100_000, smallest=1_000)
"""Of the main stream, but for the fill of the bounds."""
START = "2020-01-01T00:00:00"
START_MS = 1_577_836_800_000

Table = dict[str, Any]
SESSIONS: Table = sized({}, smallest={"session_timeout_s": 6})
"""Of workers: how long one that was killed is waited for."""


@dataclass(frozen=True)
class Job:
    """One configuration, as the workers read it.

    Attributes:
        table: as in TOML.
        source_partitions: of the main stream's source; the others have one.
    """

    table: Table
    source_partitions: int

    @property
    def streams(self) -> list[Table]:
        found: list[Table] = self.table["streams"]
        return found

    @property
    def names(self) -> list[str]:
        return [stream["name"] for stream in self.streams]


def job(
    name: str,
    bootstrap: str,
    folder: Path,
    *,
    streams: Sequence[Table],
    partitions: int,
    source_partitions: int,
    keep: bool = False,
) -> Job:
    """Args: partitions: of the private topics. keep: never trim them, to be read afterwards."""
    table = {
        "job": {"name": name, "keep_private_log": keep},
        "kafka": {"bootstrap": bootstrap, "partitions": partitions, **SESSIONS},
        "streams": list(streams),
    }
    for stream in streams:
        if "user" in stream["privacy"]:
            stream["privacy"]["user_key_file"] = str(folder / "user-key")
    (folder / "user-key").write_bytes(b"a key of the benchmarks, thirty-two bytes or more")
    (folder / "user-key").chmod(0o600)
    return Job(table, source_partitions)


def main_stream(name: str, *, step: str, clock: str, start: str = START, events: int = USERS) -> Table:
    """A spatial stream of users in the unit square, whose bound renews with each step.

    Args: events: of a step, for which the bound has room.
    """
    most = max(2, 2 * events // USERS)
    return {
        "name": name,
        "engine": "spatial",
        "source": f"raw.{name}",
        "privacy": {"epsilon": 1.0, "unit": "user", "user": "user", "max_contributions": most, "per": step},
        "time": _time(step, clock, start),
        "domain": {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]},
        "options": {"initial_steps": 1},
    }


def counting_stream(name: str, *, step: str) -> Table:
    """A series of counts, whose bound remembers each user for ever."""
    return {
        **main_stream(name, step=step, clock="replay"),
        "engine": "series",
        "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "user", "user": "user", "max_contributions": 2},
        "domain": {"kind": "series", "fields": [{"name": "visits", "of": "count"}]},
        "options": {"horizon": 1_000_000},
    }


def side_stream(name: str, engine: str, *, step: str, start: str) -> Table:
    """A stream of a few events a step. Args: step: of whole seconds, as 10s."""
    steps = 3600 // int(step.removesuffix("s"))  # in the hour for which users are bounded
    user: Table = {"unit": "user", "user": "user", "max_contributions": 2, "per": "1h"}
    privacies: dict[str, Table] = {
        "spatial": {"unit": "event"},
        "tabular": {"unit": "event"},
        "series": {**user, "delta": 1e-6},
        "markov": {"unit": "replace", "user": "user", "max_contributions": steps, "max_per_step": 1, "per": "1h"},
        "trajectory": user,
    }
    square = [0.0, 0.0, 1.0, 1.0]
    domains: dict[str, Table] = {
        "spatial": {"kind": "box", "x": "x", "y": "y", "bounds": square},
        "tabular": {
            "kind": "table",
            "attributes": [{"field": f"a{size}", "values": list(range(size))} for size in (10, 6, 4, 2)],
        },
        "series": {"kind": "series", "fields": [{"name": "visits", "of": "count"}]},
        "markov": {"kind": "states", "field": "state", "values": list("abcdefgh"), "population": 1000},
        "trajectory": {"kind": "trips", "trip": "trip", "x": "x", "y": "y", "bounds": square, "end": "last"},
    }
    options: Table = {"trajectory": {"idle": "1m", "longest": "10m", "max_points": 16, "side": 8}}
    return {
        "name": name,
        "engine": engine,
        "source": f"raw.{name}",
        "partitioner": "none",
        "privacy": {"epsilon": 1.0, **privacies[engine]},
        "time": _time(step, "wall", start),
        "domain": domains[engine],
        "options": {"series": {"horizon": 100_000}}.get(engine, options.get(engine, {})),
    }


def _time(step: str, clock: str, start: str) -> Table:
    return {"field": "at", "format": "ms", "start": start, "step": step, "grace": "0s", "clock": clock}


# --- Events -----------------------------------------------------------------------------------------------------------


class MainEvents:
    """Events of the main stream: prefixes of a pool, to which only the time is added."""

    def __init__(self, partitions: int, *, seed: int = 1) -> None:
        chance = np.random.default_rng(seed)
        # Clusters, as in a town: what a spatial engine is for.
        spots = chance.random((40, 2))
        at = spots[chance.integers(0, 40, USERS)] + chance.normal(0, 0.03, (USERS, 2))
        places = np.clip(at, 0, 0.99999).tolist()
        self._tails = [b'","x":%.5f,"y":%.5f,"at":' % (x, y) for x, y in places]
        self._order = chance.permutation(USERS).tolist()
        self.partitions = partitions
        self._homes = self._of([f"u{user:08d}" for user in range(USERS)])

    def _of(self, users: list[str]) -> list[int]:
        """The partition of each."""
        found: list[int] = partitions_of(
            IdBytes.from_ids(users), partitioner="murmur2", partitions=self.partitions
        ).tolist()
        return found

    def take(self, first: int, count: int, at_ms: int) -> list[list[bytes]]:
        """Events `first` to `first + count`, in turn over the pool's users; of each partition a list."""
        at = b"%d}" % at_ms
        tails, order, homes = self._tails, self._order, self._homes
        found: list[list[bytes]] = [[] for _ in range(self.partitions)]
        for index in range(first, first + count):
            user = order[index % USERS]
            found[homes[user]].append(b'{"user":"u%08d' % user + tails[user] + at)
        return found

    def take_new(self, first: int, count: int, at_ms: int) -> list[list[bytes]]:
        """The same, each of a user that was never seen."""
        at = b"%d}" % at_ms
        tails, users = self._tails, range(first, first + count)
        found: list[list[bytes]] = [[] for _ in range(self.partitions)]
        for user, home in zip(users, self._of([f"n{user:08d}" for user in users]), strict=True):
            found[home].append(b'{"user":"n%08d' % user + tails[user % USERS] + at)
        return found


def side_events(engine: str, chance: np.random.Generator, count: int, at_ms: int, serial: int) -> list[bytes]:
    """Args: serial: differs from call to call."""
    rows: list[Table] = []
    for index in range(count):
        x, y = chance.random(2).round(5).tolist()
        row: Table = {"at": at_ms}
        if engine == "spatial":
            row |= {"x": x, "y": y}
        elif engine == "tabular":
            row |= {f"a{size}": int(chance.integers(0, size)) for size in (10, 6, 4, 2)}
        elif engine == "markov":
            row |= {"user": f"u{chance.integers(0, 1000)}", "state": "abcdefgh"[int(chance.integers(0, 8))]}
        else:
            row |= {"user": f"u{serial}-{index // 5}"}
            if engine == "trajectory":
                row |= {"trip": f"t{serial}-{index // 5}", "x": x, "y": y, "last": "true" if index % 5 == 4 else "no"}
        rows.append(row)
    return [orjson.dumps(row) for row in rows]
