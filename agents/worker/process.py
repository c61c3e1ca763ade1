"""One worker process: check the streams, build the application, run it until a signal or an error ends it.

SIGTERM leaves the group cleanly. An error of the cluster or the network makes the worker begin anew, in the same
process: it waits for the cluster and reads everything back from committed records, as after a crash. Any other error
ends the process with a code other than 0, and the last line of the log says what to do. A stream that stops alone ends
nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from prometheus_client.core import REGISTRY

from agents.kafka import stop_log
from agents.kafka.cluster import passes, said, until_it_answers
from agents.kafka.fingerprint import check_fingerprints
from agents.kafka.lifecycle.advice import explain
from agents.kafka.lifecycle.leaving import LIMIT_S, Leaving, Lives
from agents.kafka.lifecycle.logs import set_up
from agents.kafka.lifecycle.state_folder import root_of
from agents.kafka.lifecycle.stops import Stops
from agents.kafka.lifecycle.vitals import Vitals
from agents.kafka.membership import take_place
from agents.kafka.topics import (
    TopicProblem,
    admin_client,
    check_topics,
    needed_topics,
    restore_changelog,
    topic_identities,
)
from agents.kafka.witness.streams import UNCONFIGURED
from agents.worker.app import ROLES, build_app, data_folder
from agents.worker.ingest.counters import IngestCounters, IngestMetrics
from agents.worker.ingest.service import IngestService
from agents.worker.ingest.specs import source_specs, user_key_ids
from agents.worker.job import Job
from agents.worker.metrics import RESTARTS, WorkerState
from agents.worker.probes import serve
from agents.worker.topic_watch import TopicWatch
from schemas.config import Config, Stream
from schemas.errors import LostTopicError, PrivstreamError, TopicError
from schemas.topics import Topics

log = logging.getLogger(__name__)

NOT_PRIVATE = "NOT PRIVATE: an insecure seed makes the noise repeatable. Every ledger entry of this run says so"
AGAIN = "_PRIVSTREAM_RESTARTS"
PR_SET_DUMPABLE = 4  # of prctl(2)
SWITCH_S = 0.0005
"""After so long a thread that computes gives way to the event loop, which asks for the interpreter after each of its
many small system calls: with Python's 5 ms it had it for a quarter of the time.
"""


def run_worker(
    config: Config,
    *,
    insecure_seed: int | None = None,
    trusted: Mapping[str, int] | None = None,
    leaving: Leaving | None = None,
) -> NoReturn:
    """Run until SIGTERM, SIGINT or an error, and end the process: with code 0 after a signal.

    Args:
        insecure_seed: repeat the noise of another run; every ledger entry then says that it is not private.
        trusted: stream -> step up to which a person says that its public ledger is whole.
        leaving: installed already, and the log set up, by a program that took time before it came here.
    """
    _leave_no_core()
    sys.setswitchinterval(SWITCH_S)
    if leaving is None:
        set_up("INFO")
        leaving = Leaving()
        leaving.install()
    vitals = Vitals()
    if config.job.http_port is not None:
        REGISTRY.register(WorkerState(vitals))
        serve(config.job.http_host, config.job.http_port, vitals)
    RESTARTS.inc(int(os.environ.get(AGAIN, "0")))
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    stops = Stops.of(stream.name for stream in config.streams)
    live = _live(config, leaving, vitals, stops, insecure_seed=insecure_seed, trusted=trusted or {}, roles=ROLES)
    try:
        error = loop.run_until_complete(live)
    except BaseException as failed:
        error = failed
    if error is None or (leaving.asked and passes(error)):
        leaving.end(0)
    lives = Lives.before()
    if not passes(error) or lives.over(error):
        leaving.begin(explain(said(error)))
        leaving.end(1)
    leaving.waits()
    vitals.phase = "begins anew"
    os.environ[AGAIN] = str(int(os.environ.get(AGAIN, "0")) + 1)
    log.warning("BEGINS ANEW: %s. Everything is read back from committed records", explain(error))
    time.sleep(lives.pause_s)
    leaving.again()


def _leave_no_core() -> None:
    """Let a crash of a native library leave no copy of this process, with events, seeds and passwords."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        # The limit holds for files alone, and not where the kernel hands cores to a program of the machine.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


async def _live(
    config: Config,
    leaving: Leaving,
    vitals: Vitals,
    stops: Stops,
    *,
    insecure_seed: int | None,
    trusted: Mapping[str, int],
    roles: tuple[str, ...],
) -> BaseException | None:
    """Live one life of a worker. Returns the error that ended it, None after a signal.

    However it ends, what has stopped is written down here, before anything is given up.
    """
    begun = time.monotonic()
    app: Any = None
    error: BaseException | None
    try:
        vitals.phase = "waits for the cluster"
        await until_it_answers(config.kafka)
        vitals.phase = "checks topics and fingerprints"
        app = await prepare(
            config, insecure_seed=insecure_seed, trusted=trusted, roles=roles, vitals=vitals, stops=stops
        )
        error = await _serve(app, leaving)
    except BaseException as failed:
        error = failed
    if error is not None:
        error = said(error)
        lives = Lives.before().ended(error, time.monotonic() - begun)
        lives.keep()
        if lives.alike > 1:
            error.add_note(str(lives))
        if ends := not passes(error) or lives.over(error):
            leaving.begin(explain(error))
        if ends or lives.told:
            stops.end(error)
    await stop_log.last_words(config, stops)
    if app is not None:
        # An application that waits for a cluster that is away cannot be waited for: whatever it holds is fenced.
        stopping = asyncio.ensure_future(app.stop())
        await asyncio.wait([stopping], timeout=LIMIT_S)
        if stopping.done() and not stopping.cancelled():
            stopping.exception()
    return error


