"""Hostile records on the wire of a real worker: it goes on, counts what the machine alone counts, and shows none of it.

`tests/protocol/test_hostile.py` tries many more, at every kind of domain. Here is what lies around the machine: Kafka's
fetches, the log at DEBUG, metrics, the commands, and every topic that anybody may read.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka.admin import NewTopic
from typer.testing import CliRunner

from agents.cli.app import build_app
from agents.kafka.topics import create_topics
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from engines.core.registry import build_domain
from schemas.config import Config
from schemas.config.load import load_config
from schemas.events import TICK_HEADER, encode_tick
from schemas.topics import Topics
from tests.crash.field import ROOT
from tests.crash.test_crash import ended
from tests.kafka.support import create, fresh_name, producing, records_of, until
from tests.protocol.hostile import CANARY, START_MS, TICKS, good_event, hostile_records, written
from tests.protocol.ingest_runs import KEY

pytestmark = [pytest.mark.slow]

LARGEST = 900_000  # below what a topic takes by default
LAST_STEP = 2
GOOD_USER, GOOD_PLACE = "b2d9-good-user", 0.5123456789123
DOCUMENTED = set(re.findall(r"`(privstream_\w+)`", (ROOT / "docs" / "operations.md").read_text()))
"""Metrics."""
SECRETS = (CANARY, GOOD_USER, "123456789123")

JOB = """
[job]
name = "{job}"
data_dir = "{folder}/data"
http_port = {port}
[kafka]
bootstrap = "{bootstrap}"
partitions = 2
session_timeout_s = 6
"""
STREAM = """
[[streams]]
name = "{job}-{engine}"
engine = "{engine}"
source = "raw.{job}.{engine}"
[streams.privacy]
epsilon = 1.0
unit = "user"
user = "u"
max_contributions = 3
user_key_file = "{folder}/user-key"
[streams.time]
field = "t"
format = "{format}"
start = "2020-01-01T00:00:00"
step = "1h"
clock = "replay"
"""
DOMAINS = {
    "spatial": ("s", '[streams.domain]\nkind = "box"\nx = "x"\ny = "y"\nbounds = [0.0, 0.0, 1.0, 1.0]\nop = "op"\n'),
    "tabular": (
        "iso",
        '[streams.domain]\nkind = "table"\n'
        '[[streams.domain.attributes]]\nfield = "smokes"\nvalues = [false, true]\n'
        '[[streams.domain.attributes]]\nfield = "age"\nedges = [0, 18, 65, 120]\ninteger = true\n',
    ),
    "trajectory": (
        "ms",
        '[streams.domain]\nkind = "trips"\ntrip = "n"\nx = "x"\ny = "y"\nbounds = [0.0, 0.0, 1.0, 1.0]\nend = "e"\n',
    ),
}


def configured(bootstrap: str, folder: Path) -> Path:
    job = fresh_name("hostile")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "user-key").write_bytes(b"a secret of thirty-two bytes or more")
    (folder / "user-key").chmod(0o600)
    text = JOB.format(job=job, folder=folder, port=port, bootstrap=bootstrap)
    for engine, (form, domain) in DOMAINS.items():
        text += STREAM.format(job=job, engine=engine, folder=folder, format=form) + domain
    path = folder / "job.toml"
    path.write_text(text)
    return path


def feed(spec: SourceSpec) -> list[RawRecord]:
    """Every hostile record between good ones, what claims to be a tick, and the ticks of a replay."""
    event = good_event(spec, user=GOOD_USER, after_s=3_700)
    event |= {"x": GOOD_PLACE} if "x" in event else {}
    values = [value for value in hostile_records(spec).values() if value is None or len(value) < LARGEST]
    strange = ((CANARY, CANARY.encode()), ("", None))
    found: list[tuple[bytes | None, Any]] = []
    for at, value in enumerate(values):
        if at % 50 == 0:
            found.append((written(event), ()))
        found.append((value, strange if at % 7 == 0 else ()))
    found += [(CANARY.encode(), ((TICK_HEADER, tick),)) for tick in TICKS]
    found += [(b"", ((TICK_HEADER, encode_tick(step, row=0, source="test")),)) for step in range(LAST_STEP + 1)]
    return [
        RawRecord(at, (START_MS, 0, 1)[at % 3], CANARY.encode(), value, headers)
        for at, (value, headers) in enumerate(found)
    ]


def counted(spec: SourceSpec, records: Iterable[RawRecord]) -> Counter[tuple[str, str]]:
    """(reason, field) -> records, by the machine alone."""
    machine = PartitionIngest(spec, 0)
    machine.take(list(records))
    block, _ = machine.seal()
    assert block is not None
    found = Counter({(reason, field): n for reason, fields in block.refused.items() for field, n in fields.items()})
    return found + Counter({(reason, ""): n for reason, n in block.counts.items() if reason not in block.refused})


async def send(config: Config, feeds: dict[str, list[RawRecord]]) -> None:
    async with producing(config.kafka.bootstrap, linger_ms=20, max_request_size=1 << 20) as producer:
        for stream in config.streams:
            for record in feeds[stream.name]:
                await producer.send(
                    stream.source, record.value, key=record.key, partition=0, timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )  # fmt: skip
        await producer.flush()


def scraped(port: int, path: str = "metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
        return str(answer.read().decode())


def of_metrics(text: str, stream: str) -> Counter[tuple[str, str]]:
    line = re.compile(r"^privstream_ingest_records_total\{(.*)\} ([0-9.]+)$", re.MULTILINE)
    found: Counter[tuple[str, str]] = Counter()
    for labels, value in line.findall(text):
        said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if said["stream"] == stream:
            found[said["reason"], said["field"]] += int(float(value))
    return found


def test_a_worker_goes_on_and_shows_nothing(bootstrap: str, tmp_path: Path) -> None:
    path = configured(bootstrap, tmp_path)
    config = load_config(path, {})
    specs = {s.name: SourceSpec.of(s, build_domain(s), key=KEY, partitions=1) for s in config.streams}
    feeds = {name: feed(spec) for name, spec in specs.items()}
    wanted = {name: counted(specs[name], records) for name, records in feeds.items()}
    log = tmp_path / "worker.log"

    async def play() -> None:
        # Times of records are hostile too: retention would delete the old ones before a slow worker reads them.
        kept = {"retention.ms": "-1"}
        await create(bootstrap, *(NewTopic(stream.source, 1, 1, topic_configs=kept) for stream in config.streams))
        await create_topics(config, source_partitions=1)
        await send(config, feeds)
        async with running(path, log) as worker:
            await until(lambda: all_public(config, worker))
            assert config.job.http_port is not None
            await until(lambda: ingested(config, wanted))
            said = {"metrics": scraped(config.job.http_port)}
            said |= {path: scraped(config.job.http_port, path) for path in ("livez", "readyz")}
            assert all(orjson.loads(said[path])["ok"] for path in ("livez", "readyz"))
            shown = set(re.findall(r"^# TYPE (privstream_\w+) ", said["metrics"], re.MULTILINE))
            once_asked = {"privstream_clock_ahead_seconds"}
            assert {name for name in shown if not name.endswith("_created")} | once_asked == DOCUMENTED
            said |= await said_by(
                path, ["status"], ["status", "--json"], ["doctor"], ["explain"], ["topics", "--check"], ["validate"]
            )
        said["log"] = log.read_text(errors="replace")
        for name in [*itertools.chain(*map(public, config.streams)), Topics(config.job.name, 2).dead_letters]:
            records = await records_of(bootstrap, name, committed=False)
            said[name] = str([(record.key, record.value, record.headers) for record in records])
        assert min(map(len, said.values())) >= len("[]")
        assert all(len(said[name]) > 1_000 for name in ("metrics", "log", "explain")), "there was something to look at"
        assert all(entry in said[Topics.ledger(stream.name)] for stream in config.streams for entry in ("b'0'", "b'2'"))
        assert {place: secret for place, text in said.items() for secret in SECRETS if secret in text} == {}

    asyncio.run(play())


@contextlib.asynccontextmanager
async def running(path: Path, log: Path, *options: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A worker that writes all it can to its log, and leaves in good order at the end."""
    worker = started(path, log, *options)
    try:
        yield worker
        worker.terminate()
        await ended(worker.poll)
        assert worker.returncode == 0
    except BaseException:
        print(written_to(log)[-5_000:])
        raise
    finally:
        worker.kill()
        worker.wait()


