"""Records that are written column by column have the bytes that each has by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.release.json_rows import json_rows
from agents.protocol.release.public_records import release_records
from engines.core.contract import Release, SyntheticRecord
from engines.core.many_records import PART, ManyRecords, RecordColumns, parts_of

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
    assert list(json_rows(columns)) == by_itself(columns)


def test_equal_values_of_other_types_are_told_apart() -> None:
    columns: dict[str, list[Any]] = {"a%b": [1, True, 1.0, None], "b": ["1", 1, "},{", [1, 2]], "c": [1, 1.0, True, 0]}
    assert list(json_rows(columns)) == by_itself(columns)


@pytest.mark.parametrize("columns", [{"x": [2**70]}, {"x": [1, {3}]}, {3: [1]}, {"x": ["\ud800"]}])
def test_what_is_no_json_is_refused(columns: Any) -> None:
    with pytest.raises(TypeError):
        list(json_rows(columns))


# --- Any records ------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["x", "y", "kind", "at"])
RECORDS = st.lists(
    st.builds(SyntheticRecord, st.text(), st.dictionaries(NAMES, SCALARS), st.none() | st.integers(0, 9)), max_size=12
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

    found = release_records(Release(7, records, (), (), 0), time_field="at", steps_of=steps_of, time_of="t{}".format)
    assert [(each.key, each.value) for each in found] == [
        (record.id.encode(), orjson.dumps({"at": f"t{7 if record.step is None else record.step}", **record.fields}))
        for record in records
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
