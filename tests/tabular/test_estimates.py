"""The parts from which tables are fitted, each beside a slow obvious twin."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.counters.epochs import EpochsCounter
from engines.core.noise import DiscreteLaplace, scale_for, seeded
from engines.core.shares import LaplaceCells
from engines.tabular.contrasts import Contrasts
from engines.tabular.forest import along_paths, dependences, spanning_forest
from engines.tabular.growing.blocks import KEPT as KEPT_OF_PAST
from engines.tabular.growing.blocks import Evidence, StepBlock, improved, together
from engines.tabular.growing.config import parts_of
from engines.tabular.growing.fit import Sides, news_share, shrunken, simplex
from engines.tabular.growing.learn import measure, variances
from engines.tabular.growing.schedule import PURE, block_weights, larger_weights
from engines.tabular.growing.totals import KEPT, Totals, Trend
from engines.tabular.marginals import Marginals
from tests.examples import examples

SIZES = (2, 3, 4)
ONES = Marginals(SIZES, ((0,), (1,), (2,)))
PAIRS = Marginals(SIZES, ((0, 1), (0, 2), (1, 2)))
TRIPLES = Marginals(SIZES, ((0, 1, 2),))


def tables(layout: Marginals, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(layout.cells) + 0.1


@settings(max_examples=examples(1.2))
@given(
    epsilon=st.fractions(Fraction(1, 1000), 100),
    weights=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30),
)
def test_shares_add_up_to_the_budget_exactly(epsilon: Fraction, weights: list[float]) -> None:
    parts = parts_of(weights)
    shares = [epsilon * part / sum(parts) for part in parts]
    assert sum(shares) == epsilon
    assert all(share > 0 for share in shares)
    ratio = np.array([float(share / epsilon) for share in shares]) / (np.array(weights) / sum(weights))
    assert ratio.max() / ratio.min() < 2 ** (2 / 4)


def test_noise_is_that_of_each_marginals_epsilon() -> None:
    # Null: variance of 4,000 draws each; five standard errors of it (kurtosis 6), false alarm below 1e-6 a table.
    layout = Marginals((2000, 2000), ((0,), (1,)))
    epsilons = (Fraction(1, 4), Fraction(1, 2))
    laws = [LaplaceCells(epsilon) for epsilon in epsilons]
    counts = np.arange(layout.cells)
    draws = np.concatenate(
        [(measure(counts, layout, laws, seeded(i)) - counts).reshape(2, -1) for i in range(2)], axis=1
    )
    for index, epsilon in enumerate(epsilons):
        expected = DiscreteLaplace(scale_for(1, epsilon)).variance
        assert variances(laws)[index] == pytest.approx(expected)
        error = expected * np.sqrt(5 / draws.shape[1])
        assert abs(float((draws[index].astype(float) ** 2).mean()) - expected) < 5 * error
    assert np.array_equal(measure(counts, layout, laws, seeded(0)), measure(counts, layout, laws, seeded(0)))


def test_marginals_of_one_budget_have_independent_noise() -> None:
    layout = Marginals((500, 500), ((0,), (1,)))
    noise = measure(np.zeros(1000, np.int64), layout, (LaplaceCells(Fraction(1, 9)),) * 2, seeded(1))
    assert not np.array_equal(noise[:500], noise[500:])


@settings(max_examples=examples(1.6))
@given(seed=st.integers(0, 2**16), total=st.floats(0.01, 1000), size=st.integers(1, 8))
def test_simplex_projection_is_the_nearest_point(seed: int, total: float, size: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(0, 5, size)
    found = simplex(values, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total)
    # Optimality: moving mass from any positive cell to any other does not come nearer.
    slopes = found - values
    assert all(slopes[i] <= slopes[j] + 1e-9 * max(1, total) for i in np.flatnonzero(found > 1e-9) for j in range(size))


def test_noise_alone_is_shrunken_to_even_counts() -> None:
    assert np.allclose(shrunken(np.array([3.0, -2.0, 1.0]), 100.0, 30.0), 10.0)
    assert np.allclose(shrunken(np.array([20.0, 10.0]), 0.0, 30.0), [20.0, 10.0])
    assert news_share(np.array([1.0, -1.0]), 1.0, least=2.0) == 0.0
    assert news_share(np.array([10.0, -10.0]), 1.0, least=2.0) == pytest.approx(1 - 1 / 200)


@settings(max_examples=examples(0.6))
@given(seed=st.integers(0, 2**16))
def test_sides_are_sums_over_axes(seed: int) -> None:
    for layout, below in ((PAIRS, ONES), (TRIPLES, PAIRS)):
        sides = Sides.of(layout, below)
        values = tables(layout, seed)
        wanted = [np.array(target) for target in sides.targets(np.arange(below.cells, dtype=float))]
        for axis, (group, target) in enumerate(zip(sides.groups, wanted, strict=True)):
            sums = np.bincount(group, values)
            expected = [layout.table(values, i).sum(axis=axis).ravel() for i in range(len(layout))]
            assert np.allclose(sums, np.concatenate(expected))
            place = {clique: i for i, clique in enumerate(below.cliques)}
            numbers = [
                np.arange(below.cells)[below.offsets[place[rest]] : below.offsets[place[rest] + 1]]
                for rest in (clique[:axis] + clique[axis + 1 :] for clique in layout.cliques)
            ]
            assert np.array_equal(target, np.concatenate(numbers))
        centred = sides.centred(values)
        for i in range(len(layout)):
            table = layout.table(centred, i)
            assert all(np.allclose(table.sum(axis=axis), 0) for axis in range(table.ndim))


@settings(max_examples=examples(0.6))
@given(seed=st.integers(0, 2**16))
def test_raking_meets_all_sides_and_keeps_zeros(seed: int) -> None:
    sides = Sides.of(PAIRS, ONES)
    joint = np.random.default_rng(seed).random(SIZES) + 0.1
    joint[0, 0] = 0.0  # so that a pair with this zero has these margins
    joint /= joint.sum()
    margins = np.concatenate([joint.sum(axis=others) for others in ((1, 2), (0, 2), (0, 1))])
    start = tables(PAIRS, seed + 1)
    start[0] = 0.0
    raked = sides.rake(start, sides.targets(margins), rounds=200, tolerance=1e-10)
    assert raked[0] == 0.0
    for i, (left, right) in enumerate(PAIRS.cliques):
        assert np.allclose(PAIRS.table(raked, i).sum(axis=1), ONES.table(margins, left), atol=1e-6)
        assert np.allclose(PAIRS.table(raked, i).sum(axis=0), ONES.table(margins, right), atol=1e-6)


def test_the_posterior_lies_between_prior_and_measurement() -> None:
    sides = Sides.of(PAIRS, ONES)
    prior, noisy = tables(PAIRS, 1) * 100, tables(PAIRS, 2) * 100
    assert np.allclose(sides.posterior(noisy, prior, np.full(3, 1e9), kurtosis=PURE.kurtosis), prior, atol=1e-3)
    exact = sides.posterior(noisy, prior, np.full(3, 1e-9), kurtosis=PURE.kurtosis)
    assert np.allclose(exact, prior + sides.centred(noisy - prior), atol=1e-4)


def test_four_cells_are_believed_by_the_noise_of_their_one_direction() -> None:
    """Centred, a fourth of the noise's variance is left; caution is off where squares of noise do not vary."""
    layout = Marginals((2, 2), ((0, 1),))
    sides = Sides.of(layout, Marginals((2, 2), ((0,), (1,))))
    prior, residual = np.full(4, 250.0), np.array([100.0, -100.0, -100.0, 100.0])
    believed = sides.posterior(prior + residual, prior, np.array([120.0**2]), kurtosis=0.0) - prior
    assert np.allclose(believed, (1 - 60.0**2 / 100.0**2) * residual)


