"""What `dev` and the documentation print for producers is run: the client of each line, on this machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from agents.local.broker.jars import jars, java_binary
from agents.local.producers import LINES
from tests.missing import missing

TOOLS = Path(__file__).parents[2] / "requirements" / "tools.lock"
CONSOLE = "kafka-console-producer.sh"
Event = tuple[str, str]
"""The user, and the event as text."""


async def produce(line: str, topic: str, events: Sequence[Event], folder: Path) -> None:
    """Write keyed events as a line says: a shell command, or how a program makes its client."""
    if line.startswith("Producer("):
        client: Any = eval(line, {"Producer": Producer})
        for user, event in events:
            client.produce(topic, event, key=user)
        assert client.flush(60) == 0
    elif line.startswith("AIOKafkaProducer("):
        client = eval(line, {"AIOKafkaProducer": AIOKafkaProducer, "zlib": zlib})
        async with client:
            for user, event in events:
                await client.send(topic, event.encode(), key=user.encode())
    else:
        if line.startswith("kcat ") and not shutil.which("kcat"):
            missing("no kcat on PATH. On Debian or Ubuntu: apt install kcat")
        if line.startswith(CONSOLE):
            _console_producer(folder / CONSOLE)
        keyed = "-K" in line or "parse.key" in line
        (folder / LINES).write_text("".join(f"{user}\t{event}\n" if keyed else f"{event}\n" for user, event in events))
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        running = await asyncio.create_subprocess_exec("bash", "-c", line, cwd=folder, env=environment)
        assert await running.wait() == 0


def _console_producer(path: Path) -> None:
    """Write Kafka's own script, as far as it is used: Java, a class path and a class."""
    java = [str(java_binary()), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars(pinned=TOOLS)]
    path.write_text(f'#!/bin/sh\nexec {shlex.join([*java, "org.apache.kafka.tools.ConsoleProducer"])} "$@"\n')
    path.chmod(0o755)
