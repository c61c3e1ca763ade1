"""What `explain` says in every form: splits add up exactly, no noise is left out, errors are the engine's."""

from __future__ import annotations

import dataclasses
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.show.explain import FACTORS, explain, explain_stream
from agents.show.explain.parts import Budget, decimal, exact
from agents.show.explain.render import render_page, render_text
from agents.show.explain.words import promise, several
from agents.show.noise import RELEASES, noise_facts
from agents.show.text import WIDTH
from agents.show.views.spatial import LeafNoise
from engines.checks.contract_case import contract_case
from engines.core.accounting import gaussian
from engines.core.accounting.user_level import group_delta
from engines.core.contract import Batch
from engines.core.counters.by_name import COUNTERS
from engines.core.counters.simple import SimpleCounter
from engines.core.intervals import NORMAL_95
from engines.core.noise import DiscreteLaplace, seeded
from engines.core.registry import build_engine
from engines.spatial.points import Placement
from engines.spatial.split import path_cost
from schemas.blocks import Folded
from schemas.config import ENGINES, Stream, load_config
from schemas.config.privacy import Privacy
from schemas.errors import BudgetError, ConfigError, PrivstreamError
from schemas.guarantee import Mechanism, max_posterior
from tests.cli.explain_support import EVENT, USER, config, everywhere, explained, series, toml
from tests.commands import call

pytestmark = pytest.mark.seconds(0.6)

# --- budgets ---


@given(
    epsilon=st.decimals("0.001", "100", places=3),
    split=st.decimals("0.001", "0.999", places=3),
    contributions=st.integers(2, 1000),
    ttl=st.booleans(),
    mode=st.sampled_from(["default", "paper"]),
    unit=st.sampled_from(["user", "event"]),
)
def test_the_splits_add_up_to_the_configured_epsilon_exactly(
    epsilon: object, split: object, contributions: int, ttl: bool, mode: str, unit: str
) -> None:
    privacy = USER.replace("20", str(contributions)) if unit == "user" else EVENT
    explanation = explained(
        epsilon=str(epsilon),
        privacy=privacy,
        stream=f'mode = "{mode}"',
        domain='ttl = "30d"' if ttl else "",
        options=f"split = {split}" if mode == "paper" else "",
    )
    (stream,) = explanation.streams
    configured = Fraction(str(epsilon))
    assert sum(share.unit_epsilon for share in stream.budget.shares) == configured
    assert sum(share.event_epsilon for share in stream.budget.shares) * stream.budget.contributions == configured
    assert sum(share.part for share in stream.budget.shares) == 1
    for notch in stream.notches:
        assert sum(share.unit_epsilon for share in notch.budget.shares) == notch.factor * configured
    told = json.loads(json.dumps(explanation.as_json()))["streams"][0]["budget"]
    assert sum(Fraction(each["unit_epsilon"]["exact"]) for each in told["shares"]) == configured


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_each_scale_is_what_its_epsilon_and_sensitivity_ask_for(mode: str) -> None:
    (stream,) = explained(epsilon="0.7", stream=f'mode = "{mode}"').streams
    for share in stream.budget.shares:
        mechanism = share.mechanism
        path = path_cost(2) if mechanism.distribution == "Laplace (one bit)" else 1
        assert mechanism.scale >= path * mechanism.l1_sensitivity * mechanism.uses / share.event_epsilon


@pytest.mark.parametrize("change", ["epsilon", "uses", "missing", "kept back"])
def test_an_engine_whose_splits_do_not_add_up_is_refused(change: str) -> None:
    stream = config(toml()).streams[0]
    honest = build_engine(stream).guarantee()
    assert Budget.of(stream, honest).unit_epsilon == 1
    first, *rest = honest.mechanisms
    false = {
        "epsilon": dataclasses.replace(honest, epsilon=honest.epsilon * 2),
        "uses": dataclasses.replace(honest, mechanisms=(dataclasses.replace(first, uses=2), *rest)),
        "missing": dataclasses.replace(honest, mechanisms=tuple(rest)),
        "kept back": dataclasses.replace(honest, kept_back=Fraction(1, 100)),
    }[change]
    with pytest.raises(BudgetError, match=r"rides: 1/20 is configured .* do not run the stream"):
        Budget.of(stream, false)


