"""Pictures hold what the public records say, in bounded memory, and say how much of it that is."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.show.pictures import (
    HISTORY,
    MISSING,
    MOST_KEYS,
    OTHER,
    AttributeCells,
    KeyPicture,
    Picture,
    PointPicture,
    SeriesPicture,
    StatePicture,
    TablePicture,
    TripPicture,
    limit,
    place,
)

BOUNDS = (10.0, 20.0, 12.0, 21.0)


class Mirror:
    """What the page keeps of points, written from the format's description: the other end of `PointPicture.body`."""

    def __init__(self) -> None:
        self.generation = -1
        self.points: list[tuple[float, float, int]] = []
        self.weights: list[int] = []
        self.died: dict[int, int] = {}
        self.deaths = 0

    def take(self, picture: PointPicture) -> dict[str, Any]:
        query = {"generation": self.generation, "points": len(self.points), "deaths": self.deaths}
        body = picture.body(query)
        (size,) = struct.unpack_from("<I", body)
        header: dict[str, Any] = json.loads(body[4 : 4 + size])
        if header["generation"] != self.generation:
            self.__init__()  # type: ignore[misc]
            self.generation = header["generation"]
        assert (header["from_point"], header["from_death"]) == (len(self.points), self.deaths)
        added, dead = header["points"] - header["from_point"], header["deaths"] - header["from_death"]
        rest = body[4 + size :]
        assert (4 + size) % 4 == 0
        width = 16 if picture.about()["weighted"] else 12
        assert len(rest) == width * added + 8 * dead
        xy = np.frombuffer(rest[: 8 * added], "<f4").reshape(-1, 2)
        born = np.frombuffer(rest[8 * added : 12 * added], "<i4")
        weights = np.frombuffer(rest[12 * added : width * added], "<i4") if width == 16 else np.ones(added, np.int32)
        gone = np.frombuffer(rest[width * added : width * added + 4 * dead], "<i4")
        when = np.frombuffer(rest[width * added + 4 * dead :], "<i4")
        self.points += [(float(x), float(y), int(step)) for (x, y), step in zip(xy, born, strict=True)]
        self.weights += weights.tolist()
        self.died.update(zip(gone.tolist(), when.tolist(), strict=True))
        self.deaths = header["deaths"]
        return header

    def alive(self, step: int) -> list[tuple[float, float]]:
        return sorted(
            (x, y)
            for at, (x, y, born) in enumerate(self.points)
            if born <= step and (at not in self.died or self.died[at] > step)
        )

    def weight(self, step: int) -> int:
        return sum(
            weight
            for at, ((_, _, born), weight) in enumerate(zip(self.points, self.weights, strict=True))
            if born <= step and (at not in self.died or self.died[at] > step)
        )


def at(number: int) -> dict[str, float]:
    """Fields whose float32 rests are exact."""
    return {"x": 10.0 + (number % 64) / 64, "y": 20.0 + (number % 32) / 64}


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 40), max_size=8), st.lists(st.integers(0, 40), max_size=8), st.booleans()),
        max_size=12,
    )
)
def test_the_page_has_the_points_that_are_alive_at_every_step(
    steps: list[tuple[list[int], list[int], bool]],
) -> None:
    picture, mirror = PointPicture("x", "y", BOUNDS), Mirror()
    alive: dict[str, int] = {}
    wanted = []
    for step, (adds, removes, fetch) in enumerate(steps):
        for number in removes:
            name = next((key for key in alive if key.startswith(f"{number}-")), None)
            if name is not None:
                picture.remove(step, name)
                del alive[name]
        for number in dict.fromkeys(adds):
            name = f"{number}-{step}"
            picture.add(step, name, at(number))
            alive[name] = number
        picture.end(step)
        wanted.append(sorted((at(n)["x"] - 10.0, at(n)["y"] - 20.0) for n in alive.values()))
        if fetch:
            mirror.take(picture)
    header = mirror.take(picture)
    assert [mirror.alive(step) for step in range(len(steps))] == wanted
    assert header["shown"] == header["total"] == len(alive)


def weighted(number: int, weight: object) -> dict[str, Any]:
    return {**at(number), "kind": "ab"[number % 2], "weight": weight}


