"""Faults of synthetic tables: peeks at private counts, scales that are too small, and events that are measured twice.

`PEEKS` read a private value outside of any aggregate: sealed events show them, whatever the data are. `HIDDEN` do it
where sealing does not look, or read nothing and spend too much: forced runs show them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np

from engines.core.noise import NoiseSource
from engines.core.noise.exponential import exponential_mechanism
from engines.core.noise.listing import Listed
from engines.core.shares import GaussianCells, GaussianShares, PureShares
from engines.keys.table import PeriodTable
from engines.tabular import build
from engines.tabular.domain import Discovered
from engines.tabular.fixture import SELDOM
from engines.tabular.growing import config as growing
from engines.tabular.growing import schedule
from engines.tabular.growing.config import GrowingConfig
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.growing.finding import Finder, FindingRule
from engines.tabular.growing.learn import Learning, Line
from engines.tabular.growing.totals import Totals
from engines.tabular.growing.usual import UsualValues
from engines.tabular.marginals import EventRows, Marginals
from engines.tabular.papers.config import RoundsConfig
from engines.tabular.papers.paper_table import PaperTable
from engines.tabular.papers.rounds import QUANTUM, Rounds, Selection
from schemas.arrays import BoolArray, IntArray
from tests.couple.plants import Fault, Plant, Planted, anew, edit, edited, peeked, plants, replaced, together, unasked

SINGLE = {"domain": {"op": "what"}, "options": {"ways": [1], "rounds": 1, "records": False}}
ONE_EVENT = {
    "privacy": {"delta": 1e-6, "epsilon": 8.0, "unit": "event", "user": None, "max_contributions": None},
    "options": {"records": False},
}
WEIGHTED = {
    "domain": {"op": "what"},
    "options": {
        "rounds": 1,
        "records": False,
        "marginals": [{"of": ["smokes"], "weight": 8}, {"of": ["age"], "weight": 1}, {"of": ["city"], "weight": 8}],
    },
}
DELTA = {"privacy": {"delta": 1e-6}, "options": {"records": False}}
SEVERAL = {"privacy": {"delta": 1e-5, "epsilon": 1.0, "max_contributions": 10}, "options": {"records": False}}


def sees_the_best(self: Selection, scores: IntArray, allowed: BoolArray, noise: NoiseSource) -> int:
    among = np.flatnonzero(allowed)
    return int(among[np.argmax(scores[among])])


def sees_the_best_unsealed(self: Selection, scores: IntArray, allowed: BoolArray, noise: NoiseSource) -> int:
    return sees_the_best(self, peeked(scores), allowed, noise)


def over_its_cells(self: Selection, scores: IntArray, allowed: BoolArray, noise: NoiseSource) -> int:
    """[kumar2024c], section 7.2: a pair of attributes has four cells or more; a single attribute has two."""
    among = np.flatnonzero(allowed)
    divided = (scores // self.layout.lengths)[among]
    sensitivity = self.sensitivity / 4
    return int(
        among[
            exponential_mechanism(divided, quantum=QUANTUM, sensitivity=sensitivity, epsilon=self.epsilon, source=noise)
        ]
    )


def choice_costs_twice() -> AbstractContextManager[Any]:
    honest = Selection.choose

    def choose(self: Selection, scores: IntArray, allowed: BoolArray, noise: NoiseSource) -> int:
        return honest(Selection(self.layout, self.weights, 2 * self.epsilon), scores, allowed, noise)

    return patch.object(Selection, "choose", choose)


def lightest_weight() -> AbstractContextManager[Any]:
    light = property(lambda self: Fraction(int(self.weights.min())))
    return patch.object(Selection, "sensitivity", light)


def since_the_start(engine: Any, counts: IntArray) -> IntArray:
    engine._waiting = counts + getattr(engine, "_waiting", 0)
    return engine._waiting


def with_the_last_step(engine: Any, counts: IntArray) -> IntArray:
    both: IntArray = counts + getattr(engine, "_before", 0)
    engine._before = counts
    return both


def parity_of_inserts(
    owner: Any, method: str, old: str, new: Callable[[str], str], **names: Any
) -> AbstractContextManager[Any]:
    """The parity of a step's inserts, kept aside by an aggregate, in the real code as `ODD["now"]`."""
    odd = {"now": False}

    def remember(inserts: Any) -> Any:
        odd["now"] = bool(int(inserts) % 2)
        return inserts

    inserts = "self.signs[self.signs > 0].sum()"
    return together(
        edited(EventRows, "totals", inserts, f"remember({inserts})", remember=remember),
        edited(owner, method, old, new(old), ODD=odd, **names),
    )


