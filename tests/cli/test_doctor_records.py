"""`privstream doctor --record`: what each sample record becomes, in the stream's format, without a cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents.readers.operator.sample_records import outcomes
from schemas.config.load import parse_config
from tests.commands import call, invoked

pytestmark = pytest.mark.seconds(0.5)

TEXT = """
[[streams]]
name = "sales"
engine = "tabular"
source = "raw.sales"
partitioner = "none"
[streams.privacy]
epsilon = 1.0
user = "who"
max_contributions = 4
[streams.time]
field = "at"
format = "iso"
start = "now"
step = "1d"
[streams.domain]
kind = "table"
attributes = [{ field = "shop", values = ["north", "south"] }]
[streams.map]
who = "join('-', [region, id])"
drop = "kind == 'test'"
"""
GOOD = {"region": "de", "id": "7", "at": "2020-01-01T00:00:00", "shop": "north"}
LINES: list[tuple[Any, str, str, dict[str, Any]]] = [
    (GOOD, "ACCEPTED", "", {"at": GOOD["at"], "who": "de-7", "shop": "north"}),
    ({**GOOD, "kind": "test"}, "DROPPED", "", {}),
    ({**GOOD, "id": 7}, "UNMAPPED", "who", {}),
    ({**GOOD, "shop": "east"}, "OUTSIDE_DOMAIN", "shop", {"at": GOOD["at"], "who": "de-7", "shop": "east"}),
    ({**GOOD, "at": "noon"}, "BAD_TIME", "at", {"at": "noon", "who": "de-7", "shop": "north"}),
    ([], "WRONG_TYPE", "", {}),
]


def became(text: str, lines: list[bytes]) -> list[tuple[int, str, str, dict[str, Any]]]:
    [stream] = parse_config(text, offline=True).streams
    return [(each.line, each.reason.name, each.field, dict(each.fields)) for each in outcomes(stream, lines)]


def test_each_line_is_the_event_that_it_becomes_or_why_not() -> None:
    found = became(TEXT, [json.dumps(record).encode() for record, *_ in LINES])
    assert found == [(at, *expected) for at, (_, *expected) in enumerate(LINES, 1)]


@pytest.mark.parametrize("step", ["100ms", "1s", "1d", "1 year"])
def test_a_record_of_today_is_in_a_stream_that_nobody_has_started(step: str) -> None:
    record = GOOD | {"at": datetime.now(UTC).isoformat()}
    [(_, reason, field, _)] = became(TEXT.replace('"1d"', f'"{step}"'), [json.dumps(record).encode()])
    assert (reason, field) == ("ACCEPTED", "")


def test_a_line_is_a_record_of_the_streams_own_format() -> None:
    event = {"at": "2020-01-01T00:00:00", "who": "de-7", "shop": "north"}
    table = TEXT.replace("engine =", 'format = "csv"\nengine =')
    assert became(table, [b"region,id,at,shop", b"", b"de,7,2020-01-01T00:00:00,north\r\n", b"de,7"]) == [
        (3, "ACCEPTED", "", event),
        (4, "WRONG_COLUMNS", "", {}),
    ]
    named = table + '[streams.csv]\ncolumns = ["region", "id", "at", "shop"]\n'
    assert became(named, [b"de,7,2020-01-01T00:00:00,north"]) == [(1, "ACCEPTED", "", event)]
    change = {"op": "u", "before": GOOD, "after": {**GOOD, "shop": "south"}}
    changes = TEXT.replace("engine =", 'envelope = "debezium"\nengine =').replace(
        '"table"', '"table"\nop = "$operation"'
    )
    found = became(changes, [json.dumps(change).encode()])
    assert [(line, reason, fields["shop"], fields["$operation"]) for line, reason, _, fields in found] == [
        (1, "ACCEPTED", "north", "delete"),
        (1, "ACCEPTED", "south", "insert"),
    ]


def test_a_field_beside_the_value_is_one_of_that_name() -> None:
    keyed = TEXT.replace('user = "who"', 'user = "$key"').replace("who = ", "shop = 'shop'  # ")
    assert became(keyed, [json.dumps({**GOOD, "$key": "ann"}).encode()])[0][1] == "ACCEPTED"


def test_the_command_shows_values_and_ends_with_1_where_one_is_refused(tmp_path: Path) -> None:
    config, sample = tmp_path / "job.toml", tmp_path / "sample.jsonl"
    config.write_text(TEXT)
    sample.write_text("\n".join(json.dumps(record) for record, *_ in LINES[:3]))
    told = call("doctor", config, "--record", sample)
    assert told.exit_code == 1
    first, second, third = told.stdout.splitlines()
    assert first == 'line 1: at "2020-01-01T00:00:00", who "de-7", shop "north"'
    assert second == "line 2: left out by drop of [streams.map]"
    assert third.startswith("line 3: refused: UNMAPPED of who. What to do: ")
    assert "2 well, 1 refused" in told.stderr
    lines = json.dumps(GOOD) + "\n"
    piped = invoked("doctor", config, "--record", "-", "--json", input=lines)
    assert piped.exit_code == 0
    assert json.loads(piped.stdout)["records"] == [
        {"line": 1, "reason": "ACCEPTED", "field": "", "fields": LINES[0][3]}
    ]
    assert call("doctor", "--record", sample).exit_code == 2
    assert call("doctor", config, "--record", tmp_path / "no.jsonl").exit_code == 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
def test_lines_are_told_apart_in_the_encoding_of_their_file(tmp_path: Path, encoding: str) -> None:
    config, sample = tmp_path / "job.toml", tmp_path / "sample.csv"
    table = f'format = "csv"\ncsv = {{ encoding = "{encoding}" }}\npartitioner = "none"'
    config.write_text(TEXT[: TEXT.index("[streams.map]")].replace('partitioner = "none"', table))
    sample.write_bytes("who,at,shop\nzoë,2020-01-01T00:00:00,north\n".encode(encoding))
    found = call("doctor", config, "--record", sample, "--json")
    assert found.exit_code == 0, found.output
    [record] = json.loads(found.stdout)["records"]
    assert (record["reason"], record["fields"]["who"]) == ("ACCEPTED", "zoë")
    sample.write_bytes(b"\xff\xfe\x00")
    refused = call("doctor", config, "--record", sample).output
    assert ("fix: correct the key" in refused) == (encoding == "utf-16")  # each line of UTF-8 is judged by itself
