"""The report of a markov stream: how many users a state must have to be read, its last step, errors over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from agents.show.pages.metrics import Metric, Term, percent, plain
from agents.show.pages.plots import BLUE, curves
from agents.show.pages.verdict import GOOD, POOR, Judged, Scale
from agents.show.presentation.bars import pairs
from agents.show.presentation.markov.leakage import leakage_section
from engines.core.registry import build_engine
from engines.markov.domain import MarkovEvaluator
from engines.markov.engine import Markov
from schemas.arrays import FloatArray
from schemas.config import Stream
from schemas.config.domain.states import StatesDomainSection

if TYPE_CHECKING:
    from agents.protocol.release.held_out import HeldOutAudit
    from agents.show.pages.report import StepRow

SHOWN = 20
SIZES = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000, 100_000_000)
"""Users of a state, for which the error is told; those below a user's own are no states."""

RMS = Metric(
    keys=("mse",),
    label="rms error of a count",
    meaning="Root of the mean squared error over all states of the step, of counts as first released, in users.",
    baseline="Revisions of earlier steps are better still, and not in it.",
    of=math.sqrt,
    text=lambda value: f"{plain(value)} users",
)
TERMS = (
    Term("rms", "Root mean square: the root of the mean of squares. Large errors weigh more than in a plain mean."),
    Term("temporal privacy leakage", "What steps say of each other to somebody who knows how users move, in epsilon."),
)


def metrics(stream: Stream) -> Sequence[Metric]:
    return [RMS]


def built(stream: Stream) -> Markov:
    engine = build_engine(stream)
    assert isinstance(engine, Markov)
    return engine


def judged(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[Judged]:
    """The error of a state's count against how many users are in it."""
    section = stream.domain
    assert isinstance(section, StatesDomainSection)
    errors = [error for row in steps if (error := RMS.value(row.metrics)) is not None]
    if not errors:
        return [Judged(what="Users in a state", scales=(), how="")]
    rms = math.sqrt(sum(error**2 for error in errors) / len(errors))
    population, found = section.population, []
    for size in [size for size in SIZES if size <= population][::-1]:
        found.append(Scale(f"states with {size:,} users ({percent(size / population)} of all)", rms / size))
    points = 100 * rms / population
    more = (
        f"A count is off by {plain(rms)} users (root mean square), a share by {points:.2g} points of 100: good where "
        f"at least {math.ceil(rms / GOOD):,} users are in a state, not below {math.ceil(rms / POOR):,}."
    )
    return [
        Judged(
            what="Users in a state",
            scales=found,
            how=f"The root of the mean squared error over all states and {len(errors):,} steps, {plain(rms)} users, "
            "as a share of the users that a state has.",
            more=more,
        )
    ]


def _last(audit: HeldOutAudit) -> tuple[Sequence[str], FloatArray, FloatArray] | None:
    """Names, true and first released counts of the last step; None where it released nothing."""
    evaluator = audit.evaluator
    assert isinstance(evaluator, MarkovEvaluator)
    values = evaluator.domain.values
    released = {
        record[evaluator.domain.field_name]: float(record["count"])
        for record in audit.alive.values()
        if record["step"] == audit.step - 1 and not record["revised"]
    }
    if not released:
        return None
    true = evaluator.domain.counts(audit.truth).astype(np.float64)
    return values, true, np.array([released.get(value, 0.0) for value in values])


def sections(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[str]:
    released = [(row.start, error) for row in steps if (error := RMS.value(row.metrics)) is not None]
    if not released:
        return []
    parts = []
    if (last := _last(audit)) is not None:
        names, true, made = last
        shown = np.argsort(-np.maximum(true, made), kind="stable")[:SHOWN][::-1]
        more = f" The {SHOWN} states that hold most." if len(names) > SHOWN else ""
        parts.append(
            f"<h2>Where the users are</h2><p class=sub>In the last step, as first released.{more}</p>"
            + pairs([names[state] for state in shown.tolist()], true[shown], made[shown], what="users in a state")
        )
    drawn = curves(
        [start for start, _ in released],
        {"error": [error for _, error in released]},
        {"error": BLUE},
        what="rms error of a count, users",
        text=plain,
        percent=False,
    )
    return [
        *parts,
        "<h2>Error of the counts over time</h2><p class=sub>Root of the mean squared error over all states, of counts "
        f"as first released, in users. Less is better; revisions of earlier steps are better still.</p>{drawn}",
        *leakage_section(built(stream), [start for start, _ in released]),
    ]
