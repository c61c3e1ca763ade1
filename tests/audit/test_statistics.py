"""The auditor's own statistics: what it states about its errors holds.

Null hypothesis of the Monte Carlo tests: the mechanism is exactly as private as it claims. Fixed seeds: they fail
always or never.
"""

from __future__ import annotations

from fractions import Fraction
from math import log

import numpy as np
import pytest
from scipy import stats

from engines.auditor.audit import audit, table_rows
from engines.auditor.bounds import epsilon_below, lower, upper
from engines.auditor.cases import Case, Claim, Exact, Neighbours
from engines.auditor.events import EVENTS, SMALLEST, bound
from engines.auditor.exact import gaussian_delta, gaussian_epsilon, gdp_epsilon
from engines.auditor.observations import Observations, with_low_bits
from engines.noise import DiscreteGaussian, NoiseSource, discrete_laplace, seeded
from schemas.errors import EngineInputError


@pytest.mark.parametrize("runs", [1, 7, 60])
@pytest.mark.parametrize("alpha", [1e-6, 0.05])
def test_one_sided_bounds_cover_exactly(runs: int, alpha: float) -> None:
    """For every probability the bound fails on counts of total probability at most alpha: summed, not sampled."""
    hits = np.arange(runs + 1)
    low, high = lower(hits, runs, alpha=alpha), upper(hits, runs, alpha=alpha)
    for p in np.concatenate([np.linspace(0.001, 0.999, 57), low[1:], high[:-1]]):
        mass = stats.binom.pmf(hits, runs, p)
        assert mass[low > p * (1 + 1e-9)].sum() <= alpha * (1 + 1e-6)
        assert mass[high < p * (1 - 1e-9)].sum() <= alpha * (1 + 1e-6)
    assert low[0] == 0.0
    assert high[-1] == 1.0


def test_epsilon_of_one_event_is_rarely_too_high() -> None:
    """Randomised response at its claim, alpha 0.1: summed over all outcomes of both inputs."""
    epsilon, runs, alpha = 1.0, 60, 0.1
    p = 1 / (1 + np.exp(-epsilon))
    hits = np.arange(runs + 1)
    bounds = epsilon_below(hits[:, None], hits[None, :], runs=runs, alpha=alpha)
    mass = stats.binom.pmf(hits, runs, p)[:, None] * stats.binom.pmf(hits, runs, 1 - p)[None, :]
    assert mass[bounds > epsilon].sum() <= alpha
    assert mass[bounds > 0.2].sum() > 0.5  # and it has power


def laplace(side: int, runs: int, source: NoiseSource) -> Observations:
    return Observations.of_arrays(count=side + discrete_laplace(runs, Fraction(1), source))


def test_choosing_events_costs_no_confidence() -> None:
    """Learnt events at alpha 0.2: of 200 audits of an honest mechanism at most 0.2 may exceed. Expected: far fewer, as
    the bound is exact only for one event; 66 or more of 200 have probability 1.1e-5 under the null.
    """
    exceeded = 0
    for trial in range(200):
        sides = [laplace(side, 400, seeded(trial).child(side)) for side in (0, 1)]
        exceeded += bound(*sides, alpha=0.2).epsilon > 1.0
    assert exceeded < 66


def test_bonferroni_counts_every_bound() -> None:
    """With one chosen event that always tells, the bound is the one of that event at alpha over all bounds."""
    runs = 400
    sides = [Observations.of_arrays(bit=np.full(runs, side)) for side in (0, 1)]
    each = 1e-6 / (2 * EVENTS)
    expected = epsilon_below(runs // 2, 0, runs=runs // 2, alpha=each)
    assert bound(*sides, alpha=1e-6).epsilon == pytest.approx(float(expected))


def test_delta_is_taken_off_what_is_likelier() -> None:
    """A mechanism that fails openly with probability delta keeps (0, delta)."""
    runs, delta = 4000, 0.1
    bits = [np.arange(runs) % 10 == 0, np.zeros(runs, bool)]
    sides = [Observations.of_arrays(bit=column) for column in bits]
    assert bound(*sides, alpha=1e-6, delta=delta).epsilon == 0.0
    assert bound(*sides, alpha=1e-6).epsilon > 1.0


def test_too_few_or_unequal_runs_are_refused() -> None:
    few = Observations.of_arrays(x=np.zeros(SMALLEST - 1))
    with pytest.raises(EngineInputError, match="runs"):
        bound(few, few, alpha=0.1)
    with pytest.raises(EngineInputError, match="runs"):
        bound(Observations.of_arrays(x=np.zeros(80)), Observations.of_arrays(x=np.zeros(90)), alpha=0.1)


def test_columns_that_are_absent_tell() -> None:
    """A cell that is released on one input only is an event, whatever its value."""
    rows = [[{"cell": float(i % 3)} if side else {} for i in range(200)] for side in (0, 1)]
    assert bound(*map(Observations.of_rows, rows), alpha=1e-6).epsilon > 1.0


def test_whole_numbers_have_no_low_bits() -> None:
    assert with_low_bits(Observations.of_arrays(x=np.arange(5.0))).columns.keys() == {"x"}
    assert len(with_low_bits(Observations.of_arrays(x=np.arange(5.0) / 3)).columns) == 3


def test_gaussian_profile_against_its_definition() -> None:
    """The hockey-stick divergence summed term by term, and the continuous formula where sigma is large."""
    law = DiscreteGaussian(Fraction(2))
    terms = [law.pmf(k) - np.exp(0.7) * law.pmf(k - 3) for k in range(-60, 60)]
    assert gaussian_delta(shift=3, sigma_squared=Fraction(2), epsilon=0.7) == pytest.approx(
        sum(t for t in terms if t > 0)
    )
    discrete = gaussian_epsilon(shift=40, sigma_squared=Fraction(1600), delta=1e-5)
    assert discrete == pytest.approx(gdp_epsilon(1.0, 1e-5), rel=2e-3)


def test_an_audit_is_repeated_by_its_seed_and_differs_without() -> None:
    case = Case("mine", "mechanism", Claim(Fraction(1)), neighbours=(Neighbours("insert", laplace, times=1),))
    first, again = (list(audit(case, runs=400, source=seeded(3))) for _ in range(2))
    assert first == again
    found = {next(audit(case, runs=400)).lower_bound for _ in range(4)}
    assert len(found) > 1


def test_exact_losses_forgive_rounding_only() -> None:
    def verdict(loss: float) -> str:
        case = Case("mine", "mechanism", Claim(Fraction(1)), exact=(Exact("loss", lambda: loss),))
        return table_rows(audit(case))[0][-1]

    assert verdict(1 + 1e-12) == "kept"
    assert verdict(1 + 1e-6) == "VIOLATED"
    assert verdict(log(3)) == "VIOLATED"
