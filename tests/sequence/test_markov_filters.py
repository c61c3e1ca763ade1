"""Estimators of markov counts: filters, smoothers and where users start, beside brute force."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, sparse

from engines.markov.chain import Transition, covariance_step, laplace_moments, matched_scale
from engines.markov.filters import Belief, DenseFilter, DiagonalFilter, first_counts
from schemas.errors import EngineInputError


@pytest.mark.parametrize(("states", "concentration", "scale"), [(12, 12.0, 300.0), (20, 5.0, 400.0)])
def test_moments_and_evidence_are_those_of_weighted_draws(states: int, concentration: float, scale: float) -> None:
    """200,000 draws, some 10,000 of them effective: 1 % of a deviation; the saddle point's own error is the rest."""
    random = np.random.default_rng(states)
    total = 1000.0
    noisy = total * random.dirichlet(np.full(states, concentration / states)) + random.laplace(scale=scale, size=states)
    drawn = total * random.dirichlet(np.full(states, concentration / states), size=200_000)
    logs = -(np.abs(noisy - drawn) / scale).sum(axis=1)
    weights = np.exp(logs - logs.max())
    evidence = np.log(weights.mean()) + logs.max() - states * np.log(2 * scale)
    weights /= weights.sum()
    assert 1 / (weights**2).sum() > 5000
    mean = weights @ drawn
    deviation = np.sqrt(weights @ (drawn - mean) ** 2)
    found = first_counts(noisy, scale, total, concentration, np.ones(states, np.bool_))
    spread = np.sqrt(found.variance * (1 - found.variance / found.variance.sum()))
    assert found.mean.sum() == pytest.approx(total)
    assert np.abs(found.mean - mean).max() < 0.15 * deviation.max()
    assert spread == pytest.approx(deviation, rel=0.2)
    assert found.evidence == pytest.approx(evidence, abs=0.2)


def test_a_crowd_in_one_state_is_found_where_a_gaussian_start_halves_it() -> None:
    states, total, scale = 20, 2000.0, 200.0
    measured = np.ones(states, np.bool_)
    noisy = np.random.default_rng(1).laplace(scale=scale, size=states)
    noisy[0] += total
    found = first_counts(noisy, scale, total, 0.25, measured)
    assert found.mean[0] > 0.85 * total
    filter_ = DenseFilter(np.eye(states), total, measured)
    halved, evidence = filter_.update(filter_.start(1.0), noisy, scale)
    assert halved.mean[0] < 0.8 * total
    assert found.evidence > evidence + 2


def test_one_state_has_all_and_states_that_are_not_counted_have_the_rest() -> None:
    only = first_counts(np.array([-40.0]), 5.0, 30.0, 0.25, np.ones(1, np.bool_))
    assert only.mean.tolist() == [30.0]
    assert only.evidence == pytest.approx(-70 / 5 - np.log(10))
    rest = first_counts(np.array([20.0, 0.0]), 1.0, 100.0, 0.25, np.array([True, False]))
    assert rest.mean == pytest.approx([20.0, 80.0], abs=2)


@pytest.mark.parametrize("scale", [0.05, 1e6])
@pytest.mark.parametrize("noisy", [[1e6, -1e6, 0.0], [0.0, 0.0, 0.0], [300.0, 300.0, 400.0]])
def test_it_is_finite_far_out(noisy: list[float], scale: float) -> None:
    found = first_counts(np.array(noisy), scale, 1000.0, 0.25, np.ones(3, np.bool_))
    assert np.isfinite([*found.mean, *found.variance, found.evidence]).all()
    assert found.mean.sum() == pytest.approx(1000)
    assert (found.variance >= 0).all()
    measured = np.ones(3, np.bool_)
    for filter_ in (
        DenseFilter(np.eye(3), 1000.0, measured),
        DiagonalFilter(Transition.from_matrix(np.eye(3)), 1000.0, measured),
    ):
        belief = filter_.belief(found.mean, found.variance)
        assert np.isfinite(filter_.update(belief, np.array(noisy), scale)[0].mean).all()


