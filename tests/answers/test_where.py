"""Which part of a code meets a condition, against each value of it; SQL against the tree, and what is refused."""

from __future__ import annotations

import contextlib
import string
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.readers.query.run import condition, region_of_box, region_of_text
from engines.core.answers.contract import Asked, QueryError
from engines.core.answers.where import (
    Atom,
    Both,
    Either,
    Not,
    Where,
    atoms_on,
    fields_of,
    holds,
    interval_pieces,
    other_pieces,
    parts_of,
    value_pieces,
)
from schemas.errors import PrivstreamError
from tests.examples import examples

NUMBERS = st.one_of(st.integers(-3, 25), st.sampled_from([2.5, 9.5, 10.0, 12.25]))
WORDS = ("x", "y", "it's", 'a "b"')
EDGES = (0, 4, 10, 20)


def number_atoms() -> st.SearchStrategy[Where]:
    ordered = st.builds(
        lambda op, value: Atom("n", op, (value,)), st.sampled_from(["=", "<", "<=", ">", ">="]), NUMBERS
    )
    several = st.builds(lambda values: Atom("n", "in", tuple(values)), st.lists(NUMBERS, min_size=1, max_size=3))
    return st.one_of(ordered, several, st.just(Atom("n", "null")))


def word_atoms() -> st.SearchStrategy[Where]:
    values = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda value: Atom("w", "=", (value,)), st.sampled_from(WORDS)),
        st.builds(lambda found: Atom("w", "in", tuple(found)), values),
        st.just(Atom("w", "null")),
        st.just(Atom("b", "=", (True,))),
    )


def conditions() -> st.SearchStrategy[Where]:
    return st.recursive(
        st.one_of(number_atoms(), word_atoms()),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(lambda parts: Both(tuple(parts)), st.lists(inner, min_size=2, max_size=3)),
            st.builds(lambda parts: Either(tuple(parts)), st.lists(inner, min_size=2, max_size=3)),
        ),
        max_leaves=6,
    )


@settings(max_examples=examples(1.6))
@given(where=conditions())
def test_parts_are_those_of_the_single_values(where: Where) -> None:
    """Whole numbers in bins: each value can be looked at by itself."""
    codes, values = {}, {}
    for name in fields_of(where):
        looking = atoms_on(where, name)
        if name == "n":
            bins = list(pairwise(EDGES))
            codes[name] = [interval_pieces(looking, low, high, integer=True, closed=high == 20) for low, high in bins]
            values[name] = [list(range(low, high + (high == 20))) for low, high in bins]
        else:
            listed: list[Any] = [*WORDS] if name == "w" else [False, True]
            codes[name] = [value_pieces(looking, value) for value in [*listed, None]]
            values[name] = [[value] for value in [*listed, None]]
    parts = parts_of(where, codes)
    for place in np.ndindex(parts.share.shape):
        records: list[dict[str, Any]] = [{}]
        for name, at in zip(codes, place, strict=True):
            records = [{**record, name: value} for record in records for value in values[name][at]]
        met = [holds(where, record) for record in records]
        assert parts.share[place] == pytest.approx(np.mean(met))
        assert parts.whole[place] == all(met)
        assert parts.some[place] == any(met)


def test_a_number_on_an_edge_is_a_part_of_its_bin() -> None:
    below = Atom("n", "<=", (10,))
    bins = [interval_pieces([below], low, high, closed=high == 20) for low, high in ((0, 10), (10, 20))]
    parts = parts_of(below, {"n": bins})
    assert parts.share.tolist() == [1.0, 0.0]
    assert parts.whole.tolist() == [True, False]
    assert parts.some.tolist() == [True, True]  # all that is exactly 10 may be what the second bin holds


def test_the_order_of_what_is_not_listed_is_not_known() -> None:
    above = Atom("n", ">", (100,))
    parts = parts_of(above, {"n": [other_pieces([above], "other")]})
    assert (parts.share.tolist(), parts.whole.tolist(), parts.some.tolist()) == ([0.5], [False], [True])
    equal = Atom("n", "=", (5,))
    assert not parts_of(equal, {"n": [other_pieces([equal], "other")]}).some.any()


FIELDS = {
    "n": Asked(frozenset(("number",))),
    "w": Asked(frozenset(("text",)), WORDS),
    "b": Asked(frozenset(("boolean",)), (False, True)),
}
PATHS = {name: Asked(frozenset(("number",))) for name in ("p.lon", "p.c.0", "a.b.c.d.e", "$header.n")}


def quoted(value: Any) -> str:
    return str(value) if not isinstance(value, str) else "'" + value.replace("'", "''") + "'"


def written(where: Where) -> str:
    """As a person writes it."""
    if isinstance(where, Not):
        return f"NOT ({written(where.part)})"
    if isinstance(where, Both | Either):
        return f" {'AND' if isinstance(where, Both) else 'or'} ".join(f"({written(part)})" for part in where.parts)
    if where.op == "null":
        return f"{where.field} is null"
    if where.op == "in":
        return f"{where.field} IN ({', '.join(map(quoted, where.values))})"
    return f"{where.field} {where.op} {quoted(where.values[0])}"


