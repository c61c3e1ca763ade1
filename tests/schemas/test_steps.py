"""Steps of the calendar: what local clocks say, exactly, and the same on every machine."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, date, datetime, time, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import steps as sequence
from schemas import zones
from schemas.errors import StepError
from schemas.steps import (
    BEYOND_LAST_STEP,
    EPOCH,
    LAST_YEAR,
    CalendarLength,
    CalendarSteps,
    FixedSteps,
    Steps,
    min_length_us,
    parse_calendar,
    steps_in,
)

HOUR = 3_600_000_000
DAY = 24 * HOUR

LENGTHS = ["1 day", "3 days", "1 week", "2 weeks", "1 month", "1 quarter", "1 year", "5 months", "4 years"]
# Offsets of half and quarter hours, clocks that change by 30 minutes, at midnight, twice a year and not at all, summers
# that Ramadan interrupts, days that were skipped and came twice, and mean local times with seconds.
ZONES = (
    "UTC America/New_York Europe/Berlin Asia/Kathmandu Australia/Lord_Howe America/Sao_Paulo Africa/Casablanca "
    "Pacific/Apia Pacific/Kwajalein America/Juneau Asia/Beirut America/Toronto Antarctica/Troll Asia/Manila"
).split()


def at(text: str, zone: str = "UTC") -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=zones.zone(zone)) - EPOCH) // timedelta(microseconds=1)


def local(at_us: int, zone: str) -> datetime:
    return (EPOCH + timedelta(microseconds=at_us)).astimezone(zones.zone(zone)).replace(tzinfo=None)


def steps(start: str, length: str, zone: str) -> CalendarSteps:
    parsed = parse_calendar(length)
    assert parsed is not None
    return CalendarSteps(datetime.fromisoformat(start), parsed, zone)


def lengths_h(each: Steps, first: int, count: int) -> list[float]:
    return [(each.begin(step + 1) - each.begin(step)) / HOUR for step in range(first, first + count)]


@st.composite
def calendars(draw: st.DrawFn) -> CalendarSteps:
    length = parse_calendar(draw(st.sampled_from(LENGTHS)))
    assert length is not None
    day = draw(st.dates(date(1840, 1, 1), date(2100, 1, 1)))
    return CalendarSteps(length.floor(datetime.combine(day, time())), length, draw(st.sampled_from(ZONES)))


def test_days_of_a_zone_with_summer_time() -> None:
    days = steps("2024-03-09", "1 day", "America/New_York")
    assert lengths_h(days, 0, 3) == [24, 23, 24]
    assert days.begin(2) == at("2024-03-11T04:00:00")
    assert lengths_h(days, (date(2024, 11, 3) - date(2024, 3, 9)).days - 1, 3) == [24, 25, 24]
    times = np.array([days.begin(0) - 1, days.begin(0), days.begin(2) - 1, days.begin(2)])
    assert days.indices(times).tolist() == [-1, 0, 1, 2]


def test_months_quarters_and_years_have_their_days() -> None:
    assert [h / 24 for h in lengths_h(steps("2023-12-01", "1 month", "UTC"), 0, 4)] == [31, 31, 29, 31]
    assert [h / 24 for h in lengths_h(steps("2023-01-01", "1 quarter", "UTC"), 0, 5)] == [90, 91, 92, 92, 91]
    assert [h / 24 for h in lengths_h(steps("1899-01-01", "1 year", "UTC"), 0, 6)] == [365, 365, 365, 365, 365, 366]


@pytest.mark.parametrize(
    ("zone", "start", "begins"),
    [
        # Midnight is skipped: the day begins with the first time that there is.
        ("America/Sao_Paulo", "2018-11-03", ["03 00:00:00", "04 01:00:00", "05 00:00:00"]),
        # It is skipped by a change that began before it.
        ("America/Toronto", "1919-03-30", ["30 00:00:00", "31 00:30:00", "01 00:00:00"]),
        # It comes twice: the first time counts.
        ("America/Havana", "2023-11-04", ["04 00:00:00", "05 00:00:00", "06 00:00:00"]),
        # A day that never was is no step.
        ("Pacific/Apia", "2011-12-28", ["28 00:00:00", "29 00:00:00", "31 00:00:00", "01 00:00:00"]),
        # A day of 48 hours is one.
        ("Pacific/Kwajalein", "1969-09-29", ["29 00:00:00", "30 00:00:00", "01 00:00:00", "02 00:00:00"]),
    ],
)
def test_days_that_begin_oddly(zone: str, start: str, begins: list[str]) -> None:
    days = steps(start, "1 day", zone)
    assert [f"{local(days.begin(step), zone):%d %H:%M:%S}" for step in range(len(begins))] == begins


def test_of_two_midnights_the_first_begins_the_day() -> None:
    days = steps("2023-11-04", "1 day", "America/Havana")  # clocks go back from 01:00 to 00:00 on the 5th
    assert lengths_h(days, 0, 3) == [24, 25, 24]


@given(calendars(), st.integers(0, 60), st.integers(0, 2**40))
def test_a_step_begins_where_local_clocks_first_show_its_date(each: CalendarSteps, step: int, more: int) -> None:
    begin, end = each.begin(step), each.begin(step + 1)
    assert begin < end
    inside = begin + more % (end - begin)
    assert each.indices(np.array([begin - 1, begin, inside, end - 1, end])).tolist() == [
        step - 1,
        step,
        step,
        step,
        step + 1,
    ]
    assert [each.index(begin - 1), each.index(inside)] == [step - 1, step]
    # Units that clocks skipped are no steps, so its own is this one or one of the next.
    midnights = [datetime.combine(each.length.after(each.start.date(), unit), time()) for unit in range(step, step + 3)]
    assert any(local(begin - 1, each.zone) < midnight <= local(begin, each.zone) for midnight in midnights)
    # However clocks were changed it is no shorter than what ledgers and accounts count with.
    assert end - begin >= min_length_us(each.length)


@given(calendars())
def test_the_order_in_which_steps_are_asked_for_means_nothing(each: CalendarSteps) -> None:
    fresh = sequence.BeginCache(each)
    late = fresh.at(60)
    assert (fresh.at(3), late) == (each.begin(3), each.begin(60))
    again = sequence.BeginCache(each)
    assert again.until(late)[:61].tolist() == [each.begin(step) for step in range(61)]


@pytest.mark.parametrize("length", ["1 day", "2 days", "3 days", "1 week", "1 month"])
def test_every_step_is_long_enough(length: str) -> None:
    """No clock that goes forward, were it by a day, makes a step shorter than accounts take it to be."""
    of = parse_calendar(length)
    assert of is not None
    for zone in "Africa/Casablanca Pacific/Apia Pacific/Kwajalein Antarctica/Macquarie".split():
        for first in (1, 2):  # steps of two days that end with the day that was skipped, or begin with it
            start = datetime(1940, 1, first) if of.days else datetime(1940, 1, 1)
            begins = sequence.BeginCache(CalendarSteps(start, of, zone)).until(at("2030-01-01"))
            assert np.diff(begins).min() >= min_length_us(of), zone


def test_a_week_lacks_the_day_that_samoa_skipped() -> None:
    assert lengths_h(steps("2011-12-26", "1 week", "Pacific/Apia"), 0, 1) == [144]
    assert min_length_us(CalendarLength(1, "week")) <= 144 * 3_600_000_000


def test_there_is_an_end() -> None:
    years = steps("2299-01-01", "1 year", "Europe/Berlin")
    last = LAST_YEAR - 1 - 2299
    assert local(years.begin(last), "Europe/Berlin") == datetime(LAST_YEAR - 1, 1, 1)
    with pytest.raises(StepError, match=f"{last + 1}"):
        years.begin(last + 1)
    with pytest.raises(StepError, match="-1"):
        years.begin(-1)
    assert years.indices(np.array([at("9000-01-01"), 2**62, -(2**62)])).tolist() == [
        BEYOND_LAST_STEP,
        BEYOND_LAST_STEP,
        -1,
    ]
    assert years.indices(np.zeros(0, np.int64)).tolist() == []


@given(st.integers(-(2**50), 2**50), st.integers(1, 2**45), st.integers(-1000, 1000), st.integers(0, 2**45))
def test_steps_of_one_length(start: int, length: int, step: int, more: int) -> None:
    fixed = FixedSteps(start, length)
    inside = fixed.begin(step) + more % length
    assert fixed.indices(np.array([inside])).tolist() == [step] == [fixed.index(inside)]
    assert fixed.begin(step + 1) - fixed.begin(step) == length


@pytest.mark.parametrize(
    ("length", "step", "count"),
    [
        ("30 days", "1 day", 30),
        ("2 weeks", "1 day", 14),
        ("14 days", "1 week", 2),
        ("1 year", "1 quarter", 4),
        ("1 year", "12 months", 1),
        ("1 month", "1 day", None),
        ("1 year", "1 week", None),
        ("5 months", "1 quarter", None),
        ("1 week", "3 days", None),
    ],
)
def test_periods_in_steps(length: str, step: str, count: int | None) -> None:
    parsed = [parse_calendar(length), parse_calendar(step)]
    assert parsed[0] is not None
    assert parsed[1] is not None
    assert steps_in(parsed[0], parsed[1]) == count


def test_a_duration_is_never_units_of_a_calendar() -> None:
    day = CalendarLength(1, "day")
    assert steps_in(timedelta(days=30), day) is None
    assert steps_in(CalendarLength(30, "day"), timedelta(days=1)) is None


def test_the_zone_is_that_of_the_lock_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine's own database is not looked at, so no two workers differ by it."""
    monkeypatch.setattr(zoneinfo, "ZoneInfo", None)
    zones.zone.cache_clear()
    summer = datetime(2024, 7, 1, tzinfo=UTC).astimezone(zones.zone("Europe/Berlin"))
    assert (summer.utcoffset(), zones.zone("Europe/Berlin").key) == (timedelta(hours=2), "Europe/Berlin")
    assert len(zones.database_version()) >= 5


@pytest.mark.parametrize("name", ["../../etc/passwd", "Europe", "", "zones", "Europe/Berln"])
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(KeyError):
        zones.zone(name)


def test_other_rules_have_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever rule of the zone changes, in the past of the stream or foretold, the digest tells."""
    years = steps("2024-01-01", "1 month", "Europe/Berlin")
    digest = years.digest()
    assert digest == steps("2024-01-01", "1 month", "Europe/Paris").digest()  # other names, the same clocks
    assert digest != steps("2024-01-01", "1 month", "Europe/London").digest()
    monkeypatch.setattr(sequence, "zone", lambda name: zones.zone("Africa/Algiers"))  # summer time all year round
    sequence._begins.cache_clear()
    assert years.digest() != digest
    monkeypatch.undo()
    sequence._begins.cache_clear()
    assert years.digest() == digest
