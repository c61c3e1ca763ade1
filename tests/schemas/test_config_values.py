"""Durations and budgets are exact: what is written is what is used."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from schemas.config import format_duration
from schemas.config.values import UNITS_US, exact_decimal, microseconds, parse_duration

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