EPSILON_OF_MANY = {"privacy": {"epsilon": 60.0}, "options": {"records": False}}
"""Blocks of larger marginals close within a few hundred events."""


def of_many_marginals(*faults: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    """Enter what a small table is taken for one with many marginals by: early events are in one-way marginals only."""
    limits = patch.multiple(schedule, EARLY_MARGINALS=0, EARLY_APART=100_000.0)
    return together(limits, *faults)


def another_account(whole: str, spent: str) -> Planted:
    """What an event may spend is another mu, and an account agrees with it."""
    right = "event_mu_squared(self.epsilon, self.delta, self.changes, self.together)"
    return lambda: together(
        edited(GaussianShares, "whole", right, whole),
        edited(GaussianShares, "mu_squared_of", "share * self._times", spent),
    )


PEEKS: dict[str, Planted | Fault] = {
    "a difference keeps its true sign": Fault(
        edit(
            Learning,
            "_settled",
            "contrasts.tables(counts)",
            "contrasts.tables(abs(counts) * (1 - 2 * (now.larger.pending < 0)))",
        ),
        EPSILON_OF_MANY,
    ),
    "a larger block is closed by a true count": Fault(
        edit(Learning, "due", "fresh = totals.events - now.larger.covered", "fresh = now.larger.pending.sum()"),
        shown_by=3,
    ),
    "all blocks are closed once a million true counts wait, which no data here have": edit(
        Learning,
        "due",
        "totals = now.totals\n",
        "totals = now.totals\n    if now.ones.pending.sum() > 10**6:\n        return True, True\n",
    ),
    "shares of a block's budget follow a true count": edit(
        Learning, "_parts", "max(now.totals.alive, 1.0)", "max(now.larger.pending.sum(), 1.0)"
    ),
    "rows follow a true number of inserts": edit(
        Totals,
        "after",
        "self.inserts.after(inserts, variance)",
        "self.inserts.after(self.inserts.level + float(changes[0]), variance)",
    ),
    "a standard error has a true count in it": edit(
        Learning,
        "close",
        "variances(laws) * config.of_ones.finer,",
        "variances(laws) * config.of_ones.finer + now.ones.pending.sum() % 2,",
    ),
    "which values are usual follows a true count": Fault(
        edit(
            Learning,
            "_usual",
            "config.usual(now.fitted.ones, parts",
            "config.usual(now.fitted.ones * (1 + now.larger.pending.sum() % 2), parts",
        ),
        SELDOM,
    ),
    "a note says whether anything waits": edit(
        GrowingBlocks,
        "_release",
        '"measured": len(work.measured)',
        '"measured": len(work.measured) + int(work.learnt.ones.pending.any())',
    ),
}
HIDDEN: dict[str, Planted | Fault] = {
    "a block is not emptied after it was measured": edit(
        Line, "closed", "np.zeros(layout.cells, np.int64)", "self.pending"
    ),
    "a block leaves the parity of its counts behind": Fault(
        edit(Line, "closed", "np.zeros(layout.cells, np.int64)", "self.pending & 1"), shown_by=9
    ),
    "one-way blocks keep the share of early ones": Fault(
        edit(
            GrowingConfig,
            "line_shares",
            "return self.marginals_share - larger, larger",
            "return self.marginals_share - self.larger_share * self.schedule.early_share, larger",
        ),
        ONE_EVENT,
        dearest=True,
        shown_by=6,
    ),
    "the shares of the first larger block are dropped from the accounting": Fault(
        edit(
            Learning,
            "_settled",
            "laws = config.laws(share, parts,",
            "laws = config.laws(share if now.blocks else 2 * share, parts,",
        ),
        shown_by=15,
    ),
    "a row is in all pairs of its unusual values, however many": Fault(
        edit(UsualValues, "kept", "<= room", "<= np.inf"), SELDOM, shown_by=8
    ),
    "pairs with usual values have half of the noise that their rows pay for": Fault(
        edit(GrowingConfig, "laws", "is None else limit", "is None else limit // 2"), SELDOM, shown_by=28
    ),
    "marginals have half of their noise": Fault(
        edit(PureShares, "cells", "LaplaceCells(share, unit)", "LaplaceCells(2 * share, unit)"), shown_by=3
    ),
    "totals have half of their noise": Fault(edit(PureShares, "counter", "cost=share,", "cost=2 * share,"), shown_by=3),
    "a block is measured twice, and the mean is released": edit(
        Learning,
        "close",
        'counts = measure(now.ones.pending, config.of_ones.measured, laws, self.noise.child("ones"))',
        "both = [measure(now.ones.pending, config.of_ones.measured, laws, "
        'self.noise.child("ones", at)) for at in (0, 1)]; counts = sum(both) // 2',
    ),
    "a row counts for each of the two values of a difference": Fault(
        edit(Marginals, "counts", "1 - 2 * (part", "2 - 4 * (part"), shown_by=3
    ),
    "differences are drawn with the noise that they would be worth as whole cells": edit(
        Learning,
        "_settled",
        "measure(now.larger.pending, now.counted(config), laws,",
        "measure(now.larger.pending, now.counted(config), less_noise(laws, contrasts.finer),",
        less_noise=lambda laws, finer: [
            replace(law, cost=law.cost / Fraction(part)) for law, part in zip(laws, finer.tolist(), strict=True)
        ],
    ),
    "larger marginals have the share of the totals as well": edit(
        GrowingConfig, "larger_share", "self.whole - self.totals_share", "self.whole"
    ),
    "events count twice in a line": edit(Line, "plus", "self.pending + counts", "self.pending + 2 * counts"),
    "early events are in both lines, where a table has many marginals": Fault(
        lambda: of_many_marginals(
            edited(Learning, "arrive", "not before.early or config.schedule.early_share > 0", "True"),
            edited(Learning, "close", "if larger or apart:", "if larger:"),
        ),
        EPSILON_OF_MANY,
        dearest=True,
        shown_by=1,
    ),
    "a row that is alone counts twice": edit(
        EventRows, "counts", "self.signs, kept", "self.signs * (1 + (abs(self.signs) == 1)), kept"
    ),
    "a restart forgets that the stream is early": Fault(
        edit(GrowingBlocks, "restore", "flag_of(early)", "False"), shown_by=21
    ),
    "rows follow a true number of inserts, read as a mechanism would": edit(
        Totals,
        "after",
        "self.inserts.after(inserts, variance)",
        "self.inserts.after(self.inserts.level + float(peeked(changes)[0]), variance)",
        peeked=peeked,
    ),
    "records are turned round where a step has an odd number of inserts": Fault(
        lambda: parity_of_inserts(
            GrowingBlocks,
            "_release",
            "added=changed.added,",
            lambda _: 'added=changed.added[:: -1 if ODD["now"] else 1],',
        ),
        shown_by=3,
    ),
    "an id is left out where a step has an odd number of inserts": Fault(
        lambda: parity_of_inserts(
            GrowingBlocks,
            "step",
            "self._rows, self._next = work.learnt, budgets, rows,",
            lambda _: 'self._rows, self._next = work.learnt, budgets, replace(rows, serial=rows.serial + ODD["now"]),',
            replace=replace,
        ),
        shown_by=3,
    ),
    "the last digit of a variance is a true parity from step 8 on": Fault(
        lambda: parity_of_inserts(
            GrowingBlocks,
            "_totals_json",
            "(inserts, deletes), variance = totals.published()",
            lambda old: f'{old}; variance *= 1 + 2.0**-50 * (totals.steps > 8 and ODD["now"])',
        ),
        shown_by=0,
    ),
    "an insert is in the total of deletes as well": Fault(
        edit(EventRows, "totals", "-self.signs[self.signs < 0].sum()", "abs(self.signs).sum()"), shown_by=7
    ),
    "with a delta, marginals have half of their noise": Fault(
        edit(GaussianShares, "cells", "GaussianCells(share, unit)", "GaussianCells(4 * share, unit)"), DELTA
    ),
    "with a delta, totals have half of their noise": Fault(
        edit(GaussianShares, "counter", "share * COUNTED / 2", "share * COUNTED * 2"), DELTA
    ),
    "with a delta, each marginal has all of its line's budget": Fault(
        edit(GrowingConfig, "laws", "self.shares.cells(share * part / whole)", "self.shares.cells(share)"), DELTA
    ),
    "with a delta, each marginal has noise for the root of its share": Fault(
        edit(
            GaussianShares,
            "cells",
            "GaussianCells(share, unit)",
            "GaussianCells(self.whole * Fraction(float(share / self.whole) ** 0.5), unit)",
        ),
        DELTA,
    ),
    "counts are refined once more than their noise": Fault(
        edit(GaussianCells, "added", "counts * (1 << self.refined)", "counts * (2 << self.refined)"), DELTA, shown_by=3
    ),
    # Each event at (epsilon, delta) over the number of a user's events.
    "delta is divided by the events of a user": Fault(
        another_account("event_mu_squared(self.epsilon / self.changes, self.delta / self.changes, 1)", "share"),
        SEVERAL,
    ),
    # As if each of a user's events moved counts of its own.
    "mu of a user's events adds up in squares": Fault(
        another_account(
            "event_mu_squared(self.epsilon, self.delta, self.changes) * self.changes", "share * self.changes"
        ),
        SEVERAL,
    ),
}
FOUND = {
    "domain": {
        "attributes": [
            {"field": "smokes", "values": [False, True]},
            {"field": "drives", "values": [False, True]},
            {"field": "page", "values": "discover", "max_key_bytes": 8, "least_count": 1},
        ]
    },
    "privacy": {"delta": 1e-3, "max_contributions": 3, "epsilon": 8.0},
    "options": {"records": False},
}
_TESTED = 'listed, table = listing_mechanism(table, finding.law(test, every), noise.child("test"))'


def of_true_counts(listed: Listed, table: PeriodTable, least: int, test: int) -> Listed:
    """Values by their true counts, without a threshold."""
    raw = peeked(table)
    over = raw.counts >= least
    return Listed(raw.keys[over], raw.totals[:, over], np.full(int(over.sum()), test))


def free(owner: Any, name: str, old: str, new: str) -> Planted:
    """A fault in what finding costs, in an engine that is not asked for it."""
    return lambda: together(unasked(), edited(owner, name, old, new))


_AS_BINARY = (Discovered, "binary", "return False", "return self.size == 2")
FINDING: dict[str, Planted | Fault] = {
    "a discovered attribute is counted as binary until a value is found": Fault(edit(*_AS_BINARY), FOUND),
    "a difference that waits is widened to the cells of a value that is found": Fault(
        lambda: together(
            edited(*_AS_BINARY),
            edited(Marginals, "widened", "wider.cliques != self.cliques or wider.signs != self.signs", "False"),
        ),
        FOUND,
        shown_by=7,
    ),
    "finding values uses no budget": Fault(
        free(GrowingConfig, "whole", "- (0 if self.finding is None else self.finding.mu_squared)", ""),
        FOUND,
        dearest=True,
    ),
    "a value is found at its true count, without a threshold": Fault(
        edit(
            Finder,
            "after",
            _TESTED,
            f"{_TESTED}; listed = by_counts(listed, table, finding.least_count, test)",
            by_counts=of_true_counts,
        ),
        FOUND,
        shown_by=23,
    ),
    "events of a unit in one value cost as events in different ones": Fault(
        free(FindingRule, "counter", "short(self.mu_squared)", "short(self.mu_squared * self.changes)"),
        FOUND,
        dearest=True,
        shown_by=0,
    ),
    "a threshold for one event of a unit in a value": Fault(
        edit(FindingRule, "thresholds", "(least + self.changes) * RESOLUTION", "(least + 1) * RESOLUTION"), FOUND
    ),
    "no union over the tests of a period of finding": Fault(
        edit(FindingRule, "thresholds", "* SURE / self.tests", "* SURE"), FOUND
    ),
    "all of delta to noise, where values are found": Fault(
        lambda: together(
            unasked(),
            edited(growing, "noise_delta", "(1 - FINDING_DELTA)", "1"),
            patch.object(build, "noise_delta", lambda delta: delta),
        ),
        FOUND,
        dearest=True,
        shown_by=0,
    ),
}
_CARRIED = "carried[cells] += increment / self.counter.resolution"
_ROWS = "rows.counts(self._parts.layout)"
PAPER_PEEKS: dict[str, Planted | Fault] = {
    "the model is fed true counts from 500 rows on": Fault(
        edit(Rounds, "step", _CARRIED, f"carried[cells] += events[cells] if memory.total >= 500 else {_CARRIED[18:]}"),
        shown_by=0,
    ),
    "the exact |grad f_t|": edit(
        Rounds,
        "step",
        "total = max(LEAST_TOTAL, estimated_total(observed))",
        "total = float(events[: int(layout.lengths[0])].sum())",
    ),
    "a marginal is chosen by true scores": replaced(Selection, "choose", sees_the_best),
}
PAPER_HIDDEN: dict[str, Planted | Fault] = {
    "the model is fed true counts from 500 rows on, read as a mechanism would": Fault(
        edit(
            Rounds,
            "step",
            _CARRIED,
            f"carried[cells] += peeked(events)[cells] if memory.total >= 500 else {_CARRIED[18:]}",
            peeked=peeked,
        ),
        shown_by=40,
    ),
    "a marginal is chosen at twice its budget": Fault(choice_costs_twice, SINGLE),
    "a marginal is chosen by true scores, read as a mechanism would": Fault(
        replaced(Selection, "choose", sees_the_best_unsealed), SINGLE, shown_by=2
    ),
    "a marginal's score is divided by its cells": Fault(
        replaced(Selection, "choose", over_its_cells), SINGLE, shown_by=35
    ),
    "scores are as sensitive as the lightest marginal": Fault(lightest_weight, WEIGHTED),
    "a marginal counts all events since the stream began": edit(
        PaperTable, "_learn", _ROWS, f"waiting(self, {_ROWS})", waiting=since_the_start
    ),
    "a score's penalty follows a true count": Fault(
        edit(
            Rounds,
            "step",
            "(self.penalty * expected_noise(self.counter))",
            "(self.penalty * expected_noise(self.counter)) * (1 + 4 * events.max())",
        ),
        SINGLE,
        shown_by=3,
    ),
    "rounds after the first are dropped from the accounting": edit(
        RoundsConfig, "parts", "share = self.epsilon * _HALF / rounds", "share = self.epsilon * _HALF"
    ),
    "counters have half of their noise": edit(
        RoundsConfig, "calibrated", "(self.horizon or 1, epsilon)", "(self.horizon or 1, 2 * epsilon)"
    ),
    "an expiry by ttl is measured twice": Fault(
        edit(
            PaperTable,
            "step",
            "with_expired(batch.events,",
            "with_expired(with_expired(batch.events, self._expiry, step=batch.step, ttl=config.ttl_steps)[0],",
        ),
        {"domain": {"ttl": "2h"}},
        shown_by=3,
    ),
    "the counts of all rounds share their noise": edit(
        Rounds, "step", 'noise.child("count", at)', 'anew(noise).child("count")', anew=anew
    ),
    "a step's rows are measured again in the next": edit(
        PaperTable, "_learn", _ROWS, f"both(self, {_ROWS})", both=with_the_last_step
    ),
}
PLANTS: tuple[Plant, ...] = (
    *plants("tabular", "default", PEEKS | HIDDEN | FINDING),
    *plants("tabular", "paper", PAPER_PEEKS | PAPER_HIDDEN),
)
