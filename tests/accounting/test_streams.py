"""Streams that share their users add up; bounds that renew hold for periods and windows, and for no lifetime."""

import math
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from engines.core.accounting import gaussian
from engines.core.accounting.streams import Price, StreamCost, Total, price_of, price_of_periods, totals
from schemas.config import Config, load_config, parse_config
from schemas.errors import BudgetError, EngineInputError

EXAMPLES = Path(__file__).parents[2] / "examples"
DAY = 86_400_000_000

STREAM = """
[[streams]]
name = "{name}"
engine = "spatial"
source = "{source}"
[streams.privacy]
epsilon = {epsilon}
{privacy}
[streams.time]
field = "at"
start = "2024-01-01T00:00:00"
step = "1d"
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0.0, 0.0, 1.0, 1.0]
"""
USER = 'user = "{}"\nmax_contributions = 2'


def stream(name: str, epsilon: str, privacy: str, source: str = "raw") -> str:
    return STREAM.format(name=name, source=source, epsilon=epsilon, privacy=privacy)


def config(*streams: str) -> Config:
    return parse_config('[kafka]\nbootstrap = "localhost:9092"\n' + "".join(streams))


def test_streams_of_the_same_users_add_up_whatever_they_read() -> None:
    found = totals(
        config(
            stream("a", "0.1", USER.format("id")),
            stream("b", "0.2", USER.format("id")),
            stream("c", "0.4", USER.format("id"), source="other"),
            stream("d", "8", USER.format("driver")),
        )
    )
    assert [(total.who, [s.name for s in total.streams]) for total in found] == [("id", list("abc")), ("driver", ["d"])]
    assert found[0].lifetime == Price(Fraction(7, 10), 0)  # exact: 0.1 + 0.2 + 0.4 in floats is not
    assert found[0].within(1) == found[0].within(10**18) == found[0].lifetime
    assert found[0].aligned is None


def test_single_events_add_up_over_a_source() -> None:
    found = totals(
        config(
            stream("a", "1", 'unit = "event"'),
            stream("b", "2", 'unit = "event"'),
            stream("c", "4", 'unit = "event"', source="other"),
            stream("d", "8", USER.format("id")),
        )
    )
    assert [(total.unit, total.who, total.lifetime) for total in found] == [
        ("user", "id", Price(Fraction(8), 0)),
        ("event", "raw", Price(Fraction(3), 0)),
        ("event", "other", Price(Fraction(4), 0)),
    ]


SPLIT = 'source = "{}"\nsplit = {{ field = "zone", parts = {} }}'


def split(name: str, epsilon: str, privacy: str, parts: str, source: str = "raw") -> str:
    plain = stream(name, epsilon, privacy, source)
    return plain.replace(f'source = "{source}"', SPLIT.format(source, parts))


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=3),
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
)
def test_parts_of_a_split_against_every_event_and_every_user(splits: list[tuple[int, int]], zones: list[int]) -> None:
    """What the dearest event and the dearest user pay, by enumeration: each part has a bound of its own.

    Of a split with p parts each lists two of the zones 0 .. 2p - 1. An event has one zone; a user has as many events in
    every part as its bound lets through.
    """

    def written(privacy: str) -> Config:
        texts = []
        for number, (epsilon, parts) in enumerate(splits):
            listed = ", ".join(f"p{part} = [{2 * part}, {2 * part + 1}]" for part in range(parts + 1))
            texts.append(split(f"s{number}", str(epsilon), privacy, f"{{ {listed} }}"))
        return config(*texts)

    of_events, of_users = written('unit = "event"'), written(USER.format("id"))
    event = max(
        sum(each.event_epsilon for each in of_events.streams if each.part is not None and zone in each.part.values)
        for zone in range(4)
    )
    user = sum(2 * each.event_epsilon for each in of_users.streams)
    assert [total.lifetime for total in totals(of_events)] == [Price(Fraction(event), 0)]
    assert [total.lifetime for total in totals(of_users)] == [Price(Fraction(user), 0)]
    assert user == sum(epsilon * (parts + 1) for epsilon, parts in splits)


