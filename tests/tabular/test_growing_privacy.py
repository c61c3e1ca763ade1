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

from engines.contract import Batch, Release
from engines.contract_checks import contents
from engines.noise import NoiseSource, seeded
from engines.tabular import Marginals, TableDomain
from engines.tabular.batches import EventRows
from engines.tabular.growing import learn as growing_learn
from engines.tabular.growing import schedule as growing_schedule
from engines.tabular.growing.config import GrowingParts
from engines.tabular.growing.learn import Learning, Line
from engines.tabular.growing.totals import Totals
from schemas.arrays import IntArray
from schemas.blocks import Folded
from tests.tabular.tables import folded, growing, one_row, random_rows, streams, table, triples

TABLE = table(2, 3, 4)
EPSILON = Fraction(40)
"""High, so that blocks of every kind close within a few hundred events."""


@dataclass
class Tape:
    """Everything that a run's mechanisms were given and let out, in order."""

    marginals: list[tuple[IntArray, Marginals, tuple[Fraction, ...], IntArray]] = field(default_factory=list)
    totals: list[tuple[int, int, Totals]] = field(default_factory=list)

    def listen(self, patch: pytest.MonkeyPatch, replay: Tape | None) -> None:
        measure, after = growing_learn.measure, Totals.after

        def measured(counts: IntArray, layout: Marginals, epsilons: Sequence[Fraction], noise: NoiseSource) -> IntArray:
            if replay is None:
                out = measure(counts, layout, epsilons, noise)
            else:
                _, same_layout, same_epsilons, out = replay.marginals[len(self.marginals)]
                assert (layout, tuple(epsilons)) == (same_layout, same_epsilons), "what is measured depends on data"
            self.marginals.append((counts.copy(), layout, tuple(epsilons), out))
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
    for (left, layout, epsilons, _), (right, _, _, _) in zip(first.marginals, second.marginals, strict=True):
        moved = layout.sums(np.abs(left - right)).tolist()
        loss += sum((epsilon * part for epsilon, part in zip(epsilons, moved, strict=True)), Fraction(0))
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
]
MARGINALS = EPSILON * Fraction(9, 10)


@pytest.mark.parametrize("changes", VARIANTS)
def test_one_event_costs_exactly_the_budget(changes: dict[str, Any]) -> None:
    steps = steady(TABLE, 18, deletes=changes.get("deletable", False))
    seen = set()
    for at in (0, 4, 9):
        for sign in (1, -1) if changes.get("deletable") else (1,):
            totals, loss, blocks = losses(steps, one_row(TABLE, at, sign), at, **changes)
            assert totals == 1
            assert loss <= MARGINALS
            assert blocks >= 4
            seen.add(loss)
    # Early events are measured whole, so the budget is spent, not only kept.
    assert MARGINALS in seen


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
    assert loss <= MARGINALS


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
            self.kept = self.learnt.larger.plus(rows.counts(self.parts.larger))  # type: ignore[attr-defined]
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
    original = GrowingParts.line_epsilons

    def line_epsilons(parts: GrowingParts, *, early: bool) -> tuple[Fraction, Fraction]:
        return original(parts, early=True)[0], original(parts, early=early)[1]

    patch.setattr(GrowingParts, "line_epsilons", line_epsilons)


def closes_by_private_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Learning, "due", lambda self: (int(self.learnt.ones.pending.sum()) % 2 == 0, False))


def check(steps: Sequence[Folded], *, apart: bool = False) -> None:
    for at in (0, 1, 2, 9):
        _, loss, _ = losses(steps, one_row(TABLE, at), at, records=False, apart=apart)
        assert loss <= MARGINALS


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
