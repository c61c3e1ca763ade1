"""One seed: a job of several workers, what comes in, what goes wrong, and what must be true afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from agents.kafka.topics import needed_topics
from agents.local.offline.replay import replay
from agents.worker.job import Job
from schemas.config import Config, Stream
from schemas.config.load import config_from_mapping
from tests.simulation.broker import Broker
from tests.simulation.faults import Plan, Switches
from tests.simulation.feed import HISTORY_S, HISTORY_STEPS, SOURCE_PARTITIONS, STEP_S, Sent, events, write_rows
from tests.simulation.network import Network
from tests.simulation.oracle import Shown
from tests.simulation.patches import patches
from tests.simulation.timeline import EPOCH_S, Process, Timeline, virtual_clocks
from tests.simulation.worker import Disk, work

JOB_PARTITIONS = 2
SESSION_S = 240
RESTART_S = (1.0, 20.0)
ROUTED = 0.25  # of streams: the job places their users itself
OF_KEYS = 0.25  # of streams: a contribution is a pair of user and key
SPLIT = 0.25  # of streams: they are two, by where an event is
HALVES: Mapping[str, Any] = {
    "field": "what",
    "parts": {"low": [f"k{place}" for place in range(4)], "high": [f"k{place}" for place in range(4, 8)]},
}
BOX: Mapping[str, Any] = {
    "engine": "spatial",
    "mode": "paper",
    "domain": {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]},
    "options": {"depth": 2},
}
WEIGHTED = 0.25  # of streams of places: a record is changed in place
KEYS: Mapping[str, Any] = {"engine": "keys", "domain": {"kind": "keys", "field": "what"}, "options": {"horizon": 400}}


@dataclass(frozen=True)
class Length:
    """How long a seed lives: steps with faults, and steps in all."""

    steps: int
    faulty: int

    @property
    def after_s(self) -> float:
        """Healthy life at the end: what is over by then must be public, a replay that was held up included."""
        return max(1.5, 0.1 * self.faulty) * STEP_S


@dataclass
class Observed:
    """What the simulation itself has seen of a seed, for the oracle and the report."""

    draws: Counter[tuple[str, int]] = field(default_factory=Counter)
    computed: dict[tuple[str, int], set[bytes]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    starts: int = 0
    forbidden: list[str] = field(default_factory=list)
    abandoned: list[Shown] = field(default_factory=list)


def goes_live(stream: Stream) -> bool:
    """Whether it is replayed and then goes live."""
    return stream.name.startswith("live")


class World:
    """See the module. `run` lives it; afterwards `broker` holds all that is to be judged."""

    def __init__(
        self, seed: int, length: Length, folder: Path, switches: Switches, planted: Mapping[str, Any] | None = None
    ) -> None:
        self.seed = seed
        self.length = length
        self.folder = folder
        self.chance = random.Random(f"world {seed}")
        self.live = random.Random(f"live {seed}")
        self.routing = random.Random(f"elsewhere {seed}")
        self.engines = random.Random(f"engines {seed}")
        self.forms = random.Random(f"forms {seed}")
        self.splitting = random.Random(f"split {seed}")
        self.timeline = Timeline()
        self.broker = Broker(self.timeline, random.Random(f"broker {seed}"))
        self.network = Network(self.timeline, self.broker, random.Random(f"network {seed}"))
        self.planted = dict(planted or {})
        self.observed = Observed()
        self.config = self._config()
        self.rows: dict[str, int] = {}
        self.speeds: dict[str, float] = {}
        self.untils: dict[str, str | None] = {}
        self.workers: dict[str, Process] = {}
        self.disks: dict[str, Disk] = {}
        self.names = ["a", "b", "c"][: self.chance.choice((1, 1, 1, 2, 2, 2, 2, 3))]
        self.graveyard: list[Process] = []  # kept, or Python would tidy up after the dead
        self.stops: dict[str, asyncio.Event] = {}
        self.healthy = False
        self.plan = Plan(self, random.Random(f"faults {seed}"), switches)
        for topic in needed_topics(self.config):
            self.broker.create(topic.name, topic.partitions or SOURCE_PARTITIONS)

    def _config(self) -> Config:
        key = self.folder / "user-key"
        (self.folder / "witness").mkdir()
        key.write_bytes(b"a secret of the simulation, thirty-two bytes or more")
        streams = []
        kinds = self.chance.choice((("wall",), ("wall",), ("wall",), ("replay",), ("replay",), ("wall", "replay")))
        for number, kind in enumerate(kinds):
            live = kind == "replay" and self.live.random() < 0.5  # replayed, and then goes live
            name = f"{'live' if live else kind}{number}"
            routed = self.routing.random() < ROUTED
            of_keys = self.engines.random() < OF_KEYS
            form = "weighted" if self.forms.random() < WEIGHTED else "single"
            streams.append(
                {
                    "name": name,
                    **(KEYS if of_keys else {**BOX, "records": {"form": form}}),
                    "source": f"raw.{name}",
                    "privacy": {
                        "epsilon": 1.0,
                        "unit": "user",
                        "user": "user",
                        "max_contributions": 3,
                        **({"delta": 1e-6} if of_keys else {}),
                        "user_key_file": str(key),
                    },
                    "time": {
                        "field": "at",
                        "format": "s",
                        "start": "2019-12-31T22:30:00" if live else "2020-01-01T00:00:00",
                        "step": f"{int(STEP_S)}s",
                        "clock": kind,
                    },
                    **({"audit": f"held.{name}"} if self.chance.random() < 0.1 else {}),
                    **({"partitioner": "any"} if routed else {}),
                    **({"split": HALVES} if self.splitting.random() < SPLIT else {}),
                }
            )
        return config_from_mapping(
            {
                "job": {
                    "name": "sim",
                    "data_dir": str(self.folder / "data"),
                    "witness": str(self.folder / "witness"),
                },
                "kafka": {"bootstrap": "broker:9092", "partitions": JOB_PARTITIONS, "session_timeout_s": SESSION_S},
                "streams": streams,
            }
        )

    @property
    def end_s(self) -> float:
        return self.length.steps * STEP_S + self.length.after_s

    # --- life -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Live it: faults first, then health, then enough time for everything that is over to become public."""
        with self._patched():
            self._feed()
            for name in self.names:
                self.timeline.after(self.chance.random() * 5, self.start_worker, name)
            self.plan.arm(self.length.faulty * STEP_S)
            self.timeline.at(self.length.faulty * STEP_S, self.heal)
            self.timeline.run(self.end_s)

    def heal(self) -> None:
        """From here on nothing goes wrong any more. What sleeps wakes up, what is late arrives."""
        self.healthy = True
        self.plan.disarm()

    def start_worker(self, name: str) -> None:
        process = Process(self.timeline, name, random.Random(f"{self.seed} {name} {self.observed.starts}"))
        self.observed.starts += 1
        self.workers[name] = process
        process.on_end = self._ended
        self.plan.born(process)
        process.start(self._main(name, process))

    async def _main(self, name: str, process: Process) -> None:
        stop = self.stops[name] = asyncio.Event()
        disk = self.disks.setdefault(name, Disk())
        await work(self.config, process, disk, stop=stop, job_class=self._job_class())

    def _ended(self, process: Process) -> None:
        self.network.end_process(process)
        self.graveyard.append(process)
        self.observed.refusals += process.failures
        again: Callable[[str], None] = self.start_worker if process.name in self.names else self.start_replay
        self.timeline.after(self.chance.uniform(*RESTART_S), again, process.name)

    def _job_class(self) -> type[Job]:
        world = self

        class SeededJob(Job):
            """Seeds that no two draws share, and the same ones when the simulation is run again."""

            def draw_seed(self, stream: str, step: int) -> bytes:
                world.observed.draws[stream, step] += 1
                return world.chance.randbytes(32)

        return SeededJob

    # --- what comes in --------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        for stream in {each.whole: each for each in reversed(self.config.streams)}.values():  # parts share a source
            topics = [topic for topic in (stream.source, stream.audit) if topic is not None]
            path = self.folder / f"{stream.whole}.jsonl"
            if goes_live(stream):
                begin_s = -HISTORY_STEPS * STEP_S
                self.rows[stream.name] = write_rows(path, self.chance, steps=HISTORY_STEPS, begin_s=begin_s)
                self.speeds[stream.name] = -begin_s / HISTORY_S
                self.untils[stream.name] = self.live.choice((None, "2020-01-01T00:00:00"))
                self.timeline.after(1.0, self.start_replay, f"replay:{stream.name}")
            elif stream.time.clock == "replay":
                speed = self.chance.choice((1, 4, 4))
                self.speeds[stream.name] = speed
                self.rows[stream.name] = write_rows(path, self.chance, steps=self.length.steps * speed)
                self.timeline.after(1.0, self.start_replay, f"replay:{stream.name}")
                continue
            for topic in topics:
                for burst in events(self.chance, steps=self.length.steps, partitions=SOURCE_PARTITIONS):
                    send = partial(self._send, topic, burst, anywhere=stream.routed)
                    self.timeline.at(burst[0].at_s, send)

    def _send(self, topic: str, burst: list[Sent], *, anywhere: bool) -> None:
        for sent in burst:
            place = self.routing.randrange(SOURCE_PARTITIONS) if anywhere else sent.partition
            log = self.broker.logs[topic, place]
            log.write((sent.key, sent.value, []), now_s=self.timeline.now + EPOCH_S)

    def start_replay(self, name: str) -> None:
        process = Process(self.timeline, name, random.Random(f"{self.seed} {name} {self.observed.starts}"))
        self.observed.starts += 1
        self.workers[name] = process
        self.plan.born(process)
        stream = next(stream for stream in self.config.streams if name == f"replay:{stream.name}")

        async def main() -> None:
            await replay(
                self.config,
                stream,
                self.folder / f"{stream.whole}.jsonl",
                speed=self.speeds[stream.name],
                chunk_rows=64,
                until=self.untils.get(stream.name),
                then_live=goes_live(stream),
            )
            process.on_end = self.graveyard.append

        process.on_end = self._ended
        process.start(main())

    # --- patches --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        """What stands between the program and the world: sockets, clocks, chance of libraries, signals."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(virtual_clocks(self.timeline))
            for target, value in {**patches(self), **self.planted}.items():
                stack.enter_context(mock.patch(target, value))
            state = random.getstate()
            random.seed(self.seed)
            stack.callback(random.setstate, state)
            yield
