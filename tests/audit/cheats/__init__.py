"""Planted bugs that the auditor must catch, each beside its honest twin, which must pass.

A cheat is a module here with `cheat()` and `honest()`, each a case; one class in it is the bug. `caught_by` names what
catches it: runs have no power against some, and then the exact loss, or equal noise of fresh seeds, decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engines.auditor.audit import Detector
from engines.auditor.cases import Case
from tests.audit.cheats import (
    bloom_bound,
    clip_after_sum,
    count_in_ledger,
    deletes_subtracted,
    divided_delta,
    exact_count,
    first_weights_dropped,
    float_laplace,
    forgetful_bound,
    forgotten_period,
    half_leaf,
    half_noise,
    heavy_prefixes,
    log2_tree,
    moving_boundary,
    negative_counts,
    noiseless_watch,
    occupancy,
    one_of_several,
    parallel_delta,
    raw_parameters,
    real_valued,
    redraw_large,
    redraw_on_replay,
    remeasured,
    replacement,
    seeded_generator,
    selection_twice,
    shrunk_lambda,
    table_selection,
    table_total,
    telling_order,
    trips,
    two_a_step,
)


@dataclass(frozen=True)
class Cheat:
    name: str
    cheat: Callable[[], Case]
    honest: Callable[[], Case]
    caught_by: Detector
    runs: int = 400
    """So many that it is missed with probability 1e-6 at most: docs/notes/0020 says how that is worked out."""
    few: int | None = None
    """Runs that are enough with the fixed seeds of the tests; by default `runs`, which catch it with any."""
    claimed: bool = False
    """Whether its honest twin is, run for run, a claim of `test_claims.py`, and need not be tried twice there."""

    @property
    def honest_runs(self) -> int:
        """Enough for every row of the honest twin to be able to fail."""
        return min(self.runs, 80)


def _of(
    name: str, module: object, caught_by: Detector, runs: int = 400, few: int | None = None, *, claimed: bool = False
) -> Cheat:
    return Cheat(name, module.cheat, module.honest, caught_by, runs, few, claimed)  # type: ignore[attr-defined]


CHEATS = (
    _of("half the noise", half_noise, "monte carlo"),
    _of("noise re-drawn on replay and both published", redraw_on_replay, "monte carlo", runs=520, few=160),
    _of("counts re-measured after a crash", remeasured, "monte carlo", runs=520, few=200),
    _of("the tree with log2 T levels", log2_tree, "exact"),
    _of("the paper's PrivTree input on negative counts", negative_counts, "exact"),
    _of("deletes subtracted instead of added", deletes_subtracted, "exact"),
    _of("an exact |grad f_t|", exact_count, "monte carlo", runs=100, few=40),
    _of("float Laplace whose low bits leak", float_laplace, "monte carlo"),
    _of("a seeded generator", seeded_generator, "fresh seeds"),
    _of("a step boundary that moves with the number of events", moving_boundary, "monte carlo", runs=740, few=180),
    _of("sensitivity of add/remove used for replacement", replacement, "monte carlo"),
    _of("a budget spent twice in selection", selection_twice, "monte carlo", runs=600, few=400),
    _of("integer noise on a real-valued statistic", real_valued, "monte carlo"),
    _of("PrivTree's lambda times 0.83 at small epsilon", shrunk_lambda, "exact"),
    _of("a crash that redraws when the draw was large", redraw_large, "monte carlo"),
    _of("a contribution bound that a second worker forgets", forgetful_bound, "monte carlo", runs=660, few=180),
    _of("a table scaled to an exact |grad f_t|", table_total, "monte carlo", runs=200),
    Cheat(
        "a marginal chosen at twice its budget",
        table_selection.spent_twice,
        table_selection.honest,
        "monte carlo",
        800,
        400,
    ),
    Cheat(
        "a marginal's score over its cells", table_selection.divided, table_selection.honest, "monte carlo", 800, 400
    ),
    _of("occupancy with the sensitivity of one count", occupancy, "monte carlo", runs=3200, few=900),
    _of("(epsilon, delta) divided by the number of contributions", divided_delta, "exact"),
    _of("series: parameters learnt from raw values", raw_parameters, "monte carlo", runs=200),
    _of("series: weights of the first two steps not accounted for", first_weights_dropped, "exact"),
    _of("series: sensitivity 1 where a user has two events in a step", two_a_step, "exact"),
    Cheat("trips: raw counts left in", trips.raw_counts, trips.honest, "monte carlo", runs=150),
    Cheat("trips: the true maximum length", trips.longest, trips.honest, "monte carlo", runs=150),
    Cheat("trips: the true box", trips.box, trips.honest, "monte carlo", runs=150),
    _of("the exact number of events in the ledger", count_in_ledger, "monte carlo", runs=100, few=40, claimed=True),
    _of("the watch without noise", noiseless_watch, "monte carlo", runs=72, few=40, claimed=True),
    _of("half the noise of a held leaf", half_leaf, "monte carlo", runs=280, few=130, claimed=True),
    Cheat(
        "the order of records by a parity", telling_order.order, telling_order.honest_order, "monte carlo", 80, few=60
    ),
    Cheat("the last digit by a parity", telling_order.digit, telling_order.honest_digit, "monte carlo", runs=60),
    Cheat("trips: a weight above one", trips.heavy, trips.light, "exact"),
    Cheat("heavy prefixes: one draw for the whole tree", heavy_prefixes.one_draw, heavy_prefixes.honest, "monte carlo"),
    Cheat("heavy prefixes: exact counts decide", heavy_prefixes.exact_descent, heavy_prefixes.honest, "monte carlo"),
    _of("parallel composition with a delta, chosen adaptively", parallel_delta, "monte carlo"),
    _of("users: noise for one of several events", one_of_several, "monte carlo"),
    _of("users: the clip after the sum", clip_after_sum, "monte carlo"),
    _of("users: a bound that renews within one release", forgotten_period, "monte carlo"),
    _of("users: a bound that drops others' events", bloom_bound, "monte carlo", runs=900, few=400),
)
