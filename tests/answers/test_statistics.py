"""Answers of every engine that gives them: unbiased, with true standard errors, and intervals that hold what they "
"say."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import shapely
from scipy.stats import binom

from agents.readers.consume.ledger import Ledger
from agents.readers.query.run import Ask, answers_of, check_answers, steps_of
from engines.checks.contract_case import contract_case
from engines.core.answers.contract import CountQuestion, QueryError
from engines.core.answers.where import Atom
from engines.core.registry import part
from engines.markov.answers import MarkovAnswers
from engines.series.answers import SeriesAnswers
from engines.series.fields import SeriesDomain, SeriesField
from engines.spatial.answers import MeasuredRectangles
from engines.spatial.domain.box import BoxDomain
from engines.spatial.held.engine import HeldLeaves
from engines.tabular.answers import _parts
from schemas.config import ENGINES
from schemas.errors import PrivstreamError
from tests.answers.standardised import faults
from tests.answers.streams import (
    Events,
    Known,
    configured,
    counted_visits,
    counts_of_states,
    people_of_pages,
    seldom_rows,
    table_rows,
)
from tests.consume.runs import run

CORNER = 4
"""Regions a side."""


def places(seed: int = 1) -> Known:
    """Points in sixteen squares, of which every released leaf is a part; a burst at step 2."""
    chance = np.random.default_rng(seed)
    sizes = [20_000, 900, 6_000, 900]
    x, y = (chance.beta(2, 3, sum(sizes)) for _ in range(2))
    events = {"x": x, "y": y, "step": np.repeat(np.arange(len(sizes)), sizes)}
    domain = {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]}
    stream = configured("spatial", domain, options={"depth": 6, "max_leaves": 64, "initial_steps": 1})

    def square(column: int, row: int) -> tuple[CountQuestion, Callable[[Events], np.ndarray]]:
        west, south = column / CORNER, row / CORNER
        shape = shapely.box(west, south, west + 1 / CORNER, south + 1 / CORNER)

        def inside(of: Events) -> np.ndarray:
            found: np.ndarray = (np.floor(of["x"] * CORNER) == column) & (np.floor(of["y"] * CORNER) == row)
            return found

        return CountQuestion(1, len(sizes) - 1, region=shape.wkb), inside

    asked = [square(column, row) for column in range(CORNER) for row in range(CORNER)]
    return Known(stream, events, len(sizes), asked)


def errors_of(known: Known, seeds: Sequence[int], *, scale: float = 1.0) -> list[float]:
    """Standardised errors of what no question cuts and no event waits for. Args: scale: of the standard errors."""
    found = []
    for engine, answerer in known.runs(seeds):
        for question, counts in known.asked:
            answer = answerer.answer(question)
            if answer.standard_error is not None and not (answer.pending and isinstance(engine, HeldLeaves)):
                assert answer.estimate is not None
                found.append((answer.estimate - known.truth(question, counts)) / (scale * answer.standard_error))
    return found


def settled_errors(seeds: Sequence[int], *, scale: float = 1.0) -> list[float]:
    """Of a spatial stream: of what was measured, which the engine's private state tells."""
    known, found = places(), []
    for engine, answerer in known.runs(seeds):
        assert isinstance(engine, HeldLeaves)
        tree, domain = engine._tree, engine.config.domain
        assert isinstance(domain, BoxDomain)
        cells = tree.starts[:, None] // (1 << (tree.depth - 4))
        for question, counts in known.asked:
            answer = answerer.answer(question)
            if answer.standard_error is None:
                continue
            assert answer.estimate is not None
            x0, y0, _, _ = shapely.from_wkb(question.region).bounds
            keys = domain.cells(np.array([x0 + 1e-6]), np.array([y0 + 1e-6])) >> (tree.depth - 4)
            waiting = int(tree.pending[tree.leaves][cells[:, 0] == keys[0]].sum())
            truth = known.truth(question, counts) - waiting
            found.append((answer.estimate - truth) / (scale * answer.standard_error))
    return found


RUNS: dict[str, Callable[[float], list[float]]] = {
    "places": lambda scale: settled_errors(range(17), scale=scale),
    "rows": lambda scale: errors_of(table_rows(), range(42), scale=scale),
    "rows under Gaussian noise": lambda scale: errors_of(
        table_rows(privacy={"epsilon": 1.0, "delta": 1e-6, "unit": "event"}), range(42), scale=scale
    ),
    "rows that are seldom": lambda scale: errors_of(seldom_rows(), range(42), scale=scale),
    "states": lambda scale: errors_of(counts_of_states(), range(10), scale=scale),
    "visits": lambda scale: errors_of(counted_visits(), range(5), scale=scale),
    "people": lambda scale: errors_of(people_of_pages(), range(10), scale=scale),
    "people of public pages": lambda scale: errors_of(people_of_pages(public=True), range(10), scale=scale),
}