def test_noise_alone_is_hardly_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """400 tables of four cells that are all noise: how far they are moved, with caution and without, by one seed."""
    layout = Marginals((2,) * 401, tuple((0, other) for other in range(1, 401)))
    sides = Sides.of(layout, Marginals((2,) * 401, tuple((a,) for a in range(401))))
    prior = np.full(layout.cells, 250.0)
    noisy = prior + np.random.default_rng(1).laplace(0, 100, layout.cells)

    def moved() -> float:
        return float(
            np.abs(sides.posterior(noisy, prior, np.full(400, 2 * 100.0**2), kurtosis=PURE.kurtosis) - prior).sum()
        )

    cautious = moved()
    monkeypatch.setattr("engines.tabular.growing.fit._CAUTION", 0.0)
    assert 0 < cautious < 0.7 * moved()


def test_small_marginals_are_measured_first_and_all_of_them_later() -> None:
    lengths = np.array([4.0, 6.0, 40.0, 400.0])

    def weights(rows: float) -> list[bool]:
        found = larger_weights(np.ones(4), lengths, np.ones(4), np.full(4, 0.2), rows, 2.0, 0, rest=0.05, recipe=PURE)
        return (found > 0.5).tolist()

    assert weights(150.0) == [True, True, False, False]
    assert weights(1e6) == [True] * 4


