"""Truth counts people: whoever has a key, once, however often and under whichever spelling of an id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from types import MappingProxyType
from typing import Any

import numpy as np

from engines.core.contract import Columns
from engines.keys.domain import KeysDomain
from engines.keys.evaluator import KeysEvaluator, PeopleDomain
from engines.keys.values import BoundedValue
from schemas.arrays import KeyArray, ReasonArray
from schemas.blocks import Folded


class Letters:
    """Keys of one letter."""

    number_fields: tuple[str, ...] = ()
    text_fields = fields = ("page",)
    value_fields: Mapping[str, Any] = MappingProxyType({})
    words = 1

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        texts = columns.texts["page"]
        return np.array([[ord(text)] for text in texts], np.uint64).reshape(-1, 1), np.zeros(len(texts), np.uint8)

    def pairs(self, keys: KeyArray) -> KeyArray:
        return keys

    def decode(self, keys: KeyArray) -> Sequence[tuple[str, ...]]:
        return [(chr(letter),) for (letter,) in keys.tolist()]


EVALUATOR = KeysEvaluator(PeopleDomain(Letters(), "user"), threshold=2.0)


def truth(*rows: tuple[str, object]) -> Folded:
    texts, users = [page for page, _ in rows], [user for _, user in rows]
    keys, _ = EVALUATOR.domain.encode(Columns({}, {"page": texts}, np.ones(len(rows), np.int8), {"user": users}))
    return Folded.from_keys(keys)


TRUE = truth(("a", "ann"), ("a", "ann"), ("a", 7), ("a", "7"), ("b", "ann"), ("c", "x"), ("c", "y"), ("c", None))


class Priced(Letters):
    """Keys of one letter, and a value."""

    number_fields = ("price",)
    words = 2

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        keys, reasons = super().encode(columns)
        return np.column_stack((keys, VALUE.levels(columns.numbers["price"]))), reasons

    def pairs(self, keys: KeyArray) -> KeyArray:
        return keys[:, :1]


VALUE = BoundedValue(field="price", low=0.0, high=8.0)


def test_of_several_values_of_a_person_the_mean_counts_or_where_events_are_counted_all() -> None:
    domain = PeopleDomain(Priced(), "user")
    rows = [("a", "ann", 2.0), ("a", "ann", 4.0), ("a", "bob", 5.0), ("b", "bob", 8.0)]
    pages, users, prices = map(list, zip(*rows, strict=True))
    columns = Columns({"price": np.array(prices)}, {"page": pages}, np.ones(4, np.int8), {"user": users})
    true = Folded.from_keys(domain.encode(columns)[0])
    people = KeysEvaluator(domain, threshold=2.0, value=VALUE)
    events = KeysEvaluator(domain, threshold=2.0, events=True, value=VALUE)
    assert (people.people(true), people.sums(true)) == ({(b"a",): 2, (b"b",): 1}, {(b"a",): 8.0, (b"b",): 8.0})
    assert (events.people(true), events.sums(true)) == ({(b"a",): 3, (b"b",): 1}, {(b"a",): 11.0, (b"b",): 8.0})
    listed: dict[str, list[Any]] = {"page": ["a"], "step": [0], "count": [2.0], "sum": [10.0]}
    assert people.measure(true, listed)["sum_error"] == 2 / 8
    assert people.measure(true, listed).keys() == set(people.metrics)
    assert people.exact(true, true)["sum_error"] == events.exact(true, true)["sum_error"] == 0


def released(*rows: tuple[str, int, float]) -> dict[str, list[Any]]:
    names, steps, counts = ([row[at] for row in rows] for at in range(3))
    return {"page": names, "step": steps, "count": counts}


def test_people_are_counted_once() -> None:
    assert EVALUATOR.people(TRUE) == {(b"a",): 2, (b"b",): 1, (b"c",): 3}
    assert EVALUATOR.size(TRUE) == 6
    assert EVALUATOR.people(Folded.empty(3)) == {}


def test_the_newest_list_is_compared_with_all_keys_that_enough_people_have() -> None:
    found = EVALUATOR.measure(TRUE, released(("c", 3, 9.0), ("a", 4, 1.5), ("b", 4, 2.0)))
    assert found == {"error": (1.5 + 3) / 6, "listed": 2, "findable": 2, "missed": 0.5, "count_error": 1.5 / 3}
    nothing = EVALUATOR.measure(Folded.empty(3), released())
    assert (nothing["listed"], nothing["findable"]) == (0, 0)
    assert isnan(nothing["missed"])
    assert isnan(nothing["count_error"])
    assert isnan(nothing["error"])


def test_what_a_bound_drops_is_missed_without_any_noise() -> None:
    assert EVALUATOR.exact(TRUE, TRUE)["error"] == 0
    found = EVALUATOR.exact(TRUE, truth(("a", "ann"), ("c", "x"), ("c", "y")))
    assert found == {"error": 3 / 6, "listed": 2, "findable": 2, "missed": 0, "count_error": 2 / 5}


def test_values_that_read_alike_are_keys_of_their_own() -> None:
    """1, "1", true and "True" are four: as texts they were two, and each was compared with the people of another."""
    domain = PeopleDomain(KeysDomain(fields=("page",)), "user")
    evaluator = KeysEvaluator(domain, threshold=1.0)
    pages: list[Any] = [1, 1.0, 1, "1", "1", True, "True", "cafe\u0301", "caf\u00e9"]
    columns = Columns({}, {}, np.ones(9, np.int8), {"page": pages, "user": [f"u{at}" for at in range(9)]})
    true = Folded.from_keys(domain.encode(columns)[0])
    assert sorted(evaluator.people(true).values()) == [1, 1, 2, 2, 3]
    listed: dict[str, list[Any]] = {
        "page": [1, "1", True, "True", "caf\u00e9"],
        "step": [0] * 5,
        "count": [3.0, 2.0, 1.0, 1.0, 2.0],
    }
    found = evaluator.measure(true, listed)
    assert (found["error"], found["missed"], found["listed"], found["findable"]) == (0, 0, 5, 5)
    assert evaluator.measure(true, {**listed, "page": ["1", 1, True, "True", "caf\u00e9"]})["error"] > 0
