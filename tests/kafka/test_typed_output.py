"""Typed output, with a real registry and the consumers of docs/consumers.md, run as printed.

The registry goes away behind the first start; the next worker writes on, with the same ids.
"""

from __future__ import annotations

import asyncio
import csv
import datetime
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from agents.kafka.topics import create_topics
from agents.protocol.release.record_formats import record_format
from agents.readers.consume.export import export
from schemas.config import Config, Stream
from schemas.config.load import config_from_mapping
from schemas.errors import ConfigError
from schemas.events import TICK_HEADER, encode_tick
from schemas.topics import Topics
from tests.formats.registry_process import PATH, Door, SchemaRegistry
from tests.kafka.ingest_support import START_S, STEP_S
from tests.kafka.public_run import places
from tests.kafka.support import fresh_name, producing, records_of, stream_table, until, worker
from tests.kafka.test_recipes import (
    APICURIO_CONVERTER,
    APICURIO_CONVERTER_SHA256,
    DEBEZIUM_JDBC,
    DEBEZIUM_JDBC_SHA256,
    blocks,
    commands,
    postgres,
    python,
    run_connect,
    spark,
    written,
)
from tests.maven import kept

pytestmark = [pytest.mark.kafka, pytest.mark.seconds(40)]
LOGIN = ("privstream", "the registry's password")
STEPS = 4


def job(bootstrap: str, folder: Path, registry: dict[str, Any]) -> dict[str, Any]:
    name = fresh_name("typed")
    privacy = {"epsilon": 2.0, "unit": "event"}
    shared = {"source": f"raw.{name}", "privacy": privacy, "options": {"depth": 8, "initial_steps": 1}}
    return {
        "job": {"name": name, "data_dir": str(folder)},
        "kafka": {"bootstrap": bootstrap, "partitions": 1, "session_timeout_s": 6, "registry": registry},
        "streams": [
            stream_table(f"{name}-{output}", output={"format": output}, **shared) for output in ("avro", "json-schema")
        ],
    }


async def feed(config: Config, steps: Sequence[int]) -> None:
    source = config.streams[0].source
    async with producing(config.kafka.bootstrap) as producer:
        for step, events in enumerate(places(STEPS, 60)):
            if step in steps:
                for event in events:
                    await producer.send(source, json.dumps(event).encode(), partition=0)
                tick = (TICK_HEADER, encode_tick(step, row=0, source="t"))
                await producer.send_and_wait(source, b"", partition=0, headers=[tick])


async def run(config: Config, steps: int) -> None:
    async with worker(config):
        for stream in config.streams:
            ledger = Topics.ledger(stream.name)
            await until(partial(records_of, config.kafka.bootstrap, ledger), lambda found: len(found) >= steps)


def consumer(stream: Stream, bootstrap: str, url: str) -> str:
    """The program of the page, for this stream."""
    [program] = [text for words, text in blocks("python") if words == "file=rides_avro.py"]
    if stream.output.format == "json-schema":
        [(_, lines)] = [found for found in blocks("python") if found[0] == "json-schema"]
        instead = dict(
            zip((r"^from \S+\.avro import .*$", r"^deserialize = .*$"), filter(None, lines.splitlines()), strict=True)
        )
        for line, other in instead.items():
            program, changed = re.subn(line, other, program, flags=re.MULTILINE)
            assert changed == 1
    for printed, there in (
        ("localhost:9092", bootstrap),
        ("http://localhost:8081", url),
        ("rides.synthetic", Topics.synthetic(stream.name)),
        ('"group.id": "maps"', f'"group.id": "maps-{stream.name}"'),
    ):
        assert printed in program
        program = program.replace(printed, there)
    return program + "\nimport json\nprint(json.dumps(rides, default=lambda at: at.isoformat()))"


async def test_ordinary_deserializers_read_what_was_written_with_and_without_a_registry(
    bootstrap: str, tmp_path: Path
) -> None:
    with SchemaRegistry() as registry:
        door = Door(registry, login=LOGIN)
        (tmp_path / "password").write_text(LOGIN[1])
        access = {"url": door.url, "username": LOGIN[0], "password_file": str(tmp_path / "password")}
        config = config_from_mapping(job(bootstrap, tmp_path, access))
        await create_topics(config, source_partitions=1)
        with pytest.raises(ConfigError, match=r"output\.format.*cannot be reached"):
            await run(config, 0)
        await door.open()
        await feed(config, range(2))
        await run(config, 2)
        await door.shut()
        asked = len(door.asked)
        assert asked == 4  # each was looked up, and registered
        await feed(config, range(2, STEPS))
        await run(config, STEPS)
        assert len(door.asked) == asked
        await asyncio.gather(*(check(config, stream, registry, tmp_path) for stream in config.streams))