@pytest.mark.parametrize("name", ENGINES)
def test_every_stream_on_which_an_engine_is_tried_can_be_explained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its options: what is configured is spent, or kept back for a reason that the guarantee gives. Each is
    also explained at the least and the largest of the other budgets.
    """
    monkeypatch.setattr("agents.show.explain.FACTORS", (FACTORS[0], FACTORS[-1]))
    case = contract_case(name)
    for mode in ENGINES[name].facts.modes:
        for variant in case.coupled(mode):
            stream = case.stream(mode, variant)
            explained = explain_stream(stream, job="job")
            kept_back = build_engine(stream).guarantee().kept_back
            assert ("kept back" in explained.budget.terms) == bool(kept_back)
            assert 0 <= kept_back < stream.event_epsilon


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=[file.stem for file in EXAMPLES])
def test_the_text_fits_a_terminal(file: Path) -> None:
    text = render_text(explain(load_config(file, {})))
    assert [line for line in text.splitlines() if len(line) > WIDTH] == []
    assert WIDTH == 80


# --- noise ---


@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize("epsilon", ["0.1", "1.0", "3.0"])
def test_no_noise_is_left_out(mode: str, epsilon: str) -> None:
    explanation = explained(epsilon=epsilon, stream=f'mode = "{mode}"')
    (stream,) = explanation.streams
    text, page, _ = everywhere(explanation)
    told = explanation.as_json()["streams"][0]["budget"]["shares"]
    guarantee = build_engine(config(toml(epsilon=epsilon, stream=f'mode = "{mode}"')).streams[0]).guarantee()
    assert [each["mechanism"]["name"] for each in told] == [mechanism.name for mechanism in guarantee]
    for mechanism, each in zip(guarantee, told, strict=True):
        noise = noise_facts(mechanism)
        assert each["mechanism"]["scale"] == {"exact": str(mechanism.scale), "value": float(mechanism.scale)}
        assert each["noise"] == {"variance": noise.variance, "interval": noise.interval, "added": noise.added}
        line = (
            f"{mechanism.distribution} noise, scale {exact(mechanism.scale)} events: "
            f"standard deviation {decimal(noise.deviation)}, 95 % within ±{decimal(noise.interval)}"
        )
        for form in (text, page):
            assert line in form
            assert mechanism.name in form
    assert any(share.noise.added for share in stream.budget.shares)


def test_a_noise_without_a_law_is_refused_rather_than_left_out() -> None:
    with pytest.raises(PrivstreamError, match=r'does not know the noise "Cauchy" of "sums".* Fix'):
        noise_facts(
            Mechanism(name="sums", distribution="Cauchy", l1_sensitivity=1, scale=Fraction(1), epsilon=Fraction(1))
        )


@given(scale=st.fractions(Fraction(1, 20), 5000, max_denominator=50))
def test_the_95_percent_interval_is_the_smallest(scale: Fraction) -> None:
    law = DiscreteLaplace(scale)
    facts = noise_facts(
        Mechanism(name="c", distribution="discrete Laplace", l1_sensitivity=1, scale=scale, epsilon=1 / scale)
    )
    k = int(facts.interval)
    assert 2 * law.tail(k + 1) <= 0.05
    assert k == 0 or 2 * law.tail(k) > 0.05


# --- errors ---


def leaf_noise(stream: Stream) -> LeafNoise:
    return LeafNoise.of(stream, build_engine(stream).guarantee())


RUNS = 3000
# The mean square of n sums of Laplace draws has a relative standard error of at most sqrt(5 / n) (kurtosis of one draw
# is 6 at most). Five of them: a false alarm in one of a million. Seeds are fixed besides.
SLACK = 5 * (5 / RUNS) ** 0.5


@pytest.mark.parametrize(("leaves", "releases"), [(1, 1), (2, 10), (13, 1), (13, 10)])
def test_the_error_formula_is_that_of_the_counters(leaves: int, releases: int) -> None:
    (stream,) = explained(epsilon="2.0").streams
    noise_of = leaf_noise(config(toml(epsilon="2.0")).streams[0])
    counter = SimpleCounter(epsilon=stream.budget.shares[-1].event_epsilon)
    sums = np.zeros((RUNS, leaves), np.int64)
    for release in range(releases):
        noise, _ = counter.step(np.zeros(RUNS * leaves, np.int64), counter.initial(RUNS * leaves), seeded(release))
        sums += noise.reshape(RUNS, leaves)
    errors = sums.sum(axis=1)
    deviation = noise_of.deviation(leaves=leaves, releases=releases)
    assert float((errors**2).mean()) == pytest.approx(deviation**2, rel=SLACK)
    within = float((np.abs(errors) <= noise_of.interval(leaves=leaves, releases=releases)).mean())
    assert 0.93 < within < 0.97  # five standard errors of a share of 95 % in 3,000


FEW = "max_leaves = 64"


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_the_error_formula_is_that_of_the_engine(mode: str) -> None:
    """All noise of three releases together: what was measured, less what was there to be measured.

    A run's sum has hundreds of draws, so its square has a relative standard deviation of sqrt(2); five standard errors.
    """
    streams = config(
        toml(epsilon="1.0", privacy=EVENT, stream=f'mode = "{mode}"', options=FEW if mode == "default" else "")
    )
    noise_of = leaf_noise(streams.streams[0])
    rng = np.random.default_rng(5)
    cells = [np.unique(rng.integers(0, 1 << 10, 40)) for _ in range(3)]
    true = sum(100 * len(codes) for codes in cells)
    ratios, runs = [], 100
    for run in range(runs):
        engine: Any = build_engine(streams.streams[0])
        draws = 0
        for step, codes in enumerate(cells):
            events = Folded((codes.astype(np.uint64) << np.uint64(1)).reshape(-1, 1), np.full(len(codes), 100))
            release = engine.step(Batch(step, events), seeded(run).child("step", step))
            draws += int(release.notes["measured" if mode == "default" else "leaves"])
        tree = engine._tree
        seen = tree.measured.sum() + tree.pending.sum() if mode == "default" else tree.own.sum()
        ratios.append((int(seen) - true) ** 2 / noise_of.deviation(leaves=draws) ** 2)
    assert np.mean(ratios) == pytest.approx(1, abs=5 * (2.2 / runs) ** 0.5)


@pytest.mark.parametrize(("name", "options"), [("simple", ""), ("kary", "horizon = 1000"), ("hybrid", "")])
def test_errors_of_the_paper_grow_as_those_of_its_counter(name: str, options: str) -> None:
    options = f'counter = "{name}"\n{options}'
    (stream,) = explained(stream='mode = "paper"', privacy=EVENT, options=options).streams
    assert stream.symbols[3] == "ε of one event = 1/2 + 1/2 = 1"
    counter = COUNTERS[name](1000, Fraction(1, 2))
    expected = [counter.variance(releases) ** 0.5 for releases in RELEASES]
    assert stream.errors.answers[0].deviations == pytest.approx(expected)


def test_regions_grow_and_errors_with_them() -> None:
    (stream,) = explained(options="max_leaves = 4096").streams
    leaves = [region.size for region in stream.errors.answers]
    assert leaves == sorted(leaves)
    assert leaves[0] == 1
    assert leaves[-1] == 4096
    assert [region.name for region in stream.errors.answers[1:-1]] == ["small region", "medium region", "large region"]
    for region in stream.errors.answers:
        assert region.deviations[2] == pytest.approx(10 * region.deviations[0])
        assert region.intervals[2] == pytest.approx(NORMAL_95 * region.deviations[2])
    assert list(stream.errors.answers) == sorted(stream.errors.answers, key=lambda region: region.first)


def test_a_notch_is_what_the_file_with_that_epsilon_would_say() -> None:
    (stream,) = explained(epsilon="0.8").streams
    factors = [notch.factor for notch in stream.notches]
    assert factors == [Fraction(2) ** power for power in range(-3, 4)]
    for notch in stream.notches:
        (other,) = explained(epsilon=str(float(Fraction(8, 10) * notch.factor))).streams
        assert other.budget == notch.budget
        assert other.errors == notch.errors
    widths = [notch.errors.answers[1].first for notch in stream.notches]
    assert widths == sorted(widths, reverse=True)
    assert max_posterior(float(np.log(3))) == pytest.approx(0.75)


def test_all_digits_of_an_epsilon_are_said() -> None:
    digits = "0.12345678901234567890123456789012345"
    stream = contract_case("spatial").stream("default", {"privacy": {"epsilon": f"{digits}00"}})
    assert f"epsilon = {digits}." in promise(stream)


def test_epsilons_that_the_configuration_refuses_are_no_notch() -> None:
    (stream,) = explained(epsilon="2e-6", privacy=EVENT, stream='mode = "paper"').streams
    assert [notch.factor for notch in stream.notches] == [Fraction(1, 2), 1, 2, 4, 8]


# --- a delta: both roads, and one that is large ---


def table(*, delta: str = "", mode: str = "default", users: str = USER) -> str:
    return f"""