@pytest.mark.seconds(4)
@pytest.mark.parametrize("kind", RUNS)
def test_standard_errors_are_true(kind: str) -> None:
    """False positives: 1e-6. Planted faults: standard errors that are two fifths too small or too large."""
    errors = np.array(RUNS[kind](1.0))
    assert len(errors) > 250
    assert faults(errors) == []
    assert faults(errors / 0.6) != []
    assert faults(errors * 0.6) != []
    assert faults(errors + 0.7) != []


def test_a_count_is_the_sum_of_its_parts() -> None:
    """Of any weights of cells, from sums and differences over binary attributes."""
    rng = np.random.default_rng(1)
    names, sizes = ("a", "b", "c"), (2, 3, 2)
    cells, counts = rng.random(sizes), rng.integers(0, 99, sizes).astype(np.float64)
    total = 0.0
    for line, weights in _parts(cells, names, [size == 2 for size in sizes]).items():
        told = counts
        for axis in (2, 0):
            first, second = np.moveaxis(told, axis, 0)
            told = first - second if names[axis] in line.differences else first + second
        total += float((weights * told).sum())
    assert total == pytest.approx(float((cells * counts).sum()))


@pytest.mark.parametrize("usual", [(None, 1), (0, None), (2, 1)])
def test_a_count_is_the_sum_of_what_pairs_count_and_of_what_one_way_marginals_say(
    usual: tuple[int | None, ...],
) -> None:
    rng = np.random.default_rng(2)
    names, sizes = ("a", "b"), (3, 2)
    cells, counts = rng.random(sizes), rng.integers(0, 99, sizes).astype(np.float64)
    total = 0.0
    for line, weights in _parts(cells, names, [False, True], usual).items():
        told = counts
        for axis, name in ((1, "b"), (0, "a")):
            if name in line.differences:
                first, second = np.moveaxis(told, axis, 0)
                told = first - second
            elif name not in line.apart:
                told = told.sum(axis=axis)
        if line.usual:
            assert all(
                not np.moveaxis(weights, at, 0)[value].any() for at, value in enumerate(usual) if value is not None
            )
        total += float((weights * told).sum())
    assert total == pytest.approx(float((cells * counts).sum()))


@pytest.mark.seconds(4)
def test_intervals_hold_what_they_say_where_a_question_cuts() -> None:
    """Squares that lie across cells, and values within bins: 95 % at least, with false positives of 1e-6."""
    chance = random.Random(2)
    known, held, asked, cut = places(2), 0, 0, 0
    x, y, step = known.events["x"], known.events["y"], known.events["step"]
    for _, answerer in known.runs(range(5)):
        for _ in range(16):
            west, south = chance.uniform(0, 0.6), chance.uniform(0, 0.6)
            shape = shapely.box(west, south, west + chance.uniform(0.1, 0.4), south + chance.uniform(0.1, 0.4))
            inside = (x >= shape.bounds[0]) & (x < shape.bounds[2]) & (y >= shape.bounds[1]) & (y < shape.bounds[3])
            last = answerer.settled
            answer = answerer.answer(CountQuestion(0, last, region=shape.wkb))
            assert answer.high is not None
            assert answer.low is not None
            assert (answer.standard_error is None) == (answer.cut != 0)
            held += answer.low <= (inside & (step <= last)).sum() <= answer.high
            asked, cut = asked + 1, cut + (answer.cut != 0)
    assert cut > asked / 2
    assert held >= binom.ppf(1e-6, asked, 0.94)
    rows = table_rows(2, steps=4)
    held = asked = 0
    for _, answerer in rows.runs(range(5)):
        for limit in (5, 15, 33):
            for first, last in ((0, 3), (1, 2)):
                question = CountQuestion(first, last, Atom("n", "<", (limit,)))
                answer = answerer.answer(question)
                truth = rows.truth(question, lambda of, limit=limit: of["n"] < limit)  # type: ignore[misc]
                assert answer.standard_error is None
                assert answer.low is not None
                held += answer.low <= truth <= (answer.high or 0)
                asked += 1
    assert held >= binom.ppf(1e-6, asked, 0.94)


