"""Hostile records of every format, and a registry that answers as it likes: a worker shows nothing of either.

`test_hostile_worker.py` is the same for JSON and more of its kinds.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewTopic

from agents.kafka.topics import create_topics
from schemas.config import Config
from schemas.config.load import load_config
from schemas.events import TICK_HEADER, encode_tick
from schemas.topics import Topics
from tests.formats.forms import AVRO_SCHEMA, PROTO_SCHEMA, WRITERS
from tests.kafka.support import create, fresh_name, producing, until
from tests.security.test_hostile_worker import public, running, said_by, scraped

pytestmark = [pytest.mark.slow, pytest.mark.seconds(20)]

CANARY, PLACE = "c4n4ry", 0.5123456789123
SECRETS = (CANARY, "5123456789")
START_US = 1_577_836_800_000_000
LAST_STEP = 2
REGISTRY = {
    "ids/7": (200, {"schema": json.dumps(AVRO_SCHEMA)}),
    "ids/8": (200, {"schema": PROTO_SCHEMA, "schemaType": "PROTOBUF"}),
    "ids/9": (200, {"schema": json.dumps({"type": CANARY})}),
    "ids/10": (200, {"schema": f"message {CANARY} {{", "schemaType": "PROTOBUF"}),
    "ids/11": (500, CANARY),
    "ids/12": (200, [CANARY]),
    "types": (200, ["AVRO", "PROTOBUF"]),
}
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
engine = "spatial"
source = "raw.{job}.{name}"
format = "{form.format}"
envelope = "{form.envelope}"
partitioner = "none"
{csv}
[streams.privacy]
epsilon = 1.0
unit = "user"
user = "user"
max_contributions = 4
user_key_file = "{folder}/user-key"
[streams.time]
field = "at"
format = "us"
start = "2020-01-01T00:00:00"
step = "1h"
clock = "replay"
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0.0, 0.0, 1.0, 1.0]
"""
CSV = 'csv = { columns = ["user", "at", "x", "y", "note"], delimiter = ";", decimal = "," }'


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, secret in (("user-key", CANARY * 6), ("password", CANARY)):
        (folder / name).write_text(secret)
        (folder / name).chmod(0o600)
    filled = {"job": fresh_name("forms"), "folder": folder, "bootstrap": bootstrap, "port": port, "registry": registry}
    text = JOB.format(**filled)
    for name, (_, form) in WRITERS.items():
        text += STREAM.format(**filled, name=name, form=form, csv=CSV if name == "csv" else "")
    path = folder / "job.toml"
    path.write_text(text)
    return path


def feed(name: str) -> list[bytes | None]:
    """Good records, cut off and garbled ones, fields that hold something else, and what is of no format."""
    write, chance = WRITERS[name][0], random.Random(1)
    event = {"user": f"{CANARY}-user", "at": START_US + 5_000_000, "x": PLACE, "y": PLACE, "note": CANARY}
    changes = (
        {}, {"x": 9 + PLACE}, {"y": -PLACE}, {"user": ""}, {"user": CANARY * 99}, {"at": 1}, {"at": 2**62},
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


async def send(config: Config) -> None:
    async with producing(config.kafka.bootstrap, linger_ms=20) as producer:
        for stream, name in zip(config.streams, WRITERS, strict=True):
            for value in feed(name):
                headers = [("ce_type", CANARY.encode()), (CANARY, CANARY.encode())]
                await producer.send(stream.source, value, key=CANARY.encode(), partition=0, headers=headers)
            for step in range(LAST_STEP + 1):
                tick = (TICK_HEADER, encode_tick(step, row=0, source="test"))
                await producer.send(stream.source, b"", key=b"", partition=0, headers=[tick])
        await producer.flush()


async def wait_for_schemas(config: Config) -> None:
    """Two that the registry does not tell, behind all steps."""
    async with producing(config.kafka.bootstrap) as producer:
        for number, stream in enumerate(config.streams[:2], start=11):
            value = b"\0" + number.to_bytes(4, "big") + CANARY.encode()
            await producer.send_and_wait(stream.source, value, key=CANARY.encode(), partition=0)


def asked(port: int, path: str) -> str:
    try:
        return scraped(port, path)
    except HTTPError as error:
        return error.read().decode()


def test_a_worker_shows_nothing_of_records_secrets_and_a_registry(
    bootstrap: str, tmp_path: Path, registry: str
) -> None:
    path = configured(bootstrap, tmp_path, registry)
    config = load_config(path, {})
    log = tmp_path / "worker.log"
    port = config.job.http_port
    assert port is not None

    async def play() -> None:
        kept = {"retention.ms": "-1"}
        await create(bootstrap, *(NewTopic(stream.source, 1, 1, topic_configs=kept) for stream in config.streams))
        await create_topics(config, source_partitions=1)
        await send(config)
        async with running(path, log, "--log-format", "json"):
            await until(lambda: published(config))
            await wait_for_schemas(config)
            await until(lambda: "waits for schema 11, schema 12" in asked(port, "readyz"))
            await until(lambda: "ingest waits for" in log.read_text())
            said = {path: asked(port, path) for path in ("metrics", "livez", "readyz")}
            said |= await said_by(
                path, ["status"], ["status", "--json"], ["doctor"], ["dead-letters"], ["dead-letters", "--json"]
            )
        said["log"] = log.read_text()
        said |= await read(bootstrap, [letters(config), *(topic for s in config.streams for topic in public(s))])
        assert all(len(said[Topics.ledger(stream.name)]) > 1_000 for stream in config.streams)
        assert all(len(said[name]) > 1_000 for name in ("metrics", "log", "status", "doctor", "dead-letters"))
        assert all(json.loads(line)["message"] for line in said["log"].splitlines()), "nobody writes past the log"
        assert {place: secret for place, text in said.items() for secret in SECRETS if secret in text} == {}

    asyncio.run(play())


async def read(bootstrap: str, topics: list[str]) -> dict[str, str]:
    """What is on the first partition of each, also what was not committed."""
    places = [TopicPartition(topic, 0) for topic in topics]
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign(places)
    await consumer.start()
    try:
        found: dict[str, list[object]] = {topic: [] for topic in topics}
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for place, records in (await consumer.getmany(timeout_ms=200)).items():
                found[place.topic] += [(record.key, record.value, record.headers) for record in records]
        return {topic: str(records) for topic, records in found.items()}
    finally:
        await consumer.stop()


async def published(config: Config) -> bool:
    """Whether every stream's last step is public."""
    said = await read(config.kafka.bootstrap, [Topics.ledger(stream.name) for stream in config.streams])
    return all(f"(b'{LAST_STEP}', " in entries for entries in said.values())


def letters(config: Config) -> str:
    return Topics(config.job.name, config.kafka.partitions).dead_letters
