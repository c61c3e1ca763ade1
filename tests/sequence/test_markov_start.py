"""The first step's counts against weighted draws from the same law, and at the ends of what can happen."""

from __future__ import annotations

import numpy as np
import pytest

from engines.markov.chain import Transition
from engines.markov.filters import DenseFilter, DiagonalFilter, first_counts


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
        DiagonalFilter(Transition.of(np.eye(3)), 1000.0, measured),
    ):
        belief = filter_.belief(found.mean, found.variance)
        assert np.isfinite(filter_.update(belief, np.array(noisy), scale)[0].mean).all()