async def _serve(app: Any, leaving: Leaving) -> BaseException | None:
    """Start an application and wait for its end. Returns the error that ended it, None after a signal."""
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    leaving.serves(lambda: loop.call_soon_threadsafe(asked.set))
    starting = asyncio.ensure_future(app.start())
    ends = [asyncio.ensure_future(app.wait_until_stopped()), asyncio.ensure_future(asked.wait())]
    await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
    error: BaseException | None = starting.exception() if starting.done() and not starting.cancelled() else None
    if error is None:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        error = app.crash_reason
    return error


async def with_folder(config: Config) -> Config:
    """Return the configuration with the folder that its state tables have by default on this cluster."""
    if config.job.data_dir is not None:
        return config
    async with admin_client(config.kafka) as admin:
        cluster: str = (await admin.describe_cluster())["cluster_id"]
    folder = root_of(config.job, cluster)
    log.info("state tables are kept in %s", folder / config.job.name)
    return config.model_copy(update={"job": config.job.model_copy(update={"data_dir": folder})})


async def prepare(
    config: Config,
    *,
    insecure_seed: int | None,
    roles: Iterable[str],
    trusted: Mapping[str, int] | None = None,
    vitals: Vitals | None = None,
    stops: Stops | None = None,
) -> Any:
    """Check topics and fingerprints, and build the application. A stream that is refused stops alone.

    The schemas of new streams with typed output are registered. Nothing is asked of the registry for known ones.

    Raises: TopicError, BrokerError, FingerprintError, ConfigError; what is wrong with a stream, if no other is left.
    """
    roles = tuple(roles)
    config = await with_folder(config)
    place = take_place(data_folder(config))  # for as long as this process lives
    instance_id = None if place is None else place.instance_id
    if insecure_seed is not None:
        log.warning(NOT_PRIVATE)
    if await restore_changelog(config):
        log.warning(
            "the changelog of the state tables was gone and was made again: states come from the stores of workers"
        )
    refused = _by_stream(config, await check_topics(config))
    checked = await check_fingerprints(
        config, user_key_ids=user_key_ids(config), insecure=insecure_seed is not None, without=refused
    )
    job = Job(
        config=checked.config,
        source_partitions=checked.source_partitions,
        audit_partitions=checked.audit_partitions,
        schema_ids=checked.schema_ids,
        insecure_seed=insecure_seed,
        trusted=trusted or {},
        instance_id=instance_id,
        vitals=Vitals() if vitals is None else vitals,
    )
    if config.job.witness is None:
        log.warning("no [job] witness is configured: %s", UNCONFIGURED)
    else:
        log.info("what was answered is noted at %s", job.witness.place)
    for name in sorted(checked.others):
        job.meet(name)
    if stops is not None:
        job.stops = stops
    job.stops.watched = True
    for name, error in {**refused, **checked.refused}.items():
        job.stops.add(name, "start", None, error)
    for name, error in checked.changed.items():
        job.stops.add(name, "ingest", None, error)
    await stop_log.may_write(config)
    async with admin_client(config.kafka) as admin:
        known = await topic_identities(admin, [topic.name for topic in needed_topics(config)])
    services: list[type] = [TopicWatch.configured(checked.config, job.stops, known, job.vitals)]
    taken_in = {name: number for name, number in checked.source_partitions.items() if name not in checked.changed}
    if "ingest" in roles and taken_in:
        counters = IngestCounters()
        if config.job.http_port is not None:
            REGISTRY.register(IngestMetrics(counters))
        audited = checked.audit_partitions if "audit" in roles else None
        specs = source_specs(
            checked.config,
            source_partitions=taken_in,
            audit_partitions=audited,
            topic_partitions={topic: identity.partitions for topic, identity in checked.sources.items()},
        )
        services.append(
            IngestService.configured(
                checked.config,
                specs,
                sources=checked.sources,
                counters=counters,
                stops=job.stops,
                instance_id=instance_id,
                vitals=job.vitals,
                deletions=job.deletions,
            )
        )
    return build_app(job, roles=roles, services=services)


def _by_stream(config: Config, problems: Iterable[TopicProblem]) -> dict[str, PrivstreamError]:
    """Return streams that cannot start as their own topics are. Raises: TopicError, if it is one of the job's."""
    problems = list(problems)
    by_topic = {problem.topic: problem for problem in problems}
    own = {topic for stream in config.streams for topic in _topics_of(config, stream)}
    if any(topic not in own for topic in by_topic):
        raise TopicError("\n".join(map(str, problems)))
    refused: dict[str, PrivstreamError] = {}
    for stream in config.streams:
        if mine := [by_topic[topic] for topic in _topics_of(config, stream) if topic in by_topic]:
            kind = LostTopicError if any(problem.gone for problem in mine) else TopicError
            refused[stream.name] = kind("\n".join(map(str, mine)))
    if len(refused) == len(config.streams):
        raise TopicError("\n".join(map(str, problems)))
    return refused


def _topics_of(config: Config, stream: Stream) -> list[str]:
    audit = [] if stream.audit is None else [stream.audit, Topics.utility(stream.name)]
    sources = dict.fromkeys((stream.source, config.read_by(stream)))
    return [*sources, *Topics.published(stream.name), *audit]
