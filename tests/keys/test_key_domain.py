"""Keys as bytes of public width, and the private table that holds them: against plain texts and a dictionary."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.contract import Columns
from engines.keys.domain import KeysDomain
from engines.keys.table import PeriodTable
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from schemas.events import Reason

TWO = KeysDomain(fields=("page", "n"), max_bytes=40)
RAW = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", "caf\u00e9", "cafe\u0301", "a\0b", "\x01", "\x02true", "\ud800", "true", "1"]),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2.0**63), 2.0**63, 1e20, 1.0, 1, -0.0, 0.1, 5e-324]),
    st.floats(),
    st.none(),
)


def encoded(domain: KeysDomain, *values: Any) -> tuple[tuple[int, ...], Reason, str]:
    """Return key, reason and field at fault of one event."""
    columns = Columns({}, {}, np.ones(1, np.int8), {name: [v] for name, v in zip(domain.fields, values, strict=True)})
    keys, reasons = domain.encode(columns)
    [fault] = domain.at_fault(columns)
    return tuple(keys[0].tolist()), Reason(int(reasons[0])), fault


def meant(value: Any) -> Any:
    """Return what two equal values of a key have in common; None: there is no such key."""
    match value:
        case bool():
            return "boolean", value
        case str():
            text = unicodedata.normalize("NFC", value)
            whole = text.encode(errors="ignore").decode() == text
            return ("text", text) if whole and "\0" not in text and text[:1] not in ("\x01", "\x02") else None
        case int():
            return ("number", value) if -(2**63) <= value < 2**63 else None
        case float():
            return ("number", value) if math.isfinite(value) else None
    return None


@given(RAW, RAW, RAW, RAW)
def test_keys_are_equal_where_their_values_are(one: Any, two: Any, three: Any, four: Any) -> None:
    first, second = encoded(TWO, one, two), encoded(TWO, three, four)
    for (_, reason, fault), values in ((first, (one, two)), (second, (three, four))):
        if None in map(meant, values):
            assert reason != Reason.ACCEPTED
            assert fault in TWO.fields
    if first[1] == second[1] == Reason.ACCEPTED:
        same = [meant(one), meant(two)] == [meant(three), meant(four)]
        assert (first[0] == second[0]) == same


@given(RAW, RAW)
def test_a_key_gives_its_values_back_as_json(one: Any, two: Any) -> None:
    key, reason, fault = encoded(TWO, one, two)
    if reason != Reason.ACCEPTED:
        assert set(key) == {0}
        return
    assert fault == ""
    [found] = TWO.decode(np.array([key], np.uint64))
    assert [meant(each) for each in found] == [meant(one), meant(two)]
    # What cannot be written would stop the stream where it is published.
    assert [meant(each) for each in orjson.loads(orjson.dumps(found))] == [meant(one), meant(two)]
    assert encoded(TWO, *found)[0] == key


@pytest.mark.parametrize(
    ("values", "reason", "fault"),
    [
        (("x" * 41, "y"), Reason.OUTSIDE_DOMAIN, "page"),
        (("x" * 10, "y" * 30), Reason.OUTSIDE_DOMAIN, "n"),
        (("x" * 20, "y" * 19), Reason.ACCEPTED, ""),
        (("x" * 20, "y" * 20), Reason.OUTSIDE_DOMAIN, "page"),
        ((None, "y"), Reason.MISSING_FIELD, "page"),
        (("x", float("inf")), Reason.NOT_FINITE, "n"),
        (("x", 2**63), Reason.OUTSIDE_DOMAIN, "n"),
        (("x", ["y"]), Reason.WRONG_TYPE, "n"),
    ],
)
def test_what_is_refused_names_its_field(values: tuple[Any, ...], reason: Reason, fault: str) -> None:
    assert encoded(TWO, *values)[1:] == (reason, fault)


def test_a_public_share_of_keys_is_counted() -> None:
    """Of 4000 keys a quarter: more than 150 from 1000 have a probability below 10^-7."""
    domain = KeysDomain(fields=("page",), one_in=4)
    columns = Columns({}, {}, np.ones(4000, np.int8), {"page": [f"page {at}" for at in range(4000)]})
    reasons = domain.encode(columns)[1]
    assert set(reasons.tolist()) == {Reason.ACCEPTED, Reason.DROPPED}
    assert abs(int((reasons == Reason.ACCEPTED).sum()) - 1000) < 150
    assert encoded(domain, "caf\u00e9")[1] == encoded(domain, "cafe\u0301")[1], "a key is in the sample, not a text"


STEPS = st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3)), max_size=6), min_size=1, max_size=5)


@given(STEPS)
def test_a_table_is_a_dictionary_of_people(steps: list[list[tuple[int, int]]]) -> None:
    """And what was drawn for a key stays with it, wherever the keys of later steps are put."""
    table, people, drawn = PeriodTable.empty(2), Counter[int](), dict[int, int]()
    for test, came in enumerate(steps, start=1):
        keys = np.array([[key % 3, key] for key, _ in came], np.uint64).reshape(-1, 2)
        table = table.added(Folded.from_keys(keys, np.array([n for _, n in came], np.int64)), most=100)
        for key, n in came:
            people[key] += n
        assert dict(zip(table.keys[:, 1].tolist(), table.counts.tolist(), strict=True)) == people
        held = dict(zip(table.keys[table.rows, 1].tolist(), table.noise[:, :1].ravel().tolist(), strict=True))
        assert held == drawn
        rows = np.flatnonzero(table.counts >= 4)
        drawn = {int(key): int(key) for key in table.keys[rows, 1]}
        noise = np.tile(table.keys[rows, 1].astype(np.int64)[:, np.newaxis], (1, test))
        table = table.tested(rows, noise, np.zeros(len(rows), np.int64))
        again = PeriodTable.of(table.arrays(), words=2, tests=test)
        assert all(np.array_equal(again.arrays()[name], array) for name, array in table.arrays().items())


def test_a_full_table_says_so_and_is_left_as_it_was() -> None:
    """It drops no key: one person's keys would push out others'. What it says quotes none."""
    table = PeriodTable.empty(1).added(Folded.from_keys(np.arange(5, dtype=np.uint64)[:, np.newaxis]), most=6)
    with pytest.raises(EngineInputError, match=r'max_keys = 6\. .*sample = "1/16"'):
        table.added(Folded.from_keys(np.array([[4], [7], [8]], np.uint64)), most=6)
    assert table.counts.tolist() == [1] * 5
