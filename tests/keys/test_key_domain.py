"""Keys as bytes of public width, against plain texts."""

from __future__ import annotations

import math
import sys
import unicodedata
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.contract import Columns
from engines.keys.domain import KeysDomain, written
from engines.tabular.domain import Discovered
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
    assert not any(domain.at_fault(columns))
    assert encoded(domain, "caf\u00e9")[1] == encoded(domain, "cafe\u0301")[1], "a key is in the sample, not a text"


LONG = "a" + "\u0301" * 500_000 + "\u0323" * 500_000


def test_the_work_for_a_text_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """One such record of a user kept a worker, all of its streams and whoever took them over for minutes."""
    lengths, normalize = [0], unicodedata.normalize

    def noted(form: Any, text: str) -> str:
        lengths.append(len(text))
        assert len(text) < 1_000, "takes the square of its length"
        return normalize(form, text)

    monkeypatch.setattr(unicodedata, "normalize", noted)
    assert encoded(TWO, LONG, 1)[1:] == (Reason.OUTSIDE_DOMAIN, "page")
    assert encoded(TWO, "a", LONG)[1:] == (Reason.OUTSIDE_DOMAIN, "n")
    assert Discovered(field="page", values="discover", max_key_bytes=40).encode([LONG])[1].tolist() == [
        Reason.OUTSIDE_DOMAIN
    ]
    assert max(lengths) <= 80


def test_a_text_that_is_not_brought_into_form_would_be_too_long() -> None:
    """A text has no more characters than its form NFD, which has those of all characters of its form NFC."""
    every = map(chr, (code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000))
    assert max(len(unicodedata.normalize("NFD", each)) / len(each.encode()) for each in every) <= 2


@given(
    st.text(st.sampled_from("ae\u03b9\u1fbe\u0301\u0308\u0323\u1100\u1161\u11a8\u212a;"), max_size=40),
    st.integers(0, 30),
)
def test_what_fits_is_not_asked_how_long_it_was(text: str, most: int) -> None:
    found, whole = written(text, most=most), written(text)
    assert isinstance(whole, bytes)
    assert found == whole or len(whole) > most