def test_what_waits_is_said_and_bounds_nothing() -> None:
    known = places()
    ((_, answerer),) = known.runs([1])
    assert -1 < answerer.settled < known.steps
    answer = answerer.answer(CountQuestion(0, known.steps + 4))
    assert answer.pending > 0.4
    assert answer.high is None


@pytest.mark.parametrize("op", [None, "action"])
def test_where_deletes_may_wait_nothing_is_a_lower_end(op: str | None) -> None:
    box = {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0], "op": op}
    table = {"kind": "table", "attributes": [{"field": "a", "values": ["x", "y"]}], "op": op}
    cell = {"cell": [0.0, 0.0, 1.0, 1.0], "since": -1, "increment": 100, "variance": 2.0}
    totals = [{"totals": {"inserts": 50.0 * step, "deletes": 0.0}, "variance": 2.0} for step in range(3)]
    for stream, measured in (
        (configured("spatial", box), [(2, cell)]),
        (configured("tabular", table), list(enumerate(totals))),
    ):
        answerer = part(stream.engine, "answers")(stream, measured, 2)
        known, waits = (answerer.answer(CountQuestion(0, last)) for last in (2, 5))
        assert (known.low is None, known.high is None, known.pending) == (False, False, 0.0)
        assert (waits.low is None, waits.high is None) == (op is not None, True)
        assert waits.estimate == known.estimate, "nothing is put in for what waits"


def test_readings_are_averaged_and_sums_are_added() -> None:
    domain = {"kind": "series", "fields": [{"name": "load", "of": "value", "limits": [0, 100], "sensitivity": 1}]}
    privacy = {"epsilon": 50.0, "delta": 1e-6, "unit": "user"}
    events = {"load": np.full(8, 40.0), "step": np.array([0, 1, 2, 3, 4, 6, 7, 9])}
    known = Known(configured("series", domain, privacy=privacy, options={"horizon": 10}), events, 10, [])
    ((_, answerer),) = known.runs([1])
    answer = answerer.answer(CountQuestion(0, 9))
    assert answer.standard_error is not None
    assert answer.low is not None
    assert answer.estimate == pytest.approx(40, abs=6 * answer.standard_error)
    assert answer.pending == pytest.approx(0.2)
    assert answer.low < 40 < (answer.high or 0), "a mean is that of the steps with a reading"
    assert answerer.settled == 9, "nothing came in steps without a reading"
    nothing = answerer.answer(CountQuestion(5, 5))
    assert (nothing.low, nothing.high) == (None, None), "no step, no mean"
    assert (nothing.estimate, nothing.standard_error) == (None, None)


def test_steps_that_nobody_measured_bound_nothing() -> None:
    """Behind a horizon: 5 of 10 steps are measured."""
    made = SeriesDomain(
        (
            SeriesField(name="visits"),
            SeriesField(name="gain", of="sum", limits=(-4.0, 4.0)),
            SeriesField(name="km", of="sum", limits=(0.0, 4.0)),
        )
    )
    told = [
        (step, {"field": field.name, "of_step": step, "value": 10.0, "variance": 2.0})
        for step in range(5)
        for field in made.fields
    ]
    states = [(step, {"state": state, "count": 10, "variance": 2.0}) for step in range(5) for state in "ab"]
    for answerer, name, has_low in (
        (SeriesAnswers(made, told, 9), "visits", True),
        (SeriesAnswers(made, told, 9), "gain", False),
        (SeriesAnswers(made, told, 9), "km", True),
        (MarkovAnswers("zone", ("a", "b"), states, 9), None, True),
    ):
        assert answerer.settled == 4
        for first in (0, 7):
            answer = answerer.answer(CountQuestion(first, 9, series=name))
            assert answer.pending > 0
            assert answer.high is None
            assert (answer.low is not None) == has_low
            assert (answer.estimate is not None) == (first == 0), "what nobody measured is not 0"
        known = answerer.answer(CountQuestion(0, 4, series=name))
        assert known.low is not None
        assert known.high is not None
        assert known.estimate is not None
        assert known.low < known.estimate < known.high


def test_a_region_where_no_event_can_be_is_refused() -> None:
    """Mostly latitude and longitude, the wrong way round; 0 with a standard error of 0 would look like an answer."""
    cells = MeasuredRectangles([(13.0, 52.0, 13.5, 53.0), (13.5, 52.0, 14.0, 53.0)], ("lon", "lat"))
    assert cells.shares(CountQuestion(0, 0, region=shapely.box(13.25, 52.0, 13.75, 53.0).wkb)).tolist() == [0.5, 0.5]
    with pytest.raises(QueryError, match=r"lon 13 to 14 and lat 52 to 53, .*always be 0\. Fix: .*lon comes first"):
        cells.shares(CountQuestion(0, 0, region=shapely.box(52.0, 13.0, 53.0, 14.0).wkb))


