"""The type of a ledger entry: what is written is read, and whatever else is in a record is no entry."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import WireError
from schemas.ledger import LedgerEntry
from schemas.releases import GENESIS, link
from tests.entries import ENTRY
from website.reference.records import field_descriptions

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_what_is_written_is_read() -> None:
    words = ENTRY.encode()
    assert LedgerEntry.decode(words, "s") == ENTRY
    assert words == orjson.dumps(orjson.loads(words), option=orjson.OPT_SORT_KEYS)
    assert (ENTRY.records, ENTRY.begins.isoformat(), ENTRY.ends.isoformat()) == (6, ENTRY.start, ENTRY.end)


def test_the_chain_is_that_of_all_other_words() -> None:
    assert ENTRY.chain == link(GENESIS, stream="s", step=3, digest=ENTRY.digest, ledger=ENTRY.encode())
    assert ENTRY.with_chain() == ENTRY
    changes: tuple[dict[str, Any], ...] = (
        {"notes": {}}, {"draw": "00" * 16}, {"epsilon_spent": 1.0}, {"witness": "none configured"},
    )  # fmt: skip
    for changed in changes:
        assert msgspec.structs.replace(ENTRY, **changed).with_chain().chain != ENTRY.chain


@given(st.sampled_from(sorted(ENTRY.as_json())), JSON)
def test_a_field_of_another_kind_makes_no_entry(name: str, value: object) -> None:
    """Or one that is written as it was read."""
    with contextlib.suppress(WireError):
        entry = LedgerEntry.decode(orjson.dumps({**ENTRY.as_json(), name: value}), "s")
        assert LedgerEntry.decode(entry.encode(), "s") == entry
        assert entry.begins.tzinfo is not None


def test_a_refusal_repeats_nothing() -> None:
    with pytest.raises(WireError) as refused:
        LedgerEntry.decode(orjson.dumps({**ENTRY.as_json(), "unit": ["ann"]}), "s")
    assert str(refused.value) == "topic s.ledger holds a record that is not a ledger entry"
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("name", sorted(ENTRY.as_json()))
def test_a_field_that_is_missing_makes_no_entry(name: str) -> None:
    with pytest.raises(WireError):
        LedgerEntry.decode(orjson.dumps({key: value for key, value in ENTRY.as_json().items() if key != name}), "s")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version", 2), ("step", -1), ("step", 1 << 31), ("step", True), ("added", 1 << 53), ("epsilon_spent", -0.1),
        ("start", "2020-01-01T03:00:00"), ("start", "soon"), ("digest", "AB" * 32), ("draw", "0f"), ("notes", []),
        ("gathered", 1),
    ],
)  # fmt: skip
def test_what_readers_could_not_work_with_is_no_entry(name: str, value: object) -> None:
    with pytest.raises(WireError):
        LedgerEntry.decode(orjson.dumps({**ENTRY.as_json(), name: value}), "s")


def test_fields_of_later_versions_are_passed_over() -> None:
    assert LedgerEntry.decode(orjson.dumps({**ENTRY.as_json(), "later": 1}), "s") == ENTRY


def test_every_field_is_described() -> None:
    assert list(field_descriptions()) == list(LedgerEntry.__struct_fields__)
    assert all(told.endswith(".") for told in field_descriptions().values())


def test_a_tombstone_is_no_entry() -> None:
    with pytest.raises(WireError):
        LedgerEntry.decode(None, "s")
