"""Reading times: the fast way gives what the exact way gives, for every text, in every company."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.ingest.times import KNOWN_BYTES, Layout, TimeParser
from schemas.events import Reason

ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Monrovia"]
PATTERNS = ["%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M", "%Y%m%dT%H%M%S.%f", "%m/%d/%Y", "%d %b %Y %H:%M", "%y-%m-%d %H"]
MOMENTS = st.datetimes(datetime(1000, 1, 2), datetime(9989, 12, 30))
NEAR_TEXT = st.text("0123456789-:/. TZ+eENaé٣", max_size=26)


def parser(format_: str, zone: str = "UTC") -> TimeParser:
    return TimeParser(format_, ZoneInfo(zone))


def read(times: TimeParser, values: list[object]) -> list[int | None]:
    return [us for us, _ in read_with_doubts(times, values)]


def read_with_doubts(times: TimeParser, values: list[object]) -> list[tuple[int | None, int]]:
    found = zip(*(column.tolist() for column in times.parse(values)), strict=True)
    return [(us if usable else None, doubt) for us, usable, doubt in found]


@given(
    format_=st.sampled_from(PATTERNS),
    zone=st.sampled_from(ZONES),
    moments=st.lists(MOMENTS, min_size=1, max_size=10),
    noise=st.lists(NEAR_TEXT, max_size=3),
)
def test_a_pattern_is_read_as_strptime_reads_it(
    format_: str, zone: str, moments: list[datetime], noise: list[str]
) -> None:
    times = parser(format_, zone)
    texts = [moment.strftime(format_) for moment in moments] + noise
    assert read_with_doubts(times, list(texts)) == [times.exact(text) for text in texts]


@given(
    zone=st.sampled_from(ZONES),
    moments=st.lists(MOMENTS, min_size=1, max_size=10),
    noise=st.lists(NEAR_TEXT, max_size=3),
    timespec=st.sampled_from(["seconds", "milliseconds", "microseconds", "minutes", "hours"]),
    ending=st.sampled_from(["", "Z", "+00:00", "-05:30", "+23:59", "-24:00", "+01"]),
    separator=st.sampled_from("T _"),
)
def test_iso_is_read_as_fromisoformat_reads_it(
    zone: str, moments: list[datetime], noise: list[str], timespec: str, ending: str, separator: str
) -> None:
    times = parser("iso", zone)
    texts = [moment.isoformat(separator, timespec) + ending for moment in moments] + noise
    assert read_with_doubts(times, list(texts)) == [times.exact(text) for text in texts]


@given(st.text("0123456789", min_size=14, max_size=14))
def test_any_digits_in_the_columns(digits: str) -> None:
    """Months of 13, days of 31 February, seconds of 99: refused, or read, exactly as the slow way does."""
    times = parser("%Y-%m-%d %H:%M:%S")
    text = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]} {digits[8:10]}:{digits[10:12]}:{digits[12:]}"
    assert read_with_doubts(times, [text]) == [times.exact(text)]


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2016-03-13 01:59:59", "2016-03-13T06:59:59+00:00"),
        ("2016-03-13 02:30:00", "2016-03-13T07:30:00+00:00"),  # skipped in spring: as if not yet gone forward
        ("2016-03-13 03:00:00", "2016-03-13T07:00:00+00:00"),
        ("2016-11-06 01:30:00", "2016-11-06T05:30:00+00:00"),  # twice in autumn: the earlier
        ("2016-11-06 02:00:00", "2016-11-06T07:00:00+00:00"),
        ("0001-01-01 00:00:00", "0001-01-01T04:56:02+00:00"),
    ],
)
def test_local_times_around_changes_of_the_clock(text: str, utc: str) -> None:
    expected = datetime.fromisoformat(utc) - datetime(1970, 1, 1, tzinfo=UTC)
    assert read(parser("%Y-%m-%d %H:%M:%S", "America/New_York"), [text]) == [expected // timedelta(microseconds=1)]


CHANGES = [
    ("America/New_York", "2016-03-13"),
    ("America/New_York", "2016-11-06"),
    ("Europe/Berlin", "2024-03-31"),
    ("Europe/Berlin", "2024-10-27"),
    ("Australia/Lord_Howe", "2024-04-07"),  # half an hour
    ("Australia/Lord_Howe", "2024-10-06"),
    ("Africa/Monrovia", "1972-01-07"),  # 44 minutes and a half, forward
    ("Pacific/Apia", "2011-12-30"),  # a whole day
]


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_a_local_time_is_in_doubt_where_clocks_showed_it_twice_or_never(zone: str, day: str) -> None:
    """By counting: which local times each instant of these days shows."""
    begin = datetime.fromisoformat(day) - timedelta(hours=2)
    instants = (datetime.fromisoformat(f"{day}T00:00Z") + timedelta(minutes=at, seconds=7) for at in range(-2160, 2160))
    shown = Counter(each.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M") for each in instants)
    texts = [(begin + timedelta(minutes=at)).strftime("%Y-%m-%d %H:%M") for at in range(1680)]
    expected = {0: Reason.NONEXISTENT_TIME, 1: 0, 2: Reason.AMBIGUOUS_TIME}
    for format_ in ("%Y-%m-%d %H:%M", "iso"):
        found = [doubt for _, doubt in read_with_doubts(parser(format_, zone), list(texts))]
        assert found == [expected[shown[text]] for text in texts]
    assert any(found)


def test_a_time_with_an_offset_or_in_numbers_is_in_no_doubt() -> None:
    texts: list[object] = ["2016-11-06T01:30:00-05:00", "2016-11-06T01:30:00-04:00", "2016-03-13T02:30:00Z"]
    assert [doubt for _, doubt in read_with_doubts(parser("iso", "America/New_York"), texts)] == [0, 0, 0]
    assert read_with_doubts(parser("s", "America/New_York"), [1_478_410_200]) == [(1_478_410_200_000_000, 0)]


@pytest.mark.parametrize("text", ["NaN", "", "yesterday", "10000-01-01 00:00:00", "0000-01-01"])
def test_unusable_times(text: str) -> None:
    assert read(parser("%Y-%m-%d %H:%M:%S", "America/New_York"), [text, "2016-01-01 00:00:00"])[0] is None


@given(
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.lists(
        st.one_of(
            st.integers(-(10**20), 10**20),
            st.floats(allow_nan=False),
            st.decimals(-(10**10), 10**10, places=6).map(str),
            st.integers(2**40, 2**52).map(lambda us: us / 1e6),
            st.floats(0, 2**42).map(lambda s: round(s, 6)),
            st.text(max_size=3),
        ),
        min_size=1,
    ),
)
def test_numbers_in_company_are_read_as_alone(format_: str, values: list[object]) -> None:
    times = parser(format_)
    assert read(times, values) == [times.exact_number(value) for value in values]


@pytest.mark.parametrize(
    ("format_", "value", "us"),
    [
        ("s", 1.5, 1_500_000),
        ("s", 1_451_606_400, 1_451_606_400_000_000),
        ("s", "1451606400.000001", 1_451_606_400_000_001),
        ("ms", 2, 2_000),
        ("us", -3, -3),
        ("ns", 1_577_836_799_999_999_999, 1_577_836_799_999_999),
        ("ns", "1577836799999999999", 1_577_836_799_999_999),
        ("ns", -1, -1),
        ("ns", "-0.5", -1),
        ("ns", 1.5778368e18, 1_577_836_800_000_000),
        ("ns", 2**63, 2**63 // 1000),
        ("ns", 10**30, None),
        ("ns", "1e999999", None),
        ("us", 10**30, None),
        ("s", 1e300, None),
        ("s", -1e12, None),
        ("s", "NaN", None),
        ("s", "1e3", 1_000_000_000),
        ("s", " 1", 1_000_000),
        ("s", "1e400", None),
        ("s", float("inf"), None),
        ("ns", float("-inf"), None),
        ("ms", float("nan"), None),
        ("s", "1e999999", None),
        ("s", "0e99999999999999999999", 0),
        ("us", "1e-99999999999999999999", 0),
        ("s", "9" * 100_000, None),
        ("s", "1_0", None),
        ("s", "٣", None),
    ],
)
def test_numbers(format_: str, value: object, us: int | None) -> None:
    assert read(parser(format_), [value]) == [us]


@given(st.sampled_from(["s", "ms", "us", "ns"]), st.floats(-(2**52), 2**52), st.integers(0, 8))
def test_a_number_and_its_text_are_one_time(format_: str, value: float, places: int) -> None:
    """Also where the product of the float lies on the other side of a half: 0.0000005 s as 4.9999999999999998e-07."""
    value = round(value, places)
    times = parser(format_)
    assert read(times, [value]) == read(times, [repr(value)])


@pytest.mark.parametrize("pattern", ["%H:%M", "%Y-%m-%d %p", "%Y-%m-%d\t%H", "%Y-%m-%d %Y", "%j %Y", "Year %Y-%m-%d"])
def test_patterns_without_fixed_columns_are_left_to_the_exact_way(pattern: str) -> None:
    assert Layout.of_strptime(pattern) is None


def test_a_crafted_text_does_not_shift_its_neighbours() -> None:
    times = parser("%Y-%m-%d %H:%M:%S")
    good = "2016-01-01 00:00:00"
    assert read_with_doubts(times, [good, "٢٠١٦-01-01 00:00:00", "x" * 19, good]) == [
        times.exact(good),
        *[times.exact("٢٠١٦-01-01 00:00:00"), (None, 0)],
        times.exact(good),
    ]


@pytest.mark.parametrize(
    ("letter", "length"),
    [("x", 1), ("\N{SNOWMAN}", 200), ("\N{SLICE OF PIZZA}", 5_000), ("x", 300_000), ("x", 3_000_000)],
)
def test_what_cannot_be_read_fills_no_memory(letter: str, length: int) -> None:
    """Texts of any size that are not times, all of them different, and many times the bound in sum."""
    times = parser("iso", "Europe/Berlin")
    count = max(4, 3 * KNOWN_BYTES // (length + 200))
    tracemalloc.start()
    try:
        for index in range(count):
            assert read(times, [f"{index:07d}" + letter * length]) == [None]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1.5 * KNOWN_BYTES


def test_hours_of_any_year_fill_no_memory() -> None:
    times = parser("iso", "Europe/Berlin")
    texts = [(datetime(1900, 1, 1) + timedelta(hours=hour)).isoformat() for hour in range(25_000)]
    tracemalloc.start()
    try:
        times.parse(texts)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < KNOWN_BYTES