PAPER = np.array([[0.0, 0.0, 1.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])


@pytest.mark.parametrize(("mean", "variance", "noisy", "scale"), [(3, 4, 5, 2), (0, 100, 40, 0.5), (10, 1, -20, 8)])
def test_laplace_moments_are_the_integrals(mean: float, variance: float, noisy: float, scale: float) -> None:
    def density(r: float) -> float:
        gauss = np.exp(-((r - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        return float(gauss * np.exp(-abs(noisy - r) / scale) / (2 * scale))

    width = 12 * np.sqrt(variance)
    limits = (min(mean, noisy) - width, max(mean, noisy) + width)
    parts = [integrate.quad(lambda r, k=k: r**k * density(r), *limits, points=[noisy], limit=400)[0] for k in range(3)]
    means, variances, observed = (np.array([float(x)]) for x in (mean, variance, noisy))
    m, v, log_evidence = laplace_moments(means, variances, observed, scale)
    assert m[0] == pytest.approx(parts[1] / parts[0], rel=1e-6)
    assert v[0] == pytest.approx(parts[2] / parts[0] - (parts[1] / parts[0]) ** 2, rel=1e-5)
    assert log_evidence[0] == pytest.approx(np.log(parts[0]), abs=1e-8)


def test_laplace_moments_are_finite_far_out() -> None:
    with np.errstate(all="raise", under="ignore"):
        m, v, e = laplace_moments(np.zeros(4), np.full(4, 1e-9), np.array([1e6, -1e6, 0.0, 1e9]), 0.05)
    assert np.isfinite(np.concatenate([m, v, e])).all()
    assert (v >= 0).all()


def test_matched_scale_has_the_discrete_variance() -> None:
    assert 2 * matched_scale(Fraction(3)) ** 2 == pytest.approx(2 * 9, rel=0.02)
    assert matched_scale(Fraction(1, 100)) == 0.05


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], "row 2 .* sums to 0.9"),
        ([[1.5, -0.5], [0.5, 0.5]], "row 1 .* no probability"),
        ([[0.5, 0.5], [np.nan, 0.5]], "row 2 .* no probability"),
        ([[0.0, 0.0], [0.5, 0.5]], "row 1 .* sums to 0"),
        ([[0.5, 0.5]], "square"),
    ],
)
def test_what_is_no_transition_matrix_is_refused_by_its_row(matrix: list[list[float]], message: str) -> None:
    with pytest.raises(EngineInputError, match=message):
        Transition.from_matrix(np.array(matrix))


def test_a_matrix_with_rounded_entries_is_taken_and_structural_zeros_are_seen() -> None:
    chain = Transition.from_matrix(np.array([[0.3333333, 0.3333333, 0.3333333], [0, 1, 0], [0, 0, 1]]))
    assert chain.dense.sum(axis=1) == pytest.approx([1, 1, 1])
    assert chain.reachable(np.array([False, True, False])).tolist() == [False, True, False]
    assert np.count_nonzero(chain.dense) == 5


def test_prediction_has_the_moments_of_independent_moves() -> None:
    rng = np.random.default_rng(5)
    now = np.array([40, 25, 10])
    matrix = rng.dirichlet(np.ones(3), 3)
    runs = np.stack([rng.multinomial(now, matrix).sum(0) for _ in range(40_000)])
    mean, covariance = covariance_step(matrix, now.astype(float), np.zeros((3, 3)))
    # 6 standard errors: false alarms below 1e-6 for these 9 numbers.
    assert np.abs(runs.mean(0) - mean).max() < 6 * np.sqrt(12 / 40_000)
    assert np.abs(np.cov(runs.T) - covariance).max() < 6 * 20 / np.sqrt(40_000)
    diagonal = DiagonalFilter(Transition.from_matrix(matrix), 75.0, np.ones(3, bool))
    after = diagonal.predict(Belief(now.astype(float), np.full(3, 1e-6)))
    assert after.mean == pytest.approx(mean)
    assert after.spread == pytest.approx(np.diag(covariance), abs=1e-4)


def exact(matrix: np.ndarray, users: int, noisy: np.ndarray, scale: float) -> np.ndarray:
    """Posterior mean of the last counts in a two-state chain, by enumeration; the first share is uniform."""
    states = np.arange(users + 1)
    belief = np.ones(users + 1)  # counts of state 0 are uniform if the share is
    move = np.zeros((users + 1, users + 1))
    for count in states:
        stay = np.array([1.0])
        for _ in range(count):
            stay = np.convolve(stay, [1 - matrix[0, 0], matrix[0, 0]])
        for _ in range(users - count):
            stay = np.convolve(stay, [1 - matrix[1, 0], matrix[1, 0]])
        move[count] = stay
    for step, pair in enumerate(noisy):
        if step:
            belief = belief @ move
        belief = belief * np.exp(-(np.abs(pair[0] - states) + np.abs(pair[1] - (users - states))) / scale)
        belief /= belief.sum()
    mean = float(belief @ states)
    return np.array([mean, users - mean])