RECORDS = st.fixed_dictionaries({}, optional={"n": NUMBERS, "w": st.sampled_from(WORDS), "b": st.booleans()})


@settings(max_examples=examples(1.6))
@given(where=conditions(), record=RECORDS)
def test_what_is_written_means_the_same(where: Where, record: dict[str, Any]) -> None:
    assert holds(condition(written(where), FIELDS), record) == holds(where, record)


@pytest.mark.parametrize(
    ("text", "record", "expected"),
    [
        ("n between 3 and 5", {"n": 5}, True),
        ("n not between 3 and 5", {"n": 5}, False),
        ("5 < n", {"n": 6}, True),
        ("n <> 3", {"n": 4}, True),
        ("n <> 3", {}, False),
        ("w is not null", {"w": "x"}, True),
        ("b and not w = 'x'", {"b": True, "w": "y"}, True),
        ("n > -1.5e0", {"n": -1}, True),
        ("w not in ('x', 'y')", {"w": "it's"}, True),
    ],
)
def test_sql_as_it_is_known(text: str, record: dict[str, Any], expected: bool) -> None:
    assert holds(condition(text, FIELDS), record) is expected


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("p.lon < 3", "p.lon"),
        ("3 > p.lon", "p.lon"),
        ("p.c.0 between 1 and 3", "p.c.0"),
        ("a.b.c.d.e < 3", "a.b.c.d.e"),
        ("3 > a.b.c.d.e", "a.b.c.d.e"),
        ('"p.lon" < 3', "p.lon"),
        ('"$header.n" = 2', "$header.n"),
    ],
)
def test_fields_by_path(text: str, field: str) -> None:
    assert {*fields_of(condition(text, PATHS))} == {field}
    assert holds(condition(text, PATHS), {field: 2})


@pytest.mark.parametrize("text", ["p.lat = 1", "lower(p.lon) = 1", "lower(p).lon = 1", "p = 1"])
def test_what_is_no_path_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(QueryError, match=r"p\.lon"):
        condition(text, PATHS)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("", "as in SQL"),
        ("n >", "as in SQL"),
        ("m = 1", "one of n, w, b"),
        ("ww = 'x'", "Fix: name w"),
        ("w = 'xx'", "Fix: write 'x'."),
        ("w = 5", "single quotes"),
        ("n = '5'", "without quotes"),
        ("n + 1 = 2", "one of n, w, b"),
        ("lower(w) = 'x'", "one of n, w, b"),
        ("n = (select 1)", "a number, a text"),
        ("n in (select 1)", "compare a field with a value"),
        ("w like 'x%'", "compare a field with a value"),
        ("other.n = 1", "one of n, w, b"),
        ("n = 1; drop table x", "as in SQL"),
        ("n = n", "a number, a text"),
        ("n = 1e999", "too large to compare"),
        pytest.param(f"n < {'9' * 400}", "a number in the condition is too large", id="400 digits"),
        pytest.param(f"n < -{'9' * 5000}", "too large to compare", id="5000 digits"),
        ("n", "compare a field with a value"),
        ("(" * 150 + "n = 1" + ")" * 150, ""),
    ],
)
def test_what_is_refused_says_what_to_write(text: str, fix: str) -> None:
    with pytest.raises(QueryError, match=r"Fix: ") as refused:
        condition(text, FIELDS)
    assert fix in str(refused.value)


@settings(max_examples=examples(2))
@given(st.text(alphabet=string.printable, max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(QueryError):
        assert fields_of(condition(text, FIELDS))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(PrivstreamError, match=r"privstream\[query\]"):
        condition("n = 1", FIELDS)


SQUARE = '{"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}'


@pytest.mark.parametrize(
    "given",
    [
        SQUARE,
        f'{{"type": "Feature", "properties": {{}}, "geometry": {SQUARE}}}',
        f'{{"type": "FeatureCollection", "features": [{{"type": "Feature", "geometry": {SQUARE}}}]}}',
        "POLYGON((0 0, 1 0, 1 1, 0 1, 0 0))",
    ],
)
def test_regions_in_every_form(given: str, tmp_path: Any) -> None:
    import shapely

    (tmp_path / "region").write_text(given)
    for each in (region_of_text(given), region_of_text(str(tmp_path / "region")), region_of_box("0,0,1,1")):
        assert shapely.from_wkb(each).equals(shapely.box(0, 0, 1, 1))


@pytest.mark.parametrize("given", ["", "POINT(1 1)", "{", '{"type": "Point"}', "missing.geojson", "x" * 5000])
def test_a_region_without_an_area_is_refused(given: str) -> None:
    with pytest.raises(QueryError, match="Fix: "):
        region_of_text(given)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(QueryError, match=r"there is no file missing\.geojson"):
        region_of_text("missing.geojson")


@pytest.mark.parametrize("given", ["1,2,3", "1,1,0,0", "a,b,c,d"])
def test_a_box_is_four_numbers(given: str) -> None:
    with pytest.raises(QueryError, match="xmin,ymin,xmax,ymax"):
        region_of_box(given)
