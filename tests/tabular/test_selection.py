"""The sensitivity of selection scores, in integers and exactly."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.noise import seeded
from engines.tabular.marginals import Marginals
from engines.tabular.papers.rounds import QUANTUM, WEIGHT, Selection, whole_weights
from tests.examples import examples

QUANTA = QUANTUM.denominator


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Marginals, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A layout, rows with signs, public numbers, penalties and weights."""
    sizes = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    cliques = [c for way in (1, 2) for c in combinations(range(len(sizes)), way)]
    layout = Marginals(sizes, tuple(cliques))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = np.stack([rng.integers(0, size, draw(st.integers(0, 12))) for size in sizes[:1]], axis=1)
    rows = np.concatenate([rows, *[rng.integers(0, size, (len(rows), 1)) for size in sizes[1:]]], axis=1)
    public = rng.normal(0, draw(st.sampled_from([0.0, 0.3, 5.0, 1e9, 1e300])), layout.cells)
    penalties = rng.uniform(0, 100, len(layout))
    weights = rng.integers(1, WEIGHT + 1, len(layout))
    return layout, rows, public, penalties, weights


@settings(max_examples=examples(3))
@given(worlds(), st.integers(0, 2**32 - 1), st.sampled_from([1, -1]))
def test_one_event_moves_no_score_by_more_than_the_sensitivity(
    world: tuple[Marginals, np.ndarray, np.ndarray, np.ndarray, np.ndarray], seed: int, sign: int
) -> None:
    layout, rows, public, penalties, weights = world
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1, 1], len(rows))
    extra = np.array([[rng.integers(0, size) for size in layout.sizes]])
    events = layout.counts(rows, signs)
    neighbour = events + layout.counts(extra, np.array([sign]))
    selection = Selection(layout, weights, Fraction(1))
    scores = [selection.scores(e, public=public, penalties=penalties) for e in (events, neighbour)]
    moved = np.abs(scores[1] - scores[0])
    # Exactly: integers, and each marginal's own weight bounds its own score.
    assert (moved <= weights * QUANTA).all()
    assert moved.max() * QUANTUM <= selection.sensitivity


def test_the_sensitivity_is_attained() -> None:
    layout = Marginals((2, 3), ((0, 1),))
    selection = Selection(layout, np.array([7]), Fraction(1))
    scores = [
        selection.scores(np.array([n, 0, 0, 0, 0, 0]), public=np.full(6, 0.5), penalties=np.zeros(1)) for n in (0, 1)
    ]
    assert (scores[1] - scores[0])[0] * QUANTUM == selection.sensitivity == 7


@pytest.mark.parametrize("cells", [1, 1365, 1366, 8192, 1 << 20])
@pytest.mark.parametrize("public", [1e300, -1e300])
@pytest.mark.parametrize("penalty", [0.0, -1e300])
def test_no_score_leaves_64_bits(cells: int, public: float, penalty: float) -> None:
    """All cells at the cut, at the heaviest weight: 8,192 of them came to 2**63 once, and to a score below zero."""
    selection = Selection(Marginals((cells, 2), ((0,), (1,))), np.array([WEIGHT, 1]), Fraction(1))
    huge = np.full(cells + 2, np.sign(public), np.int64) * 2**62
    scores = []
    for moved in (0, 1, -1):
        events = np.where(np.arange(cells + 2) == 0, selection.largest + moved, huge)
        scores.append(
            selection.scores(events, public=np.full(cells + 2, public), penalties=np.full(2, penalty)).tolist()
        )
    limit = selection.largest * QUANTA
    signed = limit if public > 0 else -limit
    others = (cells - 1) * abs(2 * signed) + abs(signed + limit) + (2**32 * QUANTA if penalty else 0)
    assert scores[0][0] == WEIGHT * others < 2**62
    assert all(abs(one[0] - scores[0][0]) <= WEIGHT * QUANTA for one in scores)
    assert selection.largest == 2**32 or cells > 1365


def test_public_numbers_alone_do_not_turn_a_score_round() -> None:
    layout = Marginals((8192,), ((0,),))
    selection = Selection(layout, np.array([WEIGHT]), Fraction(1))
    none, one = np.zeros(8192, np.int64), np.eye(1, 8192, dtype=np.int64)[0]
    low, high = (
        selection.scores(events, public=np.full(8192, 2.0**32), penalties=np.zeros(1))[0] for events in (none, -one)
    )
    assert 0 < low - high == WEIGHT * QUANTA < low


def test_penalties_and_weights_enter_as_said() -> None:
    layout = Marginals((2, 2), ((0,), (1,)))
    selection = Selection(layout, np.array([1, 3]), Fraction(1))
    scores = selection.scores(np.array([2, -1, 0, 0]), public=np.zeros(4), penalties=np.array([1.0, 0.5]))
    assert scores.tolist() == [2 * QUANTA, 3 * -(QUANTA // 2)]
    assert whole_weights([Fraction(1), Fraction(2), Fraction(1, 10**6)]).tolist() == [WEIGHT // 2, WEIGHT, 1]


def test_choices_follow_the_exponential_mechanisms_law() -> None:
    """Null: P(i) is proportional to exp(epsilon * score_i / (2 * heaviest weight)), of those allowed.

    Chi-squared with 2 degrees of freedom beyond 27.7: rate 1e-6. Twice the budget is caught (statistic about 1,000).
    """
    layout = Marginals((2,) * 4, ((0,), (1,), (2,), (3,)))
    for epsilon, claimed, honest in ((Fraction(1), 1.0, True), (Fraction(2), 1.0, False)):
        selection = Selection(layout, np.array([2, 1, 1, 1]), epsilon)
        scores = np.array([3, 1, 0, 99]) * QUANTA
        allowed = np.array([True, True, True, False])
        runs = 4_000
        source = seeded(5)
        chosen = [selection.choose(scores, allowed, source.child(run)) for run in range(runs)]
        law = np.exp(claimed * np.array([3, 1, 0]) / (2 * 2))
        expected = runs * law / law.sum()
        counts = np.bincount(chosen, minlength=4)
        assert counts[3] == 0
        statistic = ((counts[:3] - expected) ** 2 / expected).sum()
        assert (statistic < 27.7) == honest