@given(
    st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 5) | st.just(2**31 - 1), max_size=6), max_size=6)
)
def test_a_map_and_a_table_of_weights_are_those_of_each_step(steps: list[dict[str, int]]) -> None:
    """A record with another weight takes the place of the one before, also where the slider is moved back."""
    points, mirror = PointPicture("x", "y", BOUNDS, weighted=True), Mirror()
    table = TablePicture([AttributeCells("kind", values=("a", "b"))], weighted=True)
    alive: dict[str, int] = {}
    wanted, counted = [], []
    for step, weights in enumerate(steps):
        for name, weight in weights.items():
            if weight:
                alive[name] = weight
                points.add(step, name, weighted(ord(name), weight))
                table.add(step, name, weighted(ord(name), weight))
            elif name in alive:
                del alive[name]
                points.remove(step, name)
                table.remove(step, name)
        points.end(step)
        table.end(step)
        wanted.append(sum(alive.values()))
        counted.append([sum(w for name, w in alive.items() if ord(name) % 2 == side) for side in (0, 1)])
    header = mirror.take(points)
    assert [mirror.weight(step) for step in range(len(steps))] == wanted
    assert header["shown"] == header["total"] == table.shown()["total"] == len(alive)
    for step, counts in enumerate(counted):
        assert json.loads(table.body({"step": step}))["counts"][0][:2] == counts


@pytest.mark.parametrize("weight", [0, -1, 1.5, True, "3", None, 2**31])
def test_a_weight_that_is_none_is_no_record_of_the_picture(weight: object) -> None:
    pictures: list[Picture] = [
        PointPicture("x", "y", BOUNDS, weighted=True),
        TablePicture([AttributeCells("kind", values=("a", "b"))], weighted=True),
    ]
    for picture in pictures:
        with pytest.raises(ValueError, match="no weight"):
            picture.add(0, "a", weighted(1, weight))


def test_a_sample_of_weights_says_of_how_many_records_it_is() -> None:
    picture = TablePicture([AttributeCells("kind", values=("a", "b"))], weighted=True, capacity=1_000)
    for again in range(3):
        for number in range(4_000):
            picture.add(again, f"p{number}", weighted(number, 1 + again))
    shown = picture.shown()
    assert 2_000 < shown["total"] < 8_000, "and not three times as many"
    assert shown["shown"] <= 1_000


def test_beyond_its_capacity_a_uniform_part_of_the_points_stays_and_withdrawals_still_find_them() -> None:
    picture, mirror = PointPicture("x", "y", BOUNDS, capacity=2_000), Mirror()
    for number in range(1_000):
        picture.add(0, f"p{number}", at(number))
    assert mirror.take(picture)["generation"] == 0
    for number in range(1_000, 10_000):
        picture.add(1, f"p{number}", at(number))
    header = mirror.take(picture)
    assert header["generation"] > 0
    assert header["total"] == 10_000
    assert len(mirror.points) == header["shown"] <= 2_000
    level = 3  # an eighth of 10,000: a quarter is more than fits
    sample = [n for n in range(10_000) if place(f"p{n}") < limit(level)]
    assert header["shown"] == len(sample)
    for number in range(5_000):
        picture.remove(2, f"p{number}")
    header = mirror.take(picture)
    assert header["total"] == 5_000
    assert header["shown"] == len(mirror.alive(2)) == len([n for n in sample if n >= 5_000])


def test_points_that_were_withdrawn_before_the_slider_begins_go_first() -> None:
    picture = PointPicture("x", "y", BOUNDS, capacity=1_000)
    for number in range(900):
        picture.add(0, f"old{number}", at(number))
        picture.remove(1, f"old{number}")
    for number in range(500):
        picture.add(HISTORY + 10, f"new{number}", at(number))
    shown = picture.shown()
    assert (shown["shown"], shown["total"]) == (500, 500)
    assert shown["first"] == 11


def test_longitudes_go_around_the_earth_where_the_bounds_do() -> None:
    picture = PointPicture("x", "y", (170.0, -20.0, 190.0, 0.0), degrees=True)
    picture.add(0, "a", {"x": -175.0, "y": -10.0})
    mirror = Mirror()
    mirror.take(picture)
    assert mirror.points == [(15.0, 10.0, 0)]


