"""What `explain` says: splits add up exactly, no noise is left out, errors are as the engine makes them."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.show.explain.parts import Budget, decimal, exact
from agents.show.noise import NORMAL_95, RELEASES, noise_facts
from agents.show.views.spatial import LeafNoise
from engines.core.contract import Batch
from engines.core.counters.by_name import COUNTERS
from engines.core.counters.simple import SimpleCounter
from engines.core.noise import DiscreteLaplace, seeded
from engines.core.registry import build_engine
from engines.spatial.split import path_cost
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.errors import BudgetError, PrivstreamError
from schemas.guarantee import Mechanism, surest
from tests.cli.explain_support import EVENT, USER, config, everywhere, explained, toml

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
        options=f"split = {split}",
    )
    (stream,) = explanation.streams
    configured = Fraction(str(epsilon))
    assert sum(share.unit_epsilon for share in stream.budget.shares) == configured
    assert sum(share.event_epsilon for share in stream.budget.shares) * stream.budget.contributions == configured
    assert sum(share.part for share in stream.budget.shares) == 1
    for notch in stream.notches:
        assert sum(share.unit_epsilon for share in notch.budget.shares) == notch.factor * configured
    told = json.loads(json.dumps(explanation.as_json()))["streams"][0]["budget"]
    assert sum(Fraction(each["unit_epsilon_exact"]) for each in told["mechanisms"]) == configured


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_each_scale_is_what_its_epsilon_and_sensitivity_ask_for(mode: str) -> None:
    (stream,) = explained(epsilon="0.7", stream=f'mode = "{mode}"').streams
    for share in stream.budget.shares:
        mechanism = share.mechanism
        path = path_cost(2) if mechanism.distribution == "Laplace (one bit)" else 1
        assert mechanism.scale >= path * mechanism.l1_sensitivity * mechanism.uses / share.event_epsilon


@pytest.mark.parametrize("change", ["epsilon", "uses", "missing"])
def test_an_engine_whose_splits_do_not_add_up_is_refused(change: str) -> None:
    stream = config(toml()).streams[0]
    honest = build_engine(stream).guarantee()
    assert Budget.of(stream, honest).unit_epsilon == 1
    first, *rest = honest.mechanisms
    false = {
        "epsilon": dataclasses.replace(honest, epsilon=honest.epsilon * 2),
        "uses": dataclasses.replace(honest, mechanisms=(dataclasses.replace(first, uses=2), *rest)),
        "missing": dataclasses.replace(honest, mechanisms=tuple(rest)),
    }[change]
    with pytest.raises(BudgetError, match=r"rides: 1/20 is configured .* do not run the stream"):
        Budget.of(stream, false)


# --- noise ---


@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize("epsilon", ["0.1", "1.0", "3.0"])
def test_no_noise_is_left_out(mode: str, epsilon: str) -> None:
    explanation = explained(epsilon=epsilon, stream=f'mode = "{mode}"')
    (stream,) = explanation.streams
    text, page, _ = everywhere(explanation)
    told = explanation.as_json()["streams"][0]["budget"]["mechanisms"]
    guarantee = build_engine(config(toml(epsilon=epsilon, stream=f'mode = "{mode}"')).streams[0]).guarantee()
    assert [each["name"] for each in told] == [mechanism.name for mechanism in guarantee]
    for mechanism, each in zip(guarantee, told, strict=True):
        noise = noise_facts(mechanism)
        assert each["scale_exact"] == str(mechanism.scale)
        assert each["noise_standard_deviation"] == noise.deviation > 0
        assert each["noise_95_percent"] == noise.interval
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


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_the_error_formula_is_that_of_the_engine(mode: str) -> None:
    """All noise of three releases together: what was measured, less what was there to be measured.

    A run's sum has hundreds of draws, so its square has a relative standard deviation of sqrt(2); five standard errors.
    """
    streams = config(toml(epsilon="1.0", privacy=EVENT, stream=f'mode = "{mode}"', options="max_leaves = 64"))
    noise_of = leaf_noise(streams.streams[0])
    rng = np.random.default_rng(5)
    cells = [np.unique(rng.integers(0, 1 << 10, 40)) for _ in range(3)]
    true = sum(100 * len(codes) for codes in cells)
    ratios, runs = [], 300
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
    assert surest(float(np.log(3))) == pytest.approx(0.75)


def test_epsilons_that_the_configuration_refuses_are_no_notch() -> None:
    (stream,) = explained(epsilon="2e-6", privacy=EVENT, stream='mode = "paper"').streams
    assert [notch.factor for notch in stream.notches] == [Fraction(1, 2), 1, 2, 4, 8]
