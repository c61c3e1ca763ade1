"""The Faust application: which agents run, with the settings that were measured to work.

Why these settings: docs/notes/0011-faust-settings.md. Nothing here decides anything about privacy; the owners do, and
they keep their promises whatever Faust redelivers, skips or forgets.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faust
from yarl import URL

from agents.audit import AuditOwner, truth_start
from agents.engine import EngineOwner, blocks_start
from agents.fingerprint import stored_fingerprints
from agents.kafka_security import faust_credentials
from agents.lifecycle.advice import PAGE
from agents.lifecycle.stops import Stops
from agents.membership import HEARTBEAT_S
from agents.owners import Owners, PartitionOwner
from agents.protocol.partitioner import home_partition
from agents.publish import PublishOwner
from agents.table import DurableTable, EagerTables, durable_table
from agents.transport import JobTransport
from engines.noise import fresh_seed
from schemas.errors import StoreError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config, Stream

log = logging.getLogger(__name__)

ROLES = ("ingest", "engine", "publish", "audit")


@dataclass(eq=False)
class Job:
    """What the owners of one worker share.

    Attributes:
        source_partitions: stream -> partitions of its source topic; `audit_partitions` the same of its audit topic.
        instance_id: the worker's place in its consumer groups, see `agents.membership`; None: a new one each time.
        insecure_seed: makes every run repeatable and therefore not private; None draws from the operating system.
        kept: streams that have a history and are not configured here: it stays as it is, see `meet`.
        stops: which streams have stopped in this process.
    """

    config: Config
    source_partitions: Mapping[str, int]
    audit_partitions: Mapping[str, int] = field(default_factory=dict)
    insecure_seed: int | None = None
    instance_id: str | None = None
    kept: frozenset[str] = field(init=False, default=frozenset())
    stops: Stops = field(init=False)
    table: DurableTable = field(init=False)

    def __post_init__(self) -> None:
        self.stops = Stops.of(stream.name for stream in self.config.streams)
        self._known = {*self.config.job.retired, *(stream.name for stream in self.config.streams)}

    @property
    def topics(self) -> Topics:
        return Topics(self.config.job.name, self.config.kafka.partitions)

    @property
    def caveat(self) -> str:
        """Why the releases are not private; empty: they are."""
        return "" if self.insecure_seed is None else "the noise came from an insecure seed"

    def streams_on(self, partition: int) -> Sequence[Stream]:
        """The streams whose home is this partition."""
        partitions = self.config.kafka.partitions
        return [stream for stream in self.config.streams if home_partition(stream.name, partitions) == partition]

    def holds_back(self, partition: int) -> bool:
        """Whether private records on this partition must stay: a stream at home there cannot say what it still needs.

        It has stopped, or it is not configured here: taken out, and may be put back, or served by another worker.
        """
        partitions = self.config.kafka.partitions
        return bool(self.stops.among(stream.name for stream in self.streams_on(partition))) or any(
            home_partition(name, partitions) == partition for name in self.kept
        )

    def meet(self, name: str) -> None:
        """Somebody has a private record of this stream: if it is not configured here, what it needs stays.

        It was taken out, or a worker with a later configuration started it. Whoever deletes calls this for each record
        that is read, so before anything behind it can be deleted.
        """
        if name in self._known:
            return
        self._known.add(name)
        self.kept |= {name}
        log.warning(
            "stream %s was started once and is not configured: all that it needs to go on is kept, and old private "
            "records of the streams beside it too. Put it back, name it in [job] retired, or restart this worker with "
            "the configuration that has it (%s, %r)",
            name, PAGE, "A stream that is taken out",
        )  # fmt: skip

    async def meet_all(self) -> None:
        """The streams that were started until now. For whoever goes on behind records that it has not read itself: of
        a stream that is started later, all records are written later. Raises: BrokerError, WireError.
        """
        for name in sorted(await stored_fingerprints(self.config)):
            self.meet(name)

    def draw_seed(self, stream: str, step: int) -> bytes:
        """32 bytes from which all noise of the step is expanded."""
        if self.insecure_seed is None:
            return fresh_seed()
        label = f"privstream/insecure/{self.insecure_seed}/{stream}/{step}"
        return hashlib.sha256(label.encode()).digest()


def build_app(job: Job, *, roles: Iterable[str] = ROLES, services: Sequence[type] = ()) -> faust.App:
    """The application of one worker.

    Args:
        roles: which of `ROLES` to run; `ingest` comes as one of `services`.
        services: further Faust services, started and stopped with the application.
    """
    config, topics, roles = job.config, job.topics, tuple(roles)
    app = faust.App(config.job.name, consumer_group_instance_id=job.instance_id, **_settings(config))
    starts = {topics.blocks: blocks_start(job), topics.releases: lambda partition: 0, topics.truth: truth_start(job)}
    app.transport = JobTransport(app.conf.broker, app, starts=starts)
    job.table = durable_table(app, topics.table, topics.partitions)

    factories: dict[str, Callable[[int], PartitionOwner]] = {}
    sources: dict[str, str] = {}
    if "engine" in roles:
        factories["engine"], sources["engine"] = (lambda partition: EngineOwner(job, partition)), topics.blocks
    if "publish" in roles:
        factories["publish"], sources["publish"] = (lambda partition: PublishOwner(job, partition)), topics.releases
    if "audit" in roles and any(stream.audit for stream in config.streams):
        factories["audit"], sources["audit"] = (lambda partition: AuditOwner(job, partition)), topics.truth
    owners = Owners(factories, app.crash)
    for role, topic in sources.items():
        _attach(app, owners, role, topic)
    _follow_assignment(app, job.table, owners, set(sources.values()))
    for service in services:
        app.service(service)
    return app


def _attach(app: faust.App, owners: Owners, role: str, topic: str) -> None:
    async def agent(stream: Any) -> None:
        # `noack`, because a plain `async for event` acknowledges even when the body raises.
        async for event in stream.noack().events():
            await owners.deliver(role, event)

    app.agent(app.topic(topic, key_serializer="raw", value_serializer="raw"), name=f"{app.conf.id}.{role}")(agent)


def _follow_assignment(app: faust.App, table: DurableTable, owners: Owners, topics: set[str]) -> None:
    holding = False

    @table.on_recover
    async def recovered() -> None:
        # Not at the first event: an owner's state may be able to close steps without one. A recovery can also end late,
        # when its partitions are revoked already.
        if holding:
            table.notice_lost_changelog(app.tables.recovery.active_highwaters)
            owners.open({tp.partition for tp in app.consumer.assignment() if tp.topic in topics})

    @app.on_partitions_assigned.connect(weak=False)
    async def assigned(app: Any, partitions: Any, **_: Any) -> None:
        nonlocal holding
        holding = True

    @app.on_partitions_revoked.connect(weak=False)
    async def revoked(app: Any, partitions: Any, **_: Any) -> None:
        nonlocal holding
        holding = False
        owners.revoke()

    @app.on_before_shutdown.connect(weak=False)
    async def leaving(app: Any, **_: Any) -> None:
        await owners.stop()


def data_folder(config: Config) -> Path:
    """Where the workers of this machine keep what they can read back from Kafka; made if it is missing.

    Raises: StoreError.
    """
    folder = Path(config.job.data_dir).absolute() / config.job.name
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"data_dir {folder} cannot be made: {error.strerror}") from error
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
        # A changelog that ends before what is stored is one that was lost: see `DurableTable.notice_lost_changelog`.
        "recovery_consistency_check": False,
        # A record can be a megabyte: Faust's 4,096 would be gigabytes. A poll must stay under a fifth of the buffer.
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
