"""A stream in Avro, with a real registry and the serializers that producers use.

The registry goes away and comes back, schemas change in the middle, and what nobody can read is named.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.kafka.lifecycle.vitals import Vitals
from agents.kafka.schema_registry import RegistryClient, RegistryError
from agents.kafka.status import registry_doubts, status
from agents.local.start.sample import FieldSeen, fields_of, rows_of_topic
from agents.protocol.formats.avro import AvroEncoding
from agents.protocol.formats.build import InputFormat
from agents.protocol.formats.contract import SchemaBook, SchemaRef, SchemaText
from agents.protocol.formats.protobuf import ProtobufEncoding, descriptors
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.readers.consume.value_schemas import register, value_schemas
from agents.readers.operator.dead_letters import Readings, dead_letters, raw_records
from agents.readers.operator.source_findings import newest_records, registry_findings
from schemas.config.server import Kafka, Registry
from schemas.errors import ConfigError, PrivstreamError
from tests.formats import forms
from tests.formats.registry_process import Door, SchemaRegistry
from tests.kafka.ingest_support import START_S, STEP_S, Bench
from tests.kafka.support import WAIT_AT_MOST_S, producing
from tests.security.secured import Authority

with warnings.catch_warnings():  # of its own libraries
    warnings.simplefilter("ignore")
    from confluent_kafka.schema_registry import Schema, SchemaReference
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

pytestmark = [pytest.mark.kafka, pytest.mark.seconds(3)]

LOGIN = ("privstream", "the registry's password")
USER = {"name": "user", "type": "string"}
TIME = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}


def schema(x: Any = "double", *more: Any) -> str:
    place = {"type": "record", "name": "Place", "fields": [{"name": "x", "type": x}, {"name": "y", "type": "double"}]}
    fields = [USER, TIME, {"name": "position", "type": ["null", place]}, *more]
    return json.dumps({"type": "record", "name": "Ride", "fields": fields})


def ride(user: str, step: int, x: Any = 0.5, **more: Any) -> dict[str, Any]:
    at = datetime.datetime.fromtimestamp(START_S + (step + 0.5) * STEP_S, datetime.UTC)
    return {"user": user, "at": at, "position": {"x": x, "y": 0.25}, **more}


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as found:
        yield found


class Producer:
    """Confluent's serializer of one subject."""

    def __init__(self, registry: SchemaRegistry, bench: Bench) -> None:
        self._client, self._bench = registry.client(), bench

    def written(self, text: str, event: dict[str, Any]) -> bytes:
        serializer = AvroSerializer(self._client, text)
        data = serializer(event, SerializationContext(self._bench.source, MessageField.VALUE))
        assert isinstance(data, bytes)
        return data

    async def send(self, text: str, events: list[dict[str, Any]]) -> None:
        async with producing(self._bench.bootstrap) as producer:
            for event in events:
                data = await asyncio.to_thread(self.written, text, event)
                await producer.send(self._bench.source, data, partition=self._bench.home(event["user"]))


@asynccontextmanager
async def at_the_door(registry: SchemaRegistry, folder: Path) -> AsyncIterator[tuple[Door, dict[str, Any]]]:
    """The registry behind TLS and a password, and the configuration that gets in."""
    import ssl

    authority = Authority(folder)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.sign("registry"))
    door = Door(registry, login=LOGIN, tls=tls)
    secret = folder / "registry-password"
    secret.write_text(LOGIN[1] + "\n")
    await door.open()
    try:
        yield (
            door,
            {
                "url": door.url,
                "username": LOGIN[0],
                "password_file": str(secret),
                "ssl_cafile": str(authority.pem),
            },
        )
    finally:
        await door.shut()


async def until_waiting(vitals: Vitals) -> str:
    for _ in range(int(WAIT_AT_MOST_S / 0.05)):
        for said in vitals.unready:
            if said.startswith("schema registry:"):
                return said
        await asyncio.sleep(0.05)
    raise AssertionError("nothing waits for a schema")