def test_an_event_pays_again_in_a_part_that_was_changed() -> None:
    """Under the new values the part is another stream, and what it released before is out."""
    before = config(split("s", "1", 'unit = "event"', '{ a = ["x"], b = ["y"] }'))
    beside = config(split("s", "1", 'unit = "event"', '{ a = ["x"], b = ["y"], c = ["z"] }'))
    moved = config(split("s", "1", 'unit = "event"', '{ a = ["x", "z"], b = ["y"] }'))
    for now, epsilon, names in (before, 1, ["s"]), (beside, 1, ["s"]), (moved, 2, ["s", "s"]):
        [total] = totals(now, [before])
        assert total.lifetime == Price(Fraction(epsilon), 0)
        assert [cost.name for cost in total.streams] == names
    [total] = totals(config(stream("s", "1", 'unit = "event"')), [before])
    assert total.lifetime == Price(Fraction(2), 0)


def test_a_restarted_stream_adds_up_and_one_that_goes_on_does_not() -> None:
    now = config(stream("a", "1", USER.format("id")))
    assert totals(now, [now, now]) == totals(now)
    other = config(stream("a", "0.5", USER.format("id")))
    assert totals(now, [other])[0].lifetime == Price(Fraction(3, 2), 0)
    assert totals(now, [other, other, now])[0].lifetime == Price(Fraction(3, 2), 0)
    renamed = config(stream("b", "1", USER.format("id")))
    assert totals(now, [renamed])[0].lifetime == Price(Fraction(2), 0)


def test_what_may_change_under_a_running_stream_costs_nothing() -> None:
    text = stream("a", "1", USER.format("id"))
    now, audited = config(text), config(text.replace('source = "raw"', 'source = "raw"\naudit = "held.out"'))
    assert totals(now, [audited])[0].lifetime == Price(Fraction(1), 0)


def test_renewable_bounds() -> None:
    renews = USER.format("id") + '\nper = "30d"'
    (total,) = totals(config(stream("a", "1", renews)))
    assert total.lifetime is None
    assert total.aligned == Price(Fraction(1), 0)
    assert total.within(30 * DAY) == Price(Fraction(2), 0)
    assert total.within(60 * DAY) == Price(Fraction(3), 0)
    (both,) = totals(config(stream("a", "1", renews), stream("b", "0.25", USER.format("id"))))
    assert (both.lifetime, both.aligned) == (None, Price(Fraction(5, 4), 0))
    assert both.within(30 * DAY) == Price(Fraction(9, 4), 0)
    (two,) = totals(config(stream("a", "1", renews), stream("b", "1", renews.replace("30d", "7d"))))
    assert two.aligned is None
    assert two.within(30 * DAY) == Price(Fraction(2 + 6), 0)