async def check(config: Config, stream: Stream, registry: SchemaRegistry, folder: Path) -> None:
    """A consumer of the page has the records that our own readers have; all of them say one id."""
    bootstrap = config.kafka.bootstrap
    topic = Topics.synthetic(stream.name)
    records = await records_of(bootstrap, topic)
    [head] = {record.value[:5] for record in records if record.value is not None}
    there = await asyncio.to_thread(registry.client().get_latest_version, f"{topic}-value")
    assert head == bytes([0]) + there.schema_id.to_bytes(4, "big")
    rows = alive(stream, records)
    printed = await asyncio.to_thread(python, consumer(stream, bootstrap, registry.url), cwd=folder)
    found = json.loads(printed)
    for row in found.values():
        row["at"] = int(datetime.datetime.fromisoformat(row["at"]).timestamp())
    assert found == rows
    done = await export(
        config, stream, what="synthetic", file_format="parquet", at=None, path=folder / stream.name, overwrite=False
    )
    assert done.verified == STEPS
    table = pq.read_table(done.path).select(["synthetic_id", "x", "y"]).to_pylist()
    assert {row.pop("synthetic_id"): row for row in table} == {
        key: {"x": row["x"], "y": row["y"]} for key, row in rows.items()
    }
    assert {row["at"] for row in rows.values()} <= set(range(START_S, START_S + STEPS * STEP_S, STEP_S))
    assert rows


def alive(stream: Stream, records: Sequence[Any]) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for record in records:
        rows.pop(record.key.decode(), None)
        if record.value is not None:
            rows[record.key.decode()] = record_format(stream).read(record.value)
    return rows


@asynccontextmanager
async def released(bootstrap: str, folder: Path) -> AsyncIterator[tuple[str, str, dict[str, dict[str, Any]]]]:
    """A registry's URL, a topic of some steps with its schema, and the rows that are alive there by their keys."""
    with SchemaRegistry() as registry:
        config = config_from_mapping(job(bootstrap, folder, {"url": registry.url}))
        await create_topics(config, source_partitions=1)
        await feed(config, range(STEPS))
        await run(config, STEPS)
        topic = Topics.synthetic(config.streams[0].name)
        yield registry.url, topic, alive(config.streams[0], await records_of(bootstrap, topic))


@pytest.mark.nightly
@pytest.mark.seconds(40)
async def test_a_jdbc_sink_takes_avro(bootstrap: str, tmp_path: Path) -> None:
    async with released(bootstrap, tmp_path) as (url, topic, rows):
        expected = {key: (row["at"] * 1_000_000, row["x"], row["y"]) for key, row in rows.items()}
        [converter] = [text for words, text in blocks("properties") if words == "avro"]
        await asyncio.to_thread(keep_a_table, tmp_path, bootstrap, topic, url, converter, expected)


@pytest.mark.nightly
@pytest.mark.seconds(60)
async def test_spark_reads_avro(bootstrap: str, tmp_path: Path) -> None:
    async with released(bootstrap, tmp_path) as (url, topic, rows):
        printed = {"localhost:9092": bootstrap, "http://localhost:8081": url, "rides.synthetic": topic}
        written(
            "python", tmp_path, lambda text: reduce(lambda found, each: found.replace(*each), printed.items(), text)
        )
        [command] = commands("spark-avro")
        await asyncio.to_thread(spark, command, tmp_path)
    table = pq.read_table(tmp_path / "rides").to_pylist()
    for row in table:
        row["at"] = int(row["at"].replace(tzinfo=datetime.UTC).timestamp())
    assert {row.pop("synthetic_id"): row for row in table} == rows


def keep_a_table(
    folder: Path, bootstrap: str, topic: str, url: str, converter: str, expected: dict[str, tuple[Any, ...]]
) -> None:
    command, _ = commands("connect")
    plugins = [kept(DEBEZIUM_JDBC, DEBEZIUM_JDBC_SHA256), kept(APICURIO_CONVERTER, APICURIO_CONVERTER_SHA256)]
    with postgres() as (port, ask):

        def fill(printed: str) -> str:
            typed = re.sub(r"(^value\.converter.*\n){2}", lambda _: converter, printed, flags=re.MULTILINE)
            for there, here in (
                ("localhost:9092", bootstrap),
                ("localhost:5432", f"127.0.0.1:{port}"),
                ("http://localhost:8081/", url.removesuffix(PATH) + "/"),
                ("rides.synthetic", topic),
            ):
                typed = typed.replace(there, here)
            return typed

        def table() -> dict[str, tuple[Any, ...]]:
            found = csv.reader(ask("SELECT synthetic_id, at, x, y FROM rides").splitlines())
            return {key: (int(at), float(x), float(y)) for key, at, x, y in found}

        written("properties", folder, fill)
        run_connect(folder, command, plugins, lambda: table() == expected)
