"""Where the program meets the simulation: sockets, polling, failpoints, and what is observed of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import aiokafka
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import Fetcher

from agents.protocol.release.stepper import Stepper
from tests.simulation.timeline import EPOCH_S

if TYPE_CHECKING:
    from tests.simulation.world import World

IDLE_POLL_MS = (60_000, 60_000, 60_000, 20_000)  # one of them for a seed
POLLED_MS = 200  # consumers that poll at least so seldom are polled less often: data wake them all the same
FETCHER_S = 60.0  # how often aiokafka's fetcher looks around when nothing happens, 0.2 s by default
REQUEST_MS = 320_000  # of consumers: four thirds of the session, as with the defaults of both
CLOCK_S = 45.0
LOOK_S = 900.0
HEARTBEAT_S = 40.0  # a sixth of a session
METADATA_MS = 2_400_000  # how old what clients know of the cluster may be: eight times the default, as sessions are
SLOWER = 8.0  # than the defaults are sessions and requests here: so slow may work be for a probe, too
PACE_S = 20.0
FAILPOINTS = ("engine", "publish", "ingest.partition_task", "table")


def patches(world: World) -> dict[str, Any]:
    """Dotted name -> what stands there while a seed lives."""
    idle_ms = world.chance.choice(IDLE_POLL_MS)
    getmany = aiokafka.AIOKafkaConsumer.getmany

    async def rare(self: Any, *partitions: Any, timeout_ms: int = 0, max_records: int | None = None) -> Any:
        timeout_ms = idle_ms if timeout_ms >= POLLED_MS else timeout_ms
        return await getmany(self, *partitions, timeout_ms=timeout_ms, max_records=max_records)

    fetcher, consumer = Fetcher.__init__, aiokafka.AIOKafkaConsumer.__init__

    def patient(self: Any, *topics: Any, **settings: Any) -> None:
        consumer(self, *topics, **{**settings, "request_timeout_ms": REQUEST_MS})

    client = AIOKafkaClient.__init__

    def settled(self: Any, *args: Any, **settings: Any) -> None:
        client(self, *args, **{**settings, "metadata_max_age_ms": METADATA_MS})

    def calm(self: Any, *args: Any, **settings: Any) -> None:
        fetcher(self, *args, **{**settings, "fetcher_timeout": FETCHER_S})

    async def told(_: Any) -> int:
        return int((EPOCH_S + world.timeline.now) * 1e6)

    def failpoint(name: str) -> None:
        process = world.timeline.running
        if process is not None:
            process.pass_by(name)

    return {
        "aiokafka.client.create_conn": world.network.connect,
        "agents.kafka.cluster.create_conn": world.network.connect,
        "aiokafka.client.AIOKafkaClient.__init__": settled,
        "aiokafka.AIOKafkaConsumer.getmany": rare,
        "aiokafka.AIOKafkaConsumer.__init__": patient,
        "aiokafka.consumer.fetcher.Fetcher.__init__": calm,
        # No stream is started while others run.
        "agents.worker.job.stored_fingerprints": _nothing_new,
        "agents.worker.ingest.service.CLOCK_S": CLOCK_S,
        "agents.worker.ingest.service.LOOK_S": LOOK_S,
        "agents.worker.ingest.service.ASK_S": LOOK_S,
        "agents.kafka.broker_clock.BrokerClock._ask": told,
        "agents.worker.ingest.service.HEARTBEAT_S": HEARTBEAT_S,
        "agents.worker.ingest.service._calm_collector": lambda: None,
        # What the audit measures is not judged here, and takes longer than all the rest of a step.
        "engines.spatial.evaluators.SpatialEvaluator.measure": lambda *_: {},
        "agents.local.offline.replay.PACE_S": PACE_S,
        "agents.protocol.release.stepper.Stepper.compute": _watched(world, Stepper.compute),
        **{f"agents.worker.{module}.failpoint": failpoint for module in FAILPOINTS},
    }


async def _nothing_new(_: Any) -> dict[str, Any]:
    return {}


def _watched(world: World, compute: Callable[[Stepper, bytes], Any]) -> Callable[[Stepper, bytes], Any]:
    def watched(self: Stepper, seed: bytes) -> Any:
        world.observed.computed.setdefault((self.stream.name, self.step), set()).add(seed)
        return compute(self, seed)

    return watched
