"""Measurements that Kafka would refuse are cut, and come together again; rows that are written column by column have
the bytes that each has by itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.protocol.ingest.times import TimeParser
from agents.protocol.release.json_rows import json_rows
from agents.protocol.release.public_records import MOST_BYTES, framed_release, measurement_records
from engines.core.contract import Release, SyntheticRecord
from engines.core.many_records import PART, ManyRecords, RecordColumns, parts_of
from schemas.errors import EngineInputError
from schemas.releases import unframe_records
from tests.columns import rows_of
from tests.examples import examples

VALUE = 2**60  # 19 digits and a comma


def test_an_ordinary_measurement_is_one_record_as_it_is() -> None:
    measurement = {"step": 3, "cell": [0, 1], "count": 7}
    assert measurement_records(measurement) == [orjson.dumps(measurement)]


@settings(max_examples=examples(0.3))
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


def test_lists_of_one_length_are_cut_alike_within_objects_too_and_shorter_ones_are_kept() -> None:
    inner = {"noisy": [VALUE] * 60_000, "unit": "trips"}
    measurement = {"left": list(range(60_000)), "values": inner, "box": (1, 2)}
    parts = [orjson.loads(record) for record in measurement_records(measurement)]
    assert len(parts) > 1
    for part in parts:
        assert part["cut"] == [["left"], ["values", "noisy"]]
        assert len(part["left"]) == len(part["values"]["noisy"])
        assert (part["box"], part["values"]["unit"]) == ([1, 2], "trips")
    assert [value for part in parts for value in part["left"]] == measurement["left"]
    assert [value for part in parts for value in part["values"]["noisy"]] == inner["noisy"]


def test_what_cannot_be_cut_is_refused_before_it_is_committed() -> None:
    with pytest.raises(EngineInputError, match="no list to be cut"):
        measurement_records({"step": 1, "text": "x" * MOST_BYTES})


def test_times_beyond_all_numbers_warn_nobody() -> None:
    """A warning on a worker's screen would tell that such a record came."""
    parser = TimeParser("s", ZoneInfo("UTC"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        times, usable, _ = parser.parse([1.7976931348623157e308, 5.0])
    assert usable.tolist() == [False, True]
    assert times[1] == 5_000_000


SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=4)
ROWS = st.integers(0, 6).flatmap(
    lambda rows: st.dictionaries(
        st.text(),
        st.one_of(
            *(
                st.lists(kind, min_size=rows, max_size=rows)
                for kind in (st.floats(), st.integers(0, 9), st.text(), VALUES)
            )
        ),
        min_size=1,
        max_size=4,
    )
)


def by_itself(columns: dict[str, list[Any]]) -> list[bytes]:
    return [orjson.dumps(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


@given(columns=ROWS)
def test_rows_have_the_bytes_that_each_has_by_itself(columns: dict[str, list[Any]]) -> None:
    assert rows_of(json_rows(columns), len(next(iter(columns.values())))) == by_itself(columns)


def test_equal_values_of_other_types_are_told_apart() -> None:
    columns: dict[str, list[Any]] = {"a%b": [1, True, 1.0, None], "b": ["1", 1, "},{", [1, 2]], "c": [1, 1.0, True, 0]}
    assert rows_of(json_rows(columns), len(next(iter(columns.values())))) == by_itself(columns)


@pytest.mark.parametrize("columns", [{"x": [2**70]}, {"x": [1, {3}]}, {3: [1]}, {"x": ["\ud800"]}])
def test_what_is_no_json_is_refused(columns: Any) -> None:
    with pytest.raises(TypeError):
        json_rows(columns)


# --- Any records ------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["x", "y", "kind", "at"])
IDS = st.text(st.characters(exclude_characters="\0", codec="utf-8"))
RECORDS = st.lists(
    st.builds(SyntheticRecord, IDS, st.dictionaries(NAMES, SCALARS), st.none() | st.integers(1, 9)), max_size=12
)


@given(records=RECORDS)
def test_records_in_parts_are_the_records(records: list[SyntheticRecord]) -> None:
    """Also where fields, their order and steps differ from one to the next."""
    found = [record for part in parts_of(records) for record in part.records()]
    assert repr(found) == repr(records)  # a NaN is no NaN's equal
    assert [tuple(record.fields) for record in found] == [tuple(record.fields) for record in records]


@given(records=RECORDS)
def test_a_release_has_the_bytes_of_its_records(records: list[SyntheticRecord]) -> None:
    """A field with the name of the time field keeps its own value, in the time's place."""

    def steps_of(part: RecordColumns) -> Sequence[int]:
        return [7 if step is None else step for step in part.steps or ()]

    release = Release(7, records, ["gone", "ö"], [{"n": 3}], 0)
    framed = framed_release(release, time_field="at", steps_of=steps_of, time_of="t{}".format, rows=json_rows)
    assert unframe_records(framed) == [
        ("synthetic", b"gone", None),
        ("synthetic", "ö".encode(), None),
        *(
            ("synthetic", record.id.encode(), orjson.dumps({"at": f"t{record.step or 7}", **record.fields}))
            for record in records
        ),
        ("measurements", b"7", b'{"step":7,"n":3}'),
    ]


class Numbers(ManyRecords):
    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def part(self, rows: range) -> RecordColumns:
        return RecordColumns([f"{at}" for at in rows], {"n": list(rows)}, [at % 5 for at in rows])


def test_many_records_are_made_some_at_a_time() -> None:
    many = Numbers(PART + 3)
    whole = [SyntheticRecord(f"{at}", {"n": at}, at % 5) for at in range(PART + 3)]
    assert [len(part.ids) for part in parts_of(many)] == [len(part.ids) for part in parts_of(whole)] == [PART, 3]
    assert many == whole
    assert (many[0], many[-1], many[5:1:-2]) == (whole[0], whole[-1], whole[5:1:-2])
    with pytest.raises(IndexError):
        many[PART + 3]
    assert list(Numbers(0)) == []
    # What is not read is not made: a billion in a moment.
    assert Numbers(10**9)[-1].id == f"{10**9 - 1}"