def test_the_dense_filter_is_near_the_exact_posterior_of_few_users() -> None:
    matrix = np.array([[0.9, 0.1], [0.3, 0.7]])
    users, scale = 30, 4.0
    rng = np.random.default_rng(3)
    gaps, spread = [], []
    for _ in range(40):
        counts = rng.multinomial(users, [0.6, 0.4])
        noisy = []
        for _ in range(6):
            counts = rng.multinomial(counts, matrix).sum(0)
            noisy.append(counts + rng.laplace(0, scale, 2))
        engine = DenseFilter(matrix, users, np.ones(2, bool))
        belief = engine.start(2.0)
        for step, pair in enumerate(noisy):
            belief, _ = engine.update(belief if step == 0 else engine.predict(belief), pair, scale)
        gaps.append(belief.mean[0] - exact(matrix, users, np.array(noisy), scale)[0])
        spread.append(np.sqrt(belief.spread[0, 0]))
    # Far below what the data leave open: the Gaussian form costs nearly nothing.
    assert np.sqrt(np.mean(np.square(gaps))) < 0.15 * np.mean(spread)


def test_the_smoother_is_the_joint_gaussian_posterior() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.dirichlet(np.ones(3), 3)
    engine = DenseFilter(matrix, 90.0, np.ones(3, bool), exact=False)
    first, _ = engine.update(engine.start(3.0), np.array([40.0, 20.0, 33.0]), 3.0)
    ahead = engine.predict(first)
    second, _ = engine.update(ahead, np.array([20.0, 50.0, 25.0]), 3.0)
    # The pair (first, second) as one Gaussian of six entries, conditioned on the second measurement.
    cross = first.spread @ matrix
    joint = np.block([[first.spread, cross], [cross.T, ahead.spread]])
    pick = np.hstack([np.zeros((3, 3)), np.eye(3)])
    gain = joint @ pick.T @ np.linalg.inv(pick @ joint @ pick.T + 18 * np.eye(3))
    mean = np.r_[first.mean, ahead.mean] + gain @ (np.array([20.0, 50.0, 25.0]) - ahead.mean)
    covariance = joint - gain @ pick @ joint
    smoothed, both = engine.smoothed(first, ahead, second)
    assert smoothed.mean == pytest.approx(mean[:3], abs=1e-5)
    assert smoothed.spread == pytest.approx(covariance[:3, :3], abs=1e-5)
    assert both == pytest.approx(covariance[3:, :3], abs=1e-5)
    assert np.array_equal(engine.smooth(first, second).spread, smoothed.spread)


def test_the_diagonal_filter_is_near_the_dense_one_and_keeps_the_total() -> None:
    rng = np.random.default_rng(2)
    states, users = 30, 1500
    matrix = 0.8 * np.eye(states) + 0.1 * np.roll(np.eye(states), 1, 1) + 0.1 * np.roll(np.eye(states), -1, 1)
    chain = Transition.from_matrix(sparse.csr_array(matrix))
    dense = DenseFilter(chain.dense, users, np.ones(states, bool))
    diagonal = DiagonalFilter(chain, users, np.ones(states, bool))
    counts = rng.multinomial(users, rng.dirichlet(np.ones(states)))
    full, flat = dense.start(states), diagonal.start(states)
    error = np.zeros(3)
    for step in range(60):
        if step:
            counts = rng.multinomial(counts, matrix).sum(0)
            full, flat = dense.predict(full), diagonal.predict(flat)
        noisy = counts + rng.laplace(0, 8.0, states)
        full, flat = dense.update(full, noisy, 8.0)[0], diagonal.update(flat, noisy, 8.0)[0]
        assert flat.mean.sum() == pytest.approx(users)
        assert full.mean.sum() == pytest.approx(users)
        error += [((each - counts) ** 2).mean() for each in (noisy, full.mean, flat.mean)]
    assert error[1] < 0.6 * error[0]
    assert error[2] < 1.3 * error[1]
