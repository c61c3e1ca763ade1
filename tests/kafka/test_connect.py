"""Kafka Connect with the settings of docs/consumers.md: a real worker of it writes a ledger to a file."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from pathlib import Path

import pytest

from agents.local.broker.embedded import free_ports
from agents.local.broker.jars import jars, java_binary
from schemas.topics import Topics
from tests.kafka.public_run import places, published_stream
from tests.kafka.support import WAIT_AT_MOST_S, records_of

ROOT = Path(__file__).parents[2]
MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"


def printed(bootstrap: str, stream: str) -> list[str]:
    """The two files of properties as the page prints them, for this broker and this stream."""
    text = (ROOT / "docs" / "consumers.md").read_text(encoding="utf-8")
    files = re.findall(r"```properties\n(.*?)```", text, re.DOTALL)
    assert len(files) == 2
    assert "localhost:9092" in files[0]
    assert "topics=rides.ledger" in files[1]
    return [each.replace("localhost:9092", bootstrap).replace("rides", stream) for each in files]


@pytest.mark.kafka
@pytest.mark.seconds(20)
def test_a_file_sink_writes_every_entry_of_a_ledger(bootstrap: str, tmp_path: Path) -> None:
    config, _ = asyncio.run(published_stream(bootstrap, tmp_path, places(3, 50)))
    name = config.streams[0].name
    entries = [record.value.decode() for record in asyncio.run(records_of(bootstrap, Topics.ledger(name)))]
    worker, sink = printed(bootstrap, name)
    with free_ports(1) as [port]:
        pass
    (tmp_path / "worker.properties").write_text(f"{worker}listeners=http://127.0.0.1:{port}\n")  # of its own interface
    (tmp_path / "sink.properties").write_text(sink)
    command = [str(java_binary()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
    command += [jars(pinned=ROOT / "requirements" / "connect.lock"), MAIN, "worker.properties", "sink.properties"]
    log = tmp_path / "connect.log"
    with log.open("wb") as said:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said)
    written = tmp_path / "ledger.jsonl"
    try:
        end = time.monotonic() + WAIT_AT_MOST_S
        while not (written.exists() and len(written.read_text().splitlines()) >= len(entries)):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()
    assert written.read_text().splitlines() == entries
