"""Steps of the calendar in a configuration: how they are spelt, what is refused, and what must not change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.kafka.fingerprint import fingerprint_now, started
from agents.kafka.topics import TopicIdentity
from agents.protocol.clock import StepClock
from agents.protocol.fingerprint import Fingerprint
from agents.protocol.release.public_records import ledger_entry
from agents.show.explain.words import public, step_warning
from engines.core.accounting.streams import Price, totals
from engines.core.contract import Release
from engines.core.registry import build_engine
from engines.series.build import clock
from schemas import steps as sequence
from schemas import zones
from schemas.config import Config, ConfigError, Stream, format_length, parse_config
from schemas.errors import FingerprintError
from schemas.events import Reason
from schemas.steps import instant

TEXT = """
[job]
name = "job"
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "ev"
engine = "spatial"
source = "raw.ev"
[streams.privacy]
epsilon = 1.0
user = "who"
max_contributions = 4
per = "28 days"
[streams.time]
field = "at"
timezone = "America/New_York"
start = "2024-03-01"
step = "1 day"
clock = "wall"
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0, 0, 10, 10]
ttl = "8 weeks"
"""


def config(*changes: tuple[str, str], text: str = TEXT) -> Config:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_config(text)


def stream(*changes: tuple[str, str]) -> Stream:
    return config(*changes).streams[0]


FIXED = (('"1 day"', '"1d"'), ('"28 days"', '"28d"'), ('"8 weeks"', '"8w"'))
STEP, START, PER, TTL = "time.step", "time.start", "privacy.per", "domain.ttl"


def test_periods_and_lifetimes_are_counted_in_steps() -> None:
    days = stream()
    assert (days.period_steps, days.ttl_steps, days.time.shortest_us) == (28, 56, 12 * 3_600_000_000)
    assert days.time.start_us == 1_709_269_200_000_000
    engine = build_engine(days)
    assert engine.config.ttl_steps == 56  # type: ignore[attr-defined]
    months = stream(('"1 day"', '"1 month"'), ('"28 days"', '"1 year"'), ('"8 weeks"', '"2 quarters"'))
    assert (months.period_steps, months.ttl_steps) == (12, 6)


@pytest.mark.parametrize(
    ("old", "new", "key", "reason", "fix"),
    [
        ('"28 days"', '"28d"', PER, "28d is not a whole number of steps of 1 day", '"2 days"'),
        ('"28 days"', '"1 month"', PER, "not a whole number", "multiple"),
        ('"8 weeks"', '"56d"', TTL, "not a whole number", "multiple"),
        ('step = "1 day"', 'step = "1d"', PER, "28 days is not a whole number of steps of 1d", '"2d"'),
        ('"2024-03-01"', '"2024-03-01T06:00:00"', START, "lies within a day", '"2024-03-02T00:00:00"'),
        ('step = "1 day"', 'step = "1 week"\n', "", "", ""),
        ('"2024-03-01"', '"1799-01-01"', START, "between 1800 and 2299", "local time"),
        ('"2024-03-01"', '"2300-01-01"', START, "between 1800 and 2299", "local time"),
    ],
)
def test_refusals(old: str, new: str, key: str, reason: str, fix: str) -> None:
    if not key:
        assert stream((old, new)).period_steps == 4
        return
    with pytest.raises(ConfigError) as caught:
        config((old, new))
    (problem,) = (each for each in caught.value.problems if each.key == f"streams[0].{key}")
    assert reason in problem.reason
    assert fix in problem.fix


@pytest.mark.parametrize(
    ("step", "start", "well"),
    [
        ("1 month", "2024-03-02", "2024-03-01T00:00:00"),
        ("1 quarter", "2024-03-01", "2024-01-01T00:00:00"),
        ("1 year", "2024-02-01", "2024-01-01T00:00:00"),
        ("12 months", "2024-02-01", None),
        ("1 week", "2024-03-03", None),
        ("2 weeks", "2024-03-03T00:00:01", "2024-02-26T00:00:00"),
    ],
)
def test_a_start_in_the_middle_of_a_unit(step: str, start: str, well: str | None) -> None:
    text = (('"1 day"', f'"{step}"'), ('"2024-03-01"', f'"{start}"'), ('per = "28 days"', ""), ('ttl = "8 weeks"', ""))
    if well is None:
        config(*text)
        return
    with pytest.raises(ConfigError) as caught:
        config(*text)
    (problem,) = caught.value.problems
    assert problem.key == "streams[0].time.start"
    assert f'"{well}"' in problem.fix
    config(*text, (f'"{start}"', f'"{well}"'))


def test_a_day_may_begin_at_a_time_that_clocks_skip() -> None:
    days = stream(('"America/New_York"', '"America/Sao_Paulo"'), ('"2024-03-01"', '"2018-11-04"'))
    assert days.time.start_us is not None
    assert instant(days.time.start_us).isoformat() == "2018-11-04T03:00:00+00:00"


def test_fixed_steps_have_the_fingerprint_that_they_had() -> None:
    fields = stream(*FIXED).fingerprint_fields()
    assert fields["time"] == {
        "field": "at",
        "format": "iso",
        "timezone": "America/New_York",
        "start": "2024-03-01T00:00:00",
        "step_us": 86_400_000_000,
        "clock": "wall",
        "max_ahead": 10,
        "records": "released",
    }
    assert fields["privacy"]["per_us"] == 28 * 86_400_000_000
    assert fields["domain"]["ttl_us"] == 56 * 86_400_000_000
    assert {"per", "step", "ttl"}.isdisjoint({*fields["time"], *fields["privacy"], *fields["domain"]})
    now = asked(stream(*FIXED))
    assert {"begins", "tzdata"}.isdisjoint(now.fields["time"])


def asked(stream: Stream, stored: Fingerprint | None = None) -> Fingerprint:
    found = {stream.source: TopicIdentity("id", 1)}
    return fingerprint_now(stream, config(), found, None, insecure=False, stored=stored)


def test_a_zone_that_moves_a_step_stops_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = asked(stream())
    # Another release of the database that says the same of this zone.
    here = zones.database_version()
    monkeypatch.setattr("schemas.zones.database_version", lambda: "2031c")
    stored.check(asked(stream()))
    monkeypatch.setattr(sequence, "zone", lambda name: zones.zone("America/Toronto"))
    sequence._begins.cache_clear()
    stored.check(asked(stream()))  # the same clocks since 2024
    monkeypatch.setattr(sequence, "zone", lambda name: zones.zone("America/Bogota"))
    sequence._begins.cache_clear()
    with pytest.raises(FingerprintError) as caught:
        stored.check(asked(stream()))
    sequence._begins.cache_clear()
    for said in ("time.begins was", f"(tzdata {here})", "(tzdata 2031c)", "Install tzdata"):
        assert said in str(caught.value)
    assert "time.tzdata was" not in str(caught.value)


def test_a_stream_does_not_change_from_a_duration_to_the_calendar() -> None:
    stored = asked(stream(*FIXED))
    with pytest.raises(FingerprintError, match=r"(?s)domain.ttl was None.*privacy.per_us was.*time.step was None"):
        stored.check(asked(stream()))


def test_now_is_the_unit_that_is_under_way() -> None:
    soon = stream(('"2024-03-01"', '"now"'), ('"1 day"', '"1 week"'))
    assert soon.time.steps is None
    known = soon.time.started_at(datetime(2024, 5, 2, 17, 30, tzinfo=soon.time.zone))
    assert known == "2024-04-29T00:00:00"
    stored = Fingerprint("ev", asked(soon, Fingerprint("ev", {}, known)).fields, known)
    # Asked again at another time it is that of the stored start.
    stored.check(asked(soon, stored))
    clock_ = StepClock.from_stream(started(soon, known))
    assert instant(clock_.start_of(0)).isoformat() == "2024-04-29T04:00:00+00:00"
    # What looks at the source before anybody has started it takes all that there is for its own.
    long_ago = soon.time.steps_from(-(10**17))
    assert long_ago.index(0) > 3000


def test_what_is_said_of_it() -> None:
    days = stream()
    assert step_warning(days) is None
    assert format_length(days.time.step) == "1 day"
    said = " ".join(point.text for point in public(days))
    assert "a step is 1 day of the calendar in America/New_York" in said
    assert step_warning(stream(*FIXED, ('"America/New_York"', '"UTC"'))) is None
    assert step_warning(stream(*FIXED, ('"1d"', '"12h"'))) is None
    warning = step_warning(stream(*FIXED))
    assert warning is not None
    assert "on 2024-03-11" in warning
    assert 'step = "1 day"' in warning
    assert "a step begins at 01:00" in warning
    weekly = step_warning(stream(*FIXED, ('"1d"', '"1w"'), ('"2024-03-01"', '"now"')))
    assert weekly is not None
    assert 'step = "1 week"' in weekly


def entry(stream: Stream) -> bytes:
    said, _ = ledger_entry(
        Release(0, [], [], [], 0), stream, build_engine(stream).guarantee(), spent=Fraction(1, 2), start_us=0, end_us=1,
        digest="", previous_chain="", draw="",
    )  # fmt: skip
    return said


def test_the_ledger_says_periods_of_the_calendar() -> None:
    assert b'"epsilon_per":"28 days"' in entry(stream())
    assert b'"epsilon_per_us":2289600000000' in entry(stream())  # 28 days less what clocks may take from them
    assert b'"epsilon_per"' not in entry(stream(*FIXED))


def test_periods_of_two_zones_do_not_coincide() -> None:
    second = TEXT[TEXT.index("[[streams]]") :].replace('"ev"', '"other"').replace("raw.ev", "raw.other")
    one = ('"America/New_York"', '"Etc/GMT+5"')
    assert totals(config(text=TEXT + second))[0].aligned == Price(Fraction(2), 0)
    assert totals(config(text=TEXT + second.replace(*one)))[0].aligned is None


def test_days_of_the_calendar_have_weeks() -> None:
    readings = [{"name": "v", "of": "value", "limits": [0, 1], "sensitivity": 1}]
    document = stream().model_dump() | {
        "engine": "series",
        "privacy": {"epsilon": 1, "delta": 1e-6},
        "domain": {"kind": "series", "fields": readings},
        "options": {"horizon": 100},
    }

    def told(step: str) -> Any:
        return clock(Stream.model_validate({**document, "time": {**document["time"], "step": step}}))

    found = told("1 day")
    assert (found.period, found.phase) == (7, 4)  # a Friday
    assert found == told("1d")
    assert told("1 month") is None


def test_a_step_is_over_when_its_day_is() -> None:
    clock_ = StepClock.from_stream(stream())
    spring, autumn = datetime(2024, 3, 11, 4, tzinfo=UTC), datetime(2024, 11, 4, 5, tzinfo=UTC)
    for end in (spring, autumn):
        us = (end - sequence.EPOCH) // timedelta(microseconds=1)
        step = clock_.last_over(us, grace_us=0)
        assert clock_.end_of(step) == us
        assert clock_.last_over(us - 1, grace_us=0) == step - 1
        assert clock_.last_over(us + 30, grace_us=31) == step - 1
    assert clock_.last_over(0, grace_us=0) < 0
    assert clock_.end_of(clock_.last_over(0, grace_us=0) + 1) > 0


def test_what_lies_behind_the_last_step_is_too_far_ahead() -> None:
    """Also where its Kafka timestamp says that it came then: there is no such step to hold it for."""
    clock_ = StepClock.from_stream(stream())
    never = np.array([2**61])
    assert clock_.assign(never, ticked=3, arrivals_us=never)[1].tolist() == [Reason.TOO_FAR_AHEAD]
    soon = np.array([clock_.start_of(40)])
    assert clock_.assign(soon, ticked=3, arrivals_us=soon)[1].tolist() == [0]


def test_a_written_configuration_is_read_again(tmp_path: Path) -> None:
    loaded = config()
    dumped = loaded.model_dump(mode="json", exclude_none=True)
    assert dumped["streams"][0]["time"]["step"] == "1 day"
    assert dumped["streams"][0]["privacy"]["per"] == "28 days"