def test_zones_are_chosen_by_their_names() -> None:
    chance = np.random.default_rng(4)
    zones = [f"z{number}" for number in range(8)]
    events = {"zone": chance.choice(zones, 20_000), "step": np.zeros(20_000, np.int64)}
    domain = {"kind": "zones", "field": "zone", "zones": zones}
    privacy = {"epsilon": 5.0, "unit": "event"}
    known = Known(configured("spatial", domain, privacy=privacy), events, 1, [])
    ((_, answerer),) = known.runs([1])
    answer = answerer.answer(CountQuestion(0, 0, Atom("zone", "in", ("z1", "z5"))))
    truth = np.isin(events["zone"], ["z1", "z5"]).sum()
    assert answer.low is not None
    assert answer.low <= truth <= (answer.high or 0)
    assert abs(answer.estimate - truth) < 0.1 * truth
    with pytest.raises(QueryError, match="zone = 'z0'"):
        answerer.answer(CountQuestion(0, 0, region=shapely.box(0, 0, 1, 1).wkb))


@pytest.mark.parametrize("engine", [name for name in ENGINES if "answers" in ENGINES[name].references])
def test_a_mode_that_cannot_answer_says_why(engine: str) -> None:
    """Every mode answers or refuses with what to do."""
    case = contract_case(engine)
    refused = {}
    for mode in ENGINES[engine].facts.modes:
        try:
            part(engine, "answers")(case.stream(mode), [], 0)
        except QueryError as error:
            refused[mode] = str(error)
    assert "default" not in refused
    assert all("Fix: " in said and mode in said for mode, said in refused.items())


@pytest.mark.parametrize("engine", [name for name in ENGINES if "answers" not in ENGINES[name].references])
def test_an_engine_without_answers_says_what_else_there_is(engine: str) -> None:
    with pytest.raises(QueryError, match="privstream export"):
        check_answers(contract_case(engine).stream("default"))


def ledger_of(steps: int) -> Ledger:
    """The ledger of an empty stream of hours."""
    known = Known(configured("tabular", TABLE), {"step": np.zeros(0), "a": np.zeros(0)}, steps, [])
    return Ledger.of("s", [candidate.ledger for candidate in run(known.stream, known.batches())])


TABLE = {"kind": "table", "attributes": [{"field": "a", "values": ["x", "y"]}]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, (0, 4)),
        ("2", (2, 2)),
        ("1..3", (1, 3)),
        ("..2", (0, 2)),
        ("3..", (3, 4)),
        ("2020-01-01T01:00..2020-01-01T03:00", (1, 2)),
        ("2020-01-01T01:30..", (2, 4)),
    ],
)
def test_steps_by_number_and_by_time(text: str | None, expected: tuple[int, int]) -> None:
    assert steps_of(text, ledger_of(5)) == expected


@pytest.mark.parametrize("text", ["3..1", "0..9", "1..2..3", "soon..", "2021-01-01..", ""])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PrivstreamError, match="Fix: "):
        steps_of(text, ledger_of(5))


def test_errors_grow_where_rows_were_lost_to_pairs() -> None:
    """One row of fifty has all flags, of which pairs that leave usual values out count few."""
    known = seldom_rows(crowded=0.02)
    ((_, answerer),) = known.runs([1])
    question, counts = known.asked[4]
    answer = answerer.answer(question)
    assert answer.low is not None
    assert answer.high is not None
    assert answer.estimate is not None
    truth = known.truth(question, counts)
    assert answer.estimate < truth - 20, "the pair lacks them"
    assert answer.low <= truth <= answer.high


def test_rows_of_every_so_many_steps_and_what_cannot_be_asked() -> None:
    known = table_rows(steps=5)
    ((_, answerer),) = known.runs([1])
    found = list(answers_of(ledger_of(5), answerer, Ask("a = 'x'", every=2)))
    assert [(each.first, each.last) for each in found] == [(0, 1), (2, 3), (4, 4)]
    assert (found[1].start, found[1].end) == ("2020-01-01T02:00:00+00:00", "2020-01-01T04:00:00+00:00")
    for ask, fix in ((Ask(series="a"), "leave --series out"), (Ask(region=b""), "a condition on a, n, b")):
        with pytest.raises(QueryError, match=fix):
            list(answers_of(ledger_of(5), answerer, ask))
