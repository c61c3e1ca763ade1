"""The synthetic table: it follows the fitted tables, keeps what it can, and never has a row that cannot be."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.contract import Batch
from engines.core.noise import seeded
from engines.tabular import records
from engines.tabular.domain import Category, Impossible, Numeric, TableDomain
from engines.tabular.growing.config import GrowingConfig
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.records import Fitted, RowRecords, Rows, places, stream_key
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError
from tests.tabular.tables import folded, growing, random_rows, table

TABLE = table(2, 5, 4)


def follow(engine: GrowingBlocks, steps: int, rows: int = 200) -> list[tuple[set[str], set[str]]]:
    """Added and removed ids of each step."""
    changes = []
    for step in range(steps):
        release = engine.step(Batch(step, folded(TABLE, random_rows(TABLE, rows, step))), seeded(9).child(step))
        changes.append(({record.id for record in release.added}, set(release.removed)))
    return changes


def test_rows_follow_the_released_marginals() -> None:
    engine = growing(TABLE, Fraction(20))
    follow(engine, 12)
    keeper, rows = engine.config.keeper, engine._rows
    counts = keeper.counts(rows.codes)
    wanted = np.concatenate([table.ravel() for table in engine.marginals.values()])
    assert abs(len(rows) - 2400) < 60
    assert np.abs(counts - wanted).sum() / np.abs(wanted).sum() < 0.05


@pytest.mark.parametrize("changes", [{}, {"ttl_steps": 3}])
def test_rows_that_changed_are_counted_as_all_of_them_would_be(changes: dict[str, Any]) -> None:
    engine = growing(TABLE, Fraction(20), **changes)
    for step in range(8):
        engine.step(Batch(step, folded(TABLE, random_rows(TABLE, 100, step))), seeded(step))
        rows, keeper = engine._rows, engine.config.keeper
        assert rows.counted is not None
        assert len(rows) > 0
        assert (keeper.counts_of(rows) == keeper.counts(rows.codes)).all()
    # What was counted over another layout says nothing of this one.
    wider = table(3, 5, 4)
    other = growing(wider, Fraction(20)).config.keeper
    assert rows.counted is not None
    assert len(other.counts_of(rows)) != len(rows.counted[1])
    assert other.counts_of(rows).sum() == rows.counted[1].sum()


@pytest.mark.parametrize("changes", [{"churn": Fraction(1, 100)}, {}, {"deletable": True}, {"ttl_steps": 6}])
def test_a_step_changes_no_more_rows_than_it_may(changes: dict[str, Any]) -> None:
    engine = growing(TABLE, Fraction(20), **changes)
    share, rows = float(engine.config.churn), 0
    assert changes or share == 0.02
    for step, (added, removed) in enumerate(follow(engine, 15)):
        events = 200 + (200 if step >= 6 and "ttl_steps" in changes else 0)
        # Twice the events, a share of the table, and a tenth for the noise of the rate.
        assert len(added) + len(removed) <= 1.1 * (2 * events + share * rows) + 1
        rows += len(added) - len(removed)
    assert rows > 1000


def test_rows_that_are_most_too_many_go_first() -> None:
    """A tie is new, half of the rows are against it, and a tenth may change: nearly all of those are of that half."""
    config = GrowingConfig(name="tie", domain=TABLE, epsilon=Fraction(1))
    even, keeper = config.fitter.start(), config.keeper
    rows = keeper.follow(Rows.none(3), even, total=2000, most=10**6, new_fit=True, noise=seeded(1))
    tied = replace(even, larger=even.larger.copy())
    pair = config.larger.table(tied.larger, config.larger.cliques.index((0, 2)))
    pair[:] = np.array([[1, 1, 0, 0], [0, 0, 1, 1]]) / 4
    after = keeper.follow(rows, tied, total=2000, most=400, new_fit=True, noise=seeded(2))
    against = [int((of.codes[:, 0] != of.codes[:, 2] // 2).sum()) for of in (rows, after)]
    assert 950 < against[0] < 1050
    assert len(np.setdiff1d(after.ids, rows.ids)) <= 200
    assert against[0] - against[1] > 190


def test_a_quiet_step_keeps_nearly_all_rows() -> None:
    engine = growing(TABLE, Fraction(20), churn=Fraction(0))
    follow(engine, 8)
    for step in range(8, 30):
        release = engine.step(Batch(step, folded(TABLE, np.zeros((0, 3), np.int64))), seeded(9).child(step))
    assert len(release.added) + len(release.removed) <= 20


def test_a_number_stays_where_it_is_while_its_row_moves() -> None:
    domain = TableDomain((Category(field="sex", values=("f", "m")), Numeric(field="age", edges=(0, 18, 65, 120))))
    codes, origins = np.array([[0, 1], [1, 1]], np.int16), np.array([5, 5])
    before, after = RowRecords(domain, stream_key("s"), codes, np.array([5, 9]), origins)
    assert (before.id, after.id) == ("5", "9")
    assert before.fields["age"] == after.fields["age"]
    assert (before.fields["sex"], after.fields["sex"]) == ("f", "m")


def test_places_are_even_and_differ_between_streams_and_attributes() -> None:
    first, second = places(stream_key("a"), np.arange(4000), 2), places(stream_key("b"), np.arange(4000), 2)
    for column in (*first.T, *second.T):
        # Null: uniform. Chi-squared of 20 cells with 19 degrees of freedom; 68 has probability below 1e-6.
        counts = np.bincount((column * 20).astype(int), minlength=20)
        assert ((counts - 200) ** 2 / 200).sum() < 68
    assert not np.isclose(first[:, 0], first[:, 1]).any()
    assert not np.isclose(first, second).any()


def test_no_row_has_a_structural_zero() -> None:
    zeros = (
        Impossible(left=0, left_codes=(1,), right=1, right_codes=(0, 1, 2)),
        Impossible(left=1, left_codes=(4,), right=2, right_codes=(0,)),
    )
    domain = table(2, 5, 4, impossible=zeros)
    engine = GrowingBlocks(GrowingConfig(name="z", domain=domain, epsilon=Fraction(2)))
    for step in range(12):
        codes = random_rows(domain, 300, step)
        codes = codes[domain.possible(codes)]
        engine.step(Batch(step, folded(domain, codes)), seeded(2).child(step))
    rows = engine._rows
    assert len(rows) > 500
    assert domain.possible(rows.codes.astype(np.int64)).all()
    for clique, found in engine.marginals.items():
        if clique == (0, 1):
            assert not found[1, :3].any()


def test_rows_of_a_state_are_checked() -> None:
    engine = growing(TABLE)
    arrays = Rows.none(3).arrays(TABLE)
    assert len(Rows.of(arrays, TABLE)) == 0
    arrays["rows/ids"] = np.array([1])
    with pytest.raises(EngineInputError, match="rows"):
        Rows.of(arrays, TABLE)
    state = engine.state()
    del state["rows/ids"]
    with pytest.raises(EngineInputError, match="rows"):
        engine.restore(state)


def tied_tables() -> tuple[GrowingConfig, Fitted]:
    """Shares of which no even table is: one value of a pair says what the other is."""
    config = GrowingConfig(name="tie", domain=TABLE, epsilon=Fraction(1), weighted=True)
    even = config.fitter.start()
    tied = replace(even, larger=even.larger.copy())
    config.larger.table(tied.larger, config.larger.cliques.index((0, 2)))[:] = (
        np.array([[3, 1, 0, 0], [0, 0, 1, 3]]) / 8
    )
    ones = replace(tied, ones=even.ones.copy())
    config.ones.table(ones.ones, 2)[:] = np.array([3, 1, 1, 3]) / 8
    return config, ones


@given(st.lists(st.integers(0, 39), min_size=1, max_size=200), st.integers(1, 30), st.integers(0, 9))
def test_bundles_are_of_equal_rows_and_have_every_row_once(numbers: list[int], bundles: int, seed: int) -> None:
    config, fitted = tied_tables()
    codes = np.array(np.unravel_index(numbers, (2, 5, 4))).T.astype(np.int16)
    rows = Rows(codes, np.arange(len(codes)), np.arange(len(codes)), len(codes))
    order = np.random.default_rng(seed).permutation(len(codes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BUNDLES", bundles)
        found, sizes = records._Moving(config.keeper, rows, fitted, 0, seeded(1))._bundled(order)
    assert sorted(found.tolist()) == list(range(len(codes)))
    assert sizes.sum() == len(codes)
    assert sizes.min() >= 1
    assert sizes.max() <= max(1, len(codes) // bundles)
    ends = np.cumsum(sizes)
    for end, size in zip(ends, sizes, strict=True):
        assert (codes[found[end - size : end]] == codes[found[end - size]]).all()


class ForgetsSizes(records._Free):
    """Moves bundles as if each were one row."""

    def __init__(self, keeper: records.Keeper, excess: FloatArray, codes: IntArray, sizes: IntArray) -> None:
        super().__init__(keeper, excess, codes, np.ones_like(sizes))


def gap(bundles: int, free: type[records._Free] = records._Free) -> float:
    """How far 8,000 rows are from the fitted tables, in rows of a cell, after a step that changed most of them."""
    config, fitted = tied_tables()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BUNDLES", bundles)
        patch.setattr(records, "_Free", free)
        rows, before = Rows.none(3), config.fitter.start()
        for step, (shares, total) in enumerate([(before, 4000), (fitted, 8000)]):
            rows = config.keeper.follow(rows, shares, total=total, most=10**6, new_fit=True, noise=seeded(step))
    assert len(rows) == 8000
    return float(np.abs(config.keeper.counts(rows.codes) - config.keeper.shares(fitted) * 8000).mean())


def test_bundled_rows_come_as_close_to_the_fitted_tables_as_single_ones() -> None:
    single = gap(10**6)
    assert gap(500) < 1.05 * single
    assert gap(500, ForgetsSizes) > 1.05 * single, "a bundle that counts as one row would be noticed"
