"""Domains of tables: a raw value has one code or one reason, keys are rows, drawn values go back to their code."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from engines.core.contract import Columns
from engines.core.state import signs_of
from engines.tabular.domain import Category, Impossible, Numeric, RowKeys, TableDomain
from schemas.errors import EngineInputError
from schemas.events import Reason
from tests.examples import examples

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.sampled_from(["a", "b"]),
)
LISTED = st.lists(
    st.one_of(st.booleans(), st.integers(-3, 3), st.floats(-2, 2), st.sampled_from("abc")),
    min_size=1,
    max_size=6,
    unique_by=lambda value: (isinstance(value, bool), value),
)


@settings(max_examples=examples(4))
@given(values=LISTED, missing=st.booleans(), other=st.booleans(), raw=st.lists(SCALARS, max_size=8))
def test_every_scalar_has_a_code_or_a_reason(values: list[Any], missing: bool, other: bool, raw: list[Any]) -> None:
    attribute = Category(field="a", values=tuple(values), missing=missing, unknown="other" if other else "refuse")
    codes, reasons = attribute.encode([*raw, *values])
    kinds = {bool if isinstance(value, bool) else (str if isinstance(value, str) else float) for value in values}
    for value, code, reason in zip([*raw, *values], codes.tolist(), reasons.tolist(), strict=True):
        kind = bool if isinstance(value, bool) else (str if isinstance(value, str) else float)
        same = [i for i, v in enumerate(values) if v == value and isinstance(v, bool) == isinstance(value, bool)]
        if same:
            expected: tuple[int, int] = (same[0], 0)
        elif value is None:
            expected = (attribute.size - 1, 0) if missing else (0, Reason.MISSING_FIELD)
        elif other and value == "other":
            expected = (len(values), 0)
        elif kind not in kinds:
            expected = (0, Reason.WRONG_TYPE)
        else:
            expected = (len(values), 0) if other else (0, Reason.OUTSIDE_DOMAIN)
        assert (code, reason) == expected


@settings(max_examples=examples(4))
@given(
    edges=st.lists(st.integers(-50, 50), min_size=2, max_size=8, unique=True).map(sorted),
    integer=st.booleans(),
    missing=st.booleans(),
    unknown=st.sampled_from(["refuse", "other", "clamp"]),
    fraction=st.floats(0, 1, exclude_max=True),
)
def test_drawn_values_have_the_code_they_were_drawn_for(
    edges: list[int], integer: bool, missing: bool, unknown: Any, fraction: float
) -> None:
    attribute = Numeric(field="a", edges=tuple(edges), integer=integer, missing=missing, unknown=unknown)
    codes = np.arange(attribute.size)
    drawn = attribute.decode(codes, np.full(attribute.size, fraction))
    assert json.loads(json.dumps(drawn)) == drawn
    back, reasons = attribute.encode(drawn)
    assert back.tolist() == codes.tolist()
    assert not reasons.any()
    assert all(isinstance(value, int) for value in drawn if value not in (None, "other")) or not integer


@settings(max_examples=examples(4))
@given(
    edges=st.lists(
        st.integers(-500, 500).map(lambda tenths: tenths / 10) | st.floats(-50, 50), min_size=2, max_size=6, unique=True
    ).map(sorted),
    decimals=st.integers(1, 3),
    fraction=st.floats(0, 1, exclude_max=True),
)
@example(edges=[0.0, 0.1, 0.2, 0.3, 0.7], decimals=1, fraction=0.999)
def test_numbers_have_their_decimals_and_stay_in_their_bin(edges: list[float], decimals: int, fraction: float) -> None:
    try:
        attribute = Numeric(field="a", edges=tuple(edges), decimals=decimals)
    except ValidationError:  # a bin without such a number
        assume(False)
    drawn = attribute.decode(np.arange(attribute.size), np.full(attribute.size, fraction))
    assert all(float(f"{value:.{decimals}f}") == value for value in drawn)
    assert attribute.encode(drawn)[0].tolist() == list(range(attribute.size))


@settings(max_examples=examples(4))
@given(raw=st.lists(SCALARS, max_size=8), unknown=st.sampled_from(["refuse", "other", "clamp"]))
def test_any_scalar_may_come_where_numbers_are_expected(raw: list[Any], unknown: Any) -> None:
    attribute = Numeric(field="a", edges=(-1.5, 0, 2), unknown=unknown)
    codes, reasons = attribute.encode(raw)
    for value, code, reason in zip(raw, codes.tolist(), reasons.tolist(), strict=True):
        if value is None:
            assert (code, reason) == (0, Reason.MISSING_FIELD)
        elif isinstance(value, bool) or (isinstance(value, str) and (unknown, value) != ("other", "other")):
            assert (code, reason) == (0, Reason.WRONG_TYPE)
        elif isinstance(value, str):
            assert (code, reason) == (2, 0)
        elif -1.5 <= value <= 2:
            assert (code, reason) == (int(value >= 0), 0)
        elif unknown == "refuse":
            assert (code, reason) == (0, Reason.OUTSIDE_DOMAIN)
        else:
            assert (code, reason) == (2 if unknown == "other" else int(value > 0), 0)


def test_whole_numbers_are_drawn_evenly() -> None:
    attribute = Numeric(field="a", edges=(0, 2.5, 4), integer=True)
    fractions = (np.arange(600) + 0.5) / 600
    first = attribute.decode(np.zeros(600, np.int64), fractions)
    last = attribute.decode(np.ones(600, np.int64), fractions)
    assert [first.count(value) for value in (0, 1, 2)] == [200, 200, 200]
    assert [last.count(value) for value in (3, 4)] == [300, 300]


def test_points_are_drawn_back_as_they_are() -> None:
    attribute = Numeric(field="a", edges=(0, 10, 20), points=(2.5, 10.0))
    assert attribute.decode(np.array([1, 0]), np.array([0.9, 0.9])) == [10.0, 2.5]


@settings(max_examples=examples(2))
@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=50), seed=st.integers(0, 2**32))
def test_keys_are_rows(sizes: list[int], seed: int) -> None:
    keys = RowKeys(tuple(sizes))
    random = np.random.default_rng(seed)
    codes = np.stack([random.integers(0, size, 20) for size in sizes], axis=1)
    codes[0], codes[1] = 0, np.array(sizes) - 1
    operations = random.choice(np.array([-1, 1], np.int8), 20)
    packed = keys.pack(codes, operations)
    keys.check(packed)
    assert np.array_equal(keys.codes(packed), codes)
    assert np.array_equal(signs_of(packed), operations)
    distinct = len(np.unique(np.column_stack([codes, operations]), axis=0))
    assert len(np.unique(packed, axis=0)) == distinct


def test_keys_use_whole_words() -> None:
    assert RowKeys((2,) * 63).words == 1
    assert RowKeys((2,) * 64).words == 2
    assert RowKeys((1000,) * 50).words == 9
    with pytest.raises(EngineInputError, match="outside"):
        RowKeys((3, 4)).check(np.array([[24]], np.uint64))
    with pytest.raises(EngineInputError, match="words"):
        RowKeys((3, 4)).check(np.zeros((1, 2), np.uint64))


def table() -> TableDomain:
    return TableDomain(
        (
            Category(field="sex", values=("f", "m")),
            Numeric(field="age", edges=(0, 18, 120)),
            Category(field="x", values=(1,)),
        ),
        (Impossible(left=0, left_codes=(1,), right=1, right_codes=(0,)),),
    )


def test_first_fault_is_reported_and_impossible_rows_are_outside() -> None:
    values: dict[str, list[Any]] = {"sex": ["m", "m", "?", 1], "age": [20, 3, None, 200], "x": [1, 1, 1, 1]}
    keys, reasons = table().encode(Columns({}, {}, np.ones(4, np.int8), values))
    assert reasons.tolist() == [0, Reason.OUTSIDE_DOMAIN, Reason.OUTSIDE_DOMAIN, Reason.WRONG_TYPE]
    assert table().keys.codes(keys[:1]).tolist() == [[1, 1, 0]]
    assert not keys[1:].any()


def test_no_event_is_no_problem() -> None:
    keys, reasons = table().encode(Columns({}, {}, np.zeros(0, np.int8), {"sex": [], "age": [], "x": []}))
    assert keys.shape == (0, 1)
    assert reasons.shape == (0,)


def test_structural_zeros_leave_each_value_a_partner() -> None:
    zero = Impossible(left=0, left_codes=(0, 1), right=1, right_codes=(0,))
    with pytest.raises(EngineInputError, match="structural zero"):
        TableDomain(table().attributes, (zero,))
    assert table().possible_pairs(0, 1).tolist() == [[True, True], [False, True]]
