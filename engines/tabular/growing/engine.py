"""Growing blocks, each measured once: a private table that follows its data, step by step, without a graphical model.

Every step counts its inserts and deletes. What the rows are made of is gathered in PRIVATE integer buffers and measured
block by block: one-way marginals in blocks that grow with the table, larger marginals in blocks that grow faster. When
a block closes, and how its budget is shared out, is decided by what was released before. Fitted tables are
post-processing, and so are the synthetic rows.
Guarantee: epsilon-DP for one event, inserted or deleted, over the whole stream however long it lives; or, where there
    is a delta, (epsilon, delta)-DP for a unit of so many events. An event is counted in the totals when it arrives, in
    one block of one-way marginals and in one block of larger ones, whose budgets (epsilon, or mu^2) add up to the same
    early and later; or early, where larger ones have none, in one of one-way marginals only.
Source: ours; proof in docs/notes/0040-growing-blocks.md. An insert's ttl is post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engines.core.accounting.budgets import Budgets
from engines.core.contract import Batch, Release, State
from engines.core.noise import NoiseSource
from engines.core.state import flag_of, head, numbers_of
from engines.tabular.growing.blocks import Evidence
from engines.tabular.growing.config import GrowingConfig, guarantee
from engines.tabular.growing.finding import Finder, Tested
from engines.tabular.growing.learn import ClosedBlock, GrowingState, Learning, Line
from engines.tabular.growing.totals import Totals
from engines.tabular.growing.usual import restored
from engines.tabular.marginals import Clique, EventRows, check_batch
from engines.tabular.records import Fitted, Rows, stream_key
from schemas.arrays import FloatArray
from schemas.guarantee import Guarantee

STATE_FORMAT = 2


class GrowingBlocks:
    """See the module; implements `engines.core.contract.Engine`.

    >>> from fractions import Fraction
    >>> from engines.core.noise import seeded
    >>> from engines.tabular.domain import Category, TableDomain
    >>> from schemas.blocks import Folded
    >>> table = TableDomain((Category(field="sex", values=("f", "m")), Category(field="smokes", values=(False, True))))
    >>> engine = GrowingBlocks(GrowingConfig(name="docs", domain=table, epsilon=Fraction(1)))
    >>> events = Folded(np.array([[0], [6]], np.uint64), np.array([300, 500]))
    >>> release = engine.step(Batch(0, events), seeded(1))
    >>> release.total == len(release.added), abs(release.total - 800) < 100
    (True, True)
    """

    def __init__(self, config: GrowingConfig) -> None:
        self.config = self._first = config
        self._budgets = Budgets.from_guarantee(self.guarantee())
        self._next = 0
        self._learnt = _nothing(config)
        self._rows = Rows.none(len(config.domain.attributes))
        self._finder: Finder | None = None
        if config.finding is not None and config.domain.discovered is not None:
            self._finder = Finder.empty(config.finding, config.domain.discovered[1])

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        now = batch.step
        check_batch(batch, step=self._next, domain=self.config.domain)
        budgets = self._budgets.charged(self.guarantee(), "totals", step=now)
        budgets, finder, tested = self._find(budgets, batch, noise)
        config, learnt = self.config, self._learnt
        if tested is not None and tested.values:
            # Values that are found have codes of their own from this step's events on.
            config = config.with_found(tested.values)
            learnt = learnt.widened(self.config, config)
        work = Learning(config, learnt, now, noise)
        work.arrive(EventRows.of(batch.events, config.domain, config.columns))
        ones, larger = work.due()
        if ones:
            # An event is in one block of each line, and their budgets always add up to this.
            if len(config.ones):
                budgets = budgets.charged(self.guarantee(), "marginals", step=now)
            work.close(larger=larger)
        rows = self._followed(config, work.learnt, new_fit=ones, beyond=batch.beyond, noise=noise.child("rows"))
        release = self._release(now, work, rows, tested)
        self.config, self._finder = config, finder
        self._learnt, self._budgets, self._rows, self._next = work.learnt, budgets, rows, now + 1
        return release

    def _find(self, budgets: Budgets, batch: Batch, noise: NoiseSource) -> tuple[Budgets, Finder | None, Tested | None]:
        """Test values that nobody listed, if there are any; an event is in one period, which is charged at its first
        test.
        """
        finder = self._finder
        if finder is None or finder.full:
            return budgets, finder, None
        if finder.finding.test_at(batch.step) == 1:
            budgets = budgets.charged(self.guarantee(), "values", step=batch.step)
        return budgets, *finder.after(batch.events, self.config.domain, batch.step, noise.child("values"))

    def _followed(
        self, config: GrowingConfig, learnt: GrowingState, *, new_fit: bool, beyond: float, noise: NoiseSource
    ) -> Rows:
        totals = learnt.totals
        if not config.records or (learnt.fitted is None and len(config.active)):
            return self._rows
        return config.keeper.follow(
            self._rows,
            learnt.fitted or config.fitter.start(),
            total=round(totals.alive + beyond),
            most=int(totals.most_changes * (1 + beyond / max(totals.alive, 1.0)) + config.churn * len(self._rows)),
            new_fit=new_fit,
            noise=noise,
        )

    def _release(self, now: int, work: Learning, rows: Rows, tested: Tested | None) -> Release:
        learnt, config = work.learnt, work.config
        changed = rows.change(self._rows, config.domain, stream_key(config.name), weighted=config.weighted)
        return Release(
            step=now,
            added=changed.added,
            removed=changed.removed,
            measurements=[
                self._totals_json(learnt.totals),
                *([] if tested is None or config.finding is None else [tested.json(config.finding)]),
                *self._marginals_json(config, work.measured),
            ],
            total=changed.total,
            notes={
                "rows_estimate": round(learnt.totals.alive),
                "blocks": len(learnt.evidence.settled) + len(learnt.evidence.recent),
                "measured": len(work.measured),
                **({} if config.domain.discovered is None else {"values": len(config.domain.discovered[1].found)}),
            },
            weight=changed.weight,
        )

    def _totals_json(self, totals: Totals) -> dict[str, Any]:
        """Return the running sums since the start, with noise; `variance` is that of each."""
        (inserts, deletes), variance = totals.published()
        return {"totals": {"inserts": inserts, "deletes": deletes}, "variance": variance}

    def _marginals_json(self, config: GrowingConfig, measured: Sequence[ClosedBlock]) -> list[dict[str, Any]]:
        """Return one object for each marginal of a closed block.

        `increment` holds noisy net counts of the events of steps `since` + 1 to this one, its last attribute fastest;
        or one `difference`, see `Contrasts`. `variance` is that of the noise of each. `usual` has for each attribute
        the place of the value whose rows the marginal leaves out, or None. Where some has, `lost` is the noisy number
        of rows that were in more of these marginals than they are counted in: see `UsualValues`.
        """
        names = config.names
        found: list[dict[str, Any]] = []
        for block in measured:
            contrasts, usual = block.contrasts, block.usual
            first = len(config.ones) if block.larger else 0
            counts = block.counts
            if usual is not None:
                lost, variance = block.lost
                found.append({"since": block.since, "lost": lost, "variance": variance})
                counts = np.where(usual.empty, 0, counts[:-1])
            for index, variance in enumerate(block.variances[: len(contrasts.marginals)].tolist()):
                found.append(
                    {
                        "marginal": list(names[first + index]),
                        "difference": contrasts.single[index],
                        "since": block.since,
                        "usual": [None] * len(names[first + index]) if usual is None else usual.of(index),
                        "increment": contrasts.measured.table(counts, index).ravel().tolist(),
                        "variance": variance,
                    }
                )
        return found

    @property
    def marginals(self) -> dict[Clique, FloatArray]:
        """Return the released estimates of all marginals of two or more values, in rows; even ones before the first
        block.
        """
        config, learnt = self.config, self._learnt
        fitted = learnt.fitted or config.fitter.start()
        alive = learnt.totals.alive
        tables: dict[Clique, FloatArray] = {}
        for layout, shares in ((config.ones, fitted.ones), (config.larger, fitted.larger)):
            for index, clique in enumerate(layout.cliques):
                tables[tuple(config.active[place] for place in clique)] = layout.table(shares, index) * alive
        return tables

    def state(self) -> State:
        """See `engines.core.contract.Engine.state`. O(cells + rows), plus blocks that are alive under a ttl."""
        learnt = self._learnt
        return {
            **head(STATE_FORMAT, self.config.identity, self._next, learnt.early, learnt.blocks, learnt.crowded),
            **learnt.totals.arrays(),
            **learnt.ones.arrays("ones"),
            **learnt.larger.arrays("larger"),
            **learnt.evidence.arrays(),
            **({} if learnt.fitted is None else learnt.fitted.arrays()),
            **({} if learnt.usual is None else learnt.usual.arrays()),
            **self._rows.arrays(self.config.domain),
            **({} if self._finder is None else self._finder.arrays()),
            **self._budgets.arrays(),
        }

    def restore(self, state: State) -> None:
        step, early, blocks, crowded = numbers_of(state, STATE_FORMAT, self.config.identity, count=4)
        config, finder = self._first, self._finder
        if finder is not None and config.domain.discovered is not None:
            _, attribute = config.domain.discovered
            finder = finder.restored(state, attribute, steps=step)
            config = config.with_found(attribute.texts(finder.found))
        known = replace(_nothing(config), usual=restored(state, config.larger, config.binary))
        learnt = replace(
            known,
            totals=known.totals.restored(state),
            ones=Line.restored(state, "ones", config.of_ones.measured),
            larger=Line.restored(state, "larger", known.counted(config)),
            early=flag_of(early),
            blocks=blocks,
            evidence=known.evidence.restored(state),
            fitted=Fitted.of(state),
            crowded=flag_of(crowded),
        )
        rows, budgets = Rows.of(state, config.domain), self._budgets.restored(state)
        self.config, self._finder = config, finder
        self._learnt, self._rows, self._budgets, self._next = learnt, rows, budgets, step

    def guarantee(self) -> Guarantee:
        return guarantee(self.config)


def _nothing(config: GrowingConfig) -> GrowingState:
    """Return what is known before the first step."""
    return GrowingState(
        totals=Totals(config.totals_counter, config.ttl_steps),
        ones=Line(np.zeros(config.of_ones.measured.cells, np.int64)),
        larger=Line(np.zeros(config.of_larger.measured.cells, np.int64)),
        early=config.schedule.early(0.0),
        blocks=0,
        evidence=Evidence(ttl_steps=config.ttl_steps),
        fitted=None,
    )