def started(path: Path, log: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "agents.cli", "run", str(path), "--log-level", "DEBUG", *options]
    with log.open("wb") as output:
        return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)


def written_to(log: Path) -> str:
    return log.read_text(errors="replace")


async def said_by(path: Path, *commands: Sequence[str]) -> dict[str, str]:
    """What commands print of a configuration, and what they end with."""
    said = {}
    for name, *options in commands:
        result = await asyncio.to_thread(CliRunner().invoke, build_app(), [name, str(path), *options])
        said[" ".join([name, *options])] = result.output + repr(result.exception)
    return said


async def all_public(config: Config, worker: subprocess.Popen[bytes]) -> bool:
    assert worker.poll() is None, "the worker has ended"
    ledgers = [await records_of(config.kafka.bootstrap, Topics.ledger(stream.name)) for stream in config.streams]
    return all({int(entry.key) for entry in ledger} >= set(range(LAST_STEP + 1)) for ledger in ledgers)


async def ingested(config: Config, wanted: dict[str, Counter[tuple[str, str]]]) -> bool:
    """Whether the worker has counted what the machine counts; it never stays at anything else."""
    assert config.job.http_port is not None
    text = await asyncio.to_thread(scraped, config.job.http_port)
    return all(of_metrics(text, name) == counts for name, counts in wanted.items())


def public(stream: Any) -> tuple[str, ...]:
    return Topics.synthetic(stream.name), Topics.measurements(stream.name), Topics.ledger(stream.name)
