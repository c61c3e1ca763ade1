"""A broker, a job's topics and its workers, for one measurement: fresh ones for each."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w
from aiokafka.admin import NewTopic

from agents.kafka.topics import admin_client, create_topics
from agents.local.broker.embedded import Broker, EmbeddedBroker, broker_from_env
from benchmarks.scale.streams import MAIN, Job
from benchmarks.scale.workers import ROOT, Worker
from benchmarks.size import SMALLEST
from schemas.config import Config
from schemas.config.load import load_config

TOPICS_AT_ONCE = 50
START_S = 600.0
"""At most, of workers."""


@dataclass
class Setting:
    """Where a measurement happens."""

    broker: Broker
    folder: Path
    workers: list[Worker] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """Of names: on a broker that is another's they must be this measurement's own."""
        return "" if isinstance(self.broker, EmbeddedBroker) else f"{self.folder.name}-"

    @property
    def name(self) -> str:
        """Of the job."""
        return f"{self.prefix}scale"

    @property
    def main(self) -> str:
        """The stream that is measured."""
        return f"{self.prefix}{MAIN}"

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    async def prepare(self, job: Job) -> Config:
        """Write the configuration and create the topics."""
        path = self.folder / "job.toml"
        path.write_text(tomli_w.dumps(job.table))
        config = load_config(path, {})
        sides = [stream["source"] for stream in job.streams[1:]]
        async with admin_client(config.kafka) as admin:
            for at in range(0, len(sides), TOPICS_AT_ONCE):
                await admin.create_topics([NewTopic(name, 1, 1) for name in sides[at : at + TOPICS_AT_ONCE]])
        await create_topics(config, source_partitions=job.source_partitions)
        return config

    def create(self, job: Job) -> None:
        """The same by the command, for a configuration that this process cannot read. Raises: CalledProcessError."""
        path = self.folder / "job.toml"
        path.write_text(tomli_w.dumps(job.table))
        command = [sys.executable, "-m", "agents.cli", "topics", str(path), "--create"]
        command += ["--source-partitions", str(job.source_partitions)]
        subprocess.run(command, env={**os.environ, **self.environment}, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)

    def start(self, count: int = 1) -> None:
        """Workers, at once."""
        names = [f"w{len(self.workers) + at}" for at in range(count)]
        self.workers += [Worker(name, self.folder / "job.toml", environment=self.environment) for name in names]

    def check(self) -> None:
        """Raises: RuntimeError where a worker has ended."""
        for worker in self.workers:
            worker.check()

    async def until_ready(self, *, timeout_s: float = START_S) -> float:
        """Until all workers say so. Returns when that was. Raises: TimeoutError."""
        waiting = list(self.workers)
        end = time.monotonic() + timeout_s
        while True:
            waiting = [worker for worker in waiting if not await asyncio.to_thread(lambda w: w.ready, worker)]
            if not waiting:
                return time.time()
            self.check()
            if time.monotonic() > end:
                raise TimeoutError(f"workers were not ready within {timeout_s:.0f} s")
            await asyncio.sleep(0.1)

    @property
    def rss_mb(self) -> float:
        """Of all workers."""
        return sum(worker.rss_mb for worker in self.workers)

    @property
    def cpu_s(self) -> float:
        return sum(worker.cpu_s for worker in self.workers)

    def topic_bytes(self, topic: str) -> float:
        """What a topic takes on the broker's disk, indices not counted; nan where the disk is another's."""
        if not isinstance(self.broker, EmbeddedBroker):
            return math.nan
        data = self.broker.disk
        return sum(path.stat().st_size for path in data.glob(f"{topic}-[0-9]*/*.log"))


@contextlib.asynccontextmanager
async def setting(*, environment: Mapping[str, str] | None = None) -> AsyncIterator[Setting]:
    """A fresh broker and folder; everything ends with the block."""
    with tempfile.TemporaryDirectory(prefix="privstream-scale-") as folder:
        broker = broker_from_env() if SMALLEST else EmbeddedBroker()
        await asyncio.to_thread(broker.start)
        where = Setting(broker, Path(folder), environment=environment or {})
        try:
            yield where
        finally:
            for worker in where.workers:
                worker.kill()
            await asyncio.to_thread(broker.stop)
