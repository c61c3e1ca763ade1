"""How streams over named zones are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agents.show.pages.verdict import GOOD, Judged, Scale, relative
from agents.show.presentation.bars import pairs
from engines.spatial.evaluators import ZoneEvaluator
from schemas.arrays import IntArray
from schemas.config import ZonesDomainSection

if TYPE_CHECKING:
    from agents.protocol.release.held_out import HeldOutAudit

MOST_SHOWN = 30
ERRORS = (
    "<h2>Error of zone counts over time</h2><p class=sub>Mean relative error of the counts of all single zones "
    "(small), and of all runs of a tenth (medium) and a third (large) of the zones. Less is better.</p>"
)


def domain_sentence(domain: ZonesDomainSection) -> str:
    """The public domain, for `explain`."""
    names = domain.names
    where = "as listed" if domain.file is None else f"with the outlines of SHA-256 {domain.file.sha256[:12]}..."
    return f"{domain.field} is one of {len(names):,} zones, {names[0]} to {names[-1]}, {where}, and not from the data."


def judged(audit: HeldOutAudit) -> Judged:
    """Runs of zones, from all of them to single ones."""
    true, made = (counts.astype(np.float64) for counts in _counts(audit))
    even = np.full(len(true), made.sum() / len(true))
    found = []
    runs = sorted({len(true), *(1 << power for power in range(len(true).bit_length() - 1))}, reverse=True)
    for run in runs:
        starts = np.arange(0, len(true), run)
        sums = [np.add.reduceat(counts, starts) for counts in (true, made, even)]
        name = "all zones" if run == len(true) else "single zones" if run == 1 else f"groups of {run} zones"
        found.append(Scale(name, relative(sums[0], sums[1]), relative(sums[0], sums[2])))
    there = true > 0
    good = int((np.abs(made - true)[there] <= GOOD * true[there]).sum())
    return Judged(
        what="Counts by zone",
        scales=found,
        how="Counts of neighbouring zones, taken together, true and synthetic, after the last step. Bars are the "
        "differences, added up, as a share of all true events.",
        baseline="as many events, the same number in each zone",
        more=f"Of {int(there.sum()):,} zones with events, {good:,} {'is' if good == 1 else 'are'} within {GOOD:.0%}.",
    )


def _counts(audit: HeldOutAudit) -> tuple[IntArray, IntArray]:
    """True and released, of every zone."""
    evaluator = audit.evaluator
    assert isinstance(evaluator, ZoneEvaluator)
    released = evaluator.synthetic_counts([row[evaluator.domain.field] for row in audit.alive.values()])
    return evaluator.true_counts(audit.truth), released


def bars(audit: HeldOutAudit) -> str:
    """True and released counts of the zones that hold most, with their numbers."""
    evaluator = audit.evaluator
    assert isinstance(evaluator, ZoneEvaluator)
    true, released = _counts(audit)
    shown = np.argsort(-np.maximum(true, released), kind="stable")[:MOST_SHOWN][::-1]
    names = [evaluator.domain.names[zone] for zone in shown.tolist()]
    more = f" The {MOST_SHOWN} zones that hold most." if len(true) > MOST_SHOWN else ""
    return f"<h2>Where the events are</h2><p class=sub>After the last step.{more}</p>" + pairs(
        names, true[shown].astype(np.float64), released[shown].astype(np.float64), what="events of a zone"
    )
