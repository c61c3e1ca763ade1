"""The privacy of growing blocks, without statistics: what one event can move, over whole streams.

The proof (docs/notes/0040) says: give both neighbours the SAME released values; then both measure the same marginals
at the same steps with the same budgets, and the noise must make up for one unit in one count of the totals, in one
cell of each one-way marginal once, and in one cell of each larger marginal once. `losses` does just that: it runs an
engine, then its neighbour on what the first released, and adds up each difference of a private count times its epsilon.
That sum IS the exact loss of the marginals; the counter of the totals has its own proof for a shift of one at one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.checks.contract_checks import contents
from engines.core.accounting import gaussian
from engines.core.accounting.lattice import dominating
from engines.core.accounting.user_level import event_mu_squared
from engines.core.contract import Batch, Release
from engines.core.counters import spent
from engines.core.noise import NoiseSource, seeded
from engines.core.shares import CellNoise, GaussianCells, GaussianShares
from engines.tabular.domain import TableDomain
from engines.tabular.growing import learn as growing_learn
from engines.tabular.growing import schedule as growing_schedule
from engines.tabular.growing.config import GrowingConfig
from engines.tabular.growing.learn import Learning, Line
from engines.tabular.growing.schedule import GAUSSIAN
from engines.tabular.growing.totals import Totals
from engines.tabular.marginals import EventRows, Marginals
from schemas.arrays import IntArray
from schemas.blocks import Folded
from tests.tabular.tables import folded, growing, one_row, random_rows, streams, table, triples

pytestmark = pytest.mark.seconds(0.5)

TABLE = table(2, 3, 4)
EPSILON = Fraction(40)
"""High, so that blocks of every kind close within a few hundred events."""


@dataclass
class Tape:
    """Everything that a run's mechanisms were given and let out, in order."""

    marginals: list[tuple[IntArray, Marginals, tuple[CellNoise, ...], IntArray]] = field(default_factory=list)
    totals: list[tuple[int, int, Totals]] = field(default_factory=list)

    def listen(self, patch: pytest.MonkeyPatch, replay: Tape | None) -> None:
        measure, after = growing_learn.measure, Totals.after

        def measured(counts: IntArray, layout: Marginals, laws: Sequence[CellNoise], noise: NoiseSource) -> IntArray:
            if replay is None:
                out = measure(counts, layout, laws, noise)
            else:
                _, same_layout, same_laws, out = replay.marginals[len(self.marginals)]
                assert (layout, tuple(laws)) == (same_layout, same_laws), "what is measured depends on data"
            self.marginals.append((counts.copy(), layout, tuple(laws), out))
            return out

        def counted(totals: Totals, changes: IntArray, noise: NoiseSource) -> Totals:
            out = after(totals, changes, noise) if replay is None else replay.totals[len(self.totals)][2]
            self.totals.append((int(changes[0]), int(changes[1]), out))
            return out

        patch.setattr(growing_learn, "measure", measured)
        patch.setattr(Totals, "after", counted)


def run(
    tape: Tape, steps: Sequence[Folded], replay: Tape | None, *, apart: bool = False, **changes: Any
) -> list[Release]:
    """Args: apart: early events are in one-way marginals only, as where there are many larger ones."""
    with pytest.MonkeyPatch.context() as patch:
        if apart:
            patch.setattr(growing_schedule, "EARLY_MARGINALS", 0)
            patch.setattr(growing_schedule, "EARLY_APART", 400_000.0)
        engine = growing(TABLE, EPSILON, **changes)
        tape.listen(patch, replay)
        return [engine.step(Batch(i, events), seeded(3).child(i)) for i, events in enumerate(steps)]


def losses(steps: Sequence[Folded], extra: Folded, at: int, **changes: Any) -> tuple[int, Fraction, int]:
    """What `extra`, joining step `at`, moves: the totals (in events), the marginals (exact loss, in epsilon), and how
    many blocks were measured."""
    first, second = Tape(), Tape()
    releases = run(first, steps, None, **changes)
    neighbour = [events.merge(extra) if i == at else events for i, events in enumerate(steps)]
    same = run(second, neighbour, first, **changes)
    assert [contents(a) for a in releases] == [contents(b) for b in same], "a release shows more than what was measured"
    totals = sum(abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in zip(first.totals, second.totals, strict=True))
    loss = Fraction(0)
    for (left, layout, laws, _), (right, _, _, _) in zip(first.marginals, second.marginals, strict=True):
        moved = layout.sums(np.abs(left - right)).tolist()
        loss += sum((law.cost * part for law, part in zip(laws, moved, strict=True)), Fraction(0))
    return totals, loss, len(first.marginals)