@given(st.integers(1, 12), st.integers(1, 40))
def test_windows_against_every_window(per: int, window: int) -> None:
    total = Total("user", "id", True, (StreamCost("a", "raw", Fraction(1), Fraction(0), per, 0),))
    touched = max(len({at // per for at in range(begin, begin + window)}) for begin in range(per))
    assert total.within(window) == Price(Fraction(touched), 0)


def test_periods_from_unknown_starts_do_not_coincide() -> None:
    def one(name: str, start: int | None) -> StreamCost:
        return StreamCost(name, "raw", Fraction(1), Fraction(0), 10, start)

    assert Total("user", "id", True, (one("a", None),)).aligned == Price(Fraction(1), 0)
    assert Total("user", "id", True, (one("a", None), one("b", None))).aligned is None
    assert Total("user", "id", True, (one("a", 5), one("b", 5))).aligned == Price(Fraction(2), 0)
    assert Total("user", "id", True, (one("a", 5), one("b", 6))).aligned is None


def test_delta_adds_up_and_stays_a_probability() -> None:
    costs = tuple(StreamCost(str(i), "raw", Fraction(1), Fraction(2, 5), None, 0) for i in range(3))
    assert Total("user", "id", True, costs[:2]).lifetime == Price(Fraction(2), 0.8)
    assert Total("user", "id", True, costs).lifetime == Price(Fraction(3), 1)


def noisy(epsilon: float, delta: float, *, apart: bool, per: int | None = 10) -> StreamCost:
    return StreamCost("a", "raw", Fraction(epsilon), Fraction(delta), per, 0, gaussian=True, apart=apart)


def test_twelve_periods_of_gaussian_noise() -> None:
    one, twelve = (price_of_periods(noisy(1, 1e-6, apart=True), periods) for periods in (1, 12))
    assert (one.gaussian, one.stated) == (None, (1.0, 1e-6))
    assert twelve.gaussian is not None
    assert twelve.gaussian == (pytest.approx(3.904, abs=1e-3), 1e-6)
    assert (twelve.epsilon, twelve.delta) == (12, pytest.approx(12e-6))


@given(st.floats(0.1, 5), st.floats(1e-9, 1e-3), st.integers(2, 40), st.booleans())
def test_both_figures_are_of_the_same_gaussian_mechanism(
    epsilon: float, delta: float, periods: int, apart: bool
) -> None:
    cost = noisy(epsilon, delta, apart=apart)
    price = price_of_periods(cost, periods)
    mu = gaussian.mu_for(epsilon, delta) * (math.sqrt(periods) if apart else periods)
    assert price.gaussian is not None
    composed, at = price.gaussian
    assert gaussian.delta(composed, mu) <= at <= gaussian.delta(composed * (1 - 2e-5), mu)
    assert gaussian.delta(float(price.epsilon), mu) <= price.delta * (1 + 1e-9)


def test_what_one_draw_hides_of_several_periods_costs_more_than_their_sum() -> None:
    """(2 epsilon, 2 delta) would not be true of a block of a table that two periods share."""
    price = price_of_periods(noisy(1, 1e-6, apart=False), 2)
    assert price.epsilon == 2
    assert price.delta > 1.6 * 2e-6


def test_streams_with_gaussian_noise_add_up_in_squares_and_pure_ones_beside_them() -> None:
    pure = StreamCost("p", "raw", Fraction(1, 2), Fraction(0), None, 0)
    two = price_of([(noisy(1, 1e-6, apart=True), 1), (noisy(1, 1e-7, apart=False, per=None), 1), (pure, 1)])
    mu = math.hypot(gaussian.mu_for(1, 1e-6), gaussian.mu_for(1, 1e-7))
    assert two.gaussian == (pytest.approx(gaussian.epsilon(1e-6, mu) + 0.5, rel=2e-5), 1e-6)
    assert (two.epsilon, two.delta) == (Fraction(5, 2), pytest.approx(1.1e-6))


def test_thresholds_fail_in_each_period_anew() -> None:
    """Of half of delta mu is smaller; the other half adds up, and is not what more Gaussian noise would hide."""
    delta = Fraction(1, 10**6)
    keys = StreamCost("k", "raw", Fraction(1), delta, 10, 0, gaussian=True, apart=True, thresholds=Fraction(1, 2))
    noise = StreamCost("n", "raw", Fraction(1), delta / 2, 10, 0, gaussian=True, apart=True)
    for periods in (2, 12):
        found, alone = price_of([(keys, periods)]), price_of([(noise, periods)])
        assert found.gaussian is not None
        assert alone.gaussian is not None
        assert found.gaussian[0] == alone.gaussian[0]
        assert found.gaussian[1] == pytest.approx(alone.gaussian[1] + periods * 5e-7)
        assert (found.epsilon, found.delta) == (periods, float(periods * delta))
    assert price_of([(keys, 1)]) == price_of([(replace(keys, thresholds=Fraction(0)), 1)])
    # A table whose values are found: draws hide events of two periods, thresholds fail in each.
    table, blocks = replace(keys, apart=False), replace(noise, apart=False)
    assert price_of([(table, 2)]).delta == pytest.approx(price_of([(blocks, 2)]).delta + 2 * 5e-7)


def several(*, periods: int, epsilons: Sequence[float] = (1, 0.7, 1.5), delta: float = 0.01) -> list[StreamCost]:
    """Keys, a table whose values are found, and pure noise."""
    one, two, three = map(Fraction, epsilons)
    half = Fraction(1, 2)
    keys = StreamCost("k", "raw", one, Fraction(delta), 10, 0, gaussian=True, apart=True, thresholds=half)
    table = StreamCost("t", "raw", two, Fraction(delta) / 3, 10, 0, gaussian=True, thresholds=half / 2)
    return [keys, table, StreamCost("p", "raw", three, Fraction(0), 10, 0)]


def without_keys(price: Price) -> float:
    """The epsilon of a total that forgets the noise of the first stream."""
    rest = sum((part.mu_squared or Fraction(0) for part in price.parts[1:]), Fraction(0))
    return gaussian.epsilon(price.noise_delta, math.sqrt(rest)) + float(sum(part.epsilon for part in price.parts))


def worst_delta(costs: Sequence[StreamCost], periods: int, epsilon: float) -> float:
    """Delta of the worst mechanisms that keep each promise, exactly: shifts of normal noise, a coin for each pure
    period, which says the truth as often as it may, and thresholds that tell all when they fail.
    """
    mus = [math.sqrt(cost.mu_squared(periods)) for cost in costs if cost.gaussian]
    fine = math.prod(1 - cost.threshold_delta(1) for cost in costs for _ in range(periods))
    coins = [float(cost.epsilon) for cost in costs if not cost.gaussian for _ in range(periods)]
    mass = 0.0
    for truths in product((1, -1), repeat=len(coins)):
        chance = math.prod(1 / (1 + math.exp(-sign * each)) for sign, each in zip(truths, coins, strict=True))
        loss = sum(sign * each for sign, each in zip(truths, coins, strict=True))
        left = epsilon - loss - math.log(fine)
        mu = math.hypot(*mus)
        # Below 0 by symmetry: delta(-e) = 1 - exp(-e) + exp(-e) delta(e).
        part = gaussian.delta(abs(left), mu)
        mass += chance * (part if left >= 0 else 1 - math.exp(left) + math.exp(left) * part)
    return 1 - fine + fine * mass


@given(st.tuples(*[st.floats(0.2, 3)] * 3), st.floats(1e-8, 1e-2), st.integers(1, 4), st.sampled_from(["all", "noisy"]))
def test_several_streams_cost_no_less_than_the_worst_there_are_and_no_more_than_their_sum(
    epsilons: tuple[float, float, float], delta: float, periods: int, which: str
) -> None:
    """Theorem Q. A total that leaves out thresholds, or the noise of one stream, is found."""
    costs = several(periods=periods, epsilons=epsilons, delta=delta)[: 3 if which == "all" else 2]
    price = price_of((cost, periods) for cost in costs)
    assert price.gaussian is not None
    epsilon, at = price.gaussian
    worst = worst_delta(costs, periods, epsilon)
    assert worst <= at * (1 + 1e-9)
    assert worst_delta(costs, periods, float(price.epsilon)) <= price.delta * (1 + 1e-9)
    if which == "noisy":
        assert worst > at * 0.95
        assert worst > at - max(part.thresholds for part in price.parts)
        assert worst_delta(costs, periods, without_keys(price)) > at
    beside = sum(part.thresholds + part.delta for part in price.parts)
    mu = math.sqrt(sum(part.mu_squared or 0 for part in price.parts))
    at_the_sum = gaussian.epsilon(price.delta - beside, mu) + sum(float(part.epsilon) for part in price.parts)
    assert at_the_sum <= float(price.epsilon) * (1 + 1e-9)


def cells(mu: float, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the cells that a normal variate is in, with a shift of mu and without."""
    edges = np.concatenate(([-np.inf], np.linspace(-5, 5 + mu, bins - 1), [np.inf]))
    return np.diff(ndtr(edges - mu)), np.diff(ndtr(edges))


@pytest.mark.parametrize("periods", [1, 2])
@pytest.mark.parametrize("fault", [None, "no thresholds", "the noise of one stream"])
def test_small_cases_outcome_by_outcome(periods: int, fault: str | None) -> None:
    """Every outcome of rounded normal noise of both streams, of coins and of thresholds, by both directions."""
    costs = several(periods=periods)
    price = price_of((cost, periods) for cost in costs)
    assert price.gaussian is not None
    epsilon, at = price.gaussian
    with_user, without = np.ones(1), np.ones(1)
    for cost in costs[:2]:
        p, q = cells(math.sqrt(cost.mu_squared(periods)), 200)
        fails = 1 - (1 - cost.threshold_delta(1)) ** periods
        pairs = np.append(p * (1 - fails), fails), np.append(q, 0.0)
        with_user, without = (np.outer(a, b).ravel() for a, b in zip((with_user, without), pairs, strict=True))
    truth = 1 / (1 + math.exp(-costs[2].epsilon))
    for _ in range(periods):
        with_user = np.outer(with_user, [truth, 1 - truth]).ravel()
        without = np.outer(without, [1 - truth, truth]).ravel()
    if fault == "no thresholds":
        at -= sum(part.thresholds for part in price.parts)
    if fault == "the noise of one stream":
        epsilon = without_keys(price)
    deltas = [
        float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((with_user, without), (without, with_user))
    ]
    assert (max(deltas) <= at) == (fault is None)


@pytest.mark.parametrize(("periods", "delta"), [(1, 1e-6), (3, 1e-4)])
def test_totals_against_distributions_of_losses(periods: int, delta: float) -> None:
    """By `dp_accounting`, whose figures are of losses that are rounded up: 1 % at most."""
    costs = several(periods=periods, delta=delta)
    price = price_of((cost, periods) for cost in costs)
    from dp_accounting.pld import privacy_loss_distribution

    assert price.gaussian is not None
    epsilon, at = price.gaussian
    mu = math.hypot(*(math.sqrt(cost.mu_squared(periods)) for cost in costs[:2]))
    losses = privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-3)
    pure = privacy_loss_distribution.from_laplace_mechanism(
        1 / float(costs[2].epsilon), value_discretization_interval=1e-3
    ).self_compose(periods)
    exact = losses.compose(pure).get_delta_for_epsilon(epsilon)
    assert exact + sum(part.thresholds for part in price.parts) <= at * 1.01
    without_pure = price_of((cost, periods) for cost in costs[:2])
    assert without_pure.gaussian is not None
    alone = losses.get_delta_for_epsilon(without_pure.gaussian[0]) + sum(part.thresholds for part in price.parts)
    assert alone == pytest.approx(without_pure.gaussian[1], rel=0.02)


def test_each_part_of_a_total_is_told() -> None:
    price = price_of((cost, 2) for cost in several(periods=2, delta=1e-6))
    keys, table, pure = price.parts
    assert keys.mu_squared is not None
    assert table.mu_squared is not None
    assert (keys.thresholds, table.thresholds, pure.thresholds) == pytest.approx((1e-6, 1e-6 / 6, 0))
    assert (pure.epsilon, pure.mu_squared, keys.epsilon) == (3, None, 0)
    assert price.gaussian is not None
    mu = math.sqrt(keys.mu_squared + table.mu_squared)
    assert price.gaussian[0] == pytest.approx(gaussian.epsilon(price.noise_delta, mu) + 3, rel=2e-5)
    assert price.gaussian[1] == pytest.approx(price.noise_delta + keys.thresholds + table.thresholds)


def test_periods_of_which_nothing_is_known_are_refused() -> None:
    unknown = StreamCost("a", "raw", Fraction(1), Fraction(1, 1000), 10, 0)
    with pytest.raises(BudgetError, match="nothing is known"):
        price_of_periods(unknown, 2)


def test_a_time_as_long_as_a_month_is_in_two_months_by_the_calendar_and_in_three_by_its_days() -> None:
    """What `explain` and the ledger call a month in a row, and what the formula has for 31 days."""
    privacy = USER.format("id") + '\nper = "1 month"'
    document = stream("a", "1", privacy).replace('step = "1d"', 'step = "1 month"')
    (total,) = totals(config(document))
    (cost,) = total.streams
    touched = []
    for begin in (datetime(2023, 1, 1) + timedelta(days=at, hours=12) for at in range(730)):
        ends = [begin.replace(month=begin.month % 12 + 1, year=begin.year + begin.month // 12, day=1)]
        ends[0] += timedelta(days=min(begin.day, monthrange(ends[0].year, ends[0].month)[1]) - 1)
        ends.append(begin + timedelta(days=31))
        touched.append([12 * (end.year - begin.year) + end.month - begin.month + 1 for end in ends])
    assert [max(each) for each in zip(*touched, strict=True)] == [2, 3]
    assert cost.periods_within(31 * DAY) == 3


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_the_examples_have_totals(path: Path) -> None:
    loaded = load_config(path)
    found = totals(loaded)
    assert sum(len(total.streams) for total in found) == len(loaded.streams)
    assert all(total.within(DAY).epsilon > 0 for total in found)


@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, None])
def test_outside_the_contract(bad: Any) -> None:
    (total,) = totals(config(stream("a", "1", USER.format("id"))))
    with pytest.raises(EngineInputError):
        total.within(bad)
