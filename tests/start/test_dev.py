"""`privstream dev`: any configuration, on this machine alone, and nothing of it is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agents.cli.dev import Screen
from agents.kafka.lifecycle.refusals import NOT_PLACED, WHAT_TO_DO
from agents.local.broker.embedded import Watchdog
from agents.local.dev import DevOptions, Played, StreamOutcome, dev, local_copy, without_settings
from agents.local.producers import written_as
from schemas.blocks import Block
from schemas.config import Config
from schemas.config.load import load_config, parse_config
from schemas.errors import PrivstreamError

EXAMPLES = Path(__file__).parents[2] / "examples"
SECRETS = """
[job]
name = "rides-job"
data_dir = "production-state"
http_port = 9464
[kafka]
bootstrap = "kafka.invalid:9093"
partitions = 3
replication_factor = 3
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
sasl_username = "somebody"
sasl_password_file = "/run/secrets/kafka-password"
"""
RIDES = """
[[streams]]
name = "rides"
engine = "spatial"
source = "app.rides"
privacy = { epsilon = 0.1, user = "user_id", max_contributions = 20, user_key_file = "/run/secrets/user-key" }
[streams.time]
field = "at"
format = "s"
start = "now"
step = "1h"
[streams.domain]
kind = "box"
x = "lon"
y = "lat"
bounds = [0, 0, 1, 1]
[streams.options]
depth = 6
"""
HOUR, BEGIN = 3600, 1_600_000_200


def copied(text: str, config: Config, folder: Path) -> tuple[str, Config]:
    key = folder / "user.key"
    key.write_bytes(bytes(32))
    copy = local_copy(text, config, bootstrap="127.0.0.1:9", folder=folder, user_key=key, metrics_port=9, times={})
    (folder / "copy.toml").write_text(copy)
    return copy, load_config(folder / "copy.toml", {})


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.toml")))
def test_a_copy_promises_and_reads_the_same(name: str, tmp_path: Path) -> None:
    """Maps are found though the copy lies elsewhere; the guarantee is that of the file."""
    config = load_config(EXAMPLES / name, {})
    _, copy = copied((EXAMPLES / name).read_text(), config, tmp_path)
    assert [s.fingerprint_fields() for s in copy.streams] == [s.fingerprint_fields() for s in config.streams]
    assert copy.kafka.bootstrap == "127.0.0.1:9"
    assert copy.job.data_dir == tmp_path / "state"


def test_a_copy_writes_plain_json_where_the_file_asks_for_a_registry(tmp_path: Path) -> None:
    text = RIDES + '[streams.output]\nformat = "avro"\n'
    registry = '[kafka]\nbootstrap = "b.invalid:9092"\n[kafka.registry]\nurl = "https://registry.invalid"\n'
    config = parse_config(registry + text)
    assert config.streams[0].output.typed
    _, copy = copied(registry + text, config, tmp_path)
    assert not copy.streams[0].output.typed


def test_nothing_of_a_copy_leads_to_the_configured_cluster_or_its_secrets(tmp_path: Path) -> None:
    config = parse_config(SECRETS + RIDES)
    text, copy = copied(SECRETS + RIDES, config, tmp_path)
    for secret in ("invalid", "secrets", "somebody", "production-state", "9464", "SASL"):
        assert secret not in text
    assert copy.kafka.security_protocol == "PLAINTEXT"
    assert copy.kafka.partitions == 3
    assert copy.job.name == "rides-job"
    assert copy.streams[0].privacy.epsilon == config.streams[0].privacy.epsilon
    assert copy.streams[0].privacy.user_key_file == tmp_path / "user.key"
    assert without_settings({"PRIVSTREAM_BOOTSTRAP": "x:1", "PRIVSTREAM_JOB__DATA_DIR": "y", "HOME": "h"}) == {
        "HOME": "h"
    }


REGISTRY = '[kafka]\nbootstrap = "kafka.invalid:9093"\n[kafka.registry]\nurl = "https://registry.invalid:8081"\n'


@pytest.mark.parametrize("key", ["format", "key_format"])
@pytest.mark.parametrize("chosen", ["avro", "protobuf"])
def test_what_needs_a_registry_is_refused_before_anything_starts(key: str, chosen: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(REGISTRY + RIDES.replace("[streams.time]", f'{key} = "{chosen}"\n[streams.time]', 1))
    screen: Any = None
    with pytest.raises(PrivstreamError, match=f'{key} is "{chosen}", .* dev has none.* Fix: ') as refused:
        dev(path.read_text(), load_config(path), DevOptions(), screen)
    assert "add [kafka.registry]" not in str(refused.value)


def test_a_file_is_refused_at_once_where_the_source_is_no_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(SECRETS + RIDES.replace("[streams.time]", 'format = "csv"\n[streams.time]', 1))
    screen: Any = None
    with pytest.raises(PrivstreamError, match='format = "csv", and a replay writes plain JSON'):
        dev(path.read_text(), load_config(path), DevOptions(files={"rides": Played(tmp_path / "rows.csv")}), screen)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "JSON, keyed by the user,"),
        ('envelope = "cloudevents"', "JSON in an envelope of CloudEvents, keyed by the user,"),
        ('format = "msgpack"', "MessagePack, keyed by the user,"),
        ('format = "csv"', 'CSV (a header and one line a record, "," between cells), keyed by the user,'),
        (
            'format = "csv"\ncsv = { columns = ["user_id", "at", "lon", "lat"], delimiter = "\\t" }',
            'CSV (one line a record, "\\t" between cells), keyed by the user,',
        ),
        ('format = "json-schema"', "JSON framed with a schema's id, keyed by the user,"),
    ],
)
def test_the_screen_says_what_producers_write(more: str, said: str) -> None:
    text = SECRETS + RIDES.replace("[streams.time]", f"{more}\n[streams.time]", 1)
    assert written_as(parse_config(text).streams[0]) == said


def block(partition: int, offset: int, **totals: dict[str, int]) -> Block:
    return Block("rides", partition, offset, offset + 1, -1, {}, totals=totals)


ALL = (
    "33 records read, 4 accepted, 1 over the bound, "
    "2 of a key that their user has had as often as it counts in the period, "
    "1 without an event, 3 left out by drop of [streams.map], "
    "22 refused: WRONG_PARTITION of user_id 20, NOT_JSON 2"
)


def test_one_record_is_said_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    """As at every step of a series."""
    entry = {"end": "b", "synthetic_records": 1, "epsilon_spent": 1.0, "epsilon": 1.0, "added": 1, "removed": 0}
    outcome, screen = StreamOutcome("visits"), Screen()
    outcome.published({**entry, "start": "a", "step": 0})
    screen.step("visits", {**entry, "step": 0})
    screen.ended(outcome)
    printed = capsys.readouterr()
    assert printed.out == "visits: step 0 until b  1 synthetic record  epsilon 1 of 1\n"
    assert printed.err.endswith("; 1 step published 1 synthetic record and withdrew 0\n")


def test_each_refusal_is_said_when_it_comes_and_its_fix_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Two partitions, each of whose blocks counts all before it; the partitioner is found out on the way."""
    outcome, screen = StreamOutcome("rides"), Screen()
    for each in (
        block(0, 0, ACCEPTED={"": 2}),
        block(1, 0, WRONG_PARTITION={"user_id": 3}),
        block(1, 1, WRONG_PARTITION={"user_id": 9}, PLACED_BY_CRC32={"": 9}, NOT_JSON={"": 2}),
        block(0, 1, ACCEPTED={"": 4}, OVER_BOUND={"": 1}, REPEATED={"": 2}),
        block(
            1,
            2,
            WRONG_PARTITION={"user_id": 20},
            PLACED_BY_CRC32={"": 3},
            NOT_JSON={"": 2},
            NO_EVENT={"": 1},
            DROPPED={"": 3},
        ),
    ):
        outcome.ingested(each)
        screen.records("rides", outcome.records)
    entry = {"start": "a", "end": "b", "synthetic_records": 5, "epsilon_spent": 1.0, "epsilon": 1.0, "gathered": False}
    for step, (added, removed) in enumerate([(5, 0), (2, 2)]):
        outcome.published({**entry, "step": step, "added": added, "removed": removed})
    screen.step("rides", {**entry, "step": 1, "added": 2, "removed": 2})
    screen.ended(outcome)
    printed = capsys.readouterr()
    assert [line.split(" are ")[0] for line in printed.err.splitlines()] == [
        "rides: 5 records read, 2 accepted, 0 over the bound, 3 refused: WRONG_PARTITION of user_id 3",
        f"  What to do about WRONG_PARTITION: {NOT_PLACED}",
        "rides: 13 records read, 2 accepted, 0 over the bound, 11 refused: WRONG_PARTITION of user_id 9, NOT_JSON 2",
        "  What to do about WRONG_PARTITION: 9 of 9",
        f"  What to do about NOT_JSON: {WHAT_TO_DO['NOT_JSON']}",
        f"rides: {ALL}",
        f"rides: in all {ALL}; 2 steps published 7 synthetic records and withdrew 2",
    ]


OWNER = """
import subprocess, sys, time
from pathlib import Path
from agents.local.broker.embedded import Watchdog
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
Watchdog(child.pid, Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(600)
"""


def test_what_a_killed_command_started_ends_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    eventually(lambda: not folder.exists())
    eventually(lambda: gone(child))


def test_a_watchdog_that_is_called_off_ends_nobody(tmp_path: Path) -> None:
    watchdog = Watchdog(os.getpid(), tmp_path)
    watchdog.call_off()
    assert tmp_path.exists()


def gone(pid: int) -> bool:
    """Or a zombie whom nobody waits for: its parent was killed, and in a container there may be no init."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def eventually(done: object) -> None:
    assert callable(done)
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until
        time.sleep(0.02)
