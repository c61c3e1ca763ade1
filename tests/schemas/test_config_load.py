"""Good configurations: read from files, overridden by the environment, written and read again.

Durations and budgets are exact: what is written is what is used.
"""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from schemas.config import (
    Config,
    ConfigError,
    config_from_mapping,
    format_duration,
    load_config,
    parse_config,
    with_overrides,
)
from schemas.config.engines.spatial import SpatialOptions
from schemas.config.values import UNITS_US, Section, exact_decimal, microseconds, parse_duration, sections_below

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
TAXI = next(path for path in EXAMPLES if path.name == "taxi.toml")
OWN = next(path for path in EXAMPLES if path.name == "own-cluster.toml")


def own(**changes: tuple[str, str]) -> Config:
    text = OWN.read_text()
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new, 1)
    return parse_config(text)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_good_and_round_trip(path: Path) -> None:
    config = load_config(path)
    assert config_from_mapping(config.model_dump()) == config
    assert config_from_mapping(json.loads(config.model_dump_json())) == config
    assert hash(config) == hash(load_config(str(path)))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_commented_keys_of_the_examples_are_keys(path: Path) -> None:
    known = {key for model in sections_below(Section) for key in model.key_names()}
    for line in path.read_text().splitlines():
        if line.startswith("# ") and " = " in line and line[2:].split(" = ")[0].isidentifier():
            assert line[2:].split(" = ")[0] in known


def test_the_file_of_the_architecture() -> None:
    stream = load_config(TAXI).stream("taxi")
    assert stream.time.step == timedelta(days=1)
    assert (stream.time.shortest_us, stream.time.grace_us) == (86_400_000_000, 30_000_000)
    assert stream.time.start_us == 1_451_624_400_000_000  # midnight in New York is 05:00 UTC
    assert stream.event_epsilon == 1
    assert SpatialOptions.from_stream(stream).depth == 18
    assert stream.domain.fields == ("pickup_longitude", "pickup_latitude")
    assert not stream.checks_partition
    with pytest.raises(KeyError):
        load_config(TAXI).stream("bus")


def test_nothing_can_be_changed_afterwards() -> None:
    config = load_config(TAXI)
    with pytest.raises(ValidationError):
        config.streams[0].privacy.epsilon = 2  # type: ignore[assignment,misc]


@given(st.decimals("0.001", 1000, places=9).map(str), st.integers(1, 1000))
def test_the_event_budget_is_an_exact_share(written: str, contributions: int) -> None:
    document = load_config(OWN).model_dump()
    document["streams"][0]["privacy"] |= {"epsilon": written, "max_contributions": contributions}
    stream = config_from_mapping(document).streams[0]
    assert stream.privacy.epsilon_fraction == Fraction(written)
    assert stream.event_epsilon * contributions == Fraction(written)


@pytest.mark.parametrize("written", ["0.1", '"0.1"', "1e-1", "0.10"])
def test_epsilon_is_exact_from_the_file(written: str) -> None:
    config = own(epsilon=("epsilon = 1.0", f"epsilon = {written}"))
    assert config.streams[0].privacy.epsilon_fraction == Fraction(1, 10)
    assert config.streams[0].event_epsilon == Fraction(1, 200)
    assert config.streams[0].fingerprint_fields()["privacy"]["epsilon"] == "1/10"


def test_charges_of_inserts_and_deletes() -> None:
    plain, op = own(), own(op=('# op = "action" ', 'op = "action" '))
    ttl = own(ttl=('# ttl = "7d" ', 'ttl = "7d" '))
    measured = own(ttl=('# ttl = "7d" ', 'ttl = "7d" '), mode=('mode = "default"', 'mode = "paper"'))
    assert [config.streams[0].insert_charge for config in (plain, op, ttl, measured)] == [1, 1, 1, 2]
    assert {config.streams[0].event_epsilon for config in (plain, op, ttl, measured)} == {Fraction(1, 20)}


def test_an_event_that_expires_by_itself_makes_two_changes_where_that_is_measured() -> None:
    text, folder = TAXI.read_text(), TAXI.parent
    assert parse_config(text, folder=folder).streams[0].event_epsilon == 1
    text = text.replace("[streams.options]", 'ttl = "1d"\n[streams.options]')
    assert parse_config(text, folder=folder).streams[0].event_epsilon == 1
    text = text.replace('engine = "spatial"', 'engine = "spatial"\nmode = "paper"')
    assert parse_config(text, folder=folder).streams[0].event_epsilon == Fraction(1, 2)


@pytest.mark.parametrize(
    ("start", "start_us"),
    [
        ('"2016-01-01"', 1_451_624_400_000_000),
        ("2016-01-01", 1_451_624_400_000_000),
        ("2016-01-01T00:00:00.5", 1_451_624_400_500_000),
        ('"2016-11-06T01:30:00"', 1_478_410_200_000_000),  # there are two: the earlier
    ],
)
def test_start_is_local(start: str, start_us: int) -> None:
    config = parse_config(TAXI.read_text().replace('"2016-01-01T00:00:00"', start), folder=TAXI.parent)
    assert config.streams[0].time.start_us == start_us


