"""`format`, `envelope`, `key_format`, `[streams.csv]`, `[kafka.registry]`: what is taken, how the rest is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.local.offline.files import FileError, rows_for
from agents.local.offline.seen import first_rows
from agents.protocol.formats import build
from agents.protocol.formats.build import InputFormat
from agents.protocol.replay import ReplayError, check_writable
from schemas.config import Stream
from schemas.config.load import parse_config
from schemas.errors import ConfigError

TEXT = """
[kafka]
bootstrap = "localhost:9092"
[kafka.registry]
url = "https://registry.example:8081/"
username = "me"
password_file = "password"

[[streams]]
name = "rides"
engine = "spatial"
source = "raw.rides"
format = "avro"
[streams.privacy]
epsilon = 1.0
user = "user"
max_contributions = 4
[streams.time]
field = "at"
format = "ms"
start = "2020-01-01T00:00:00"
step = "1h"
clock = "replay"
[streams.domain]
kind = "box"
x = "position.x"
y = "position.y"
bounds = [0.0, 0.0, 1.0, 1.0]
"""
DEBEZIUM = TEXT.replace('format = "avro"', 'format = "json"\nenvelope = "debezium"')
MAPPED = (
    TEXT
    + """[streams.map]
"position.x" = "to_number(total)"
drop = "type == 'test'"
"""
)
S, R, M = "streams[0]", "kafka.registry", "streams[0].map"
REGISTRY = TEXT[TEXT.index("[kafka.registry]") : TEXT.index("[[streams]]")]


def test_what_is_written_is_taken() -> None:
    config = parse_config(TEXT)
    assert config.kafka.registry is not None
    assert config.kafka.registry.url == "https://registry.example:8081"
    assert config.streams[0].fingerprint_fields()["format"] == "avro"
    changed = parse_config(DEBEZIUM.replace('kind = "box"', 'kind = "box"\nop = "$operation"'))
    assert changed.streams[0].fingerprint_fields()["envelope"] == "debezium"


def test_a_stream_of_plain_json_has_the_fingerprint_that_it_always_had() -> None:
    found = parse_config(TEXT.replace('format = "avro"', 'format = "json"')).streams[0].fingerprint_fields()
    assert not {"envelope", "key_format", "csv", "map"} & set(found)


@pytest.mark.parametrize("key", ["format", "envelope", "key_format", "csv", "map"])
def test_how_records_are_written_is_what_a_stream_was_started_with(key: str) -> None:
    other = {
        "format": TEXT.replace('"avro"', '"protobuf"'),
        "envelope": TEXT.replace('"avro"', '"avro"\nenvelope = "cloudevents"'),
        "key_format": TEXT.replace('"avro"', '"avro"\nkey_format = "json"'),
        "csv": TEXT.replace('"avro"', '"csv"') + '[streams.csv]\ndelimiter = ";"\n',
        "map": MAPPED,
    }[key]
    before, after = (parse_config(text).streams[0].fingerprint_fields() for text in (TEXT, other))
    assert before.get(key) != after.get(key)


def test_every_part_of_a_mapping_is_what_a_stream_was_started_with(tmp_path: Path) -> None:
    text = MAPPED.replace("total", "lookup('t', total)") + 'tables.t = "t.csv"\n'
    prints = []
    for table, old, new in (("k,v", "", ""), ("k,w", "", ""), ("k,v", "'test'", "'tests'"), ("k,v", "total", "amount")):
        (tmp_path / "t.csv").write_text(table)
        prints.append(parse_config(text.replace(old, new), folder=tmp_path).streams[0].fingerprint_fields())
    assert all(prints[0] != other for other in prints[1:])
    (tmp_path / "t.csv").rename(tmp_path / "u.csv")
    (tmp_path / "u.csv").write_text("k,v")
    moved = parse_config(text.replace('"t.csv"', '"u.csv"'), folder=tmp_path).streams[0]
    assert moved.fingerprint_fields() == prints[0], "its content counts, and not its name"


BAD: list[tuple[str, str, str, str, str, str]] = [
    (TEXT, REGISTRY, "", f"{S}.format", "no schema registry", "[kafka.registry]"),
    (TEXT.replace(REGISTRY, ""), '"avro"', '"json"\nkey_format = "avro"', f"{S}.key_format", "schema registry", "url"),
    (TEXT, "https://registry.example:8081/", "https://me:secret@r", f"{R}.url", "a password", "file"),
    (TEXT, "https://registry.example:8081/", "https://me:12/34@r", f"{R}.url", "a password", "file"),
    (TEXT, "https://registry.example:8081/", "registry:8081", f"{R}.url", "not an http", "https://"),
    (TEXT, "https://registry.example:8081/", "https://r/?a=b", f"{R}.url", "base address", "https://"),
    (TEXT, "https:", "http:", f"{R}.url", "unencrypted", "https://"),
    (TEXT, 'username = "me"\n', "", f"{R}.username", "needs a password", "add username"),
    (TEXT, 'password_file = "password"', "", f"{R}.password_file", "needs a password", "add password_file"),
    (TEXT, 'username = "me"', 'username = "me"\nssl_keyfile = "k"', f"{R}.ssl_certfile", "missing", "ssl_certfile"),
    (TEXT, 'username = "me"', 'username = "m:e"', f"{R}.username", "colon", "without one"),
    (TEXT, 'username = "me"', 'usrname = "me"', f"{R}.usrname", "unknown key", "username"),
    (TEXT, '"avro"', '"arvo"', f"{S}.format", "not one of", "avro"),
    (TEXT, '"avro"', '"avro"\nenvelope = "cloudevent"', f"{S}.envelope", "not one of", "cloudevents"),
    (TEXT, '"avro"', '"avro"\ncsv = {columns = ["a"]}', f"{S}.csv.columns", "would be ignored", 'format = "csv"'),
    (TEXT, '"avro"', '"csv"\ncsv = {encoding = "rot13"}', f"{S}.csv.encoding", "not an encoding", '"latin-1"'),
    (TEXT, '"avro"', '"csv"\ncsv = {encoding = "unicode_escape"}', f"{S}.csv.encoding", "not an encoding", "utf-16"),
    (TEXT, '"avro"', '"csv"\ncsv = {decimal = ","}', f"{S}.csv.decimal", "also the delimiter", 'delimiter = ";"'),
    (TEXT, '"avro"', '"csv"\ncsv = {columns = ["a", "a"]}', f"{S}.csv.columns", "same name", "of its own"),
    (TEXT, '"avro"', '"csv"\ncsv = {delimiter = ";;"}', f"{S}.csv.delimiter", "one character", '";"'),
    (TEXT, '"avro"', '"csv"\nenvelope = "debezium"', f"{S}.format", "Debezium does not write", "json"),
    (TEXT, 'user = "user"', 'user = "$keys"', f"{S}.privacy.user", "names no part", "$key"),
    (TEXT, 'user = "user"', 'user = "$key.id"', f"{S}.privacy.user", "has no fields", "key_format"),
    (TEXT, '"at"', '"$timestamp.ms"', f"{S}.time.field", "has no fields", "$timestamp"),
    (TEXT, 'x = "position.x"', 'x = "$header"', f"{S}.domain.x", "names no header", "$header.NAME"),
    (TEXT, '"at"', '"$envelope.time"', f"{S}.time.field", "no envelope", "cloudevents"),
    (TEXT, '"at"\nformat = "ms"', '"$timestamp"\nformat = "s"', f"{S}.time.format", "in ms", 'format = "ms"'),
    (TEXT, 'kind = "box"', 'kind = "box"\nop = "$operation"', f"{S}.domain.op", "change of a table", "debezium"),
    (DEBEZIUM, 'kind = "box"', 'kind = "box"\nop = "what"', f"{S}.domain.op", "names its operation", "$operation"),
    (
        DEBEZIUM.replace('kind = "box"', 'kind = "box"\nop = "$operation"'),
        'user = "user"\nmax_contributions = 4',
        'unit = "event"',
        f"{S}.privacy.unit",
        "an update is two events",
        'unit = "user"',
    ),
    (
        TEXT.replace('user = "user"', 'user = "$key.user"'),
        '"avro"',
        '"avro"\nkey_format = "avro"',
        f"{S}.partitioner",
        "one user may have keys",
        'partitioner = "any"',
    ),
    (
        TEXT.replace('"replay"', '"wall"').replace('format = "avro"', 'format = "avro"\npartitioner = "any"'),
        'user = "user"\nmax_contributions = 4',
        'unit = "event"',
        f"{S}.partitioner",
        "no user of this stream is bounded",
        "remove partitioner",
    ),
    (MAPPED, "to_number(total)", "to_numbr(total)", f"{M}.position.x", "to_numbr is no function", "to_number?"),
    (MAPPED, "to_number(total)", "to_number(total", f"{M}.position.x", "no expression", "jmespath.org"),
    (MAPPED, "to_number(total)", "to_number(total, 1)", f"{M}.position.x", "no expression", "jmespath.org"),
    (MAPPED, "to_number(total)", "to_number(a, b)", f"{M}.position.x", "number of arguments", "pass 1"),
    (MAPPED, "to_number(total)", "join(a, b)", f"{M}.position.x", "separator", "in quotes"),
    (MAPPED, "to_number(total)", "lookup('stores', store)", f"{M}.position.x", "names no table", "tables.NAME"),
    (MAPPED, "to_number(total)", "!" * 60 + "a", f"{M}.position.x", "within each other", "simplify"),
    (MAPPED, "to_number(total)", "(" * 1900, f"{M}.position.x", "within each other", "simplify"),
    (MAPPED, "to_number(total)", "", f"{M}.position.x", "is empty", "write"),
    (MAPPED, "type == 'test'", "type = 'test'", f"{M}.drop", "no expression", "jmespath.org"),
    (MAPPED, '"position.x" =', '"position.z" =', f"{M}.position.z", "no other section", "did you mean position."),
    (MAPPED, '"position.x" =', '"$key" =', f"{M}.$key", "beside the value", "name of its own"),
    (MAPPED, "drop =", 'tables.stores = "no.csv"\ndrop =', f"{M}.tables.stores", "cannot be read", "a file"),
    (MAPPED, 'user = "user"', 'user = "drop"', f"{S}.privacy.user", "meaning of its own", "another name"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "old", "new", "key", "reason", "fix"), BAD, ids=range(len(BAD)))
def test_what_is_refused_and_how(text: str, old: str, new: str, key: str, reason: str, fix: str) -> None:
    assert text.count(old) >= 1
    with pytest.raises(ConfigError) as refused:
        parse_config(text.replace(old, new, 1))
    found = {problem.key: problem for problem in refused.value.problems}
    assert key in found, found
    assert reason in found[key].reason
    assert fix in found[key].fix
    assert "secret" not in str(refused.value)


def test_a_quoted_name_may_begin_with_anything() -> None:
    stream = parse_config(TEXT.replace('user = "user"', "user = '\"$keys\"'")).streams[0]
    assert stream.privacy.user == '"$keys"'


def test_a_library_that_is_not_there_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = parse_config(TEXT).streams[0]
    assert InputFormat.from_stream(stream) == InputFormat("avro")
    monkeypatch.setattr(build, "_there", lambda module: False)
    with pytest.raises(ConfigError, match=r"streams.rides.format.*fastavro(.|\n)*privstream\[registry\]"):
        InputFormat.from_stream(stream)
    InputFormat.from_stream(parse_config(TEXT.replace('"avro"', '"msgpack"')).streams[0])


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (TEXT, 'format = "avro"'),
        (DEBEZIUM, 'envelope = "debezium"'),
        (TEXT.replace('"avro"', '"json"').replace('"at"', '"$timestamp"'), r"\$timestamp"),
    ],
)
def test_a_replay_refuses_what_the_stream_could_not_read(text: str, named: str) -> None:
    with pytest.raises(ReplayError, match=f"{named}.*Fix: write the history to raw.rides"):
        check_writable(parse_config(text).streams[0])


def test_a_replay_writes_keys_and_nested_fields() -> None:
    check_writable(_json())
    check_writable(parse_config(TEXT.replace('"avro"', '"json"').replace('user = "user"', 'user = "$key"')).streams[0])


def _json() -> Stream:
    return parse_config(TEXT.replace('"avro"', '"json"')).streams[0]


def rows(path: Path, text: str, stream: Stream) -> dict[tuple[str, str], Any]:
    path.write_text(text)
    return dict(first_rows(stream, rows_for(path, stream)).seen.tally)


def test_files_are_read_by_their_columns_whatever_the_topic_holds(tmp_path: Path) -> None:
    """A column of the very name, or the nested field; what a topic's format is does not matter to a file."""
    for stream in (_json(), parse_config(TEXT).streams[0], parse_config(DEBEZIUM).streams[0]):
        flat = rows(tmp_path / "a.csv", "user,at,position.x,position.y\nann,1577836800000,0.5,0.5\n", stream)
        line = '{"user":"ann","at":1577836800000,"position":{"x":0.5,"y":0.5}}\n'
        nested = rows(tmp_path / "a.jsonl", line, stream)
        assert flat == nested == {("ACCEPTED", ""): 1}


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"position\.y"):
        rows(tmp_path / "a.csv", "user,at,position.x\nann,1577836800000,0.5\n", _json())
