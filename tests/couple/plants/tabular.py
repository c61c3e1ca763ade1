"""Faults of synthetic tables: peeks at private counts, scales that are too small, and events that are measured twice.

`PEEKS` read a private value outside of any aggregate: sealed events show them, whatever the data are. `HIDDEN` do it
where sealing does not look, or read nothing and spend too much: forced runs show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from engines.core.shares import PureShares
from engines.tabular.growing.config import GrowingConfig
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.growing.learn import Learning, Line
from engines.tabular.growing.totals import Totals
from engines.tabular.marginals import EventRows
from engines.tabular.papers.config import RoundsConfig
from engines.tabular.papers.paper_table import PaperTable
from engines.tabular.papers.rounds import Rounds, Selection
from tests.couple.plants import Plant, anew, peeked
from tests.couple.plants import tabular_faults as faults
from tests.couple.plants.edits import edited

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


def _edit(mode: str, name: str, owner: Any, method: str, old: str, new: str, **more: Any) -> Plant:
    variant: Mapping[str, Any] = more.pop("variant", {})
    shown_by, dearest = more.pop("shown_by", 0), more.pop("dearest", False)
    planted = partial(edited, owner, method, old, new, **more)
    return Plant(
        name=name, engine="tabular", mode=mode, planted=planted, variant=variant, shown_by=shown_by, dearest=dearest
    )


def _whole(mode: str, name: str, planted: Any, variant: Mapping[str, Any] = {}) -> Plant:
    return Plant(name=name, engine="tabular", mode=mode, planted=planted, variant=variant)


PEEKS: tuple[Plant, ...] = (
    _edit(
        "default",
        "a larger block is closed by a true count",
        Learning,
        "due",
        "fresh = totals.events - now.larger.covered",
        "fresh = now.larger.pending.sum()",
    ),
    _edit(
        "default",
        "all blocks are closed once a million true counts wait, which no data here have",
        Learning,
        "due",
        "now, schedule = self.learnt, self.config.schedule",
        "now, schedule = self.learnt, self.config.schedule\n"
        "    if now.ones.pending.sum() > 10**6:\n        return True, True",
    ),
    _edit(
        "default",
        "shares of a block's budget follow a true count",
        Learning,
        "_settled",
        "max(now.totals.alive, 1.0)",
        "max(now.larger.pending.sum(), 1.0)",
    ),
    _edit(
        "default",
        "rows follow a true number of inserts",
        Totals,
        "after",
        "self.inserts.after(inserts, variance)",
        "self.inserts.after(self.inserts.level + float(changes[0]), variance)",
    ),
    _edit(
        "default",
        "a standard error has a true count in it",
        Learning,
        "close",
        "counts.astype(np.float64),\n        variances(laws),",
        "counts.astype(np.float64),\n        variances(laws) + now.ones.pending.sum() % 2,",
    ),
    _edit(
        "default",
        "a note says whether anything waits",
        GrowingBlocks,
        "_release",
        '"measured": len(work.measured)',
        '"measured": len(work.measured) + int(work.learnt.ones.pending.any())',
    ),
    _edit(
        "paper",
        "the model is fed true counts from 500 rows on",
        Rounds,
        "step",
        "carried[cells] += increment / self.counter.resolution",
        "carried[cells] += events[cells] if memory.total >= 500 else increment / self.counter.resolution",
    ),
    _edit(
        "paper",
        "the exact |grad f_t|",
        Rounds,
        "step",
        "total = max(LEAST_TOTAL, estimated_total(observed))",
        "total = float(events[: int(layout.lengths[0])].sum())",
    ),
    _whole(
        "paper",
        "a marginal is chosen by true scores",
        lambda: mock.patch.object(Selection, "choose", faults.sees_the_best),
    ),
)

HIDDEN: tuple[Plant, ...] = (
    _edit(
        "default",
        "a block is not emptied after it was measured",
        Line,
        "closed",
        "np.zeros_like(self.pending)",
        "self.pending",
    ),
    _edit(
        "default",
        "a block leaves the parity of its counts behind",
        Line,
        "closed",
        "np.zeros_like(self.pending)",
        "self.pending & 1",
    ),
    _edit(
        "default",
        "one-way blocks keep the share of early ones",
        GrowingConfig,
        "line_shares",
        "return self.marginals_share - larger, larger",
        "return self.marginals_share - self.larger_share * self.schedule.early_share, larger",
        variant=ONE_EVENT,
        dearest=True,
        shown_by=1,
    ),
    _edit(
        "default",
        "the shares of the first larger block are dropped from the accounting",
        Learning,
        "_settled",
        "laws = config.laws(share, weights)",
        "laws = config.laws(share if now.blocks else 2 * share, weights)",
    ),
    _edit(
        "default",
        "marginals have half of their noise",
        PureShares,
        "cells",
        "LaplaceCells(share, unit)",
        "LaplaceCells(2 * share, unit)",
    ),
    _edit(
        "default",
        "totals have half of their noise",
        PureShares,
        "counter",
        "cost=share,",
        "cost=2 * share,",
    ),
    _edit(
        "default",
        "a block is measured twice, and the mean is released",
        Learning,
        "close",
        'counts = measure(now.ones.pending, config.ones, laws, self.noise.child("ones"))',
        'both = [measure(now.ones.pending, config.ones, laws, self.noise.child("ones", at)) for at in (0, 1)]; '
        "counts = sum(both) // 2",
    ),
    _edit(
        "default",
        "a row that is alone counts twice",
        EventRows,
        "counts",
        "self.signs)",
        "self.signs * (1 + (abs(self.signs) == 1)))",
    ),
    _edit(
        "default",
        "a restart forgets that the stream is early",
        GrowingBlocks,
        "restore",
        "flag_of(early)",
        "False",
    ),
    _edit(
        "default",
        "rows follow a true number of inserts, read as a mechanism would",
        Totals,
        "after",
        "self.inserts.after(inserts, variance)",
        "self.inserts.after(self.inserts.level + float(peeked(changes)[0]), variance)",
        peeked=peeked,
    ),
    _whole(
        "default",
        "records are turned round where a step has an odd number of inserts",
        lambda: faults.parity_of_inserts(
            GrowingBlocks,
            "_release",
            "rows.codes[new], rows.ids[new], rows.origins[new])",
            lambda old: f'{old}[:: -1 if ODD["now"] else 1]',
        ),
    ),
    _whole(
        "default",
        "an id is left out where a step has an odd number of inserts",
        lambda: faults.parity_of_inserts(
            GrowingBlocks,
            "step",
            "self._rows, self._next = work.learnt, budgets, rows,",
            lambda _: 'self._rows, self._next = work.learnt, budgets, replace(rows, serial=rows.serial + ODD["now"]),',
            replace=replace,
        ),
    ),
    _whole(
        "default",
        "the last digit of a variance is a true parity from step 8 on",
        lambda: faults.parity_of_inserts(
            GrowingBlocks,
            "_totals_json",
            "(inserts, deletes), variance = totals.published()",
            lambda old: f'{old}; variance *= 1 + 2.0**-50 * (totals.steps > 8 and ODD["now"])',
        ),
    ),
    _edit(
        "paper",
        "the model is fed true counts from 500 rows on, read as a mechanism would",
        Rounds,
        "step",
        "carried[cells] += increment / self.counter.resolution",
        "carried[cells] += peeked(events)[cells] if memory.total >= 500 else increment / self.counter.resolution",
        peeked=peeked,
        shown_by=40,
    ),
    _whole("paper", "a marginal is chosen at twice its budget", faults.choice_costs_twice, SINGLE),
    _whole(
        "paper",
        "a marginal is chosen by true scores, read as a mechanism would",
        lambda: mock.patch.object(Selection, "choose", faults.sees_the_best_unsealed),
        SINGLE,
    ),
    _whole(
        "paper",
        "a marginal's score is divided by its cells",
        lambda: mock.patch.object(Selection, "choose", faults.over_its_cells),
        SINGLE,
    ),
    _whole("paper", "scores are as sensitive as the lightest marginal", faults.lightest_weight, WEIGHTED),
    _edit(
        "paper",
        "a marginal counts all events since the stream began",
        PaperTable,
        "_learn",
        "rows.counts(self._parts.layout)",
        "waiting(self, rows.counts(self._parts.layout))",
        waiting=faults.since_the_start,
    ),
    _edit(
        "paper",
        "a score's penalty follows a true count",
        Rounds,
        "step",
        "(self.penalty * expected_noise(self.counter))",
        "(self.penalty * expected_noise(self.counter)) * (1 + 4 * events.max())",
        variant=SINGLE,
    ),
    _edit(
        "paper",
        "rounds after the first are dropped from the accounting",
        RoundsConfig,
        "parts",
        "share = self.epsilon * _HALF / rounds",
        "share = self.epsilon * _HALF",
    ),
    _edit(
        "paper",
        "counters have half of their noise",
        RoundsConfig,
        "calibrated",
        "(self.horizon or 1, epsilon)",
        "(self.horizon or 1, 2 * epsilon)",
    ),
    _edit(
        "paper",
        "an expiry by ttl is measured twice",
        PaperTable,
        "step",
        "events = merged(events, expired)",
        "events = merged(events, expired, expired)",
        variant={"domain": {"ttl": "2h"}},
    ),
    _edit(
        "paper",
        "the counts of all rounds share their noise",
        Rounds,
        "step",
        'noise.child("count", at)',
        'anew(noise).child("count")',
        anew=anew,
    ),
    _edit(
        "paper",
        "a step's rows are measured again in the next",
        PaperTable,
        "_learn",
        "rows.counts(self._parts.layout)",
        "both(self, rows.counts(self._parts.layout))",
        both=faults.with_the_last_step,
    ),
    _edit(
        "default",
        "an insert is in the total of deletes as well",
        EventRows,
        "totals",
        "-self.signs[self.signs < 0].sum()",
        "abs(self.signs).sum()",
    ),
)

PLANTS: tuple[Plant, ...] = (*PEEKS, *HIDDEN)