def test_blocks_of_one_law_count_by_inverse_variance() -> None:
    quiet, noisy = (block_weights(100.0, np.array([variance])) for variance in (1.0, 4.0))
    assert quiet == 4 * noisy
    assert block_weights(400.0, np.ones(1)) == 2 * quiet


def test_the_forest_is_a_maximum_spanning_tree() -> None:
    pairs = list(combinations(range(5), 2))
    scores = np.random.default_rng(3).random(len(pairs))
    chosen = spanning_forest(pairs, scores, 5)

    def joins(some: tuple[int, ...]) -> bool:
        groups = [{attribute} for attribute in range(5)]
        for index in some:
            left, right = pairs[index]
            merged = [group for group in groups if left in group or right in group]
            groups = [group for group in groups if group not in merged] + [set().union(*merged)]
        return len(groups) == 1

    best = max(
        (some for some in combinations(range(len(pairs)), 4) if joins(some)), key=lambda some: scores[list(some)].sum()
    )
    assert set(chosen) == set(best)
    assert spanning_forest(pairs, np.zeros(len(pairs)), 5) == []


def test_paths_multiply_conditionals() -> None:
    """Three attributes in a chain: the tables along the path are those of the chain's joint distribution."""
    random = np.random.default_rng(5)
    first, step, other = random.random(2), random.random((2, 3)), random.random((3, 4))
    joint = (first[:, None] * step)[:, :, None] * (other / other.sum(axis=1, keepdims=True))
    joint /= joint.sum()
    ones = [joint.sum(axis=(1, 2)), joint.sum(axis=(0, 2)), joint.sum(axis=(0, 1))]
    found = along_paths({(0, 1): joint.sum(axis=2), (1, 2): joint.sum(axis=0)}, ones)
    assert np.allclose(found[0, 2], joint.sum(axis=1))
    assert np.allclose(found[0, 1], joint.sum(axis=2))
    assert set(found) == {(0, 1), (0, 2), (1, 2)}
    assert dependences(Marginals((2, 3), ((0, 1),)), joint.sum(axis=2).ravel(), joint.sum(axis=2).ravel()).tolist() == [
        0
    ]


def block(first: int, last: int, value: float, *, larger: bool = True) -> StepBlock:
    return StepBlock(
        first,
        last,
        value,
        np.full(ONES.cells, value),
        np.full(3, 2.0),
        np.full(PAIRS.cells if larger else 0, value),
        np.full(3 if larger else 0, 3.0),
        np.full(3 if larger else 0, value),
    )