def test_a_point_without_a_coordinate_is_refused_and_changes_nothing() -> None:
    picture = PointPicture("x", "y", BOUNDS)
    with pytest.raises(KeyError):
        picture.add(0, "a", {"x": 1.0})
    with pytest.raises((TypeError, ValueError)):
        picture.add(0, "a", {"x": 1.0, "y": None})
    assert picture.shown()["total"] == 0


def test_flows_count_all_trips_and_paths_are_some_of_them_whole() -> None:
    picture = TripPicture("trip", "point", "x", "y", (0.0, 0.0, 8.0, 8.0))
    for step in range(2):
        for trip in range(300):
            for point in range(3):
                fields = {"trip": f"{step}-{trip}", "point": point, "x": 0.5 + point * (trip % 2), "y": 0.5}
                picture.add(step, f"{step}-{trip}-{point}", fields)
        picture.end(step)
    body = orjson.loads(picture.body({"step": 1}))
    assert body["trips"] == 300
    assert {(start, end): count for start, end, count in body["flows"]} == {(0, 0): 150, (0, 2): 150}
    assert len(body["paths"]) == 200
    assert {len(path) for path in body["paths"]} == {3}
    assert picture.shown()["trips"] == 600
    assert orjson.loads(picture.body({"step": 7})) == {"step": 7, "trips": 0, "paths": [], "flows": []}


ROWS = [
    AttributeCells("sex", values=["f", "m"]),
    AttributeCells("age", edges=[0, 18, 65]),
    AttributeCells("late", values=[True, False]),
]


