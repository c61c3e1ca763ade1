"""Usual values: what a row pays for, which tables come of them, and what they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from engines.core.contract import Batch, Columns
from engines.core.noise import seeded
from engines.core.registry import build_engine
from engines.core.shares import GaussianShares, PureShares
from engines.tabular.domain import Category, TableDomain
from engines.tabular.growing.config import GrowingConfig
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.growing.usual import UsualValues, restored, usual_values
from engines.tabular.marginals import Marginals, every_marginal
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from tests.answers.streams import configured
from tests.examples import examples

FLAGS = 8
PAIRS = Marginals((2,) * FLAGS, tuple(clique for clique in every_marginal(FLAGS) if len(clique) == 2))
BINARY = (True,) * FLAGS
SELDOM = [np.array([0.95, 0.05])] * FLAGS


@st.composite
def usual(draw: st.DrawFn) -> UsualValues:
    values = tuple(draw(st.lists(st.integers(-1, 1), min_size=FLAGS, max_size=FLAGS)))
    most = draw(st.sampled_from([1, 3, 1 << 24]))
    *parts, lost = draw(st.lists(st.integers(1, most), min_size=len(PAIRS) + 1, max_size=len(PAIRS) + 1))
    whole = sum(part for part, pair in zip(parts, PAIRS.cliques, strict=True) if all(values[a] < 0 for a in pair))
    limit = draw(st.integers(max(whole, *parts) + lost, sum(parts) + lost))
    return UsualValues(values, (*parts, lost), limit, PAIRS, BINARY)


@settings(max_examples=examples(0.5))
@given(of=usual())
def test_no_row_pays_for_more_than_its_budget(of: UsualValues) -> None:
    """Of all rows that there are, by the laws of the pairs, exactly; and none is in a cell that is called empty."""
    rows = np.array(list(product((0, 1), repeat=FLAGS)))
    kept = of.kept(rows)
    dearest = kept[(kept * np.array(of.parts)).sum(axis=1).argmax()].tolist()
    for shares in (PureShares(Fraction(1)), GaussianShares(Fraction(1), 1e-6, 1)):
        table = TableDomain(tuple(Category(field=f"f{at}", values=(False, True)) for at in range(FLAGS)))
        config = GrowingConfig(name="t", domain=table, epsilon=Fraction(1))
        object.__setattr__(config, "shares", shares)
        laws = config.laws(config.larger_share, of.parts, of.limit)
        assert sum(law.cost for law, counted in zip(laws, dearest, strict=True) if counted) <= config.larger_share
    *counted, lost = of.measured.counts(rows, np.ones(len(rows), np.int64), of.kept).tolist()
    assert not np.array(counted)[of.empty].any()
    unusual = np.array([[all(row[a] != of.values[a] for a in pair) for pair in PAIRS.cliques] for row in rows])
    assert (kept[:, -1] == (unusual != kept[:, :-1]).any(axis=1)).all(), "whoever is lost to a pair is counted as that"
    assert lost == kept[:, -1].sum()
    assert not (kept[:, :-1] & ~unusual).any(), "a pair leaves out who has a usual value of it"
    assert kept[:, :-1][:, ~np.array(of.partial)].all(), "a pair without usual values counts all rows"


def test_without_noise_and_loss_tables_are_those_of_all_rows() -> None:
    codes = np.random.default_rng(1).integers(0, 2, (500, FLAGS))
    parts = (1,) * (len(PAIRS) + 1)
    of = UsualValues((0, 1, -1, -1, 0, -1, -1, -1), parts, len(parts), PAIRS, BINARY)
    signs = np.ones(len(codes), np.int64)
    tables = of.contrasts.tables(of.measured.counts(codes, signs, of.kept))
    ones = [np.bincount(codes[:, at], minlength=2).astype(np.float64) for at in range(FLAGS)]
    completed, variances = of.completed(tables, np.ones(len(PAIRS)), ones, float(len(codes)))
    true = PAIRS.counts(codes, signs)
    for index, (left, right) in enumerate(PAIRS.cliques):
        if of.partial[index]:
            assert np.allclose(PAIRS.table(completed, index), PAIRS.table(true, index))
        assert variances[index] == 2.0 ** sum(of.values[a] >= 0 for a in (left, right))


def test_values_are_usual_where_most_rows_have_them_and_pairs_gain_by_it() -> None:
    parts = (10,) * len(PAIRS)
    found = usual_values(SELDOM, parts, PAIRS, BINARY, pure=True)
    assert found is not None
    assert found.values == (0,) * FLAGS
    assert (found.limit, found.parts[-1]) == (15, 5), "two unusual values are in one pair"
    assert usual_values([np.array([0.5, 0.5])] * FLAGS, parts, PAIRS, BINARY, pure=True) is None
    few = Marginals((2,) * 3, ((0, 1), (0, 2), (1, 2)))
    assert usual_values(SELDOM[:3], (1, 1, 1), few, (True,) * 3, pure=True) is None, "pairs of three lose nothing"
    uneven = usual_values(SELDOM, (100, *parts[1:]), PAIRS, BINARY, pure=True)
    assert uneven is None or uneven.limit >= 100, "a pair alone can be paid for"


def _ran(
    steps: int, *, crowded: float = 0.0, often: float = 0.06
) -> tuple[GrowingBlocks, list[list[Mapping[str, Any]]]]:
    table = TableDomain(tuple(Category(field=f"f{at}", values=(False, True)) for at in range(FLAGS)))
    engine = GrowingBlocks(GrowingConfig(name="t", domain=table, epsilon=Fraction(8), records=False))
    told = []
    for step in range(steps):
        chance = np.random.default_rng(step)
        codes = (chance.random((600, FLAGS)) < 0.02) | (chance.random((600, 1)) < crowded)
        batch = Batch(step, Folded.from_keys(table.keys.pack(codes.astype(np.int64), np.ones(len(codes), np.int8))))
        told.append(list(engine.step(batch, seeded(step)).measurements))
    return engine, told


def test_measurements_say_what_is_left_out_and_hold_no_noise_there() -> None:
    _, told = _ran(4)
    pairs = [one for step in told for one in step if len(one.get("marginal", ())) == 2]
    partial = [one for one in pairs if one["usual"] == [0, 0]]
    assert partial
    assert any(one["usual"] == [None, None] and one["difference"] for one in pairs), "the first block counts all rows"
    for one in partial:
        assert one["increment"][:3] == [0, 0, 0]
    first = max(float(one["variance"]) for one in pairs if one["usual"] == [None, None])
    assert max(float(one["variance"]) for one in partial) < first / 20


def test_where_rows_have_many_unusual_values_pairs_leave_none_out() -> None:
    """Two rows of a hundred have all of them: what ties these together would be lost."""
    engine, told = _ran(12, crowded=0.02)
    lost = [one["lost"] for step in told for one in step if "lost" in one]
    assert lost, "usual values are tried"
    assert engine._learnt.crowded
    assert engine._learnt.usual is None
    tables = engine.marginals
    assert min(tables[pair][1, 1] for pair in PAIRS.cliques) > 12 * 600 * 0.01
    assert _ran(4)[0]._learnt.usual is not None, "as long as few have"


def test_a_value_is_found_while_pairs_leave_rows_out() -> None:
    """What waits is kept in place, and the state of then comes back."""
    privacy = {"epsilon": 60.0, "delta": 1e-2, "unit": "event"}
    found = {"field": "page", "values": "discover", "max_key_bytes": 8, "least_count": 1}
    flags = [{"field": f"f{at}", "values": [False, True]} for at in range(14)]
    stream = configured("tabular", {"kind": "table", "attributes": [found, *flags]}, privacy=privacy)
    engine, widened = build_engine(stream), 0
    assert isinstance(engine, GrowingBlocks)
    domain = engine.config.domain
    for step in range(24):
        chance = np.random.default_rng(step)
        rows = chance.random((300, 14)) < 0.03
        texts = np.where(chance.random(300) < 0.02 * step, f"p{step // 6}", "other").tolist()
        columns = Columns(
            {}, {}, np.ones(300, np.int8), {f"f{at}": rows[:, at].tolist() for at in range(14)} | {"page": texts}
        )
        keys, _ = domain.encode(columns)
        before = engine._learnt.usual, engine.config.larger.cells
        engine.step(Batch(step, Folded.from_keys(keys)), seeded(step))
        wider = engine.config.larger.cells > before[1]
        widened += wider and before[0] is not None and before[0] is not engine._learnt.usual
        again = build_engine(stream)
        again.restore(engine.state())
        assert all(np.array_equal(again.state()[name], each) for name, each in engine.state().items())
    assert widened, "a value is found while a block leaves rows out"


def test_a_state_with_usual_values_comes_back_and_another_tables_does_not() -> None:
    engine, _ = _ran(2)
    state = engine.state()
    assert "usual/values" in state
    for broken in (
        {"usual/limit": np.array([0])},
        {"usual/values": np.full(FLAGS, 2)},
        {"usual/parts": np.ones(3, np.int64)},
        {"usual/limit": np.zeros(0, np.int64)},
    ):
        with pytest.raises(EngineInputError, match=r"usual values|another shape"):
            restored(state | broken, PAIRS, BINARY)
    full, _ = _ran(12, crowded=0.02)
    for each in (engine, full):
        state, again = each.state(), GrowingBlocks(each.config)
        again.restore(state)
        assert again.state().keys() == state.keys()
        assert all(np.array_equal(again.state()[name], state[name]) for name in state)
    assert again._learnt.crowded, "what was lost is not forgotten"
