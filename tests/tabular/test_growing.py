"""Growing blocks as an engine: odd tables, empty steps, tables that vanish, states, and what is released."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.checks import contract_checks as checks
from engines.core.contract import Batch
from engines.core.noise import seeded
from engines.tabular.domain import Impossible, TableDomain
from engines.tabular.growing.config import GrowingConfig
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.marginals import weighted_marginals
from schemas.errors import EngineInputError
from tests.examples import examples
from tests.tabular.tables import folded, growing, random_rows, streams, table, triples

ODD = [table(1), table(5), table(1, 1), table(1, 3, 1, 2), table(2, 2), table(4, 3, 2)]
SLOW = settings(max_examples=examples(0.14), suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("domain", ODD, ids=lambda domain: str(domain.sizes))
@SLOW
@given(data=st.data(), seed=st.integers(0, 99))
def test_contract_on_odd_tables(domain: TableDomain, data: st.DataObject, seed: int) -> None:
    kinds: list[dict[str, Any]] = [{}, {"deletable": True}, {"ttl_steps": 1}, {"ttl_steps": 3}, {"records": False}]
    kind = data.draw(st.sampled_from(kinds))
    steps = data.draw(streams(domain, deletes="deletable" in kind, most=90, steps=4))
    checks.check_engine(lambda: growing(domain, Fraction(30), **kind), steps, seed=seed)


def run(engine: GrowingBlocks, steps: int, rows: int, *, start: int = 0, sign: int = 1) -> None:
    domain = engine.config.domain
    for step in range(start, start + steps):
        events = folded(domain, random_rows(domain, rows, step), np.full(rows, sign))
        engine.step(Batch(step, events), seeded(4).child(step))


def test_estimates_come_near_the_truth() -> None:
    domain = table(2, 5, 4)
    engine = growing(domain, Fraction(4), workload=triples(domain))
    run(engine, 30, 400)
    codes = np.concatenate([random_rows(domain, 400, step) for step in range(30)])
    for clique, found in engine.marginals.items():
        true = np.zeros(found.shape)
        np.add.at(true, tuple(codes[:, list(clique)].T), 1)
        assert np.abs(found - true).sum() / 12_000 < 0.15
        assert found.min() >= 0
        assert found.sum() == pytest.approx(engine._learnt.totals.alive)


def test_a_table_can_shrink_to_nothing_and_grow_again() -> None:
    engine = growing(table(3, 4), Fraction(5), deletable=True)
    run(engine, 6, 300)
    full = len(engine._rows)
    run(engine, 6, 300, start=6, sign=-1)
    for step in range(12, 20):
        release = engine.step(Batch(step, folded(table(3, 4), np.zeros((0, 2), np.int64))), seeded(4).child(step))
    assert full > 1000
    assert release.total < 200
    run(engine, 6, 300, start=20)
    assert len(engine._rows) > 1000


def test_deletes_without_rows_do_no_harm() -> None:
    engine = growing(table(3, 4), Fraction(5), deletable=True)
    run(engine, 8, 300, sign=-1)
    assert len(engine._rows) < 100
    assert all(np.isfinite(found).all() for found in engine.marginals.values())


def test_expired_rows_are_gone() -> None:
    engine = growing(table(3, 4), Fraction(10), ttl_steps=4)
    run(engine, 10, 300)
    assert abs(len(engine._rows) - 1200) < 200
    for step in range(10, 20):
        engine.step(Batch(step, folded(table(3, 4), np.zeros((0, 2), np.int64))), seeded(4).child(step))
    assert len(engine._rows) < 100


def test_a_block_longer_than_the_ttl_is_a_share_of_what_it_holds() -> None:
    domain = table(3, 4)
    engine = growing(domain, Fraction(4), ttl_steps=2, records=False)
    run(engine, 40, 100)
    (block, *_) = engine._learnt.evidence.settled
    assert block.last - block.first > 2
    # Every marginal sums to the net of all its steps, but for noise of a tenth of it.
    sums = engine.config.larger.sums(block.larger)
    assert sums == pytest.approx(block.larger_net, rel=0.25)
    assert all(abs(found.sum() - 200) < 60 for found in engine.marginals.values())


def test_state_does_not_grow_with_history() -> None:
    # The counter of the totals keeps noise that grows with the root of the steps, and is tested with its kind.
    def size(engine: GrowingBlocks) -> int:
        return sum(array.nbytes for name, array in engine.state().items() if not name.startswith(("rows/", "counter/")))

    for changes in ({}, {"deletable": True}, {"ttl_steps": 5}):
        engine = growing(table(3, 4), Fraction(5), records=False, **changes)
        run(engine, 40, 100)
        early = size(engine)
        run(engine, 120, 100, start=40)
        assert size(engine) <= early + 100


def test_what_is_measured_is_released_with_its_variance() -> None:
    engine = growing(table(2, 3), Fraction(60))
    seen = []
    for step in range(12):
        batch = Batch(step, folded(table(2, 3), random_rows(table(2, 3), 200, step)))
        release = engine.step(batch, seeded(4).child(step))
        assert release.measurements[0].keys() == {"totals", "variance"}
        seen += [(tuple(m["marginal"]), m) for m in release.measurements[1:]]
    assert {names for names, _ in seen} == {("a",), ("b",), ("a", "b")}
    for names, measurement in seen:
        assert measurement["difference"] == (names == ("a",)), "all attributes have two values"
        assert len(measurement["increment"]) == {("a",): 1, ("b",): 3, ("a", "b"): 6}[names]
        assert measurement["variance"] > 0
        # One block of 200 rows or more; at this epsilon noise is small beside it.
        assert names == ("a",) or sum(measurement["increment"]) > 150


def test_a_marginal_of_three_brings_its_pairs() -> None:
    workload = weighted_marginals({(0, 1, 2): Fraction(1), (3,): Fraction(1)})
    engine = growing(table(2, 2, 2, 2), workload=workload)
    assert set(engine.marginals) == {(0,), (1,), (2,), (3,), (0, 1), (0, 2), (1, 2), (0, 1, 2)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"epsilon": Fraction(0)}, "epsilon"), ({"max_cells": 10}, r"3 marginals have 19 cells.*raise max_cells")],
)
def test_recipes_that_make_no_sense_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineInputError, match=words):
        GrowingConfig(**{"name": "x", "domain": table(3, 4), "epsilon": Fraction(1), **changes})


def test_a_state_of_another_table_is_refused() -> None:
    state = growing(table(3, 4)).state()
    for other in (growing(table(3, 5)), growing(table(3, 4), deletable=True), growing(table(3, 4), ttl_steps=3)):
        with pytest.raises(EngineInputError):
            other.restore(state)


def test_marginals_can_be_weighted() -> None:
    workload = weighted_marginals({(0, 1): Fraction(16), (0, 2): Fraction(1), (1, 2): Fraction(1)})
    assert growing(table(3, 3, 3), workload=workload).config.weights.tolist() == [16.0, 1.0, 1.0]


def test_structural_zeros_are_zero_in_every_estimate() -> None:
    zero = Impossible(left=0, left_codes=(0,), right=1, right_codes=(0, 1))
    domain = table(2, 3, 2, impossible=(zero,))
    engine = growing(domain, Fraction(3), workload=triples(domain))
    for step in range(12):
        codes = random_rows(domain, 300, step)
        engine.step(Batch(step, folded(domain, codes[domain.possible(codes)])), seeded(2).child(step))
    assert not engine.marginals[0, 1][0, :2].any()
    assert not engine.marginals[0, 1, 2][0, :2].any()
