"""`BROKER=container`: the broker of a run in a container, where a Docker engine runs.

It is the official image of Apache Kafka, of the line that `BROKER_VERSION` names, or the one that `BROKER_IMAGE` names:
another `apache/kafka`, or a `redpandadata/redpanda`. Tests that need a broker of their own have the embedded one.
"""

from __future__ import annotations

import os
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from agents.local.broker.embedded import Broker, answers, broker_from_env, free_ports, listening, node_properties
from agents.local.broker.jars import kafka_version, pinned_line
from schemas.errors import BrokerError

if TYPE_CHECKING:
    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer

VARIABLE, IMAGE_VARIABLE = "BROKER", "BROKER_IMAGE"
START_S = 90.0
"""For a start, the pull of the image not counted."""
NEVER_COMPACTED = {"log.cleaner.min.cleanable.ratio": "1"}
"""By default Kafka compacts every 15 s, which on a slow machine is before a test has read what was withdrawn.

A lag of compaction would not help: it counts from the times of the records, which here are years ago.
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a container is made of.

    Attributes: command: the image's own where there is none. environment: variables.
    """

    image: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def recipe(image: str, port: int) -> Recipe:
    """Return the recipe of a broker of one node. It listens on the port at which this machine reaches it.

    Raises: pytest.UsageError for an image of which nothing is known.
    """
    name = re.split("[:@]", image)[0]
    if name == "apache/kafka":
        properties = node_properties(
            {"PLAINTEXT": port}, {}, listen="0.0.0.0", controller_port=9093, data="/tmp/kraft-combined-logs"
        )
        properties |= NEVER_COMPACTED
        return Recipe(
            image,
            environment={
                "CLUSTER_ID": urlsafe_b64encode(b"privstream tests").decode().rstrip("="),
                "KAFKA_HEAP_OPTS": "-Xmx512m",
                **{f"KAFKA_{key.replace('.', '_').upper()}": value for key, value in properties.items()},
            },
        )
    if name == "redpandadata/redpanda":
        # Not in its mode `dev-container`, which makes topics that nobody asked for.
        limits = "--overprovisioned --smp 1 --memory 1G --reserve-memory 0M --check=false --node-id 0"
        doors = f"--kafka-addr PLAINTEXT://0.0.0.0:{port} --advertise-kafka-addr PLAINTEXT://127.0.0.1:{port}"
        return Recipe(image, tuple(f"redpanda start {limits} {doors}".split()))
    raise pytest.UsageError(
        f"{IMAGE_VARIABLE} names {name}. Fix: set it to an image of apache/kafka or redpandadata/redpanda, or unset it "
        "for the Apache Kafka that BROKER_VERSION names."
    )


def check_usable() -> None:
    """Check before any test that the broker of this run can be had. Raises: pytest.UsageError."""
    if not (kind := os.environ.get(VARIABLE, "").strip()):
        return
    if kind != "container":
        raise pytest.UsageError(f'{VARIABLE} is neither "container" nor unset. Fix: unset it for the embedded broker.')
    recipe(_image(), 0)
    from docker.errors import DockerException
    from testcontainers.core.docker_client import DockerClient

    try:
        with closing(DockerClient().client) as client:
            client.ping()
    except DockerException:
        raise pytest.UsageError(
            f"{VARIABLE}=container, and no Docker engine answers. Fix: start one (dockerd, Docker Desktop, or `podman "
            f"system service`) and name its socket in DOCKER_HOST where that is elsewhere; or unset {VARIABLE} for the "
            "embedded broker, which needs none."
        ) from None


def suite_broker() -> Broker:
    """Return the broker of this run. Not started yet."""
    if os.environ.get(VARIABLE, "").strip():
        return ContainerBroker(_image())
    return broker_from_env(properties=NEVER_COMPACTED)


def _image() -> str:
    return os.environ.get(IMAGE_VARIABLE, "").strip() or f"apache/kafka:{kafka_version(pinned_line())}"


class ContainerBroker(Broker):
    """One broker in a container, with the life of `EmbeddedBroker`. The library's own container removes it where this
    process is killed.
    """

    def __init__(self, image: str) -> None:
        self._image = image
        self._container: DockerContainer | None = None
        self._port = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the broker, and return when it answers. After `kill`: the same data, at the same address."""
        if self._container is None:
            from testcontainers.core.container import DockerContainer

            with free_ports(1) as [self._port]:
                made = recipe(self._image, self._port)
            self._container = DockerContainer(made.image, env=dict(made.environment))
            if made.command:
                self._container.with_command(list(made.command))
            self._container.with_bind_ports(self._port, self._port).start()
        else:
            self._container.get_wrapped_container().start()
        deadline = time.monotonic() + START_S
        while not (listening(self._port) and answers(self.bootstrap)):
            if time.monotonic() > deadline:
                log = b"\n".join(self._container.get_logs())[-4_000:].decode(errors="replace")
                self.stop()
                raise BrokerError(f"{self._image} did not answer within {START_S:.0f} s. The end of its log:\n{log}")
            time.sleep(0.2)

    def stop(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            container.stop()

    def kill(self) -> None:
        self._started().kill()

    def pause(self) -> None:
        self._started().pause()

    def resume(self) -> None:
        self._started().unpause()

    def _started(self) -> Container:
        assert self._container is not None, "it is started first"
        return self._container.get_wrapped_container()