def test_a_live_stream_starts_now_or_in_the_past() -> None:
    assert own().streams[0].time.start_us is None
    assert own(start=('start = "now"', 'start = "2001-01-01T00:00:00"')).streams[0].time.start_us == 978_303_600_000_000


GUARANTEED: dict[str, tuple[str, Any]] = {
    "epsilon": ("privacy", "0.5"),
    "max_contributions": ("privacy", 3),
    "user": ("privacy", "other"),
    "per": ("privacy", "56d"),
    "step": ("time", "30min"),
    "max_ahead": ("time", 3),
    "field": ("time", "other"),
    "bounds": ("domain", [0, 0, 1, 1]),
    "op": ("domain", "action"),
    "depth": ("options", 10),
    "max_leaves": ("options", 512),
    "source": ("", "other"),
    "mode": ("", "paper"),
    "partitioner": ("", "crc32"),
}
CHANGEABLE: dict[str, tuple[str, Any]] = {
    "grace": ("time", "1min"),
    "user_key_file": ("privacy", "/elsewhere"),
    "audit": ("", "other"),
    "publish_delay": ("", "5s"),
    "allow_compacted": ("", True),
}


@pytest.mark.parametrize("key", [*GUARANTEED, *CHANGEABLE])
def test_the_fingerprint_holds_what_the_guarantee_rests_on(key: str) -> None:
    document = load_config(OWN).model_dump()
    before = config_from_mapping(document).streams[0].fingerprint_fields()
    assert json.loads(json.dumps(before, allow_nan=False)) == before
    section, value = (GUARANTEED | CHANGEABLE)[key]
    stream = document["streams"][0]
    (stream[section] if section else stream)[key] = value
    after = config_from_mapping(document).streams[0].fingerprint_fields()
    assert (before != after) == (key in GUARANTEED)


def test_equal_writings_have_equal_fingerprints() -> None:
    other = own(step=('"15min"', '"900s"'), per=('"28d"', '"4w"'), epsilon=("epsilon = 1.0", "epsilon = 1.00"))
    assert other.streams[0].fingerprint_fields() == own().streams[0].fingerprint_fields()


def test_overrides_are_checked() -> None:
    config = with_overrides(load_config(TAXI), mode="paper", epsilon=0.1)
    assert config.streams[0].mode == "paper"
    assert config.streams[0].event_epsilon == Fraction(1, 10)
    assert with_overrides(config) == config
    with pytest.raises(ConfigError, match=r"streams\[0\]\.mode") as caught:
        with_overrides(config, mode="fast", epsilon="0")
    assert [problem.key for problem in caught.value.problems] == ["streams[0].privacy.epsilon", "streams[0].mode"]


# The environment.


def test_the_environment_wins_over_the_file() -> None:
    environment = {
        "PRIVSTREAM_BOOTSTRAP": "broker:1234",
        "PRIVSTREAM_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "PRIVSTREAM_KAFKA__SASL_MECHANISM": "PLAIN",
        "PRIVSTREAM_KAFKA__SASL_USERNAME": "me",
        "PRIVSTREAM_KAFKA__SASL_PASSWORD_FILE": "/secret",
        "PRIVSTREAM_KAFKA__SESSION_TIMEOUT_S": "6",
        "PRIVSTREAM_JOB__NAME": "12",
        "PRIVSTREAM_JOB__HTTP_PORT": "9999",
        "PRIVSTREAM_JOB__KEEP_PRIVATE_LOG": "true",
        "PRIVSTREAM_FAILPOINT": "somebody else's",
        "HOME": "/",
    }
    config = load_config(OWN, environment)
    assert config.kafka.servers == ("broker:1234",)
    assert config.kafka.sasl_password_file == Path("/secret")
    assert config.kafka.session_timeout_s == 6
    assert (config.job.name, config.job.http_port, config.job.keep_private_log) == ("12", 9999, True)
    assert config.streams == load_config(OWN).streams


def test_the_environment_can_add_sections() -> None:
    text = TAXI.read_text().replace('bootstrap = "localhost:9092"', "")
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap \(line \d+\): missing"):
        parse_config(text, folder=TAXI.parent)
    config = parse_config(text, {"PRIVSTREAM_BOOTSTRAP": "a:1,b:2"}, folder=TAXI.parent)
    assert config.kafka.servers == ("a:1", "b:2")


