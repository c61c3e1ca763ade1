"""Bad input: budgets that are none, and a configuration changed in mid-stream in a way that touches the guarantee."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from agents.protocol.fingerprint import Fingerprint, holding
from engines.core.counters.linear import check_activation
from engines.core.counters.simple import SimpleCounter
from engines.core.noise import scale_for
from engines.spatial.split import SplitRule
from schemas.config import Stream
from schemas.config.engines.spatial import BoxDomainSection, SpatialOptions
from schemas.config.formats import CsvSection
from schemas.config.mapping import MapSection
from schemas.config.output import OutputSection
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.errors import ConfigError, EngineInputError, FingerprintError
from tests.cli.explain_support import EVENT, USER, config, series, toml
from tests.commands import call

# --- budgets that are none ---

NO_BUDGET = [
    ("epsilon", value, privacy)
    for value in ("0", "0.0", "-1", "-0.5", "nan", "-nan", "inf", "-inf", "1e-400", "true", '"one"')
    for privacy in (USER, EVENT)
] + [("delta", value, USER) for value in ("-1e-9", "-1", "nan", "inf", "-inf", "1", "2.0", '"small"', "1e-6")]


@pytest.mark.parametrize(("key", "value", "privacy"), NO_BUDGET)
def test_a_budget_that_is_none_is_refused_with_key_reason_and_fix(
    key: str, value: str, privacy: str, tmp_path: Path
) -> None:
    text = toml(epsilon=value, privacy=privacy) if key == "epsilon" else toml(privacy=f"{privacy}\ndelta = {value}")
    with pytest.raises(ConfigError):
        config(text)
    file = tmp_path / "job.toml"
    file.write_text('[kafka]\nbootstrap = "localhost:9092"\n' + text)
    result = call("explain", file, "--json")
    assert result.exit_code == 2
    (problem,) = json.loads(result.stdout)["problems"]
    assert problem["key"] == f"streams[0].privacy.{key}"
    assert problem["reason"]
    assert problem["fix"]


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1), 0.5, float("nan"), float("inf"), None])
def test_no_mechanism_takes_a_budget_that_is_none(epsilon: Any) -> None:
    """Below the configuration too: a float is not the number that was proven."""
    for take in (lambda: scale_for(1, epsilon), lambda: SimpleCounter(epsilon=epsilon)):
        with pytest.raises(EngineInputError, match="epsilon must be a positive Fraction"):
            take()
    if isinstance(epsilon, Fraction):
        with pytest.raises(EngineInputError):
            SplitRule(epsilon=epsilon)


def test_a_counter_past_its_horizon_is_refused() -> None:
    check_activation(4, 4)
    check_activation(10**9, None)
    with pytest.raises(EngineInputError, match="as often as its horizon allows"):
        check_activation(5, 4)


# --- a configuration changed in mid-stream ---

BASE: dict[str, Any] = {"privacy": f'{USER}\nmax_per_step = 3\nper = "28d"', "domain": 'ttl = "30d"'}
RUN = {"source_topic_id": "A", "source_partitions": 4, "user_key_id": "k", "job_partitions": 8}


def taken(text: str = "", **run: object) -> Fingerprint:
    (stream,) = config(text or toml(**BASE)).streams
    return Fingerprint(stream.name, {**stream.fingerprint_fields(), **RUN, **run}, "2026-01-01T00:00:00")


def changed(old: str, new: str) -> str:
    text = toml(**BASE)
    assert text.count(old) == 1, old
    return text.replace(old, new)


CHANGES = [
    ("epsilon = 1.0", "epsilon = 1.5", "privacy.epsilon"),
    ("epsilon = 1.0", "epsilon = 0.9999999", "privacy.epsilon"),
    (USER, 'unit = "user"\nuser = "rider"\nmax_contributions = 21', "privacy.max_contributions"),
    ("max_per_step = 3", "max_per_step = 4", "privacy.max_per_step"),
    ("max_per_step = 3", "", "privacy.max_per_step"),
    ("max_per_step = 3", "max_per_step = 3\nsurplus = 5", "privacy.surplus"),
    ('user = "rider"', 'user = "driver"', "privacy.user"),
    ('per = "28d"', 'per = "14d"', "privacy.per_us"),
    ('per = "28d"', "", "privacy.per_us"),
    ('ttl = "30d"', 'ttl = "31d"', "domain.ttl_us"),
    ('ttl = "30d"', 'op = "action"', "domain.op"),
    ("bounds = [13.0", "bounds = [13.1", "domain.bounds"),
    ('x = "lon"', 'x = "longitude"', "domain.x"),
    ('step = "1h"', 'step = "2h"', "time.step_us"),
    ('start = "now"', 'start = "2026-01-01T00:00:00"', "time.start"),
    ('start = "now"', 'start = "now"\ntimezone = "Europe/Berlin"', "time.timezone"),
    ('start = "now"', 'start = "now"\nformat = "ms"', "time.format"),
    ('start = "now"', 'start = "now"\nmax_ahead = 0', "time.max_ahead"),
    ('field = "at"', 'field = "seen"', "time.field"),
    ('source = "raw.rides"', 'source = "raw.other"', "source"),
    ('source = "raw.rides"', 'source = "raw.rides"\npartitioner = "crc32"', "partitioner"),
    ('source = "raw.rides"', 'source = "raw.rides"\nmode = "paper"', "mode"),
    ("depth = 10", "depth = 12", "options.depth"),
    ("depth = 10", "depth = 10\nmax_leaves = 100", "options.max_leaves"),
    ("depth = 10", "depth = 10\ninitial_steps = 2", "options.initial_steps"),
]


@pytest.mark.parametrize(("old", "new", "field"), CHANGES)
def test_a_change_that_touches_the_guarantee_is_refused_and_says_what_to_do(old: str, new: str, field: str) -> None:
    stored = Fingerprint.decode(taken().encode())
    with pytest.raises(FingerprintError, match="stream rides was started with something else") as caught:
        stored.check(taken(changed(old, new)))
    (line,) = [line for line in str(caught.value).splitlines() if line.strip().startswith(f"{field} was")]
    assert "set it back to the stored value, or start a new stream under another name" in line


def test_a_unit_changed_in_mid_stream_is_refused() -> None:
    with pytest.raises(FingerprintError, match=r"privacy.unit was 'user' and is 'event'"):
        taken(toml()).check(taken(toml(privacy=EVENT)))


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("source_topic_id", "B", "deleted and created again"),
        ("source_partitions", 5, "users moved between them"),
        ("user_key_id", "l", "Give back the old key file"),
        ("user_key_id", None, "Give back the old key file"),
        ("job_partitions", 16, "set .kafka. partitions back"),
    ],
)
def test_what_lies_under_the_configuration_must_not_change_either(name: str, value: Any, fix: str) -> None:
    with pytest.raises(FingerprintError, match=fix):
        taken().check(taken(**{name: value}))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (series("paper-binomial"), 2),
        (series("paper-binomial", privacy="max_per_step = 2"), 2),
        (series("paper-binomial", privacy="max_per_step = 1"), None),
        (series("paper"), None),
        (toml(**BASE), None),
        (changed('source = "raw.rides"', 'source = "raw.rides"\nmode = "paper"'), 2),
    ],
)
def test_a_stream_does_not_go_on_with_noise_of_another_law(text: str, version: int | None) -> None:
    """Stored before the law changed, there is no such field; where the law is the old one, there is none now."""
    now = taken(text)
    assert now.fields.get("noise") == version
    before = Fingerprint(now.stream, {name: value for name, value in now.fields.items() if name != "noise"}, now.start)
    if version is None:
        before.check(now)
    else:
        with pytest.raises(FingerprintError, match=r"noise was None and is 2: this version .* draws other noise"):
            before.check(now)


def test_another_mode_is_refused_as_that_and_not_as_noise_of_another_version() -> None:
    """No version of the program would go on with it."""
    with pytest.raises(FingerprintError, match="mode was 'default' and is 'paper'") as caught:
        taken().check(taken(changed('source = "raw.rides"', 'source = "raw.rides"\nmode = "paper"')))
    assert "noise" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('source = "raw.rides"', 'source = "raw.rides"\naudit = "audit.rides"'),
        ('source = "raw.rides"', 'source = "raw.rides"\npublish_delay = "5s"'),
        ('start = "now"', 'start = "now"\ngrace = "2min"'),
        (USER, f'{USER}\nuser_key_file = "/run/secrets/elsewhere"'),
        ("epsilon = 1.0", "epsilon = 1.00"),
        ('step = "1h"', 'step = "60min"'),
    ],
)
def test_what_does_not_touch_it_may_change(old: str, new: str) -> None:
    taken().check(taken(changed(old, new)))


def test_the_first_fingerprint_holds_for_ever() -> None:
    first, second = taken(), taken(changed("epsilon = 1.0", "epsilon = 2.0"))
    assert holding([first.encode(), second.encode()])["rides"].fields["privacy"]["epsilon"] == "1"


def test_the_number_of_partitions_is_raised_by_records_that_follow_from_each_other() -> None:
    first = taken()
    second = first.raised(8)
    third = second.raised(16)
    strange = second.raised(24)
    other = taken(changed("epsilon = 1.0", "epsilon = 2.0")).raised(8)
    for records, partitions in (
        ([first, second], 8),
        ([first, second, second, third], 16),
        ([first, third, second], 8),
        ([first, second, third, strange], 16),
        ([first, other], 4),
        ([first, taken(source_partitions=8)], 4),
    ):
        held = holding([each.encode() for each in records])["rides"]
        assert held.fields["source_partitions"] == partitions
        assert held.fields["privacy"]["epsilon"] == "1"


FREE = {"audit", "allow_compacted", "publish_delay", "grace", "user_key_file"}
"""Keys of a stream that may change while it runs. Any other one must be in the fingerprint: a new key is refused here
until somebody has thought about it."""


def test_every_key_of_a_stream_is_in_the_fingerprint_or_known_to_be_free() -> None:
    (stream,) = config(toml(**BASE)).streams
    # What is absent where it is as it was before there was such a key.
    other: dict[str, Any] = {
        "envelope": "debezium",
        "key_format": "json",
        "format": "csv",
        "csv": CsvSection(),
        "map": MapSection(),
    }
    other["output"] = OutputSection(format="avro")
    fields = {**stream.model_copy(update=other).fingerprint_fields(), **taken().fields}
    flat = set(_names(fields)) | set(fields)
    for model in (Stream, Privacy, Timing, BoxDomainSection, SpatialOptions):
        for key in set(model.model_fields) - FREE - {"privacy", "time", "domain", "options"}:
            assert {key, f"{key}_us"} & flat, f"{model.__name__}.{key} is not in the fingerprint"


def _names(fields: Any) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from value
        else:
            yield name
