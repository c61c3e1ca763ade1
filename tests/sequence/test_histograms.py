"""Histograms of a series: each event in one bin, noise of one event, and percentiles with honest intervals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.checks.contract_checks import check_engine
from engines.core.answers.contract import CountQuestion, QueryError
from engines.core.contract import Batch, Columns
from engines.core.noise import seeded
from engines.core.registry import build_domain, build_engine, part
from engines.series.fields import SeriesDomain, SeriesField
from engines.series.histograms import NoisyHistogram
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.config.engines.series import OF_HISTOGRAM
from schemas.errors import ConfigError, EngineInputError
from schemas.events import Reason
from tests.examples import examples

pytestmark = pytest.mark.seconds(0.5)

RULE = {"from": 0, "to": 100, "bins": 20}
ONE: dict[str, Any] = {"name": "ms", "of": "histogram", "edges": RULE}
Z = 1.645


def stream(*fields: dict[str, Any], privacy: dict[str, Any] | None = None, **more: Any) -> Stream:
    tables = {
        "privacy": {"epsilon": 1.0, "unit": "event", **(privacy or {})},
        "time": {"field": "t", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
        "domain": {"kind": "series", "fields": list(fields or [ONE])},
    }
    return Stream.model_validate({"name": "s", "engine": "series", "source": "raw.s", **tables, **more})


def folded(domain: Any, values: np.ndarray) -> Folded:
    columns = {name: np.asarray(values, np.float64) for name in domain.number_fields}
    keys, reasons = domain.encode(Columns(columns, {}, np.ones(len(values), np.int8)))
    assert not reasons.any()
    return Folded.from_keys(keys)


# --- One event, one bin ---------------------------------------------------------------------------------------------

EDGES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9, unique=True).map(lambda each: tuple(sorted(each)))


@given(st.data(), EDGES)
@settings(max_examples=examples(0.6))
def test_every_event_is_in_one_bin_and_that_is_the_right_one(data: st.DataObject, edges: tuple[float, ...]) -> None:
    """Every finite number, edges and their neighbours too: bins never overlap, and leave no gap."""
    near = [step for edge in edges for step in (edge, np.nextafter(edge, -np.inf), np.nextafter(edge, np.inf))]
    values = data.draw(st.lists(st.sampled_from(near) | st.floats(-1e9, 1e9), min_size=1, max_size=20))
    domain = SeriesDomain((SeriesField(name="v", of="histogram", edges=edges),))
    (counts,) = domain.sums(folded(domain, np.array(values)))
    inside = np.histogram(values, edges)[0]
    assert counts.tolist() == [sum(v < edges[0] for v in values), *inside, sum(v > edges[-1] for v in values)]
    (fewer,) = domain.sums(folded(domain, np.array(values[1:])))
    assert np.abs(counts - fewer).sum() == 1 == domain.fields[0].shift, "one event moves the whole vector by 1"


def test_what_is_no_number_is_refused_and_what_is_outside_is_counted() -> None:
    domain: Any = build_domain(stream())
    columns = Columns({"ms": np.array([np.nan, np.inf, -1e300, 1e300])}, {}, np.ones(4, np.int8))
    keys, reasons = domain.encode(columns)
    assert reasons.tolist() == [Reason.NOT_FINITE, Reason.NOT_FINITE, 0, 0]
    assert not domain.clipped(columns).any()
    (counts,) = domain.sums(Folded.from_keys(keys[2:]))
    assert (counts[0], counts[-1], counts.sum()) == (1, 1, 2)
    with pytest.raises(EngineInputError, match="outside the domain"):
        domain.sums(Folded.from_keys(np.array([[22]], np.uint64)))


# --- The contract, and what is released -----------------------------------------------------------------------------

TWO: list[dict[str, Any]] = [ONE, {"name": "size", "of": "histogram", "edges": [1, 10, 100], "share": 3}]
PEOPLE = {"unit": "user", "user": "u", "max_contributions": 6, "max_per_step": 2, "user_key_file": "k"}
PRIVACY = {"events": {}, "periods": PEOPLE | {"per": "3h"}, "delta": PEOPLE | {"delta": 1e-6}}


@pytest.mark.parametrize("privacy", PRIVACY.values(), ids=PRIVACY)
def test_the_contract_holds(privacy: dict[str, Any]) -> None:
    """Repeatable, restored byte for byte at every step, typed as the spec says, charged before noise."""
    made = stream(*TWO, privacy=privacy)
    domain = build_domain(made)
    values = [np.arange(-5, 120, 3.0), np.array([]), np.full(40, 7.0), np.array([]), np.array([]), np.array([3.0])]
    batches = [Batch(step, folded(domain, each)) for step, each in enumerate(values)]
    check_engine(partial(build_engine, made), batches, fields=made.record_fields)


def test_numbers_come_with_errors_and_measurements_are_the_bins() -> None:
    made = stream()
    release = build_engine(made).step(Batch(0, folded(build_domain(made), np.full(900, 42.0))), seeded(3))
    (record,), (told,) = release.added, release.measurements
    assert set(record.fields) == set(made.record_fields)
    assert record.fields["ms_count"] == sum(told["counts"]), "no number says more than the bins"
    assert 40 <= record.fields["ms_p50_low"] <= record.fields["ms_p50"] <= record.fields["ms_p50_high"] <= 45
    assert record.fields["ms_mean"] == pytest.approx(42.5, abs=0.2)
    assert len(told["counts"]) == len(told["edges"]) + 1 == 22
    assert told["variance"] == pytest.approx(1.8413, abs=1e-4), "discrete Laplace noise of scale 1"


def test_a_histogram_without_values_has_no_percentile() -> None:
    empty = NoisyHistogram((0.0, 1.0), np.array([-3, 1, 0]), 2.0).numbers(Z)
    assert empty["count"].value == 0
    assert {empty[name].value for name in OF_HISTOGRAM[1:]} == {None}


def test_with_a_delta_noise_is_gaussian_and_of_one_event() -> None:
    made = stream(privacy={"delta": 1e-6})
    (mechanism,) = build_engine(made).guarantee().mechanisms
    assert mechanism.distribution == "discrete Gaussian"
    assert float(mechanism.scale) == pytest.approx(4.22, abs=0.01)
    (pure,) = build_engine(stream(privacy=PEOPLE)).guarantee().mechanisms
    assert (pure.distribution, pure.scale, pure.epsilon) == ("discrete Laplace", Fraction(6), Fraction(1))


# --- Estimates ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-40, 200), min_size=3, max_size=12).filter(lambda counts: sum(counts) > 0))
@settings(max_examples=examples(0.6))
def test_shares_are_the_nearest_counts_that_are_not_negative(counts: list[int]) -> None:
    histogram = NoisyHistogram(tuple(map(float, range(len(counts) - 1))), np.array(counts), 1.0)
    shares = histogram.shares
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    # Of a projection onto a simplex: what is left is lower by the same, what is gone was no more than that.
    taken = np.array(counts) - shares * sum(counts)
    assert np.ptp(taken[shares > 0]) < 1e-6
    assert (taken[shares == 0] <= taken[shares > 0].min() + 1e-6).all()
    ends = [histogram.number(name, Z) for name in ("p50", "p90", "p95", "p99")]
    assert all(one.value <= two.value for one, two in pairwise(ends) if one.value is not None and two.value is not None)


def test_numbers_of_exact_counts_are_exact() -> None:
    values = np.random.default_rng(1).uniform(0, 100, 100_000)
    counts = np.array([0, *np.histogram(values, np.linspace(0, 100, 101))[0], 0])
    exact = NoisyHistogram(tuple(np.linspace(0, 100, 101)), counts, 0.0).numbers(Z)
    assert exact["mean"].value == pytest.approx(values.mean(), abs=0.01)
    for name, percent in (("p50", 50), ("p95", 95), ("p99", 99)):
        assert exact[name].value == pytest.approx(np.percentile(values, percent), abs=0.05)
        assert exact[name].error == pytest.approx(0, abs=1e-9)
    below = NoisyHistogram((5.0, 6.0), np.array([99, 1, 0]), 0.0).number("p50", Z)
    assert (below.value, below.low, below.high) == (5, 5, 5), "what is below the edges is taken for the first"


def held(size: int, variance_told: Callable[[float], float]) -> dict[str, float]:
    """Part of 400 noisy histograms whose 90 % intervals hold what exact counts say, where they say anything."""
    chance = np.random.default_rng(5)
    edges = tuple(np.linspace(0, 100, 41))
    true = np.array([0, *np.histogram(chance.gamma(2.0, 15.0, size), edges)[0], size // 600])
    exact = NoisyHistogram(edges, true, 0.0).numbers(Z)
    hits: dict[str, list[bool]] = {name: [] for name in exact}
    for _ in range(400):
        noisy = NoisyHistogram(edges, true + np.rint(chance.laplace(0, 3, true.size)), variance_told(18 + 1 / 12))
        for name, one in noisy.numbers(Z).items():
            if one.low is not None and one.high is not None:
                hits[name].append(one.low <= (exact[name].value or 0) <= one.high)
    return {name: float(np.mean(each)) for name, each in hits.items()}


@pytest.mark.parametrize("size", [4000, 200])
def test_intervals_hold_as_often_as_they_say(size: int) -> None:
    """Nominally 90 %, in a small group too. If they did, fewer than 82 % of 400 would come by chance once in 10^6."""
    assert min(held(size, lambda variance: variance).values()) > 0.82
    assert min(held(size, lambda variance: variance / 9).values()) < 0.82, "a third as wide is found"


# --- Windows --------------------------------------------------------------------------------------------------------


def test_a_window_is_the_sum_of_its_steps_bins() -> None:
    made = stream(*TWO)
    domain = build_domain(made)
    engine = build_engine(made)
    told = [
        (step, each)
        for step in range(6)
        for each in engine.step(Batch(step, folded(domain, np.arange(0, 90, 0.5) + step)), seeded(step)).measurements
    ]
    answers = part("series", "answers")(made, told, 7)
    assert answers.settled == 5
    bins = [each for step, each in told if 2 <= step <= 4 and each["field"] == "ms"]
    window = NoisyHistogram(
        tuple(bins[0]["edges"]),
        np.sum([each["counts"] for each in bins], axis=0),
        sum(each["variance"] for each in bins),
    )
    answer = answers.answer(CountQuestion(2, 4, series="ms_p95"))
    expected = window.number("p95", 1.959963984540054)
    assert (answer.estimate, answer.standard_error) == (expected.value, expected.error)
    assert (answer.low, answer.high, answer.pending) == (expected.low, expected.high, 0)
    assert abs(answer.estimate - np.percentile(np.concatenate([np.arange(0, 90, 0.5) + s for s in (2, 3, 4)]), 95)) < 5
    waits = answers.answer(CountQuestion(4, 7, series="ms_count"))
    assert (waits.pending, waits.high) == (0.5, None)
    assert waits.low is not None
    late = answers.answer(CountQuestion(6, 7, series="ms_p50"))
    assert (late.estimate, late.low, late.high) == (None, None, None)
    with pytest.raises(QueryError, match="add --series, one of ms_count, ms_mean"):
        answers.answer(CountQuestion(0, 1))


# --- What is configured ---------------------------------------------------------------------------------------------


def test_edges_of_a_rule() -> None:
    def edges(rule: dict[str, Any]) -> Any:
        domain: Any = stream(ONE | {"edges": rule}).domain
        return domain.series[0].edges

    assert edges({"from": 0, "to": 1, "bins": 4}) == (0, 0.25, 0.5, 0.75, 1)
    assert edges({"from": 1, "to": 1000, "bins": 3, "scale": "log"}) == (1, 10, 100, 1000)
    assert stream(ONE | {"edges": {"from": 0, "to": 2, "bins": 2}}).fingerprint_fields() == (
        stream(ONE | {"edges": [0, 1, 2]}).fingerprint_fields()
    )


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"edges": None}, r"domain.fields\[0\].edges: missing: nothing says which bins.*\n *fix: add edges = \{ from = 0"),
    ({"edges": [3, 2]}, r"domain.fields\[0\].edges: are not 2 to 1001 numbers in ascending order\n *fix: sort them"),
    ({"edges": [3]}, "are not 2 to 1001 numbers"),
    ({"edges": {"from": 0, "to": 0, "bins": 3}}, r"domain.fields\[0\].edges.to: is not above from"),
    ({"edges": {"from": 0, "to": 9, "bins": 3, "scale": "log"}}, r"edges.from: is not above 0.*\n.*scale = .linear."),
    ({"edges": {"from": 0, "to": 9, "bins": 5000}}, r"edges.bins: must be at most 1000"),
    ({"edges": {"from": 0, "to": 9, "count": 5}}, r"edges.count: unknown key"),
    ({"limits": [0, 1]}, r"limits: a histogram has edges.*\n *fix: remove the key"),
    ({"sensitivity": 2}, r"sensitivity: an event is in one bin.*\n *fix: remove the key"),
    ({"of": "sum", "limits": [0, 1]}, r"edges: a sum has no bins\n *fix: set of = .histogram., or remove the key"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_is_wrong_is_refused_with_key_reason_and_fix(change: dict[str, Any], said: str) -> None:
    field = {key: value for key, value in (ONE | change).items() if value is not None}
    with pytest.raises(ConfigError, match=said):
        stream(field)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": "paper", "privacy": {"delta": 1e-6}}, 'mode: mode "paper" has no histograms'),
        ({"options": {"decay": 0.9}}, "options.decay: is not for histograms"),
        ({"fields": [ONE, {"name": "n", "of": "count"}]}, "fields: mix histograms"),
        ({"fields": [ONE, ONE]}, r"fields\[1\].name: is the name of an earlier entry"),
        ({"fields": [ONE, ONE | {"name": "ms_p50"}]}, ""),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(change: dict[str, Any], said: str) -> None:
    fields = change.pop("fields", [ONE])
    if not said:
        stream(*fields)
        return
    with pytest.raises(ConfigError, match=said):
        stream(*fields, **change)


def test_a_sum_still_needs_a_delta() -> None:
    with pytest.raises(ConfigError, match="adds Gaussian noise, which has no guarantee without a delta"):
        stream({"name": "ms", "of": "sum", "limits": [0, 1]})
