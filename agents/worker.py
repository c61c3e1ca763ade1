"""One worker process: check the streams, build the application, run it until a signal or an error ends it.

SIGTERM leaves the group cleanly. Every error ends the process with a code other than 0 and a line that says what to do;
a supervisor may start it again at once, because everything is read back from committed records.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import faust
from prometheus_client import start_http_server

from agents.app import ROLES, Job, build_app, data_folder
from agents.fingerprint import check_fingerprints
from agents.ingest import ingest_service, user_key_ids
from agents.ingest_owner import IngestCounters
from agents.membership import take_place
from agents.metrics import expose_ingest
from agents.owners import explain
from agents.topic_admin import check_topics
from schemas.errors import BrokerError, PrivstreamError

if TYPE_CHECKING:
    from schemas.config import Config

log = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
EXIT_S = 30.0
"""How long a worker may take to end. Faust's consumer thread can wait for ever if an error comes amid a rebalance."""
NOT_PRIVATE = "NOT PRIVATE: an insecure seed makes the noise repeatable. Every ledger entry of this run says so"


def run_worker(
    config: Config,
    *,
    insecure_seed: int | None = None,
    roles: Iterable[str] = ROLES,
    log_level: str = "INFO",
) -> int:
    """Run until SIGTERM, SIGINT or an error. Returns the exit code of the process.

    Args:
        insecure_seed: repeat the noise of another run; every ledger entry then says that it is not private.
    """
    logging.basicConfig(level=log_level, format=LOG_FORMAT, stream=sys.stderr)
    for chatty in ("aiokafka", "faust", "mode"):
        logging.getLogger(chatty).setLevel(max(logging.getLevelName(log_level), logging.WARNING))
    if config.job.metrics_port is not None:
        _serve_metrics(config.job.metrics_port)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        app = loop.run_until_complete(prepare(config, insecure_seed=insecure_seed, roles=roles))
    except PrivstreamError as error:
        log.critical("STOPPED before start: %s", error)
        return 1
    worker = faust.Worker(app, loop=loop, loglevel=log_level, override_logging=False, quiet=True)
    threading.Thread(target=limit_exit, args=(app, worker), daemon=True).start()
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        log.critical("STOPPED: %s", explain(error))
        return 1
    return 0


def limit_exit(*services: Any) -> None:
    """Wait until one of Faust's services is told to stop, and end this process if it is still there `EXIT_S` later.

    Nothing is lost by it: a worker may be killed at any time. For a thread of its own.
    """
    while not any(service.should_stop for service in services):
        time.sleep(0.2)
    time.sleep(EXIT_S)
    log.critical("STOPPED: the worker did not leave within %.0f s and was ended. What to do: start it again", EXIT_S)
    os._exit(1)


def _serve_metrics(port: int) -> None:
    try:
        start_http_server(port, addr="127.0.0.1")  # counts are private: never to the network
    except OSError as error:
        # Another worker of this machine has it. Metrics are no reason not to work.
        log.warning("no metrics of this worker: port %d cannot be used (%s)", port, error.strerror)


async def prepare(config: Config, *, insecure_seed: int | None, roles: Iterable[str]) -> Any:
    """Check topics and fingerprints, and build the application. Raises: BrokerError, FingerprintError, ConfigError."""
    roles = tuple(roles)
    place = take_place(data_folder(config))  # for as long as this process lives
    instance_id = None if place is None else place.instance_id
    if insecure_seed is not None:
        log.warning(NOT_PRIVATE)
    if problems := await check_topics(config):
        raise BrokerError("\n".join(str(problem) for problem in problems))
    checked = await check_fingerprints(config, user_key_ids=user_key_ids(config), insecure=insecure_seed is not None)
    job = Job(
        config=checked.config,
        source_partitions=checked.source_partitions,
        audit_partitions=checked.audit_partitions,
        insecure_seed=insecure_seed,
        instance_id=instance_id,
    )
    services = []
    if "ingest" in roles:
        counters = IngestCounters()
        if config.job.metrics_port is not None:
            expose_ingest(counters)
        services.append(
            ingest_service(
                checked.config,
                source_partitions=checked.source_partitions,
                audit_partitions=checked.audit_partitions if "audit" in roles else None,
                counters=counters,
                instance_id=instance_id,
            )
        )
    return build_app(job, roles=roles, services=services)