def steady(domain: TableDomain, steps: int, rows: int = 60, deletes: bool = False) -> list[Folded]:
    made = []
    for step in range(steps):
        codes = random_rows(domain, rows, step)
        signs = np.where(np.arange(rows) < (rows // 3 if deletes and step > 3 else 0), -1, 1)
        made.append(folded(domain, codes, signs))
    return made


VARIANTS = [
    {},
    {"apart": True, "records": False},
    {"deletable": True, "records": False},
    {"ttl_steps": 3, "records": False},
    {"workload": triples(TABLE)},
    {"records": False, "deletable": True, "workload": triples(TABLE)},
    {"records": False, "delta": 1e-6},
    {"records": False, "delta": 1e-6, "changes": 3, "apart": True},
    {"records": False, "delta": 1e-6, "deletable": True},
]


def budget(changes: dict[str, Any]) -> Fraction:
    """Of the marginals, for one event: epsilon, or mu^2."""
    if "delta" not in changes:
        return EPSILON * Fraction(9, 10)
    return event_mu_squared(EPSILON, changes["delta"], changes.get("changes", 1)) * Fraction(23, 25)


@pytest.mark.parametrize("changes", VARIANTS)
def test_one_event_costs_exactly_the_budget(changes: dict[str, Any]) -> None:
    steps = steady(TABLE, 18, deletes=changes.get("deletable", False))
    seen = set()
    for at in (0, 4, 9):
        for sign in (1, -1) if changes.get("deletable") else (1,):
            totals, loss, blocks = losses(steps, one_row(TABLE, at, sign), at, **changes)
            assert totals == 1
            assert loss <= budget(changes)
            assert blocks >= 4
            seen.add(loss)
    # Early events are measured whole, so the budget is spent, not only kept.
    assert budget(changes) in seen


@settings(max_examples=25)
@given(
    steps=streams(TABLE, deletes=True),
    at=st.integers(0, 4),
    seed=st.integers(0, 99),
    sign=st.sampled_from([1, -1]),
    changes=st.sampled_from(VARIANTS),
)
def test_no_event_costs_more(steps: list[Batch], at: int, seed: int, sign: int, changes: dict[str, Any]) -> None:
    events = [batch.events for batch in steps]
    totals, loss, _ = losses(events, one_row(TABLE, seed, sign), min(at, len(events) - 1), **changes)
    assert totals == 1
    assert loss <= budget(changes)


def forgets_to_clear(patch: pytest.MonkeyPatch) -> None:
    original = Line.closed
    patch.setattr(Line, "closed", lambda line, totals, step: Line(line.pending, *_public(original(line, totals, step))))


def _public(line: Line) -> tuple[float, float, int]:
    return line.covered, line.grown, line.step


def counts_twice(patch: pytest.MonkeyPatch) -> None:
    original: Callable[[Line, IntArray], Line] = Line.plus
    patch.setattr(Line, "plus", lambda line, counts: original(line, 2 * counts))


def early_events_in_both_lines(patch: pytest.MonkeyPatch) -> None:
    """The larger line gathers while early events spend its budget on one-way marginals, and keeps them."""
    original_arrive, original_close = Learning.arrive, Learning.close

    def arrive(self: Learning, rows: EventRows) -> None:
        early = self.learnt.early
        original_arrive(self, rows)
        if early:
            self.kept = self.learnt.larger.plus(rows.counts(self.config.larger))  # type: ignore[attr-defined]
            object.__setattr__(self.learnt, "larger", self.kept)  # type: ignore[attr-defined]

    def close(self: Learning, *, larger: bool) -> None:
        pending = self.learnt.larger.pending
        original_close(self, larger=larger)
        if not larger:
            line = self.learnt.larger
            object.__setattr__(self.learnt, "larger", Line(pending, *_public(line)))

    patch.setattr(Learning, "arrive", arrive)
    patch.setattr(Learning, "close", close)


def early_shares_later(patch: pytest.MonkeyPatch) -> None:
    """One-way blocks keep the share of early ones when larger blocks have all of theirs."""
    original = GrowingConfig.line_shares

    def line_shares(parts: GrowingConfig, *, early: bool) -> tuple[Fraction, Fraction]:
        return original(parts, early=True)[0], original(parts, early=early)[1]

    patch.setattr(GrowingConfig, "line_shares", line_shares)


def closes_by_private_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Learning, "due", lambda self: (int(self.learnt.ones.pending.sum()) % 2 == 0, False))


def check(steps: Sequence[Folded], **changes: Any) -> None:
    for at in (0, 1, 2, 9):
        _, loss, _ = losses(steps, one_row(TABLE, at), at, records=False, **changes)
        assert loss <= budget(changes)


@pytest.mark.parametrize(
    ("fault", "apart"),
    [
        (forgets_to_clear, False),
        (counts_twice, False),
        (early_events_in_both_lines, True),
        (early_shares_later, False),
        (closes_by_private_counts, False),
    ],
)
def test_a_planted_fault_is_caught(fault: Callable[[pytest.MonkeyPatch], None], apart: bool) -> None:
    steps = steady(TABLE, 18)
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        with pytest.raises(AssertionError):
            check(steps, apart=apart)


def shares_as_of_epsilon(patch: pytest.MonkeyPatch) -> None:
    """Each marginal has noise for the root of its share, so that variances are in proportion as scales ought to be."""
    original = GaussianShares.cells

    def cells(shares: GaussianShares, share: Fraction) -> GaussianCells:
        return original(shares, shares.whole * Fraction(float(share / shares.whole) ** 0.5))

    patch.setattr(GaussianShares, "cells", cells)


def every_marginal_has_the_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        GrowingConfig, "laws", lambda parts, share, weights: tuple(parts.shares.cells(share) for _ in weights)
    )