[[streams]]
name = "rows"
engine = "tabular"
mode = "{mode}"
source = "raw.rows"
[streams.privacy]
epsilon = 1.0
{delta}
{users}
[streams.time]
field = "at"
step = "1h"
start = "now"
[streams.domain]
kind = "table"
attributes = [{{ field = "a", values = [1, 2, 3] }}, {{ field = "b", values = [1, 2] }}]
"""


def roads(**changes: Any) -> dict[str, Any]:
    (stream,) = explain(config(table(**changes))).as_json()["streams"]
    return stream["roads"]


def test_both_roads_are_shown_whichever_is_taken() -> None:
    pure, gaussian = roads(), roads(delta="delta = 1e-6")
    assert pure["configured"] == "pure"
    assert gaussian["configured"] == "gaussian"
    assert pure["delta"] == gaussian["delta"] == 1e-6
    assert pure["answers"] == gaussian["answers"]
    larger = pure["answers"]["larger cell"]
    # One pair, 20 events: sqrt(2) / (.6 / 20), and 20 / sqrt(.62 mu^2).
    assert larger["pure"] == pytest.approx(47.14, rel=1e-3)
    assert larger["gaussian"] == pytest.approx(107.3, rel=1e-2)
    for text in everywhere(explain(config(table()))):
        assert re.search(r"larger cell 47\.\d+ and 107\.\d+, less without a delta", text)


def test_of_many_marginals_the_delta_has_less_noise_and_every_form_says_so() -> None:
    many = table().replace(
        "attributes = [", "attributes = [" + "".join(f'{{ field = "c{i}", values = [1, 2] }}, ' for i in range(12))
    )
    for text in everywhere(explain(config(many))):
        assert "Noise by the two roads to this epsilon, pure and with delta = 1e-06" in text
        assert "would give less noise everywhere" in text


def test_a_mode_with_one_road_shows_none() -> None:
    assert explained().as_json()["streams"][0]["roads"] is None
    assert explain(config(series("default"))).as_json()["streams"][0]["roads"] is None


def test_the_budget_of_a_delta_adds_up_by_mu_squared() -> None:
    explanation = explain(config(table(delta="delta = 1e-6")))
    budget = explanation.streams[0].budget
    assert (budget.contributions, budget.event_epsilon, budget.delta) == (1, 1, 1e-6)
    assert sum((share.part for share in budget.shares), Fraction(0)) == 1
    for text in everywhere(explanation):
        assert "20 changes, and the noise is for all of them together" in text


@pytest.mark.parametrize(("delta", "warned"), [("", False), ("delta = 1e-6", False), ("delta = 2e-5", True)])
def test_a_delta_that_is_large_for_most_numbers_of_users_is_told(delta: str, warned: bool) -> None:
    made = config(table(delta=delta))
    assert (made.streams[0].privacy.delta_warning is not None) == warned
    for text in everywhere(explain(made)):
        assert ("too large from 50,000 users on" in text) == warned


@pytest.mark.parametrize(
    ("mode", "delta", "reason", "fix"),
    [
        ("paper", "delta = 1e-6", 'mode "paper", is epsilon-DP and uses no delta', "modes with a delta: default"),
        ("default", "delta = 0.02", "one user in a hundred", "1e-6"),
        ("default", "delta = 1.0", "below 1", "far below one"),
        ("default", "delta = -1e-6", "at least 0", "0.0"),
    ],
)
def test_a_delta_that_cannot_be_is_refused(mode: str, delta: str, reason: str, fix: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(table(mode=mode, delta=delta))
    (problem,) = refused.value.problems
    assert problem.key.endswith("privacy.delta")
    assert reason in problem.reason
    assert fix in problem.fix


def test_a_delta_is_part_of_what_a_stream_is() -> None:
    pure, one, other = (config(table(delta=d)).streams[0] for d in ("", "delta = 1e-6", "delta = 1e-7"))
    assert len({str(stream.fingerprint_fields()) for stream in (pure, one, other)}) == 3
    assert (pure.contributions, pure.event_epsilon) == (20, Fraction(1, 20))
    assert (one.contributions, one.changes, one.event_epsilon) == (1, 20, 1)


# --- words ---


REPLAY = 'start = "2026-01-01T00:00:00"\nclock = "replay"'
PAPER = {"stream": 'mode = "paper"'}
LOUD: list[tuple[dict[str, str], list[str]]] = [
    ({"privacy": EVENT}, ["single events are protected, NOT PEOPLE", "Nothing bounds how many of them one person has"]),
    ({"privacy": EVENT, "domain": 'op = "action"'}, ["An insert and its later delete are two events"]),
    (
        {"privacy": USER + '\nper = "28d"'},
        [
            "epsilon = 1 for what a user contributes in one aligned period",
            "epsilon = 2 in any 28d in a row",
            "NO BOUND over a life",
        ],
    ),
    ({"stream": 'partitioner = "none"'}, ["Nobody checks that all records of a rider are on one partition"]),
    (
        {"stream": 'partitioner = "any"'},
        ["so the job copies each record to where murmur2 of its rider puts it", ".routed.rides (raw records"],
    ),
    ({"time": REPLAY}, ["privstream replay places ticks by the times in its file"]),
    ({"epsilon": "12.0"}, ["epsilon above 10 promises little"]),
    ({"domain": 'ttl = "30d"', **PAPER}, ["an insert costs 2 contributions"]),
    ({"domain": 'ttl = "30d"'}, ["Each insert is gone after 30d by itself", "it costs nothing more"]),
    ({"domain": 'ttl = "30d"', "privacy": USER.replace("20", "21"), **PAPER}, ["one contribution can never be used"]),
    ({"privacy": USER + "\nsurplus = 5"}, ["up to 100 of a user, is measured for a tenth of epsilon", "1/200"]),
    ({"stream": 'audit = "audit.rides"'}, ["rides.utility holds the true error (the job compares with audit.rides)"]),
    (
        {},
        [
            "Somebody with k ids is protected with k times epsilon",
            "Every stream that sees the same people costs its own epsilon on top",
            "the timing of Kafka itself",
            "as sensitive as the raw data",
            "lon in [13, 14) and lat in [52, 53)",
            "Positions and arrival times of everybody else's records",
            'Step 0 begins when the stream is first started ("now"); a step lasts 1h',
            "can be at most 73.1 % sure afterwards",
            "One unit may make 20 changes, so each event runs at epsilon / 20 = 1/20 = 0.05",
            "Pr[M(D) ∈ S] ≤ exp(ε) · Pr[M(D') ∈ S]",
        ],
    ),
]


@pytest.mark.parametrize(("changes", "said"), LOUD, ids=lambda value: str(value)[:40])
def test_what_must_not_be_overlooked_is_said_in_every_form(changes: dict[str, str], said: list[str]) -> None:
    for form in everywhere(explained(**changes)):
        for sentence in said:
            assert sentence in form


def test_what_does_not_apply_is_not_said() -> None:
    text, _, _ = everywhere(explained())
    for words in ("NOT PEOPLE", "NO BOUND", 'partitioner = "none"', "ticks of a replay", "can never be used"):
        assert words not in text


@pytest.mark.parametrize("mode", ["default", "paper", "paper-binomial"])
@pytest.mark.parametrize("per_step", ["", "max_per_step = 5", "max_per_step = 1"])
def test_a_user_of_ten_events_is_in_ten_steps_at_most(mode: str, per_step: str) -> None:
    """Not in as few as would hold all of them, however many a step may have."""
    for text in everywhere(explain(config(series(mode, privacy=per_step)))):
        steps = re.findall(r"is in at most (\d+) steps", text)
        assert steps
        assert set(steps) == {"10"}


ALONE = {"max_contributions": 1, "max_per_step": 1}
NOBODY = {"unit": "event", "user": None, "max_contributions": None, "max_per_step": None}
BINS = {"fields": [{"name": "ms", "of": "histogram", "edges": [0, 1, 5]}], "by": "place", "values": ["a", "b"]}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((engine, {}) for engine in ENGINES if engine != "markov"),  # which counts a user in every step
    ("series", {"domain": BINS, "privacy": {"delta": None}}),
    ("spatial", {"domain": {"ttl": "2h"}}),
]


def said_of(engine: str, variant: dict[str, Any], privacy: dict[str, Any]) -> str:
    both = {**variant, "privacy": {**variant.get("privacy", {}), **privacy}}
    return str(explain_stream(contract_case(engine).stream("default", both), job="j"))


@pytest.mark.parametrize(("engine", "variant"), VARIANTS)
def test_one_is_said_as_one(engine: str, variant: dict[str, Any]) -> None:
    said = said_of(engine, variant, ALONE)
    assert re.findall(r"\b1 (?:event|trip|step|release|change|contribution|group|bin)s\b", said) == []


@pytest.mark.parametrize(("engine", "variant"), [each for each in VARIANTS if "event" in ENGINES[each[0]].facts.units])
def test_where_events_are_protected_nothing_is_said_of_users(engine: str, variant: dict[str, Any]) -> None:
    said = said_of(engine, variant, NOBODY)
    for of_users in (
        'Where the data has a user id, set unit = "user".',
        "one user's records go",
    ):  # what to do instead, and what holds all the same
        said = said.replace(of_users, "")
    assert re.findall(r".{30}\buser.{30}", said.replace("'user'", "").replace("user=None", "")) == []
    assert re.findall(r"\b1 (?:event|step)s\b", said) == []


def test_what_several_periods_cost_is_said_by_both_compositions() -> None:
    for text in everywhere(explain(config(series("paper", privacy='per = "7d"')))):
        assert "any 7d in a row, epsilon = 1.45468, delta = 1e-06 (or epsilon = 2, delta = 2e-06)" in text
        assert "12 periods, epsilon = 3.90406, delta = 1e-06 (or epsilon = 12, delta = 1.2e-05)" in text
        assert "√k μ" in text
        assert "a user-week" in text


def test_streams_of_the_same_users_add_up() -> None:
    both = config(toml(epsilon="0.1"), toml(name="stops", epsilon="0.2", privacy=USER.replace("20", "3")))
    (shared,) = explain(both).shared
    assert shared.sentence == (
        "Streams rides and stops add up for one user (field rider): epsilon = 3/10 = 0.3 together, for ever."
    )
    assert explain(both, ["rides"]).shared == (shared,)
    for form in everywhere(explain(both)):
        assert shared.sentence in form
    other = config(toml(), toml(name="stops", privacy=USER.replace("rider", "driver")))
    assert explain(other).shared == ()
    renewing = config(toml(), toml(name="stops", privacy=USER + '\nper = "28d"'))
    (shared,) = explain(renewing).shared
    # A year has a part of 15 periods, and the stream without any.
    assert "3 in any 28d in a row, epsilon = 16 in any 365 days in a row, and no bound over a" in shared.sentence
    events = config(toml(privacy=EVENT), toml(name="stops", privacy=EVENT))
    assert "add up for one event of raw.rides: epsilon = 2" in explain(events).shared[0].sentence


def keys(*, name: str = "pages") -> str:
    """A stream of engine `keys` of the users of `series`, with the same periods."""
    return f"""