def test_marginals_are_those_of_the_rows_alive_after_each_step() -> None:
    picture = TablePicture(ROWS)
    picture.add(0, "a", {"sex": "f", "age": 17.5, "late": True})
    picture.add(0, "b", {"sex": "x", "age": 65, "late": 1})
    picture.add(1, "c", {"sex": None, "age": 99})
    picture.remove(1, "a")
    picture.end(0)
    picture.end(1)
    before, now = (orjson.loads(picture.body({"step": step}))["counts"] for step in range(2))
    assert before == [[1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0]]
    assert now == [[0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert orjson.loads(picture.body({}))["before"] == before
    labels = ["0 to 18", "18 to 65", OTHER, MISSING]
    assert picture.about()["attributes"][1] == {"field": "age", "found": 0, "labels": labels}
    assert orjson.loads(picture.body({"step": 9}))["counts"] is None


def test_values_that_are_found_have_their_names_from_then_on() -> None:
    """A cell keeps its meaning; who writes more values than there can be adds to the others."""
    picture = TablePicture([AttributeCells("shop", found=2, other="rest"), *ROWS[2:]])
    assert picture.about()["attributes"][0] == {"field": "shop", "found": 2, "labels": ["", "", OTHER, MISSING]}
    steps: list[list[Any]] = [["rest", "rest"], ["b", None], ["a", "b", "c", 7]]
    for step, shops in enumerate(steps):
        for at, shop in enumerate(shops):
            picture.add(step, f"{step}.{at}", {"shop": shop, "late": True})
        picture.end(step)
    none, one, two = (orjson.loads(picture.body({"step": step})) for step in range(3))
    assert [each["counts"][0] for each in (none, one, two)] == [[0, 0, 2, 0], [1, 0, 2, 1], [2, 1, 4, 1]]
    assert two["found"] == {"shop": ["b", "a", OTHER, MISSING]}
    picture.remove(3, "2.1")
    picture.end(3)
    assert orjson.loads(picture.body({}))["counts"][0] == [1, 1, 4, 1]


def test_a_large_table_becomes_a_sample_whose_counts_are_its_own() -> None:
    picture = TablePicture(ROWS[:1], capacity=100)
    for number in range(1_000):
        picture.add(0, f"r{number}", {"sex": "fm"[number % 2]})
    for number in range(0, 1_000, 2):
        picture.remove(1, f"r{number}")
    picture.end(1)
    shown = picture.shown()
    assert shown["total"] == 500
    assert 0 < shown["shown"] <= 100
    assert orjson.loads(picture.body({}))["counts"] == [[0, shown["shown"], 0, 0]]


def test_numbers_keep_their_intervals_and_may_be_of_an_earlier_step() -> None:
    picture = SeriesPicture(["visits", "sum"])
    picture.add(1, "0", {"step": 0, "visits": 5, "visits_low": 3.0, "visits_high": 7.0})
    picture.add(1, "1", {"step": 1, "visits": 6.5, "sum": -2})
    found = orjson.loads(picture.body({}))
    assert found["steps"] == [0, 1]
    assert found["fields"][0] == {"value": [5.0, 6.5], "low": [3.0, None], "high": [7.0, None]}
    assert found["fields"][1]["value"] == [None, -2.0]


def test_counts_of_states_are_revised_and_the_rest_is_one_share() -> None:
    states = [f"s{number}" for number in range(12)]
    picture = StatePicture("zone", states)
    for step in range(2):
        for number, state in enumerate(states):
            picture.add(step, f"{step}.{number}", {"zone": state, "step": step, "count": 100.0 - number})
        picture.add(step, f"{step}.u", {"zone": None, "kind": "unseen", "step": step, "count": -3.0})
    picture.add(1, "0.0.r", {"zone": "s0", "step": 0, "count": 500.0, "revised": True})
    found = orjson.loads(picture.body({}))
    assert found["names"][0] == "s0"
    assert found["counts"][0] == [500.0, 100.0]
    assert found["names"][-1] == "3 others"
    assert found["counts"][-1][1] == 91.0 + 90.0 + 89.0
    with pytest.raises(KeyError):
        picture.add(2, "k", {"zone": "nowhere", "count": 1})


def key(name: str, count: float, found: int) -> dict[str, Any]:
    return {"page": name, "lang": "en", "count": count, "error": 2.0, "found": found}


def test_keys_of_a_step_are_those_with_most_people_and_all_are_counted() -> None:
    picture = KeyPicture(["page", "lang"], count="count", error="error", found="found")
    for step in range(HISTORY + 3):
        for number in range(MOST_KEYS + step % 5):
            for _ in range(2):  # a record that comes again is one
                picture.add(step, f"{step}.{number}", key(f"p{number}", 100.0 + number, max(0, step - number % 2)))
        picture.end(step)
    picture.add(0, "late", key("late", 1e6, 0))
    newest = HISTORY + 2
    found = orjson.loads(picture.body({}))
    assert (found["step"], found["listed"], found["first"]) == (newest, MOST_KEYS + newest % 5, 3)
    assert found["new"] == (MOST_KEYS + newest % 5 + 1) // 2
    assert [each[0] for each in found["keys"][:2]] == [f"p{found['listed'] - 1}, en", f"p{found['listed'] - 2}, en"]
    assert len(found["keys"]) == MOST_KEYS
    assert found["keys"][0][1:4] == [99 + found["listed"] + reach for reach in (0, -3.29, 3.29)]
    assert picture.shown() == {"shown": HISTORY, "total": HISTORY + 3, "what": "steps"}
    assert orjson.loads(picture.body({"step": 2}))["keys"] is None
    with pytest.raises(KeyError):
        picture.add(newest, "k", {"page": "p", "lang": "en"})


def test_an_engine_without_a_picture_has_its_counts_alone() -> None:
    picture = Picture()
    picture.add(0, "a", {"anything": 1})
    picture.remove(0, "a")
    picture.end(0)
    assert (picture.kind, picture.about(), picture.shown(), picture.body({})) == ("counts", {}, {}, b"{}")


def test_all_who_ask_for_all_points_share_the_same_bytes_until_something_changes() -> None:
    picture = PointPicture("x", "y", (0.0, 0.0, 1.0, 1.0))
    picture.add(0, "a", {"x": 0.5, "y": 0.5})
    first = picture.body({})
    assert picture.body({"generation": 7}) is first
    assert picture.body({"points": 0}) is first
    picture.body({"generation": 0, "points": 1})
    assert picture.body({}) is first
    for change in (
        lambda: picture.add(0, "b", {"x": 0.25, "y": 0.5}),
        lambda: picture.remove(1, "a"),
        lambda: picture.end(2),
        picture._thin,
    ):
        before = picture.body({})
        change()
        assert picture.body({}) != before