def divided_delta(patch: pytest.MonkeyPatch) -> None:
    """(epsilon, delta) over the number of a user's events, each."""
    patch.setattr(
        GaussianShares, "whole", property(lambda s: event_mu_squared(s.epsilon / s.changes, s.delta / s.changes, 1))
    )
    patch.setattr(GaussianShares, "mu_squared_of", lambda shares, share: share)


def events_add_up_in_squares(patch: pytest.MonkeyPatch) -> None:
    """As if a user's events moved different counts each."""
    patch.setattr(
        GaussianShares, "whole", property(lambda s: event_mu_squared(s.epsilon, s.delta, s.changes) * s.changes)
    )
    patch.setattr(GaussianShares, "mu_squared_of", lambda shares, share: share * shares.changes)


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        (forgets_to_clear, {"delta": 1e-6}),
        (counts_twice, {"delta": 1e-6}),
        (early_shares_later, {"delta": 1e-6}),
        (every_marginal_has_the_line, {"delta": 1e-6}),
        (shares_as_of_epsilon, {"delta": 1e-6}),
        (divided_delta, {"delta": 1e-6, "changes": 10}),
        (events_add_up_in_squares, {"delta": 1e-6, "changes": 10}),
    ],
)
def test_a_planted_fault_is_caught_with_a_delta(
    fault: Callable[[pytest.MonkeyPatch], None], changes: dict[str, Any]
) -> None:
    steps = steady(TABLE, 18)
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        with pytest.raises(AssertionError):
            check(steps, **changes)


@pytest.mark.parametrize("changes", [1, 2, 7])
def test_all_events_of_a_user_in_one_row_cost_the_promise_and_no_more(changes: int) -> None:
    """The dearest arrangement: each draw moves by so many, and the totals' counter by as many at one step."""
    shares = GaussianShares(EPSILON, 1e-6, changes)
    steps, seen = steady(TABLE, 18), []
    for at in (0, 9):
        same = one_row(TABLE, at)
        user = Folded(same.keys, same.counts * changes)
        first, second = Tape(), Tape()
        run(first, steps, None, records=False, delta=1e-6, changes=changes)
        neighbour = [events.merge(user) if i == at else events for i, events in enumerate(steps)]
        run(second, neighbour, first, records=False, delta=1e-6, changes=changes)
        mu_squared = Fraction(0)
        for (left, layout, laws, _), (right, _, _, _) in zip(first.marginals, second.marginals, strict=True):
            moved = layout.sums((left - right) ** 2).tolist()
            for law, squares in zip(laws, moved, strict=True):
                assert isinstance(law, GaussianCells)
                # By the noise that is drawn, not by what it is said to cost.
                mu_squared += int(squares) * Fraction(4**law.refined) / dominating(law.sigma_squared)
        counter = shares.counter(shares.whole * GAUSSIAN.totals)
        lattice = counter.node_noise(1)[0]
        mu_squared += changes**2 * 2 * spent(counter, 64) * lattice / dominating(lattice)
        seen.append(gaussian.delta(EPSILON, float(mu_squared) ** 0.5))
    assert max(seen) <= 1e-6
    assert max(seen) > 0.99e-6
