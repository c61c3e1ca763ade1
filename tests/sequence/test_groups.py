"""Groups of a series: each event in one of them, each with the whole budget, and a user's events charged once each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.show.charts import LineChart
from agents.show.view import StepRow
from agents.show.views.series import MOST_PANELS, VIEW
from engines.checks.contract_checks import check_engine
from engines.core.answers.contract import CountQuestion
from engines.core.answers.where import Atom, Not
from engines.core.contract import Batch, Columns
from engines.core.noise import seeded
from engines.core.registry import build_domain, build_engine, build_evaluator, part
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.errors import ConfigError
from schemas.events import Reason
from tests.examples import examples

pytestmark = pytest.mark.seconds(0.5)

GROUPS = ["a", "b", "c"]
BINS = {"name": "ms", "of": "histogram", "edges": [0, 1, 5, 20]}
SUMS: list[dict[str, Any]] = [{"name": "n", "of": "count"}, {"name": "km", "of": "sum", "limits": [-2, 4], "share": 3}]
PEOPLE = {"unit": "user", "user": "u", "max_contributions": 6, "max_per_step": 2, "user_key_file": "k"}


def stream(*fields: dict[str, Any], groups: list[str] | None = GROUPS, **tables: Any) -> Stream:
    domain: dict[str, Any] = {"kind": "series", "fields": list(fields)}
    if groups is not None:
        domain |= {"by": "place", "values": groups}
    document: dict[str, Any] = {
        "name": "s",
        "engine": "series",
        "source": "raw.s",
        "privacy": {"epsilon": 1.0, "unit": "event"},
        "time": {"field": "t", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
        "domain": domain,
    }
    return Stream.model_validate(document | tables)


NOBODY: Any = None
"""The audit, which the view of a series does not look at."""
Rows = list[tuple[str, float]]
ROWS = st.lists(st.tuples(st.sampled_from(GROUPS), st.floats(-3, 30)), max_size=12)


def folded(made: Stream, rows: Rows) -> Folded:
    domain: Any = build_domain(made)
    numbers = {name: np.array([value for _, value in rows], np.float64) for name in domain.number_fields}
    texts = {name: [group for group, _ in rows] for name in domain.text_fields}
    keys, reasons = domain.encode(Columns(numbers, texts, np.ones(len(rows), np.int8)))
    assert not reasons.any()
    return Folded.from_keys(keys)


def totals(made: Stream, rows: Rows) -> np.ndarray:
    domain: Any = build_domain(made)
    return np.concatenate([np.atleast_1d(each) for each in domain.sums(folded(made, rows))]).astype(np.float64)


@given(ROWS, ROWS)
@settings(max_examples=examples(0.6))
def test_events_of_a_user_in_several_groups_move_no_more_than_in_one(others: Rows, own: Rows) -> None:
    """Each event is in one bin of one group: k events move all groups together by k in L1 norm, and in L2 norm by k at
    most.
    """
    moved = totals(stream(BINS), others + own) - totals(stream(BINS), others)
    assert moved.min(initial=0) >= 0
    assert moved.sum() == len(own)
    assert (moved**2).sum() <= len(own) ** 2
    apart, whole = totals(stream(BINS), own), totals(stream(BINS, groups=None), own)
    assert apart.reshape(3, -1).sum(axis=0).tolist() == whole.tolist(), "groups are a partition of all events"
    delta: dict[str, Any] = {"privacy": PEOPLE | {"epsilon": 1.0, "delta": 1e-6}}
    sums = totals(stream(*SUMS, **delta), own).reshape(2, 3)
    assert sums.sum(axis=1).tolist() == totals(stream(*SUMS, groups=None, **delta), own).tolist()
    assert sums[0].tolist() == [sum(group == each for group, _ in own) for each in GROUPS]


def test_what_is_in_no_group_is_refused() -> None:
    columns = Columns({"ms": np.array([1.0, 2.0])}, {"place": ["a", "elsewhere"]}, np.ones(2, np.int8))
    assert build_domain(stream(BINS)).encode(columns)[1].tolist() == [Reason.ACCEPTED, Reason.OUTSIDE_DOMAIN]


PRIVACY: dict[str, Any] = {
    "pure": ([BINS], {"privacy": PEOPLE | {"epsilon": 1.0}}),
    "fixed": (SUMS, {"privacy": PEOPLE | {"epsilon": 1.0, "delta": 1e-6}}),
    "adaptive": (SUMS, {"privacy": PEOPLE | {"epsilon": 1.0, "delta": 1e-6}, "options": {"horizon": 3}}),
}


@pytest.mark.parametrize("name", PRIVACY)
def test_the_contract_holds_and_each_group_has_the_whole_epsilon(name: str) -> None:
    fields, tables = PRIVACY[name]
    made, whole = stream(*fields, **tables), stream(*fields, groups=None, **tables)
    rows: list[Rows] = [[("a", 1.0), ("b", 3.0)], [], [("c", -1.0)] * 30, []]
    batches = [Batch(step, folded(made, each)) for step, each in enumerate(rows)]
    check_engine(partial(build_engine, made), batches, fields=made.record_fields)
    engine, alone = build_engine(made), build_engine(whole)
    assert [(each.scale, each.epsilon) for each in engine.guarantee()] == [
        (each.scale, each.epsilon) for each in alone.guarantee()
    ], "a group costs no other one anything"
    (first,) = (engine.step(batches[0], seeded(1)),)
    told = alone.step(Batch(0, folded(whole, rows[0])), seeded(1)).measurements
    assert {(each["field"], each["variance"]) for each in first.measurements} == {
        (each["field"], each["variance"]) for each in told
    }
    assert [record.id for record in first.added] == ["0.a", "0.b", "0.c"]
    assert [record.fields["place"] for record in first.added] == GROUPS


def test_a_question_adds_up_the_groups_that_meet_it() -> None:
    made = stream(BINS)
    engine = build_engine(made)
    rows = [("a", 0.5)] * 700 + [("b", 10.0)] * 900
    told = [
        (step, each)
        for step in range(2)
        for each in engine.step(Batch(step, folded(made, rows)), seeded(step)).measurements
    ]
    answers = part("series", "answers")(made, told, 1)
    assert answers.settled == 1
    assert answers.fields["place"].listed == ("a", "b", "c")

    def counted(where: Any) -> float:
        found = answers.answer(CountQuestion(0, 1, where, series="ms_count"))
        assert abs(found.estimate - found.low) > 0
        return float(found.estimate)

    is_a = Atom("place", "=", ("a",))
    assert counted(is_a) == pytest.approx(1400, abs=60)
    assert counted(Not(is_a)) == pytest.approx(1800, abs=60)
    assert counted(None) == pytest.approx(counted(is_a) + counted(Not(is_a)))
    middle = answers.answer(CountQuestion(1, 1, is_a, series="ms_p50"))
    assert 0 <= middle.low <= middle.estimate <= middle.high <= 1


def test_groups_are_seen_side_by_side() -> None:
    many = [f"g{at}" for at in range(MOST_PANELS + 2)]
    made = stream(BINS, groups=many)
    evaluator, picture = build_evaluator(made), VIEW.picture(made)
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    steps = []
    for step in range(4):
        truth = folded(made, [(group, float(at)) for at, group in enumerate(many) for _ in range(5 + step)])
        record: dict[str, Any] = {"step": [step] * len(many), "place": many}
        numbers = {name: [float(at) for at in range(len(many))] for name in evaluator.fields if name not in record}
        found = evaluator.measure(truth, record | numbers)
        assert set(found) == set(evaluator.metrics)
        steps.append(StepRow(step, begin + timedelta(hours=step), 9, 9, found, 9, False))
        for at, group in enumerate(many):
            picture.add(step, f"{step}.{group}", {"step": step, "place": group, "ms_p95": float(at)})
    assert steps[2].metrics["true_ms_count_g3"] == 7
    charts = [chart for section in VIEW.sections(made, NOBODY, steps) for chart in section.charts]
    assert [len(chart.panels) for chart in charts if isinstance(chart, LineChart)] == [MOST_PANELS] * 3
    assert isinstance(charts[0], LineChart)
    assert "for 12 groups; the first of 14" in charts[0].alt
    shown = [metric for metric in VIEW.metrics(made) if metric.tile]
    assert [metric.label for metric in shown] == [f"error of ms_{what} by place" for what in ("count", "p50", "p95")]
    assert steps[0].metrics["error_ms_count"] == pytest.approx(np.abs(np.arange(14) - 5.0).mean())
    judged = VIEW.judged(made, NOBODY, steps)
    assert ["by their events" in each.how for each in judged] == [False, True, True]
    about, body = picture.about(), orjson.loads(picture.body({}))
    assert about["fields"][5] == "ms_p95, g1"
    assert body["fields"][5]["value"] == [1.0] * 4
    assert body["fields"][4]["value"] == [None] * 4


def test_a_group_of_few_events_does_not_decide_what_percentiles_are_good_for() -> None:
    """One group of a thousand events is right, one of ten is off by as much as there is."""
    made, begin = stream(BINS, groups=["a", "b"]), datetime(2020, 1, 1, tzinfo=UTC)
    metrics = {"true_ms_count_a": 990.0, "true_ms_count_b": 10.0, "true_ms_p95_a": 10.0, "true_ms_p95_b": 10.0}
    metrics |= {key.replace("true", "released"): value for key, value in metrics.items()} | {"released_ms_p95_b": 20.0}
    steps = [StepRow(step, begin + timedelta(hours=step), 9, 9, metrics, 9, False) for step in range(2)]
    found = {each.what: each.scales[-1].error for each in VIEW.judged(made, NOBODY, steps) if each.scales}
    assert found["ms_p95"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("domain", "tables", "said"),
    [
        ({"by": "place"}, {}, r"domain.values: missing beside by.*\n.*write by = "),
        ({"values": ["a"]}, {}, r"domain.by: missing beside values"),
        ({"by": "place", "values": ["a", "a"]}, {}, r"domain.values: name one value twice"),
        ({"by": "place", "values": []}, {}, r"domain.values: .*too few"),
        ({"by": "ms", "values": ["a"]}, {}, r'field "ms" already serves as'),
        *(
            ({"by": name, "values": ["a"]}, {}, "would release two values under one name")
            for name in ("ms_p95", "ms_count_se", "step")
        ),
        (
            {"by": "p", "values": ["a"], "fields": [{"name": "v", "of": "value", "limits": [0, 1], "sensitivity": 1}]},
            {"privacy": {"epsilon": 1.0, "unit": "user", "delta": 1e-6}, "options": {"horizon": 3}},
            "domain.by: would divide readings",
        ),
        (
            {"by": "p", "values": ["a"], "fields": [SUMS[0]]},
            {"mode": "paper", "privacy": {"epsilon": 1.0, "unit": "event", "delta": 1e-6}},
            'domain.by: mode "paper" has no groups',
        ),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused(domain: dict[str, Any], tables: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        stream(domain={"kind": "series", "fields": [BINS], **domain}, **tables)
