"""The engine as a whole: horizons, revisions, intervals, and its worth."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from engines.checks.contract_checks import SilentNoise, check_engine, check_releases_add_up, run
from engines.core.contract import Batch, Columns, Release
from engines.core.noise import NoiseSource, seeded
from engines.markov.chain import Transition, project
from engines.markov.domain import StatesDomain
from engines.markov.engine import Markov, MarkovConfig
from engines.markov.evaluator import MarkovEvaluator
from engines.markov.leakage import Adversary, allocate
from schemas.blocks import Folded
from schemas.config import ENGINES
from schemas.errors import EngineInputError
from schemas.events import Reason

MODES = ENGINES["markov"].facts.modes
CHAIN = Transition.from_matrix(np.array([[0.8, 0.2, 0.0], [0.0, 0.7, 0.3], [0.3, 0.0, 0.7]]))
STATES = ("a", "b", "c")


def sticky(states: int, stay: float) -> Transition:
    """The chain that stays with probability `stay` and else goes anywhere, evenly."""
    return Transition.from_matrix(stay * np.eye(states) + (1 - stay) / states)


def config(mode: str = "default", **changes: Any) -> MarkovConfig:
    given_ = {"transition": CHAIN, "population": 50, "epsilon": Fraction(1, 2), **changes}
    return MarkovConfig(name="m", domain=StatesDomain("zone", STATES), mode=mode, **given_)


def folded(counts: Sequence[int]) -> Folded:
    keys = np.array([at for at, count in enumerate(counts) if count], np.uint64).reshape(-1, 1)
    return Folded(keys, np.array([count for count in counts if count], np.int64))


def batches(rows: Sequence[Sequence[int]]) -> list[Batch]:
    return [Batch(step, folded(row)) for step, row in enumerate(rows)]


def vector(releases: Sequence[Release]) -> np.ndarray:
    return np.array([[m["count"] for m in release.measurements] for release in releases])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_contract_with_and_without_unseen_users_and_a_declared_chain(mode: str, unseen: bool, known: bool) -> None:
    if not known and mode == "paper":
        with pytest.raises(EngineInputError, match="needs a transition"):
            config(mode, transition=None)
        return
    chain = sticky(4 if unseen else 3, 0.8) if known else None
    rows = [[20, 10, 5], [0, 0, 0], [100, 0, 0], [1, 2, 3], [9, 9, 9], [9, 9, 9], [0, 0, 50]]
    recipe = config(mode, transition=chain, unseen=unseen, lag=2)
    check_engine(lambda: Markov(recipe), batches(rows))
    for release in run(Markov(recipe), batches(rows), seed=3):
        first = [record.fields for record in release.added if not record.fields["revised"]]
        assert len(first) == 3 + unseen
        assert sum(fields["count"] for fields in first) == pytest.approx(50, abs=0.01)
        assert min(fields["count"] for fields in first) >= 0
        assert all(fields["low"] <= fields["count"] <= fields["high"] for fields in first)
        assert [fields.get("kind") for fields in first][3:] == ["unseen"] * unseen


@pytest.mark.parametrize("mode", MODES)
def test_a_chain_of_one_state_and_constant_counts(mode: str) -> None:
    domain = StatesDomain("zone", ("only",))
    recipe = MarkovConfig(
        name="m", domain=domain, population=20, epsilon=Fraction(1), mode=mode, transition=sticky(1, 0.5)
    )
    releases = run(
        Markov(recipe), [Batch(t, Folded(np.zeros((1, 1), np.uint64), np.array([20]))) for t in range(8)], seed=1
    )
    check_releases_add_up(releases)
    assert {record.fields["count"] for release in releases for record in release.added} == {20.0}


@pytest.mark.parametrize("mode", MODES)
def test_a_state_that_nobody_can_have_reached_is_released_empty(mode: str) -> None:
    gone = Transition.from_matrix(np.array([[0.0, 0.5, 0.5], [0.0, 0.5, 0.5], [0.0, 0.5, 0.5]]))
    releases = run(Markov(config(mode, transition=gone)), batches([[50, 0, 0]] + [[30, 10, 10]] * 7), seed=2)
    for release in releases[1:]:
        for record in release.added:
            if record.fields["zone"] == "a" and record.fields["step"] > 0:
                assert (record.fields["count"], record.fields["standard_error"]) == (0.0, 0.0)


def test_beyond_the_horizon_nothing_is_released_no_noise_is_drawn_and_it_is_said() -> None:
    engine = Markov(config(horizon=2))
    released = run(engine, batches([[50, 0, 0]] * 2), seed=1)
    assert released[-1].notes["revises"] == [0]  # the last step revises all that are left
    for step in (2, 3):
        release = engine.step(Batch(step, folded([50, 0, 0])), SilentNoise())
        assert "horizon of 2 steps is reached" in release.notes["over"]
        assert (len(release.added), len(release.measurements), release.total) == (0, 0, 6)


def test_revisions_replace_the_records_that_they_revise() -> None:
    releases = run(Markov(config(lag=2)), batches([[20, 20, 10]] * 6), seed=4)
    check_releases_add_up(releases)
    assert [release.notes["revises"] for release in releases] == [[], [], [0], [1], [2], [3]]
    assert releases[2].removed == ["0.0", "0.1", "0.2"]
    assert [r.id for r in releases[2].added if r.fields["revised"]] == ["0.0.r", "0.1.r", "0.2.r"]
    assert all(not release.removed for release in run(Markov(config(lag=0)), batches([[20, 20, 10]] * 6), seed=4))


def test_budgets_that_hold_leakage_are_charged_and_refused_above_epsilon() -> None:
    made = allocate(Fraction(1), Adversary.from_matrix(CHAIN.dense), horizon=5)
    recipe = config(epsilon=Fraction(1), horizon=5, allocation=made)
    releases = run(Markov(recipe), batches([[20, 20, 10]] * 5), seed=4)
    assert [release.notes["epsilon"] for release in releases] == [float(made.at(step)) for step in range(5)]
    assert Markov(recipe).guarantee().mechanisms[0].epsilon == made.largest <= 1
    assert "alpha-DP_T" in Markov(recipe).guarantee().note
    with pytest.raises(EngineInputError, match="costs more than epsilon"):
        config(epsilon=Fraction(1, 10), horizon=5, allocation=made)
    with pytest.raises(EngineInputError, match="same horizon"):
        config(epsilon=Fraction(1), horizon=6, allocation=made)


def test_states_of_others_are_refused() -> None:
    state = Markov(config()).state()
    for other in (config(population=51), config("paper"), config(lag=4), config(transition=sticky(3, 0.5))):
        with pytest.raises(EngineInputError):
            Markov(other).restore(state)
    with pytest.raises(EngineInputError, match="3 states"):
        config(transition=sticky(4, 0.5))


def test_a_domain_refuses_what_is_no_state_and_deletes() -> None:
    columns = Columns({}, {"zone": ["b", "x", "a"]}, np.array([1, 1, -1], np.int8))
    keys, reasons = StatesDomain("zone", STATES).encode(columns)
    assert keys.ravel().tolist() == [1, 0, 0]
    assert reasons.tolist() == [Reason.ACCEPTED, Reason.OUTSIDE_DOMAIN, Reason.BAD_OPERATION]
    with pytest.raises(EngineInputError, match="distinct"):
        StatesDomain("zone", ("a", "a"))


def simulated(rng: np.random.Generator, steps: int, users: int) -> list[list[int]]:
    rows = [rng.multinomial(users, rng.dirichlet(np.ones(3)))]
    for _ in range(steps - 1):
        rows.append(rng.multinomial(rows[-1], CHAIN.dense).sum(axis=0))
    return [row.tolist() for row in rows]


def errors(recipe: MarkovConfig, runs: int) -> tuple[float, float, float]:
    """MSE of first records and of revised ones, and the share of truths inside the 90 % intervals."""
    first: list[float] = []
    revised: list[float] = []
    inside: list[bool] = []
    for index in range(runs):
        rows = simulated(np.random.default_rng(index), 40, recipe.population)
        engine, source = Markov(recipe), seeded(index)
        for batch in batches(rows):
            for record in engine.step(batch, source.child(batch.step)).added:
                fields = record.fields
                truth = rows[fields["step"]][STATES.index(fields["zone"])]
                (revised if fields["revised"] else first).append((fields["count"] - truth) ** 2)
                inside.append(fields["low"] <= truth <= fields["high"])
    return float(np.mean(first)), float(np.mean(revised or [np.nan])), float(np.mean(inside))


def test_the_filter_beats_map_and_the_smoother_beats_the_filter_with_honest_intervals() -> None:
    """15 runs of 40 steps; the ratios are about .55 and .75, the cover about .90: far from what is asserted."""
    recipe: dict[str, Any] = {"population": 200, "epsilon": Fraction(1, 2)}
    first, revised, inside = errors(config(**recipe), 15)
    paper, _, _ = errors(config("paper", **recipe), 15)
    assert first < 0.8 * paper
    assert revised < 0.9 * first
    assert 0.84 < inside < 0.96


def test_a_chain_that_is_learnt_beats_counts_by_themselves() -> None:
    recipe = config(transition=None, population=200, epsilon=Fraction(1, 2))
    learnt, alone = [], []
    for index in range(8):
        rows = simulated(np.random.default_rng(index), 40, recipe.population)
        for release, true in zip(run(Markov(recipe), batches(rows), seed=index), rows, strict=True):
            learnt.append([record.fields["count"] - count for record, count in zip(release.added, true, strict=True)])
            noisy = np.array([measurement["count"] for measurement in release.measurements], np.float64)
            alone.append(project(noisy, recipe.population) - true)
    assert np.square(learnt).mean() < 0.8 * np.square(alone).mean()


def test_the_evaluator_compares_first_releases_only() -> None:
    evaluator = MarkovEvaluator(StatesDomain("zone", STATES))
    synthetic: dict[str, list[Any]] = {
        "zone": ["a", "b", "a", None], "count": [4.0, 1.0, 99.0, 7.0], "revised": [False, False, True, False],
    }  # fmt: skip
    assert evaluator.measure(folded([5, 1, 2]), synthetic) == {"mse": pytest.approx(5 / 3)}
    assert np.isnan(evaluator.measure(folded([9, 0, 0]), {name: [] for name in evaluator.fields})["mse"])


def test_steps_draw_noise_of_their_own() -> None:
    releases = run(Markov(config(epsilon=Fraction(1, 100))), batches([[0, 0, 0]] * 6), seed=5)
    rows = [tuple(row) for row in vector(releases)]
    assert all(left != right for left, right in pairwise(rows))
    assert isinstance(seeded(1), NoiseSource)
