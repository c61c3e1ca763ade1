"""The auditor's own statistics: what it states about its errors holds.

Null hypothesis of the Monte Carlo tests: the mechanism is exactly as private as it claims. Fixed seeds: they fail
always or never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import exp, log

import numpy as np
import pytest
from scipy import stats

from engines.accounting import gaussian
from engines.auditor.audit import audit, coins, remedies, silences, table_rows
from engines.auditor.bounds import ceiling, epsilon_shown, lower, visible
from engines.auditor.cases import Canaries, Case, Claim, Exact, Neighbours, Trials
from engines.auditor.exact import gaussian_delta, gaussian_epsilon
from engines.auditor.features import of_public
from engines.auditor.guesses import SMALLEST, bound
from engines.auditor.observations import Marked, Observations, interleaved, with_low_bits
from engines.noise import DiscreteGaussian, NoiseSource, discrete_laplace, seeded
from schemas.errors import EngineInputError


@pytest.mark.parametrize("runs", [1, 7, 60])
@pytest.mark.parametrize("alpha", [1e-6, 0.05])
def test_the_one_sided_bound_covers_exactly(runs: int, alpha: float) -> None:
    """For every probability the bound fails on counts of total probability at most alpha: summed, not sampled."""
    hits = np.arange(runs + 1)
    low = lower(hits, runs, alpha=alpha)
    for p in np.concatenate([np.linspace(0.001, 0.999, 57), low[1:]]):
        mass = stats.binom.pmf(hits, runs, p)
        assert mass[low > p * (1 + 1e-9)].sum() <= alpha * (1 + 1e-6)
    assert low[0] == 0.0


def test_epsilon_of_guesses_is_rarely_too_high() -> None:
    """Randomised response at its claim, alpha 0.1: summed over all outcomes."""
    epsilon, runs, alpha = 1.0, 60, 0.1
    right = np.arange(runs + 1)
    bounds = epsilon_shown(right, runs, watched=runs, alpha=alpha)
    mass = stats.binom.pmf(right, runs, 1 / (1 + np.exp(-epsilon)))
    assert mass[bounds > epsilon].sum() <= alpha
    assert mass[bounds > 0.2].sum() > 0.5  # and it has power


@pytest.mark.parametrize("abstain", [0.0, 0.7])
def test_bits_that_a_delta_gives_away_are_allowed_for(abstain: float) -> None:
    """The worst (epsilon, delta) mechanism on one bit, alpha 0.1: the bit with probability delta, else randomised
    response, on some of which the adversary passes. Summed over leaks, guesses and right ones.
    """
    epsilon, delta, runs, alpha = 1.0, 0.05, 60, 0.1
    p = 1 / (1 + np.exp(-epsilon))
    wrong = 0.0
    for leaked in range(runs + 1):
        for made in range(runs - leaked + 1):
            chance = stats.binom.pmf(leaked, runs, delta) * stats.binom.pmf(made, runs - leaked, 1 - abstain)
            if chance < 1e-12:
                continue
            right = np.arange(made + 1)
            bounds = epsilon_shown(right + leaked, made + leaked, watched=runs, alpha=alpha, delta=delta)
            wrong += chance * stats.binom.pmf(right, made, p)[bounds > epsilon].sum()
    assert wrong <= alpha


def test_many_bits_in_one_answer_need_no_independence() -> None:
    """Exact, for a mechanism whose answers mix its bits: the parity of two bits and the first of them, each by
    randomised response. The best guess of both is right no more often than two independent bits would be.
    """
    epsilon = 1.0
    p = 1 / (1 + np.exp(-epsilon / 2))  # each bit is in two answers, at half of epsilon each
    answers = [(parity, first) for parity in (0, 1) for first in (0, 1)]
    law = {}
    for one in (0, 1):
        for two in (0, 1):
            for parity, first in answers:
                kept = (p if parity == one ^ two else 1 - p) * (p if first == one else 1 - p)
                law[one, two, parity, first] = kept / 4
    both = 0.0
    for answer in answers:
        both += max(law[(*bits, *answer)] for bits in answers)
    assert both <= (1 / (1 + np.exp(-epsilon))) ** 2 + 1e-12


def laplace(side: int, runs: int, source: NoiseSource) -> Observations:
    return Observations.of_arrays(count=side + discrete_laplace(runs, Fraction(1), source))


def marked(sides: Sequence[Observations]) -> Marked:
    """Rows of both sides in turns."""
    bits = np.arange(sides[0].runs + sides[1].runs) % 2 == 1
    return interleaved(bits, sides)


def test_choosing_rules_costs_no_confidence() -> None:
    """Learnt rules at alpha 0.2: of 100 audits of an honest mechanism at most 0.2 may exceed in expectation; 42 or more
    have probability 2.3e-7 under the null.
    """
    exceeded = 0
    for trial in range(100):
        case = Case("mine", "mechanism", Claim(Fraction(1)), neighbours=(Neighbours("insert", laplace, times=1),))
        [found] = audit(case, runs=400, source=seeded(trial), alpha=0.2)
        exceeded += found.violated
    assert exceeded < 42


def test_a_total_leak_reaches_the_ceiling() -> None:
    """So the ceiling that a row prints is attained, by one count or by many bits of a run."""
    rows = 400
    bits = coins(rows, seeded(4))
    for each in (1, 10):
        found = bound(Marked(bits, Observations.of_arrays(bit=bits), each), alpha=1e-6)
        assert found.made == found.right == found.guesses == rows // 2
        assert found.epsilon == pytest.approx(ceiling(rows // 2, alpha=1e-6))


def test_the_smallest_visible_fault_is_seen_and_a_smaller_one_is_not() -> None:
    """Randomised response at what is called visible, 60 times: seen in 95 %; fewer than 40 have probability below 1e-9.
    At its claim: more than one has probability 2e-9.
    """
    claim, rows = 1.0, 1000
    seen = dict.fromkeys((visible(claim, rows // 2, alpha=1e-6), claim), 0)
    for epsilon in seen:
        for trial in range(60):
            source = seeded(trial)
            bits = coins(rows, source.child("bits"))
            keep = 1 / (1 + np.exp(-epsilon))
            uniform = source.words(rows).astype(np.float64) / 2.0**64
            said = np.where(uniform < keep, bits, ~bits)
            seen[epsilon] += bound(Marked(bits, Observations.of_arrays(said=said)), alpha=1e-6).epsilon > claim
    assert seen[claim] <= 1
    assert max(seen.values()) >= 40


@pytest.mark.parametrize("runs", [60, 400, 2000])
def test_a_row_that_cannot_fail_is_an_error(runs: int) -> None:
    """A total leak under claims that so few runs cannot refute: never `kept`, and it is said how many runs it takes."""

    def observe(side: int, runs: int, source: NoiseSource) -> Observations:
        return Observations.of_arrays(leak=np.full(runs, side))

    claims = {60: 3, 400: 5, 2000: 7}
    case = Case("loud", "stream", Claim(Fraction(claims[runs])), neighbours=(Neighbours("insert", observe, times=1),))
    [found] = audit(case, runs=runs, source=seeded(1))
    assert found.powerless
    assert found.failed
    assert not found.violated
    assert found.verdict == "CANNOT FAIL"
    assert table_rows([found])[0][-1] == "CANNOT FAIL"
    assert f"--runs {found.runs_needed}" in remedies([found])[0]
    [enough] = audit(case, runs=found.runs_needed, source=seeded(1))
    assert enough.violated
    assert enough.ceiling > claims[runs]
    [too_few] = audit(case, runs=found.runs_needed - 1, source=seeded(1))
    assert too_few.powerless


def test_a_claim_that_no_runs_refute_says_so() -> None:
    def observe(side: int, runs: int, source: NoiseSource) -> Observations:
        return Observations.of_arrays(leak=np.full(runs, side))

    case = Case("loud", "stream", Claim(Fraction(40)), neighbours=(Neighbours("insert", observe, times=1),))
    found = list(audit(case, runs=60, source=seeded(1)))
    assert "smaller epsilon" in remedies(found)[0]


def test_what_no_run_came_across_is_an_error() -> None:
    def observe(runs: int, source: NoiseSource) -> Trials:
        bits = coins(runs * 10, source)
        return Trials({"insert": Marked(bits, Observations.of_arrays(noise=np.zeros(runs * 10)), 10)}, {"burst": 3})

    canaries = Canaries("a world", {"insert": 10}, observe, covers=("burst", "merge"))
    findings = list(audit(Case("mine", "engine", Claim(Fraction(1)), canaries=(canaries,)), runs=60, source=seeded(1)))
    assert [found.verdict for found in findings] == ["kept", "covered", "NOT COVERED"]
    assert [found.failed for found in findings] == [False, False, True]
    assert "merge" in remedies(findings)[0]


def test_delta_is_taken_off_what_is_right() -> None:
    """A mechanism that gives its bit away with probability delta keeps (0, delta)."""
    runs, delta = 4000, 0.1
    bits = coins(runs, seeded(1))
    given = np.where(np.arange(runs) % 10 == 0, bits, np.nan)
    shown = Marked(bits, Observations.of_arrays(bit=given))
    assert bound(shown, alpha=1e-6, delta=delta).epsilon == 0.0
    assert bound(shown, alpha=1e-6).epsilon > 1.0


def test_too_few_runs_and_many_bits_beside_a_delta_are_refused() -> None:
    few = Marked(np.zeros(SMALLEST - 1, bool), Observations.of_arrays(x=np.zeros(SMALLEST - 1)))
    with pytest.raises(EngineInputError, match="runs"):
        bound(few, alpha=0.1)
    many = Marked(np.zeros(80, bool), Observations.of_arrays(x=np.zeros(80)), 2)
    with pytest.raises(EngineInputError, match="delta"):
        bound(many, alpha=0.1, delta=0.1)


def test_columns_that_are_absent_tell() -> None:
    """A cell that is released on one input only is an event, whatever its value."""
    rows = [[{"cell": float(i % 3)} if side else {} for i in range(200)] for side in (0, 1)]
    assert bound(marked([Observations.of_rows(each) for each in rows]), alpha=1e-6).epsilon > 1.0


def test_a_leak_that_means_something_else_in_each_step_is_seen() -> None:
    """The parity of a total: a run's rows are compared with what was learnt of the same row, not with each other."""
    runs, each = 120, 6
    bits = coins(runs * each, seeded(2))
    parity = (np.tile(np.arange(each), runs) + bits) % 2
    assert bound(Marked(bits, Observations.of_arrays(parity=parity), each), alpha=1e-6).epsilon > 2.0