def test_the_environment_reaches_the_registry() -> None:
    own = OWN.read_text().replace("[[streams]]", '[kafka.registry]\nurl = "https://r:8081"\n\n[[streams]]', 1)
    login = {"PRIVSTREAM_KAFKA__REGISTRY__USERNAME": "12", "PRIVSTREAM_KAFKA__REGISTRY__PASSWORD_FILE": "/password"}
    registry = parse_config(own, login).kafka.registry
    assert registry is not None
    assert (registry.url, registry.username, registry.password_file) == ("https://r:8081", "12", Path("/password"))
    alone = parse_config(OWN.read_text(), {"PRIVSTREAM_KAFKA__REGISTRY__URL": "https://r:8082"}).kafka.registry
    assert alone is not None
    assert alone.url == "https://r:8082"
    with pytest.raises(ConfigError, match=r"kafka\.registry\.url .*missing"):
        parse_config(OWN.read_text(), login)


def test_the_user_key_file_reaches_streams_that_name_none() -> None:
    environment = {"PRIVSTREAM_USER_KEY_FILE": "/key"}
    assert load_config(TAXI, environment).streams[0].privacy.user_key_file is None  # no users there
    assert load_config(OWN, environment).streams[0].privacy.user_key_file == Path("user.key")
    text = "\n".join(line for line in OWN.read_text().splitlines() if not line.startswith("user_key_file"))
    assert parse_config(text).streams[0].privacy.user_key_file is None
    assert parse_config(text, environment).streams[0].privacy.user_key_file == Path("/key")


@pytest.mark.parametrize(
    ("variable", "value", "key", "fix"),
    [
        ("PRIVSTREAM_KAFKA__BOOTSTRP", "hunter2", "PRIVSTREAM_KAFKA__BOOTSTRP", "PRIVSTREAM_KAFKA__BOOTSTRAP"),
        ("PRIVSTREAM_STREAMS__EPSILON", "hunter2", "PRIVSTREAM_STREAMS__EPSILON", "unset"),
        ("PRIVSTREAM_KAFKA__REGISTRY", "hunter2", "PRIVSTREAM_KAFKA__REGISTRY", "PRIVSTREAM_KAFKA__REGISTRY__<KEY>"),
        (
            "PRIVSTREAM_KAFKA__REGISTRY__PASWORD_FILE",
            "hunter2",
            "PRIVSTREAM_KAFKA__REGISTRY__PASWORD_FILE",
            "PRIVSTREAM_KAFKA__REGISTRY__PASSWORD_FILE",
        ),
        (
            "PRIVSTREAM_KAFKA__PARTITIONS__A",
            "hunter2",
            "PRIVSTREAM_KAFKA__PARTITIONS__A",
            "PRIVSTREAM_KAFKA__PARTITIONS",
        ),
        ("PRIVSTREAM_JOB__", "hunter2", "PRIVSTREAM_JOB__", "unset"),
        ("PRIVSTREAM_KAFKA__PARTITIONS", "hunter2", "kafka.partitions", "whole number"),
        ("PRIVSTREAM_BOOTSTRAP", "hunter2", "kafka.bootstrap", "host:9092"),
    ],
)
def test_the_environment_is_checked_like_the_file(variable: str, value: str, key: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(TAXI, {variable: value})
    (problem,) = caught.value.problems
    assert problem.key == key
    assert fix in problem.fix
    assert "hunter2" not in str(caught.value)


# Files.


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read"), (b"\xff\xfe", "not UTF-8"), (b"#" * (1 << 20) + b"#", "larger"), (b"[", "not TOML")],
)
def test_unusable_files(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "c.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    (problem,) = caught.value.problems
    assert problem.key == str(path)
    assert reason in problem.reason


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


CENTURY_US = 100 * 366 * UNITS_US["d"]


@given(st.integers(-CENTURY_US, CENTURY_US))
def test_durations_survive_being_written_and_read(total_us: int) -> None:
    duration = timedelta(microseconds=total_us)
    assert parse_duration(format_duration(duration)) == duration
    assert microseconds(duration) == total_us


@given(st.lists(st.tuples(st.integers(0, 500), st.sampled_from(sorted(UNITS_US))), min_size=1, max_size=4))
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{count}{unit}" for count, unit in parts)
    assert microseconds(parse_duration(text)) == sum(count * UNITS_US[unit] for count, unit in parts)


@given(st.integers(0, 10**12), st.integers(0, 3))
def test_fractions_of_seconds_are_exact(digits: int, places: int) -> None:
    text = f"{Decimal(digits).scaleb(-places):f}"
    assert microseconds(parse_duration(f"{text}ms")) == Fraction(text) * 1000


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        duration = parse_duration(text)
    except PydanticCustomError:
        return
    assert parse_duration(format_duration(duration)) == duration


@given(st.decimals(min_value="1e-9", max_value="1000", allow_nan=False, allow_infinity=False, places=9))
def test_numbers_are_what_is_written(number: Decimal) -> None:
    for text in (str(number), f"{number:f}"):
        assert Fraction(exact_decimal(text)) == Fraction(text)


@given(st.floats(1e-9, 1000))
def test_floats_go_through_their_shortest_text(value: float) -> None:
    assert Fraction(exact_decimal(value)) == Fraction(repr(value))