def test_blocks_add_up_and_expire_in_parts() -> None:
    both = together([block(-1, 3, 4.0), block(3, 5, 6.0, larger=False)])
    assert (both.first, both.last, both.net, both.larger_net.tolist()) == (-1, 5, 10.0, [4.0] * 3)
    assert both.ones_variance.tolist() == [4.0] * 3
    evidence = Evidence(ttl_steps=4).settle(block(-1, 3, 4.0)).settle(block(3, 5, 6.0))
    settled, recent = evidence.sums(5)
    assert settled is not None
    # After step 5, steps 0 and 1 of the first block are gone: half of it is left, with a quarter of the variance.
    assert settled.net == 2.0 + 6.0
    assert settled.ones_variance.tolist() == [2.0 / 4 + 2.0] * 3
    assert recent is None
    assert len(evidence.at(7).settled) == 1
    past = evidence.at(7).past
    assert past is not None
    assert past.net == 4.0, "what has expired is remembered"
    older = evidence.at(7).settle(block(5, 9, 8.0)).at(9).past
    assert older is not None
    assert older.net == pytest.approx(KEPT_OF_PAST * 4.0 + 6.0), "and counts less and less"
    assert evidence.at(5).past is None
    assert len(evidence.at(100).settled) == 1, "the newest block still says what rows look like"
    forever = Evidence().settle(block(-1, 3, 4.0)).settle(block(3, 5, 6.0))
    assert len(forever.at(100).settled) == 1
    assert forever.sums(100)[0] is not None


def test_one_way_counts_are_weighted_by_inverse_variance() -> None:
    """Against weighted least squares of one attribute."""
    ones, larger = tables(ONES, 1), tables(PAIRS, 2)
    found, variance = improved(
        ones,
        np.full(3, 2.0),
        larger,
        np.array([1.0, 5.0, 7.0]),
        ones_layout=ONES,
        of_larger=Contrasts(PAIRS, (False,) * len(PAIRS.sizes)),
        partial=(False, False, True),
    )
    seen = [
        (ONES.table(ones, 0), 2.0),
        (PAIRS.table(larger, 0).sum(axis=1), 3.0),
        (PAIRS.table(larger, 1).sum(axis=1), 20.0),
    ]
    weight = sum(1 / v for _, v in seen)
    assert np.allclose(ONES.table(found, 0), sum(x / v for x, v in seen) / weight)
    assert variance[0] == pytest.approx(1 / weight)


def test_a_trend_follows_a_line_closer_than_its_noise_and_jumps_when_it_breaks() -> None:
    random = np.random.default_rng(4)
    trend, errors = Trend(), []
    for step in range(1, 301):
        true = 50.0 * step if step <= 200 else 10_000 + 400.0 * (step - 200)
        trend = trend.after(true + random.normal(0, 100), 100.0**2)
        errors.append(trend.level - true)
    assert np.std(errors[50:200]) < 70
    assert abs(trend.rate - 400) < 40
    assert np.abs(errors[210:]).mean() < 110
    assert Trend.of(trend.array()) == trend


@pytest.mark.parametrize("ttl", [1, 7, 3 * KEPT])
def test_rows_alive_under_a_ttl_are_those_of_its_last_steps(ttl: int) -> None:
    totals = Totals(EpochsCounter(cost=Fraction(50), family="kary"), ttl)
    for step in range(60 if ttl < 100 else ttl + 40):
        totals = totals.after(np.array([1000, 0]), seeded(1).child(step))
        if step % 7 == 3:
            expected = 1000 * min(step + 1, ttl)
            assert abs(totals.alive - expected) < 5 + 0.01 * expected
    assert len(totals.levels) <= KEPT + 2
    restored = Totals(EpochsCounter(cost=Fraction(50), family="kary"), ttl).restored(totals.arrays())
    assert restored.alive == totals.alive
