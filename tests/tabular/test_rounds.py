"""Mode `paper`, which works in rounds: contracts, budgets, and what one event can move, exactly."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from engines.checks.contract_checks import check_engine, run
from engines.checks.coupling import check_guarded
from engines.core.contract import Batch, Engine
from engines.core.counters import spent
from engines.core.counters.by_name import COUNTERS
from engines.core.noise import NoiseSource, seeded
from engines.core.state import signs_of
from engines.tabular.marginals import weighted_marginals
from engines.tabular.papers.config import RoundsConfig
from engines.tabular.papers.paper_table import PaperTable
from schemas.errors import EngineInputError
from tests.tabular.tables import batch, random_batches, table

pytestmark = pytest.mark.seconds(0.3)

PURE = [name for name in sorted(COUNTERS) if COUNTERS[name](8, Fraction(1)).measure == "epsilon"]
DOMAIN = table(3, 2, 4)


def recipe(**settings: Any) -> RoundsConfig:
    standard = {"name": "t", "domain": DOMAIN, "epsilon": Fraction(1), "rounds": 2, "fit": "joint", "records": False}
    return RoundsConfig(**{**standard, **settings})


def engine(**settings: Any) -> PaperTable:
    return PaperTable(recipe(**settings))


def test_the_contract_is_kept_with_private_pgm() -> None:
    """With the joint table `tests/contracts` tries it."""
    check_engine(lambda: engine(fit="pgm", records=True), random_batches(DOMAIN, steps=2, rows=30, seed=1))


@pytest.mark.parametrize("counter", PURE)
def test_any_counter_of_pure_privacy_serves(counter: str) -> None:
    def make() -> Engine:
        return engine(counter=counter, horizon=8)

    steps = random_batches(DOMAIN, steps=4, rows=20, seed=4)
    check_engine(make, steps)
    check_guarded(make, steps, lambda step: NoiseSource(bytes(32), "s", step))
    parts = engine(counter=counter, horizon=8)._parts
    assert parts.counter.adaptive
    # What the counters really cost one event, read off their strategies: nowhere more than they were given.
    assert spent(parts.counter, 8) <= parts.counter.cost == Fraction(1, 4)


@pytest.mark.parametrize("rounds", [1, 2, 3, 9])
def test_choices_and_counts_add_up_to_epsilon_exactly(rounds: int) -> None:
    made = engine(rounds=rounds, epsilon=Fraction(5, 7))
    parts = made._parts
    assert parts.rounds == min(rounds, 3)
    assert parts.epsilon == Fraction(5, 7)
    mechanisms = list(made.guarantee())
    assert sum(m.epsilon * m.uses for m in mechanisms) == Fraction(5, 7)
    assert [m.epsilon * m.uses for m in mechanisms] == [Fraction(5, 14)] * 2


def test_a_marginal_goes_on_from_its_own_counts_only_while_it_is_measured() -> None:
    """Algorithm 14, line 21: the remainder is renewed where the marginal was NOT selected."""
    made = engine(rounds=1, epsilon=Fraction(1))
    layout = made._parts.layout
    steps = random_batches(DOMAIN, steps=12, rows=50, seed=6)
    before = made._model
    seen = set()
    for each in steps:
        release = made.step(each, seeded(each.step))
        [chosen] = [m["marginal"] for m in release.measurements]
        index = [["abc"[a] for a in clique] for clique in layout.cliques].index(chosen)
        seen.add(index)
        after = made._model
        for other in range(len(layout)):
            if other == index:
                expected = layout.table(before.carried, other).ravel() + release.measurements[0]["increment"]
            else:
                expected = layout.table(after.release, other).ravel()
            np.testing.assert_array_equal(layout.table(after.carried, other).ravel(), expected)
        before = after
    assert len(seen) > 1


def test_much_budget_follows_the_table() -> None:
    made = engine(epsilon=Fraction(1000), rounds=3, deletable=True)
    batches = random_batches(DOMAIN, steps=4, rows=400, seed=7, deletes=True)
    layout = made._released
    truth = np.zeros(layout.cells, np.int64)
    for each in batches:
        run_one = made.step(each, seeded(each.step))
        assert run_one.measurements
        truth += layout.counts(DOMAIN.keys.codes(each.events.keys), each.events.counts * signs_of(each.events.keys))
    total = truth[: DOMAIN.sizes[0]].sum()
    assert made.learnt.total == pytest.approx(total, rel=0.05)
    assert np.abs(made.learnt.released - truth).sum() / len(layout) < 0.15 * total


def test_a_table_that_shrinks_to_nothing_keeps_one_row_at_most() -> None:
    made = engine(epsilon=Fraction(50), rounds=3, deletable=True)
    codes = np.tile([[0, 1, 2], [2, 0, 1]], (100, 1))
    made.step(batch(DOMAIN, 0, codes), seeded(1))
    made.step(batch(DOMAIN, 1, codes, np.full(200, -1)), seeded(2))
    assert made.learnt.total <= 5.0
    assert (made.learnt.released >= 0).all()


@pytest.mark.parametrize("sizes", [(4,), (1, 3), (1, 1)])
def test_tables_of_one_attribute_or_one_value_work(sizes: tuple[int, ...]) -> None:
    domain = table(*sizes)
    made = engine(domain=domain)
    for each in random_batches(domain, steps=3, rows=10, seed=8):
        release = made.step(each, seeded(each.step))
        assert len(release.measurements) == 1


def test_the_workload_decides_what_is_chosen() -> None:
    workload = weighted_marginals({(0, 2): Fraction(3), (1,): Fraction(1), (2,): Fraction(1)})
    made = engine(workload=workload, rounds=5)
    # (2,) is part of a larger one.
    assert made._parts.layout.cliques == ((1,), (0, 2))
    assert made._parts.selection.sensitivity == 256
    release = run(made, [batch(DOMAIN, 0, np.zeros((5, 3)))], seed=1)[0]
    assert sorted(m["marginal"] for m in release.measurements) == [["a", "c"], ["b"]]


def test_marginals_without_room_are_refused_with_the_numbers() -> None:
    with pytest.raises(EngineInputError, match=r"marginals have 35 cells.*more than max_cells = 10"):
        recipe(max_cells=10)


def test_a_model_without_room_is_refused_with_the_numbers() -> None:
    with pytest.raises(EngineInputError, match=r"model_cells = 5"):
        engine(model_cells=5, fit="pgm")
    with pytest.raises(EngineInputError, match=r"model_cells = 9 holds no marginal.*6 cells"):
        engine(model_cells=9, fit="pgm")


def test_a_horizon_ends_the_stream_before_noise_is_drawn() -> None:
    made = engine(counter="tree", horizon=2, rounds=3)
    steps = [batch(DOMAIN, step, np.zeros((5, 3))) for step in range(3)]
    run(made, steps[:2], seed=1)
    with pytest.raises(EngineInputError, match="horizon"):
        made.step(steps[2], seeded(1))


def test_states_of_others_and_batches_of_other_tables_are_refused() -> None:
    made = engine()
    for other in (engine(domain=table(3, 3, 3)), engine(deletable=True)):
        with pytest.raises(EngineInputError, match="another"):
            made.restore(other.state())
    wrong = batch(DOMAIN, 0, np.array([[0, 0, 0], [1, 1, 1]]))
    turned = replace(wrong.events, keys=wrong.events.keys[::-1].copy())
    outside = replace(wrong.events, keys=wrong.events.keys + np.uint64(1000))
    negative = replace(wrong.events, counts=-wrong.events.counts)
    for events in (turned, outside, negative):
        with pytest.raises(EngineInputError):
            made.step(Batch(0, events), seeded(1))


def test_rows_follow_the_released_marginals_and_few_change() -> None:
    made = engine(epsilon=Fraction(40), rounds=3, deletable=True, records=True)
    alive: dict[str, list[Any]] = {}
    ones = sum(DOMAIN.sizes)
    before = made.learnt.released
    for each in random_batches(DOMAIN, steps=6, rows=300, seed=9, deletes=True):
        rows = len(alive)
        release = made.step(each, seeded(each.step))
        for gone in release.removed:
            del alive[gone]
        alive |= {record.id: [record.fields[name] for name in DOMAIN.names] for record in release.added}
        assert release.total == len(alive)
        came = np.abs(made.learnt.released - before)[:ones].sum() / len(DOMAIN.sizes)
        assert len(release.added) + len(release.removed) <= 2 * came + rows / 50
        before = made.learnt.released
    assert abs(len(alive) - made.learnt.total) <= 0.02 * made.learnt.total + 1
    layout = made._released
    counts = layout.counts(np.array(list(alive.values())), np.ones(len(alive), np.int64))
    assert np.abs(counts - made.learnt.released).sum() / len(layout) < 0.15 * made.learnt.total


def test_measurements_without_rows() -> None:
    release = engine(records=False).step(batch(DOMAIN, 0, np.zeros((9, 3))), seeded(1))
    assert (len(release.added), release.total, len(release.measurements)) == (0, 0, 2)