def test_ids_coordinates_and_order_are_looked_at() -> None:
    """Each of these differs in nothing but what it is named for."""
    records = [(f"{cell}-{number}", {"x": 0.25 + cell / 8, "y": 0.5}) for cell in range(3) for number in range(2)]

    def seen(added: list[tuple[str, dict[str, float]]], removed: tuple[str, ...] = ()) -> dict[str, float]:
        return of_public(removed=removed, added=added, measurements=[], words={"step": 1})

    plain = seen(records)
    others = {
        "order": seen(records[::-1]),
        "an id": seen([("0-7", records[0][1]), *records[1:]]),
        "a coordinate": seen([("0-0", {"x": 0.2501, "y": 0.5}), *records[1:]]),
        "a last digit": seen([("0-0", {"x": 0.3, "y": 0.5}), *records[1:]]),
        "one removed": seen(records, ("2-1",)),
        "another removed": seen(records, ("2-0",)),
    }
    assert all(other != plain for other in others.values())
    assert len({tuple(sorted(other.items())) for other in others.values()}) == len(others)


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
    assert discrete == pytest.approx(gaussian.epsilon(1e-5, 1.0), rel=2e-3)


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


def test_bounds_that_are_all_zero_are_said_to_say_little_and_how_many_runs_say_more() -> None:
    """Randomised response that loses all of its claim: in few runs it looks like nothing, in so many it does not."""
    claim = 1.0

    def observe(side: int, runs: int, source: NoiseSource) -> Observations:
        right = source.child("kept").words(runs) < np.uint64(2**64 * (exp(claim) / (1 + exp(claim))))
        return Observations.of_arrays(told=np.where(right, side, 1 - side))

    case = Case("response", "stream", Claim(Fraction(1)), neighbours=(Neighbours("insert", observe, times=1),))
    [few] = audit(case, runs=60, source=seeded(1))
    assert few.lower_bound == 0
    assert few.blind
    [line] = silences([few])
    assert line.startswith("response: all bounds from runs are 0")
    assert f"--runs {few.runs_to_see} or more" in line
    shown = [next(iter(audit(case, runs=few.runs_to_see, source=seeded(seed)))) for seed in range(20)]
    assert not any(found.blind for found in shown)
    # Fewer than 0.95 of them: the auditor has to learn first how the response tells. Fixed seeds.
    assert sum(found.lower_bound > 0 for found in shown) >= 10
    assert silences([next(found for found in shown if found.lower_bound > 0)]) == []
    assert "sees finer" in silences([replace(few, guesses=10_000)])[0]
    assert "no number of runs" in silences([replace(few, runs_to_see=0)])[0]
