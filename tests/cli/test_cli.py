"""The command line, in this process: what it prints where, its exit codes, and that no error is a traceback."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import agents.kafka.lifecycle.logs
import agents.worker.process
from agents.cli.app import COMMANDS
from agents.cli.demo import next_lines
from agents.cli.run import trusted_steps
from agents.kafka.lifecycle.leaving import Leaving
from agents.readers.operator import doctor
from agents.readers.operator.doctor import config_findings
from agents.readers.watch import server
from agents.show.explain.words import promise
from schemas.config import Config, load_config, parse_config, with_overrides
from schemas.errors import PrivstreamError
from tests.commands import call
from tests.kafka.support import job_config, stream_table

pytestmark = pytest.mark.seconds(0.4)

EXAMPLES = Path(__file__).parents[2] / "examples"
TAXI = EXAMPLES / "taxi.toml"
OWN = EXAMPLES / "own-cluster.toml"
FILE = EXAMPLES / "nyc_taxi" / "taxi_2016_01_sample_20k.csv.gz"


@pytest.fixture(autouse=True)
def keys(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples name secrets of the working folder."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("user.key", "rides.key"):
        (folder / name).write_bytes(bytes(32))
        (folder / name).chmod(0o600)
    monkeypatch.chdir(folder)


RIDES = """
[job]
data_dir = "rides-data"
[kafka]
bootstrap = "127.0.0.1:9"
[[streams]]
name = "rides"
engine = "spatial"
source = "app.rides"
[streams.privacy]
epsilon = 1.0
user = "user_id"
max_contributions = 20
per = "28d"
user_key_file = "rides.key"
[streams.time]
field = "at"
start = "now"
step = "15min"
[streams.domain]
kind = "box"
x = "lon"
y = "lat"
bounds = [13.08, 52.33, 13.77, 52.68]
"""
NOWHERE = "127.0.0.1:9"  # discard: nobody listens


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIVSTREAM_BOOTSTRAP", raising=False)


def as_json(result: Result) -> dict[str, Any]:
    value = json.loads(result.stdout)
    assert isinstance(value, dict)
    return value


def broken(tmp_path: Path) -> Path:
    text = TAXI.read_text().replace("epsilon = 1.0", "epsilon = 0").replace('clock = "replay"', 'clok = "replay"')
    text = text.replace('file = "', f'file = "{EXAMPLES}/')
    path = tmp_path / "broken.toml"
    path.write_text(text)
    return path


def test_every_command_has_help() -> None:
    assert COMMANDS[0] == "demo"
    for name in COMMANDS:
        result = call(name, "--help")
        assert result.exit_code == 0
        assert "CONFIG" in result.output or name in ("demo", "init")


def test_version_and_no_arguments() -> None:
    assert call("--version").output.startswith("privstream 0.")
    assert "validate" in call().output


def test_validate_says_what_is_promised() -> None:
    result = call("validate", OWN)
    assert result.exit_code == 0
    assert "rides: app.rides -> rides.synthetic" in result.stdout
    assert "Everything that one user (field user_id) contributes" in result.stdout
    taxi = call("validate", TAXI)
    assert "NOT people" in taxi.stdout
    assert "ATTENTION" in taxi.stderr


def test_validate_says_how_large_the_noise_is_before_anything_is_launched(tmp_path: Path) -> None:
    assert "Noise of one release, 95 %: one leaf ±63, " in call("validate", OWN).stdout
    path = tmp_path / "large.toml"
    path.write_text(OWN.read_text().replace("max_contributions = 20", "max_contributions = 5000"))
    [stream] = as_json(call("validate", path, "--json"))["streams"]
    assert stream["expected_error"]["within"]["one leaf"] == pytest.approx(250 * 63, rel=0.01)
    assert stream["expected_error"]["unit"] == "counts"


def test_validate_says_how_many_steps_a_start_long_ago_brings(tmp_path: Path) -> None:
    path = tmp_path / "rides.toml"
    path.write_text(RIDES.replace('start = "now"', 'start = "1996-01-01T00:00:00"'))
    assert re.search(r"1,\d\d\d,\d\d\d steps are over and not published", call("validate", path).output)
    [stream] = as_json(call("validate", path, "--json"))["streams"]
    assert any("a later [streams.time] start" in remark for remark in stream["remarks"])
    path.write_text(RIDES)
    assert "are over" not in call("validate", path).output


def test_validate_lists_every_problem_with_its_fix(tmp_path: Path) -> None:
    result = call("validate", broken(tmp_path))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "the configuration is refused: 2 problems" in result.stderr
    assert 'streams[0].privacy.epsilon (line 20)\n    stream "taxi": must be greater than 0\n    fix: ' in result.stderr
    assert "did you mean clock?" in result.stderr


def test_validate_for_machines(tmp_path: Path) -> None:
    good = as_json(call("validate", TAXI, "--json"))
    assert good["ok"] is True
    assert good["streams"][0]["public"] == ["taxi.synthetic", "taxi.measurements", "taxi.ledger"]
    assert good["streams"][0]["epsilon"] == "1"
    result = call("validate", broken(tmp_path), "--json")
    assert result.exit_code == 2
    bad = as_json(result)
    assert bad["ok"] is False
    assert {"key", "reason", "fix", "line"} == set(bad["problems"][0])
    assert len(bad["problems"]) == 2


def test_a_configuration_that_is_not_there() -> None:
    result = call("validate", "/nowhere.toml")
    assert result.exit_code == 2
    assert "/nowhere.toml" in result.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "at most 20 events in each aligned period of 28d, is hidden with epsilon = 1 a period: epsilon = 2 over"),
        ({"epsilon = 1.0": "epsilon = 0.10"}, "epsilon = 0.1 a period: epsilon = 1/5 = 0.2 over"),
        ({'per = "28d"': ""}, "in the whole life of the stream, is hidden with epsilon = 1."),
        ({"max_contributions = 20": "max_contributions = 20\nmax_per_step = 3"}, "at most 20 events, 3 a step"),
    ],
)
def test_promises(change: dict[str, str], said: str) -> None:
    text = RIDES
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    assert said in promise(parse_config(text).streams[0])


def test_topics_are_listed_without_a_cluster() -> None:
    result = call("topics", TAXI)
    assert result.exit_code == 0
    assert [line.split()[1] for line in result.stdout.splitlines() if line.startswith("taxi.synthetic")] == ["public"]
    listed = as_json(call("topics", TAXI, "--json"))["topics"]
    assert {topic["audience"] for topic in listed} == {"private", "public", "operator"}


def test_readers_get_public_topics_only() -> None:
    lines = call("topics", OWN, "--acls", "--reader", "User:ann").stdout.splitlines()
    (topics, group) = (line.partition(" --add ")[2] for line in lines if "User:ann" in line)
    rights = "--allow-principal User:ann --operation Read"
    assert topics == f"{rights} --topic rides.synthetic --topic rides.measurements --topic rides.ledger"
    assert group == f"{rights} --group ann"
    named = call("topics", OWN, "--acls", "--reader", "User:ann", "--reader-group", "maps").stdout.splitlines()
    assert named[-1].endswith(f"{rights} --group maps")


@pytest.mark.parametrize(
    "arguments",
    [("topics", TAXI, "--check"), ("topics", TAXI, "--create"), ("status", TAXI), ("replay", TAXI, FILE)],
)
def test_no_broker_is_one_clean_block(monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...]) -> None:
    monkeypatch.setenv("PRIVSTREAM_BOOTSTRAP", NOWHERE)
    result = call(*arguments)
    assert result.exit_code == 2
    assert NOWHERE in result.stderr
    assert len(result.stderr.splitlines()) <= 4
    machine = as_json(call(*arguments, "--json"))
    assert machine["ok"] is False
    assert machine["error"] == "BrokerError"
    [problem] = machine["problems"]
    assert problem["reason"].endswith("nothing listens there.")
    assert problem["fix"] == "start the broker or correct kafka.bootstrap"
    assert f"\n  fix: {problem['fix']}\n" in result.stderr


def test_doctor_says_what_to_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone = as_json(call("doctor", "--json"))
    assert alone["ok"] is True
    assert {finding["what"] for finding in alone["findings"]} == {"python", "libraries", "java"}
    key = tmp_path / "key"
    key.write_bytes(b"short")
    key.chmod(0o644)
    text = RIDES.replace("rides.key", str(key)).replace("rides-data", str(tmp_path / "data"))
    config = tmp_path / "job.toml"
    config.write_text(text)
    monkeypatch.setenv("PRIVSTREAM_BOOTSTRAP", NOWHERE)

    def findings() -> dict[str, str]:
        result = call("doctor", config, "--json")
        assert result.exit_code == 1  # no broker
        return {each["what"]: f"{each['verdict']}: {each['detail']}" for each in as_json(result)["findings"]}

    assert "at least 16 are needed" in findings()["user key of rides"]
    key.write_bytes(b"k" * 32)
    assert "open to others" in findings()["user key of rides"]
    key.chmod(0o600)
    assert findings()["user key of rides"].startswith("ok")
    assert findings()["kafka"].startswith("problem")
    key.unlink()
    assert "No such file" in findings()["user key of rides"]
    told = call("doctor", config)
    assert "fix: head -c 32 /dev/urandom" in told.stdout
    assert "nothing listens there.\n      fix: start the broker or correct kafka.bootstrap\n" in told.stdout
    assert "What to do" not in told.stdout, "it says one fix, and not the message's and another"


@pytest.mark.parametrize(
    ("mode", "group", "verdict", "said"),
    [
        (0o600, 4242, "ok", ""),
        (0o400, 4343, "ok", ""),
        (0o440, 4242, "warning", "group 4242 too"),  # a volume with fsGroup
        (0o640, 4243, "warning", "group 4243 too"),  # its own group, where it has no others
        (0o440, 0, "warning", "group 0 (root) too"),
        (0o440, 4343, "problem", "open to group 4343"),
        (0o460, 4242, "problem", "open to others (-r--rw----)"),
        (0o444, 4242, "problem", "open to others"),
        (0o604, 4242, "problem", "open to others"),
    ],
)
def test_doctor_says_who_else_may_read_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, group: int, verdict: str, said: str
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(mode)
    found = key.stat()
    monkeypatch.setattr(os, "getegid", lambda: 4243)
    monkeypatch.setattr(os, "getgroups", lambda: [4242])
    state = os.stat_result((*found[:5], group, *found[6:]))
    finding = doctor._who_may_read("user key of rides", key, state)
    assert finding.verdict == verdict
    assert said in finding.detail
    assert bool(finding.fix) == (verdict != "ok")


def test_doctor_looks_at_every_file_with_a_secret(tmp_path: Path) -> None:
    files = {key: tmp_path / key for key in ("password", "key", "key-password", "registry")}
    for file in files.values():
        file.write_text("s3cret")
        file.chmod(0o644)
    files["key"].chmod(0o600)
    secured = (
        f'bootstrap = "{NOWHERE}"\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "me"\n'
        f'sasl_password_file = "{files["password"]}"\nssl_certfile = "none.pem"\nssl_keyfile = "{files["key"]}"\n'
        f'ssl_key_password_file = "{files["key-password"]}"\n[kafka.registry]\nurl = "https://localhost:1"\n'
        f'username = "me"\npassword_file = "{files["registry"]}"\n'
    )
    config = parse_config(f"[kafka]\n{secured}{RIDES[RIDES.index('[[streams]]') :]}")
    found = {each.what: each.verdict for each in doctor.config_findings(config) if each.what.endswith("file")}
    open_ones = ("sasl_password_file", "ssl_key_password_file", "registry.password_file")
    assert found == {**{f"kafka.{key}": "problem" for key in open_ones}, "kafka.ssl_keyfile": "ok"}


def test_doctor_reports_a_refused_configuration(tmp_path: Path) -> None:
    result = call("doctor", broken(tmp_path))
    assert result.exit_code == 1
    assert "FIX   configuration" in result.stdout


def test_run_refuses_levels_that_do_not_exist() -> None:
    assert "'LOUD' is not one of" in call("run", TAXI, "--log-level", "LOUD").stderr


def test_replay_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    assert "no such file" in call("replay", TAXI, tmp_path / "a.csv").stderr
    result = call("replay", OWN, FILE)
    assert result.exit_code == 2
    assert 'clock = "replay"' in result.stderr
    assert "no stream 'x'" in call("replay", TAXI, FILE, "--stream", "x").stderr


def test_simulate_prints_that_its_numbers_are_not_private(few_trips: Path, tmp_path: Path) -> None:
    result = call("simulate", TAXI, few_trips, "--out", tmp_path, "--epsilon", "0.5", "--insecure-seed", 1)
    assert result.exit_code == 0
    assert "NOT PRIVATE" in result.stderr
    assert "anybody can repeat" in result.stderr
    assert "4 steps" in result.stdout
    assert "epsilon 0.5" in result.stdout
    assert str(tmp_path / "report.html") in result.stdout


def test_simulate_in_another_mode_names_the_options_that_it_leaves_out(few_trips: Path, tmp_path: Path) -> None:
    config = tmp_path / "taxi.toml"
    config.write_text(TAXI.read_text().replace("depth = 18", "max_leaves = 64\ndepth = 10"))
    folder = TAXI.parent
    config.write_text(re.sub(r'file = "(?=[\w/]+\.geojson)', f'file = "{folder}/', config.read_text()))
    done = call("simulate", config, few_trips, "--out", tmp_path / "out", "--mode", "paper")
    assert done.exit_code == 0, done.stderr
    assert "options.max_leaves has no effect in mode paper and is left out" in done.stderr
    same = call("simulate", config, few_trips, "--out", tmp_path / "same", "--mode", "default")
    assert "left out" not in same.stderr


def test_simulate_for_machines_and_with_wrong_overrides(few_trips: Path, tmp_path: Path) -> None:
    result = as_json(call("simulate", TAXI, few_trips, "--out", tmp_path, "--json"))
    assert result["private"] is False
    assert result["streams"][0]["steps"] == 4
    assert set(result["streams"][0]["metrics"]) == {"error_small", "error_medium", "error_large"}
    refused = call("simulate", TAXI, few_trips, "--out", tmp_path, "--mode", "magic")
    assert refused.exit_code == 2
    assert "mode" in refused.stderr
    assert "not a number" in call("simulate", TAXI, few_trips, "--out", tmp_path, "--epsilon", "lots").stderr


@pytest.mark.parametrize(
    ("version", "limit", "kept"),
    [
        ("0.15.3", "==0.15.3", True),
        ("0.15.4", "==0.15.3", False),
        ("2.0", "==2", True),
        ("0.14.0", "<0.15", True),
        ("0.15.0", "<0.15", False),
        ("1.10.1", ">=1.9", True),
        ("1.8.9rc1", ">=1.9", False),
        ("3", "~=2.0", False),
        ("1.0", ">=2; python_version < '3'", True),  # not for this Python
        ("1.0", ">=2; extra == 'demo'", True),  # not asked for
    ],
)
def test_a_library_that_is_not_as_asked_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, version: str, limit: str, kept: bool
) -> None:
    monkeypatch.setattr("agents.readers.operator.doctor.metadata.requires", lambda _: [f"thing{limit}"])
    monkeypatch.setattr("agents.readers.operator.doctor.metadata.version", lambda _: version)
    (finding,) = doctor._libraries()
    assert (finding.verdict == "ok") is kept, finding


def test_what_asks_no_cluster_needs_no_kafka_section(few_trips: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    path = tmp_path / "examples" / TAXI.name
    path.write_text(re.sub(r"\[kafka\]\n(?:.+\n)*", "", TAXI.read_text()))
    assert "[kafka]" not in path.read_text()
    assert call("simulate", path, few_trips, "--out", tmp_path / "out").exit_code == 0
    assert call("explain", path).exit_code == 0
    refused = call("validate", path)
    assert refused.exit_code == 2
    assert "kafka" in refused.stderr


def test_a_missing_user_key_is_refused_before_anything_runs() -> None:
    Path("user.key").unlink()
    refused = call("validate", OWN)
    assert refused.exit_code == 2
    assert "user_key_file" in refused.stderr
    assert "head -c 32 /dev/urandom" in refused.stderr


# --- run --trust-ledger: what a person vouches for is named exactly, or refused before anything starts ---


def of_streams(folder: Path, *names: str, witness: str | None = "/witness") -> Config:
    more: dict[str, Any] = {} if witness is None else {"witness": witness}
    return job_config("localhost:1", folder, streams=[stream_table(name) for name in names], **more)


def test_streams_and_steps(tmp_path: Path) -> None:
    both = of_streams(tmp_path, "a", "b")
    assert trusted_steps(both, []) == {}
    assert trusted_steps(both, ["b=7", "a=0"]) == {"a": 0, "b": 7}
    assert trusted_steps(of_streams(tmp_path, "a"), ["7"]) == {"a": 7}


@pytest.mark.parametrize("given", [["7"], ["c=7"], ["a"], ["a="], ["a=-1"], ["a=x"], ["a=1", "a=2"]])
def test_what_names_no_stream_and_step_is_refused(tmp_path: Path, given: list[str]) -> None:
    with pytest.raises(PrivstreamError, match="write STREAM=STEP"):
        trusted_steps(of_streams(tmp_path, "a", "b"), given)


def test_without_a_witness_there_is_nothing_to_trust(tmp_path: Path) -> None:
    with pytest.raises(PrivstreamError, match="nothing to do"):
        trusted_steps(of_streams(tmp_path, "a", witness=None), ["a=1"])


# --- an epsilon that promises next to nothing is said wherever a configuration is looked at or run ---


EXAMPLE = Path(__file__).parents[2] / "examples" / "taxi.toml"
SAID = "stream taxi: epsilon above 10 promises little"


def config(epsilon: float) -> Config:
    return with_overrides(load_config(EXAMPLE, {}), mode=None, epsilon=epsilon)


@pytest.mark.parametrize(("epsilon", "said"), [(10, False), (10.5, True)])
def test_doctor(epsilon: float, said: bool) -> None:
    assert any(SAID in each.detail for each in config_findings(config(epsilon))) == said


@pytest.mark.parametrize(("epsilon", "said"), [(10, False), (10.5, True)])
def test_a_worker(epsilon: float, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = re.sub(r"(?m)^epsilon = .*$", f"epsilon = {epsilon}", EXAMPLE.read_text())
    (tmp_path / "taxi.toml").write_text(text.replace("nyc_taxi/", f"{EXAMPLE.parent}/nyc_taxi/"))
    ran: list[Any] = []
    monkeypatch.setattr(Leaving, "install", lambda self: None)  # signals and logs of this process stay as they are
    monkeypatch.setattr(agents.kafka.lifecycle.logs, "set_up", lambda level, form: None)
    monkeypatch.setattr(agents.worker.process, "run_worker", lambda loaded, **_: ran.append(loaded))
    done = call("run", tmp_path / "taxi.toml")
    assert ran, done.output
    assert (SAID in done.stderr) == said


def test_the_page_shows_the_sentence_it_is_sent() -> None:
    text = (Path(server.__file__).parent / "assets" / "ledger.js").read_text()
    assert 's.epsilon_warning ? [element("p", { class: "bad" }, s.epsilon_warning)]' in text


# --- what the demo says to type next can be typed: in a clone, and where a wheel is installed ---


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("in_clone", [True, False])
def test_each_file_that_is_named_is_there(in_clone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once an installed wheel named `.venv` and `examples` of a folder that had neither."""
    if in_clone:
        (tmp_path / "examples").symlink_to(ROOT / "examples")
        (tmp_path / ".venv" / "bin").mkdir(parents=True)
        for name in ("python", "privstream"):
            (tmp_path / ".venv" / "bin" / name).touch()
    monkeypatch.chdir(tmp_path)
    typed = [line for line in next_lines("127.0.0.1:9092", ["taxi"]) if line.startswith("  ") and "#" not in line]
    assert len(typed) == 3
    named = [word for line in typed for word in shlex.split(line) if "/" in word]
    assert len(named) >= 5
    assert [word for word in named if not Path(word).exists()] == []
    assert all(Path(word).is_absolute() != in_clone for word in named)