async def test_a_registry_that_is_away_delays_and_loses_nothing(
    bootstrap: str, tmp_path: Path, registry: SchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with at_the_door(registry, tmp_path) as (door, configured):
        bench = Bench(bootstrap, tmp_path, registry=configured)
        bench.streams = [
            bench.stream(
                "s",
                format="avro",
                domain={"x": "position.x", "y": "position.y"},
                privacy={"max_contributions": 100},
            )
        ]
        producer, vitals = Producer(registry, bench), Vitals(phase="")
        await bench.create()
        users = [f"u{index}" for index in range(20)]
        await producer.send(schema(), [ride(user, 0) for user in users])
        await bench.tick(0)
        async with bench.running(vitals=vitals):
            result = await bench.until_ticked(0)
            assert result.reasons == {"ACCEPTED": 20}

            # A field more, of which nobody has told the worker, while the registry cannot be reached.
            await door.shut()
            grown = schema("double", {"name": "tip", "type": ["null", "double"], "default": None})
            [first] = [user for user in users if bench.home(user) == 0][:1]
            await producer.send(grown, [ride(first, 1, tip=1.5)])
            said = await until_waiting(vitals)
            assert "waits for schema" in said
            # The other partition goes on, with what is known.
            others = [user for user in users if bench.home(user) == 1]
            await producer.send(schema(), [ride(user, 1) for user in others])
            await bench.tick(1)
            while (await bench.result()).ticks[1] < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            waiting = await bench.result()
            assert waiting.reasons == {"ACCEPTED": 20 + len(others)}
            assert waiting.ticks[0] == 0, "the step is open for as long as a record waits"
            states = [replace(each, doubt=None) for each in await status(bench.config)]  # there is no whole worker here
            [stream] = await registry_doubts(bench.config, states)
            assert stream.doubt is not None
            assert (stream.health, "cannot be reached" in stream.doubt.detail) == ("registry is away", True)

            await door.open()
            assert await registry_doubts(bench.config, states) == states
            door.asked.remove("/schemas/types")  # by what was just asked
            result = await bench.until_ticked(1)
            assert result.events == {0: 20, 1: len(others) + 1}
            assert not any(said.startswith("schema registry:") for said in vitals.unready)

            # What nobody can read, each beside a good one; and a field whose type has changed.
            changed = schema("string")
            home = bench.home(first)
            good = producer.written(schema(), ride(first, 2))
            bad = {
                "UNKNOWN_SCHEMA": b"\0" + (10**6).to_bytes(4, "big") + good[5:],
                "NO_SCHEMA_ID": json.dumps({"user": first}).encode(),
                "UNREADABLE": good[:-3],
                "WRONG_TYPE": await asyncio.to_thread(producer.written, changed, ride(first, 2, x="half")),
                "EMPTY": None,
            }
            async with producing(bootstrap) as raw:
                for value in bad.values():
                    await raw.send(bench.source, value, key=b"k", partition=home)
                    await raw.send(bench.source, good, partition=home)
            await bench.tick(2)
            result = await bench.until_ticked(2)
        assert result.events == {0: 20, 1: len(others) + 1, 2: len(bad)}
        assert len(door.asked) == len({*door.asked}) + 2, "each schema is asked for once, one that is not there thrice"
        # What `doctor` makes of the newest records, by the very decoder and its own look into the registry.
        seen = await newest_records(bench.config, bench.config.streams[0], partitions=2, start_us=START_S * 1_000_000)
        assert seen.refused.keys() == {(reason, "position.x" if reason == "WRONG_TYPE" else "") for reason in bad}
        assert seen.records == sum(result.reasons.values())
        letters = {letter.reason.name: letter.field for letter in await bench.letters()}
        assert letters == {**dict.fromkeys(bad, ""), "WRONG_TYPE": "position.x"}
        assert await shown(bench) == {**dict.fromkeys(bad, None), "WRONG_TYPE": [ride(first, 2, x="half")]}
        assert door.refused == 0
        assert "ingest waits for schema" in caplog.text
        assert first not in caplog.text


async def shown(bench: Bench) -> dict[str, list[Any] | None]:
    """What `dead-letters --show` shows in place of the bytes, by reason."""
    found, readings = await dead_letters(bench.config, lambda _: True, most=10), Readings(bench.config)
    async with raw_records(bench.config) as ask:
        read = {each.reason.name: await readings.values(each.stream, await ask(each)) for each in found.newest}
    for events in read.values():
        for event in events or ():
            event["at"] = datetime.datetime.fromisoformat(event["at"])
    assert readings.problem is None
    away = bench.config.kafka.model_copy(update={"registry": Registry(url="http://127.0.0.1:1")})
    readings = Readings(bench.config.model_copy(update={"kafka": away}))
    async with raw_records(bench.config) as ask:
        assert [await readings.values(each.stream, await ask(each)) for each in found.newest] == [None] * len(read)
    assert "cannot be reached" in str(readings.problem)
    return read


async def test_init_names_the_fields_of_a_topic_in_avro(
    bootstrap: str, tmp_path: Path, registry: SchemaRegistry
) -> None:
    bench = Bench(bootstrap, tmp_path)
    await bench.create()
    producer, known = Producer(registry, bench), Registry(url=registry.url)
    grown = schema("double", {"name": "tip", "type": ["null", "double"], "default": None})
    await producer.send(schema(), [ride("somebody", 0)] * 3)
    await producer.send(grown, [ride("somebody", 1, tip=1.5), ride("somebody", 2, tip=None)])

    def asked(form: str, registry: Registry | None) -> tuple[FieldSeen, ...]:
        kafka = Kafka(bootstrap=bootstrap, registry=registry)
        return fields_of(rows_of_topic(kafka, bench.source, InputFormat(form)))

    assert await asyncio.to_thread(asked, "avro", known) == (
        FieldSeen("user", "text"),
        FieldSeen("at", "text", ("iso",)),
        FieldSeen("position.x", "number"),
        FieldSeen("position.y", "number"),
        FieldSeen("tip", "number"),
    )
    away = Registry(url="http://127.0.0.1:1")
    for form, there, said in (
        ("json", None, "written with schemas of a registry.*--set format=avro"),
        ("avro", None, "needs the registry.*--set kafka.registry.url=URL"),
        ("avro", away, "without its schemas.*cannot be reached"),
        ("protobuf", known, "of its first 5 records none .* UNUSABLE_SCHEMA"),
    ):
        with pytest.raises(PrivstreamError, match=said) as refused:
            await asyncio.to_thread(asked, form, there)
        assert "somebody" not in str(refused.value)


async def test_what_doctor_says_of_the_registry(bootstrap: str, tmp_path: Path, registry: SchemaRegistry) -> None:
    async with at_the_door(registry, tmp_path) as (door, configured):
        bench = Bench(bootstrap, tmp_path, registry=configured)
        [finding] = await registry_findings(bench.config)
        assert finding.verdict == "ok"
        (tmp_path / "registry-password").write_text("another")
        [finding] = await registry_findings(bench.config)
        assert (finding.verdict, door.refused) == ("problem", 1)
        assert "check username and password_file" in finding.detail
        assert "another" not in finding.detail
        await door.shut()
        [finding] = await registry_findings(bench.config)
        assert "cannot be reached" in finding.detail
        assert "none is lost" in finding.fix


async def test_what_is_no_registry_is_asked_again_and_never_believed(registry: SchemaRegistry, tmp_path: Path) -> None:
    # Apicurio says "no such schema" under any path.
    wrong = registry.url.replace("/apis/ccompat/v7", "/apis/ccompat/v9")
    async with RegistryClient(Registry(url=wrong), not_there_s=0.0) as client:
        with pytest.raises(RegistryError, match="no schema registry"):
            await client.schema(SchemaRef(1))
    async with RegistryClient(Registry(url=registry.url), not_there_s=0.0) as client:
        assert await client.schema(SchemaRef(10**6)) is None
    with pytest.raises(ConfigError, match="ssl_cafile"):
        RegistryClient(Registry(url="https://127.0.0.1:1", ssl_cafile=tmp_path / "nothing.pem"))


# --- what serializers write ------------------------------------------------------------------------------------------


async def learnt(registry: SchemaRegistry, *data: bytes) -> SchemaBook:
    book = SchemaBook()
    async with RegistryClient(Registry(url=registry.url), not_there_s=0.0) as client:
        await client.learn(book, {SchemaRef(int.from_bytes(each[1:5], "big")) for each in data})
    return book


def context(topic: str, field: Any = MessageField.VALUE) -> SerializationContext:
    return SerializationContext(topic, field)


async def test_protobuf(registry: SchemaRegistry) -> None:
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for each in descriptors(SchemaText("PROTOBUF", forms.PROTO_SCHEMA)):
        pool.Add(each)
    client = registry.client()
    for name, expected in (("Ride", {"user": "ann", "x": 0.5, "y": None, "note": ""}), ("Ignored", {"nothing": "x"})):
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        message = kind(**{key: value for key, value in expected.items() if value is not None})
        if name == "Ride":
            message.at.FromMicroseconds(7)
            expected = {**expected, "at": datetime.datetime(1970, 1, 1, 0, 0, 0, 7, datetime.UTC)}
        serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
        data = serializer(message, context("proto"))
        assert ProtobufEncoding(await learnt(registry, data)).read(data, None) == expected


async def test_protobuf_as_text_with_an_import(registry: SchemaRegistry) -> None:
    client = registry.client()
    place = 'syntax = "proto3"; package geo; message Place { double x = 1; }'
    ride = 'syntax = "proto3"; import "geo/place.proto"; message Ride { geo.Place at = 1; }'
    client.register_schema("place", Schema(place, "PROTOBUF"))
    version = client.get_latest_version("place").version
    number = client.register_schema(
        "ride", Schema(ride, "PROTOBUF", [SchemaReference("geo/place.proto", "place", version)])
    )
    data = forms.framed(SchemaRef(number), bytes([0, 10, 9, 9, 0, 0, 0, 0, 0, 0, 0xE0, 0x3F]))
    assert ProtobufEncoding(await learnt(registry, data)).read(data, None) == {"at": {"x": 0.5}}


async def test_json_schema_is_read_without_asking(registry: SchemaRegistry) -> None:
    schema = json.dumps({"title": "Ride", "type": "object", "properties": {"user": {"type": "string"}}})
    with warnings.catch_warnings():  # only here: it builds grammars of addresses first, which takes a second
        warnings.simplefilter("ignore")
        from confluent_kafka.schema_registry.json_schema import JSONSerializer
    serializer = JSONSerializer(schema, registry.client())
    event = {"user": "ann", "at": 0, "x": 0.5, "y": 0.5}
    data = serializer(event, context("json"))
    machine = PartitionIngest(forms.spec(InputFormat("json-schema")), 0)
    [record] = forms.records([data])
    assert machine.decoder.missing([record]) == (1, frozenset())
    machine.take([record])
    block, _ = machine.seal()
    assert block is not None
    assert block.counts == {"ACCEPTED": 1}


async def test_avro_with_a_key_and_a_named_type_of_another_subject(registry: SchemaRegistry) -> None:
    client = registry.client()
    place = json.dumps({"type": "record", "name": "Place", "fields": [{"name": "x", "type": "double"}]})
    ride = json.dumps({"type": "record", "name": "Ride", "fields": [{"name": "place", "type": "Place"}]})
    client.register_schema("avro-place", Schema(place, "AVRO"))
    version = client.get_latest_version("avro-place").version
    both = Schema(ride, "AVRO", [SchemaReference("Place", "avro-place", version)])
    value = AvroSerializer(client, both)({"place": {"x": 1.5}}, context("avro"))
    key_schema = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]})
    key = AvroSerializer(client, key_schema)({"id": 7}, context("avro", MessageField.KEY))
    book = await learnt(registry, value, key)
    assert AvroEncoding(book).read(value, None) == {"place": {"x": 1.5}}
    made = forms.spec(InputFormat("avro", key_format="avro"), user="$key.id", numbers=("place.x", "place.y"))
    decoder = type(made)(**{**{n: getattr(made, n) for n in made.__dataclass_fields__}, "schemas": book}).decoder()
    record = RawRecord(0, 0, key, value)
    assert decoder.missing([record]) == (1, frozenset())
    assert decoder.unfold([record])[0].fields == {"$key.id": 7, "place.x": 1.5}
    nothing = type(made)(**{**{n: getattr(made, n) for n in made.__dataclass_fields__}, "schemas": SchemaBook()})
    wanted = {SchemaRef(int.from_bytes(each[1:5], "big")) for each in (key, value)}
    assert nothing.decoder().missing([record]) == (0, wanted)


async def test_schemas_of_public_topics_are_registered_once(
    bootstrap: str, tmp_path: Path, registry: SchemaRegistry
) -> None:
    bench = Bench(bootstrap, tmp_path)
    async with at_the_door(registry, tmp_path) as (door, settings):
        config = bench.config
        kafka = config.kafka.model_copy(update={"registry": Registry.model_validate(settings)})
        config = config.model_copy(update={"kafka": kafka})
        first = await register(config)
        again = await register(config)
        await door.shut()
        with pytest.raises(PrivstreamError, match="cannot be reached"):
            await register(config)
    (name,) = [stream.name for stream in config.streams]
    assert sorted(first) == [f"{name}.{each}-value" for each in ("ledger", "measurements", "synthetic")]
    assert again == first
    for subject, number in first.items():
        found = await asyncio.to_thread(registry.client().get_schema, number)
        assert found.schema_type == "JSON"
        assert json.loads(found.schema_str) == json.loads(value_schemas(config)[subject.removesuffix("-value")].text)
    with pytest.raises(PrivstreamError, match=r"add \[kafka.registry\]"):
        await register(bench.config)
