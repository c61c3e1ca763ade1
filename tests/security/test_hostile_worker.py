"""Hostile records of every format on the wire of a real worker, and a registry that answers as it likes.

It goes on, counts what the machine alone counts, and shows none of it. `tests/protocol/test_hostile.py` tries more,
at every kind of domain. Here is what lies around the machine: Kafka's fetches, the log at DEBUG, metrics, the commands,
and every topic that anybody may read.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import orjson
import pytest
from aiokafka.admin import NewTopic

from agents.kafka.topics import create_topics
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from engines.core.registry import build_domain
from schemas.config import Config
from schemas.config.load import load_config
from schemas.events import TICK_HEADER, encode_tick
from schemas.topics import Topics
from tests.commands import invoked
from tests.crash.field import ROOT
from tests.crash.test_crash import ended
from tests.formats.forms import AVRO_SCHEMA, PROTO_SCHEMA, WRITERS
from tests.kafka.support import create, fresh_name, producing, records_of, until
from tests.protocol.hostile import CANARY, START_MS, TICKS, good_event, hostile_records, written
from tests.protocol.ingest_runs import KEY

pytestmark = [pytest.mark.slow, pytest.mark.seconds(25)]

LARGEST = 900_000  # below what a topic takes by default
LAST_STEP = 2
START_US = 1_577_836_800_000_000
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
[kafka.registry]
url = "{registry}"
username = "me"
password_file = "{folder}/password"
"""
STREAM = """
[[streams]]
name = "{job}-{name}"
engine = "{engine}"
source = "raw.{job}.{name}"
{formatted}
[streams.privacy]
epsilon = 1.0
unit = "user"
user = "{user}"
max_contributions = 3
user_key_file = "{folder}/user-key"
[streams.time]
field = "{time}"
format = "{format}"
start = "2020-01-01T00:00:00"
step = "1h"
clock = "replay"
"""
FORMATTED = """
format = "{form.format}"
envelope = "{form.envelope}"
partitioner = "none"
{csv}
"""
CSV = 'csv = { columns = ["user", "at", "x", "y", "note"], delimiter = ";", decimal = "," }'
BOX = '[streams.domain]\nkind = "box"\nx = "x"\ny = "y"\nbounds = [0.0, 0.0, 1.0, 1.0]\n'
DOMAINS = {
    "spatial": ("s", f'{BOX}op = "op"\n'),
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


REGISTRY = {
    "ids/7": (200, {"schema": json.dumps(AVRO_SCHEMA)}),
    "ids/8": (200, {"schema": PROTO_SCHEMA, "schemaType": "PROTOBUF"}),
    "ids/9": (200, {"schema": json.dumps({"type": CANARY})}),
    "ids/10": (200, {"schema": f"message {CANARY} {{", "schemaType": "PROTOBUF"}),
    "ids/11": (500, CANARY),
    "ids/12": (200, [CANARY]),
    "types": (200, ["AVRO", "PROTOBUF"]),
}


@pytest.fixture
def registry() -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = next((REGISTRY[end] for end in REGISTRY if self.path.endswith(f"/{end}")), None)
            status, said = known or (404, {"error_code": 40403, "message": CANARY})
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def configured(bootstrap: str, folder: Path, registry: str) -> Path:
    """A stream of JSON for each kind of domain, and one of each format."""
    job = fresh_name("hostile")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("user-key", "password"):
        (folder / name).write_text(CANARY * 6)
        (folder / name).chmod(0o600)
    text = JOB.format(job=job, folder=folder, port=port, bootstrap=bootstrap, registry=registry)
    for engine, (unit, domain) in DOMAINS.items():
        fields = {"name": engine, "engine": engine, "user": "u", "time": "t", "format": unit, "formatted": ""}
        text += STREAM.format(job=job, folder=folder, **fields) + domain
    for name, (_, form) in WRITERS.items():
        formatted = FORMATTED.format(form=form, csv=CSV if name == "csv" else "")
        fields = {"name": name, "engine": "spatial", "user": "user", "time": "at", "format": "us"}
        text += STREAM.format(job=job, folder=folder, formatted=formatted, **fields) + BOX
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


def feed_in(name: str) -> list[bytes | None]:
    """Good records, cut off and garbled ones, fields that hold something else, and what is of no format."""
    write, chance = WRITERS[name][0], random.Random(1)
    event = {"user": f"{CANARY}-user", "at": START_US + 5_000_000, "x": GOOD_PLACE, "y": GOOD_PLACE, "note": CANARY}
    changes: tuple[dict[str, Any], ...] = (
        {}, {"x": 9 + GOOD_PLACE}, {"y": -GOOD_PLACE}, {"user": ""}, {"user": CANARY * 99}, {"at": 1}, {"at": 2**62},
        {"x": CANARY}, {"x": None}, {"user": [CANARY]}, {"user": {CANARY: 1}}, {"at": CANARY}, {"x": 10**400},
    )  # fmt: skip
    found: list[bytes | None] = []
    for change in changes:
        try:
            found.append(write({**event, **change}))
        except Exception:  # what this format cannot write
            continue
    good = found[0]
    assert good is not None
    found += [good[:at] for at in range(0, len(good), max(1, len(good) // 8))]
    for _ in range(20):
        garbled = bytearray(good)
        garbled[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
        found.append(bytes(garbled))
    framed = [b"\0" + number.to_bytes(4, "big") + CANARY.encode() for number in (9, 10, 1000)]
    return [*found, *framed, CANARY.encode(), f'{{"{CANARY}":'.encode(), f'"{CANARY}"'.encode(), None, good]


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
        for stream in config.streams[: len(feeds)]:
            for record in feeds[stream.name]:
                await producer.send(
                    stream.source, record.value, key=record.key, partition=0, timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )  # fmt: skip
        for stream, name in zip(config.streams[len(feeds) :], WRITERS, strict=True):
            for value in feed_in(name):
                headers = [("ce_type", CANARY.encode()), (CANARY, CANARY.encode())]
                await producer.send(stream.source, value, key=CANARY.encode(), partition=0, headers=headers)
            for step in range(LAST_STEP + 1):
                tick = (TICK_HEADER, encode_tick(step, row=0, source="test"))
                await producer.send(stream.source, b"", key=b"", partition=0, headers=[tick])
        await producer.flush()


async def wait_for_schemas(config: Config) -> None:
    """Send two records whose schemas the registry does not tell, behind all steps."""
    async with producing(config.kafka.bootstrap) as producer:
        for number, stream in enumerate(config.streams[len(DOMAINS) : len(DOMAINS) + 2], start=11):
            value = b"\0" + number.to_bytes(4, "big") + CANARY.encode()
            await producer.send_and_wait(stream.source, value, key=CANARY.encode(), partition=0)


def asked(port: int, path: str) -> str:
    """What the worker answers, whatever its status."""
    try:
        return scraped(port, path)
    except HTTPError as error:
        return str(error.read().decode())


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


async def test_a_worker_goes_on_and_shows_nothing(bootstrap: str, tmp_path: Path, registry: str) -> None:
    path = configured(bootstrap, tmp_path, registry)
    config = load_config(path, {})
    port, log = config.job.http_port, tmp_path / "worker.log"
    assert port is not None
    specs = {
        s.name: SourceSpec.from_stream(s, build_domain(s), key=KEY, partitions=1)
        for s in config.streams[: len(DOMAINS)]
    }
    feeds = {name: feed(spec) for name, spec in specs.items()}
    wanted = {name: counted(specs[name], records) for name, records in feeds.items()}
    # Times of records are hostile too: retention would delete the old ones before a slow worker reads them.
    kept = {"retention.ms": "-1"}
    await create(bootstrap, *(NewTopic(stream.source, 1, 1, topic_configs=kept) for stream in config.streams))
    await create_topics(config, source_partitions=1)
    await send(config, feeds)
    async with running(path, log, "--log-format", "json") as worker:
        await until(lambda: all_public(config, worker))
        await until(lambda: ingested(config, wanted))
        said = {path: scraped(port, path) for path in ("metrics", "livez", "readyz")}
        assert all(orjson.loads(said[path])["ok"] for path in ("livez", "readyz"))
        shown = set(re.findall(r"^# TYPE (privstream_\w+) ", said["metrics"], re.MULTILINE))
        once_asked = {"privstream_clock_ahead_seconds"}
        assert {name for name in shown if not name.endswith("_created")} | once_asked == DOCUMENTED
        await wait_for_schemas(config)
        await until(lambda: "waits for schema 11, schema 12" in asked(port, "readyz"))
        await until(lambda: "ingest waits for" in log.read_text())
        said |= {f"{path} while schemas are awaited": asked(port, path) for path in ("metrics", "livez", "readyz")}
        said |= await said_by(
            path, ["status"], ["status", "--json"], ["doctor"], ["explain"], ["topics", "--check"], ["validate"],
            ["dead-letters"], ["dead-letters", "--json"],
        )  # fmt: skip
    said["log"] = log.read_text(errors="replace")
    for name in [*itertools.chain(*map(public, config.streams)), Topics(config.job.name, 2).dead_letters]:
        records = await records_of(bootstrap, name, committed=False)
        said[name] = str([(record.key, record.value, record.headers) for record in records])
    assert min(map(len, said.values())) >= len("[]")
    there = ("metrics", "log", "explain", "status", "doctor", "dead-letters")
    assert all(len(said[name]) > 1_000 for name in there), "there was something to look at"
    assert all(orjson.loads(line)["message"] for line in said["log"].splitlines()), "nobody writes past the log"
    assert all(entry in said[Topics.ledger(stream.name)] for stream in config.streams for entry in ("b'0'", "b'2'"))
    assert {place: secret for place, text in said.items() for secret in SECRETS if secret in text} == {}


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
        result = await asyncio.to_thread(invoked, name, path, *options)
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
