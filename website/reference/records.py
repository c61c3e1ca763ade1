"""Topics and their records: public ones field by field, with real examples, private ones as their classes say."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

import orjson

from agents.protocol.fingerprint import Fingerprint
from engines import configure
from schemas.blocks import Block
from schemas.events import TICK_HEADER, encode_tick
from schemas.ledger import MEASUREMENT_FIELDS, UTILITY_FIELDS, LedgerEntry
from schemas.releases import Candidate, Chunk, Seed
from schemas.topics import Topic, Topics
from schemas.wire import VERSION, Kind
from website.reference.source import ROOT, attributes, cell, listed, summary, table

PRIVATE = {Kind.BLOCK: Block, Kind.SEED: Seed, Kind.CANDIDATE: Chunk, Kind.RELEASE: Candidate}


def page() -> str:
    """Return everything that travels."""
    topics = Topics("<job>", 4)
    synthetic, measurement, ledger = _real()
    return "\n".join(
        [
            "# Topics and records\n",
            "What the job reads and writes. Public records are JSON and stay readable for ever; private ones are of the program "
            "alone, and carry a kind and a format version. The examples are real: steps of `examples/taxi.toml` on its own rows.\n",
            "## Topics\n",
            _topics([*topics.public("<stream>"), *topics.private(), topics.routing("<stream>", "source")]),
            "## Public records\n",
            "### `<stream>.synthetic`\n",
            "Key: the record's id, for ever. Value: the field names of your raw events; the time is the start of the step that "
            "it stands for (docs/time.md). No value (a tombstone): the record is withdrawn.\n",
            _json(synthetic),
            "### `<stream>.measurements`\n",
            "Key: the step. Fields that all engines have:\n",
            _fields(MEASUREMENT_FIELDS, {}),
            _json(measurement),
            "### `<stream>.ledger`\n",
            "Key: the step. The public account of a step, which anybody can check.\n",
            _fields(field_descriptions(), ledger),
            "### `<stream>.utility`\n",
            "OPERATORS ONLY: true errors, written where an audit topic is configured.\n",
            _fields(UTILITY_FIELDS, {}),
            "## Ticks in raw topics\n",
            f"A record of a raw topic with the header `{TICK_HEADER}` is no event: a replay writes it, and it closes steps on its "
            f"partition.\n\n```text\n{TICK_HEADER}: {encode_tick(7, row=1200, source='SHA-256 of the file').decode()}\n```\n",
            "## Private records\n",
            "One container for all: four bytes of kind, one of format version, then zstd of safetensors with a JSON header. `CANDIDATE` is a "
            "piece of a `RELEASE`, as it is, and the changelog has a `STATE` in pieces. As sensitive as the raw topic.\n",
            table(
                ["kind", "bytes", "versions read"],
                [[kind.name, f"`{kind.value.decode()}`", str(VERSION)] for kind in Kind],
            ),
            *(_class(cls) for cls in (*PRIVATE.values(), Fingerprint)),
        ]
    )


def field_descriptions() -> Mapping[str, str]:
    """Return the description of each field of a ledger entry, by its name."""
    hints = get_type_hints(LedgerEntry, include_extras=True)
    return {
        name: next(
            meta.description for meta in reversed(hints[name].__metadata__) if getattr(meta, "description", None)
        )
        for name in LedgerEntry.__struct_fields__
    }


def _topics(topics: list[Topic]) -> str:
    rows = []
    for topic in topics:
        settings = ", ".join(f"`{name}={value}`" for name, value in topic.settings.items())
        partitions = "[kafka] partitions" if topic.partitions == 4 else str(topic.partitions or "as its source")
        rows.append([f"`{topic.name}`", topic.audience, cell(topic.purpose), partitions, settings])
    return table(["topic", "who may read", "holds", "partitions", "settings"], rows)


def _fields(meanings: Mapping[str, str], example: Mapping[str, Any]) -> str:
    rows = []
    for name, meaning in meanings.items():
        shown = orjson.dumps(example[name]).decode() if name in example else ""
        row = [f"`{name}`", cell(meaning), f"`{cell(shown[:60])}{'…' if len(shown) > 60 else ''}`" if shown else ""]
        rows.append(row if example else row[:2])
    return table(["field", "meaning", "example"] if example else ["field", "meaning"], rows)


def _json(value: object) -> str:
    return f"```json\n{orjson.dumps(value).decode()}\n```\n"


def _class(cls: type) -> str:
    said, types = listed(cls), attributes(cls)
    rows = [
        [f"`{field.name}`", f"`{cell(types[field.name].kind)}`", cell(said.get(field.name, ""))]
        for field in dataclasses.fields(cls)
    ]
    return f"### {cls.__name__}\n\n{summary(cls)}\n\n" + table(["field", "type", "meaning"], rows)


def _real() -> tuple[dict[str, Any], dict[str, Any], Mapping[str, Any]]:
    """Return a synthetic record, a measurement and a ledger entry of three days of taxi pickups."""
    with gzip.open(ROOT / "examples" / "nyc_taxi" / "taxi_2016_01_sample_20k.csv.gz", "rt") as file:
        rows = [line.rstrip("\n").split(",") for line, _ in zip(file, range(2_500), strict=False)]
    names = rows[0]
    wanted = ("pickup_datetime", "pickup_longitude", "pickup_latitude")
    batch = list(_events(names, rows[1:], wanted))
    # The first release is of two days together, and of so many rows that it always measures something.
    release = configure(ROOT / "examples" / "taxi.toml").run(batch, until=2)[-1]
    smallest = min(release.measurements, key=lambda measurement: len(orjson.dumps(measurement)))
    return dict(release.records[0]), dict(smallest), release.ledger


def _events(names: list[str], rows: list[list[str]], wanted: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for row in rows:
        fields = dict(zip(names, row, strict=True))
        yield {name: fields[name] if name == wanted[0] else float(fields[name]) for name in wanted}
