"""The Faust application: which agents run, with the settings that were measured to work.

Why these settings: docs/notes/0011-faust-settings.md. Nothing here decides anything about privacy; the tasks do, and
they keep their promises whatever Faust redelivers, skips or forgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faust
from faust.types import TP
from yarl import URL

from agents.kafka.lifecycle.state_folder import SET_IT, root_of
from agents.kafka.lifecycle.vitals import VitalsWatch
from agents.kafka.membership import HEARTBEAT_S
from agents.kafka.security import faust_credentials
from agents.kafka.transport import JobTransport, StartOffset, delivered
from agents.worker.engine import EngineTask, blocks_start
from agents.worker.metrics import REBALANCES
from agents.worker.partition_tasks import PartitionTask, PartitionTasks
from agents.worker.publish import PublishTask
from agents.worker.table import DurableTable, EagerTables, durable_table
from schemas.errors import StoreError

if TYPE_CHECKING:
    from agents.worker.job import Job
    from schemas.config import Config

ROLES = ("ingest", "engine", "publish", "audit")


def build_app(job: Job, *, roles: Iterable[str] = ROLES, services: Sequence[type] = ()) -> faust.App:
    """Return the application of one worker.

    Args:
        roles: which of `ROLES` to run; `ingest` comes as one of `services`.
        services: further Faust services, started and stopped with the application.
    """
    config, topics, roles = job.config, job.topics, tuple(roles)
    app = faust.App(config.job.name, consumer_group_instance_id=job.instance_id, **_settings(config))
    table = durable_table(app, topics.table, topics.partitions)
    starts: dict[str, StartOffset] = {
        topics.blocks: blocks_start(job, table),
        topics.releases: lambda partition: 0,
    }

    factories: dict[str, Callable[[int], PartitionTask]] = {}
    sources: dict[str, str] = {}
    if "engine" in roles:
        factories["engine"], sources["engine"] = (lambda partition: EngineTask(job, table, partition)), topics.blocks
    if "publish" in roles:
        factories["publish"], sources["publish"] = (lambda partition: PublishTask(job, partition)), topics.releases
    if "audit" in roles and any(stream.audit for stream in config.streams):
        from agents.worker.audit import AuditTask, held_out_start  # here: most jobs hold no events out

        factories["audit"], sources["audit"] = (lambda partition: AuditTask(job, table, partition)), topics.held_out
        starts[topics.held_out] = held_out_start(job, table)
    app.transport = JobTransport(app.conf.broker, app, starts=starts)

    def hold(role: str, partition: int, held: bool) -> None:
        place, consumer = TP(sources[role], partition), app.consumer
        (consumer.on_buffer_full if held else consumer.on_buffer_drop)(place)

    tasks = PartitionTasks(factories, app.crash, job.vitals, hold)
    for role, topic in sources.items():
        _attach(app, tasks, role, topic)
    _follow_assignment(app, job, table, tasks, set(sources.values()))
    app.service(VitalsWatch.configured(app, job.vitals, sources))
    for service in services:
        app.service(service)
    return app


def _attach(app: faust.App, tasks: PartitionTasks, role: str, topic: str) -> None:
    async def agent(stream: Any) -> None:
        async for event in delivered(app, stream):
            tasks.deliver(role, event)

    app.agent(app.topic(topic, key_serializer="raw", value_serializer="raw"), name=f"{app.conf.id}.{role}")(agent)


def _follow_assignment(app: faust.App, job: Job, table: DurableTable, tasks: PartitionTasks, topics: set[str]) -> None:
    job.vitals.phase = "joins its group"
    holding = False

    @table.on_recover
    async def recovered() -> None:
        # Not at the first event: the state of a task may be able to close steps without one. A recovery can also end
        # late, when its partitions are revoked already.
        if holding:
            tasks.open({tp.partition for tp in app.consumer.assignment() if tp.topic in topics})
            job.vitals.phase = ""

    @app.on_partitions_assigned.connect(weak=False)
    async def assigned(app: Any, partitions: Any, **_: Any) -> None:
        nonlocal holding
        holding = True
        job.vitals.phase = "opens the state tables"

    @app.on_partitions_revoked.connect(weak=False)
    async def revoked(app: Any, partitions: Any, **_: Any) -> None:
        nonlocal holding
        holding = False
        job.vitals.phase = "joins its group again"
        REBALANCES.labels("private topics").inc()
        tasks.revoke()

    @app.on_before_shutdown.connect(weak=False)
    async def leaving(app: Any, **_: Any) -> None:
        await tasks.stop()


def data_folder(config: Config) -> Path:
    """Return the folder where workers of this machine keep what they can read back from Kafka; make it if it is
    missing.

    Raises: StoreError.
    """
    folder = root_of(config.job, cluster=None) / config.job.name
    try:
        for each in (folder.parent, folder):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"data_dir {folder} cannot be made: {error.strerror}. {SET_IT}") from error
    return folder


def _settings(config: Config) -> dict[str, Any]:
    session_s = float(config.kafka.session_timeout_s)
    credentials = faust_credentials(config.kafka)
    return {
        "broker": [URL(f"kafka://{server}") for server in config.kafka.servers],
        "store": "rocksdb://",
        "datadir": data_folder(config),
        "Table": DurableTable,
        "TableManager": EagerTables,
        "key_serializer": "raw",
        "value_serializer": "raw",
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        # Faust would show tables over HTTP: private state.
        "web_enabled": False,
        "web_tables_enabled": False,
        "web_router_enabled": False,
        "web_bind": "127.0.0.1",
        "agent_supervisor": "mode.CrashingSupervisor",
        "stream_wait_empty": False,
        "stream_recovery_delay": 0.0,
        # A record can be a megabyte: Faust's 4,096 would be gigabytes. Of each partition a poll takes so many at most.
        "stream_buffer_maxsize": 64,
        "broker_max_poll_records": 12,
        "table_standby_replicas": 0,
        "broker_session_timeout": session_s,
        "broker_heartbeat_interval": HEARTBEAT_S,
        "broker_rebalance_timeout": session_s + 2.0,
        "broker_request_timeout": max(20.0, session_s + 10.0),
        "broker_commit_interval": 1.0,
        "producer_request_timeout": 20.0,
        "producer_max_request_size": 2 << 20,
        "consumer_max_fetch_size": 4 << 20,
        "consumer_auto_offset_reset": "earliest",
        **({} if credentials is None else {"broker_credentials": credentials}),
    }