[[streams]]
name = "{name}"
engine = "keys"
source = "raw.pages"
[streams.privacy]
epsilon = 1.0
delta = 1e-6
user = "user"
max_contributions = 8
per = "10d"
[streams.time]
field = "at"
step = "1d"
start = "2026-01-01T00:00:00"
[streams.domain]
kind = "keys"
field = "page"
"""


def test_of_a_delta_what_is_for_thresholds_is_told_apart() -> None:
    """Noise is calibrated to the rest: with all of delta mu^2 would not be what epsilon says."""
    explanation = explain(config(keys()))
    (stream,) = explanation.streams
    budget = stream.budget
    assert (budget.thresholds, budget.noise_delta) == pytest.approx((4e-7, 6e-7))
    assert budget.mu_squared is not None
    assert gaussian.delta(1, float(budget.mu_squared) ** 0.5) == pytest.approx(6e-7, rel=1e-4)
    for form in everywhere(explanation):
        assert "+ 4e-07" in form
    text, page, _ = everywhere(explanation)
    for form in (text, page):
        assert "6e-07 for the noise, 4e-07 for what thresholds let through" in form
        assert "is epsilon 1 at delta 6e-07, exactly; with 4e-07 for what thresholds let through delta is 1e-06" in form
    for form in everywhere(explain(config(series("default", privacy='per = "10d"')))):
        assert "let through" not in form


def test_options_without_effect_in_a_mode_are_not_told() -> None:
    """Of public keys none is left out for few people, and no share is counted: explain printed both."""
    public = (
        keys()
        .replace('field = "page"', 'field = "page"\nkeys = ["a", "b"]')
        .replace('source = "raw.pages"', 'source = "raw.pages"\nmode = "public"')
    )
    for form in everywhere(explain(config(public))):
        assert "least_count" not in form
        assert "sample =" not in form
    assert all("least_count = 5" in form and "sample = 1/1" in form for form in everywhere(explain(config(keys()))))


def test_what_a_month_in_a_row_is_by_the_calendar_is_said() -> None:
    monthly = toml(privacy=USER + '\nper = "1 month"').replace('step = "1h"', 'step = "1 month"')
    for form in everywhere(explain(config(monthly))):
        told = re.sub(r"\s+", " ", form)
        assert "in any 1 month in a row (from a moment to the same one a period later; a time as long as" in told


def test_keys_and_other_streams_of_the_same_users_add_up_part_by_part() -> None:
    pure = toml(name="rides", epsilon="0.5", privacy='user = "user"\nmax_contributions = 2\nper = "10d"').replace(
        'start = "now"', 'start = "2026-01-01T00:00:00"'
    )
    explanation = explain(config(keys(), series("default", privacy='per = "10d"'), pure))
    (shared,) = explanation.shared
    assert [what for what, _ in shared.cases] == [
        "in one aligned period",
        "in any 10d in a row",
        "in any 365 days in a row",
    ]
    for (_, price), periods in zip(shared.cases, (1, 2, 38), strict=True):
        assert price.gaussian is not None
        noisy, counts, rides = price.parts
        assert noisy.mu_squared is not None
        assert counts.mu_squared is not None
        mu = float(noisy.mu_squared + counts.mu_squared) ** 0.5
        assert price.gaussian[0] == pytest.approx(gaussian.epsilon(1e-6, mu) + periods / 2, rel=2e-5)
        assert price.gaussian[1] == pytest.approx(1e-6 + periods * 4e-7)
        assert (counts.thresholds, rides.mu_squared, rides.epsilon) == (0, None, Fraction(periods, 2))
    assert max(map(len, render_text(explanation).splitlines())) <= WIDTH
    text, page, _ = everywhere(explanation)
    for form in (text, page):
        assert "Of that, in any 365 days in a row: mu^2 = " in form
        assert "other noise adds epsilon = 19; thresholds add delta = 1.52e-05." in form
        assert re.search(r"pages 2 0\.1067 8e-07", form)
    (_, price), *_ = explanation.as_json()["shared"][0]["cases"]
    assert [each["thresholds"] for each in price["parts"]] == pytest.approx([4e-7, 0, 0])


def test_a_stream_started_anew_adds_up_with_what_it_released_before() -> None:
    now, before = config(toml(name="rides2", epsilon="0.5")), config(toml(epsilon="1.0"))
    (shared,) = explain(now, earlier=[before]).shared
    assert "epsilon = 3/2 = 1.5 together" in shared.sentence
    assert explain(now, earlier=[now]).shared == ()


# --- the command ---


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text('[kafka]\nbootstrap = "localhost:9092"\n' + toml() + toml(name="stops", privacy=EVENT))
    return path


def run(*words: str) -> tuple[int, str, str]:
    result = call("explain", *words)
    return result.exit_code, result.stdout, result.stderr


def test_text_of_all_streams_or_of_one(file: Path) -> None:
    code, out, _ = run(str(file))
    assert code == 0
    assert "rides: raw.rides" in out
    assert "stops: raw.rides" in out
    assert max(map(len, out.splitlines())) < 132
    code, out, _ = run(str(file), "--stream", "stops")
    assert code == 0
    assert "rides: raw.rides" not in out


def test_json_is_one_object_and_exact(file: Path) -> None:
    code, out, _ = run(str(file), "--json", "--stream", "rides")
    told = json.loads(out)
    assert (code, told["ok"]) == (0, True)
    (stream,) = told["streams"]
    assert stream["budget"]["event_epsilon"] == {"exact": "1/20", "value": 0.05}
    assert told["releases"] == list(RELEASES)
    assert all(len(answer["intervals"]) == len(RELEASES) for answer in stream["errors"]["answers"])


@pytest.mark.usefixtures("drawn")
def test_the_page_needs_nothing_but_itself(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = run(str(file), "--html", str(page))
    assert (code, out) == (0, "")
    assert str(page) in err
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"<script|<link|@import|url\(|https?://|\bsrc=(?!.data:)", text)
    assert text.count('src="data:image/svg+xml') == 2
    assert 'name="viewport"' in text
    tags = re.findall(r"<(/?)(article|section|table|div|dl|details|tr)\b", text)
    assert all(tags.count(("", tag)) == tags.count(("/", tag)) for _, tag in set(tags))


def test_what_is_written_in_the_file_is_text_and_no_markup() -> None:
    page = render_page(explained(privacy=USER.replace("rider", "<b>&id")))
    assert "<b>&id" not in page
    assert "&lt;b&gt;&amp;id" in page


def test_refusals_of_the_command(file: Path, tmp_path: Path) -> None:
    code, _, err = run(str(file), "--stream", "nothing")
    assert code == 2
    assert "rides, stops" in err
    code, _, err = run(str(file), "--html", str(tmp_path / "no" / "page.html"))
    assert code == 2
    assert "cannot be written" in err


def test_points_are_where_the_explanation_says_a_function_of_the_name() -> None:
    """`public` says that places follow from released counts and the stream's name alone."""
    nodes = np.arange(1, 50)
    assert (Placement("rides").words(nodes) == Placement("rides").words(nodes)).all()
    assert (Placement("rides").words(nodes) != Placement("stops").words(nodes)).any()


def test_typed_output_is_named_with_its_subject_and_plain_json_is_not() -> None:
    plain = config(toml())
    stream = plain.streams[0].revised(output={"format": "avro"})
    (shown,) = explain(plain.model_copy(update={"streams": (stream,)})).streams
    [said] = [each.text for each in shown.public if each.title == "how records are written"]
    assert "the Avro that is registered as rides.synthetic-value" in said
    assert all(each.title != "how records are written" for each in explain(plain).streams[0].public)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.1, 1e-5), (3.0, 1e-9), (10.0, 1e-3)])
def test_what_two_together_are_told_is_no_less_than_they_pay(epsilon: float, delta: float) -> None:
    """Two digits of it were rounded down, and one more was said to cost e^epsilon times as much; it is more."""
    told = several(Privacy.model_validate({"epsilon": epsilon, "delta": delta, "unit": "event"}))
    assert "(e^(k epsilon) - 1)/(e^epsilon - 1) times delta" in told
    shown = float(told.rpartition("(")[2].split()[0])
    assert group_delta(epsilon, delta, 2) <= shown <= 1.0001 * group_delta(epsilon, delta, 2)
