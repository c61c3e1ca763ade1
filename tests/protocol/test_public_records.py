"""Measurements that Kafka would refuse are cut, and come together again."""

from __future__ import annotations

import warnings
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.protocol.ingest.times import TimeParser
from agents.protocol.release.public_records import MOST_BYTES, measurement_records
from schemas.errors import EngineInputError

VALUE = 2**60  # 19 digits and a comma


def test_an_ordinary_measurement_is_one_record_as_it_is() -> None:
    measurement = {"step": 3, "cell": [0, 1], "count": 7}
    assert measurement_records(measurement) == [orjson.dumps(measurement)]


@settings(max_examples=15)
@given(values=st.integers(45_000, 200_000))
def test_a_large_one_is_cut_and_loses_nothing(values: int) -> None:
    measurement = {"step": 3, "name": "pairs", "counts": list(range(VALUE, VALUE + values)), "variance": 2.5}
    records = measurement_records(measurement)
    parts = [orjson.loads(record) for record in records]
    assert max(map(len, records)) <= MOST_BYTES
    if len(records) == 1:
        assert parts == [measurement]
        return
    assert [(part["part"], part["parts"]) for part in parts] == [(number, len(parts)) for number in range(len(parts))]
    assert [value for part in parts for value in part["counts"]] == measurement["counts"]
    assert all({**part, "counts": 0} == {**parts[0], "counts": 0, "part": number} for number, part in enumerate(parts))


def test_lists_of_one_length_are_cut_alike_and_shorter_ones_are_kept() -> None:
    measurement = {"left": [VALUE] * 60_000, "right": list(range(60_000)), "box": (1, 2)}
    parts = [orjson.loads(record) for record in measurement_records(measurement)]
    assert len(parts) > 1
    assert all(len(part["left"]) == len(part["right"]) and part["box"] == [1, 2] for part in parts)
    assert [value for part in parts for value in part["right"]] == measurement["right"]


def test_a_list_within_an_object_is_cut_too() -> None:
    measurement = {"histogram": "pairs", "values": {"noisy": [VALUE] * 60_000, "unit": "trips"}}
    parts = [orjson.loads(record) for record in measurement_records(measurement)]
    assert len(parts) > 1
    assert [value for part in parts for value in part["values"]["noisy"]] == measurement["values"]["noisy"]  # type: ignore[index]
    assert all(part["values"]["unit"] == "trips" for part in parts)


def test_what_cannot_be_cut_is_refused_before_it_is_committed() -> None:
    with pytest.raises(EngineInputError, match="no list to be cut"):
        measurement_records({"step": 1, "text": "x" * MOST_BYTES})


def test_times_beyond_all_numbers_warn_nobody() -> None:
    """A warning on a worker's screen would tell that such a record came."""
    parser = TimeParser("s", ZoneInfo("UTC"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        times, usable = parser.parse([1.7976931348623157e308, 5.0])
    assert usable.tolist() == [False, True]
    assert times[1] == 5_000_000
