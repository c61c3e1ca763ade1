"""What engine `markov` shows: how many users a state must have to be read, the last step, errors over time.

Temporal privacy leakage is worked out from the public chain and the budgets alone, for `explain` and the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime

import numpy as np

from agents.protocol.release.held_out import HeldOutAudit
from agents.show.charts import AMBER, BLUE, RED, Curve, LineChart, Panel, pairs
from agents.show.noise import Answer, ErrorModel, noise_facts
from agents.show.pictures import StatePicture
from agents.show.view import (
    GOOD,
    POOR,
    Judged,
    Metric,
    ReportSection,
    Scale,
    StepRow,
    Term,
    View,
    over_time,
    percent,
    plain,
)
from engines.core.registry import build_engine
from engines.markov.engine import UNSEEN, Markov
from engines.markov.evaluator import MarkovEvaluator
from engines.markov.leakage import EXACT_STATES, Adversary, Leakage
from schemas.arrays import FloatArray
from schemas.config import Stream
from schemas.config.engines.markov import StatesDomainSection
from schemas.guarantee import Guarantee

_CURVE = 1000
"""Steps at most that a curve is worked out for."""
SHOWN = 20
SIZES = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000, 100_000_000)
"""Numbers of users in a state at which its error is shown; those below a user's own are no states."""

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


def _engine(stream: Stream) -> Markov:
    engine = build_engine(stream)
    assert isinstance(engine, Markov)
    return engine


def _domain(stream: Stream) -> str:
    section = StatesDomainSection.from_stream(stream)
    chain = "learnt from released counts" if section.transition is None else f"declared in {section.transition.path}"
    unseen = ", or in none" if section.unseen else ""
    return (
        f"each of {section.population:,} users is in one of {len(section.values):,} states of {section.field}{unseen}, "
        f"by declaration and not from the data; how they move is {chain}."
    )


def _error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    noise = noise_facts(next(iter(guarantee)))
    states = len(StatesDomainSection.from_stream(stream).values)
    answers = [Answer.steady("one state", 1, "the count of one state in one step", noise)]
    if states > 3:
        answers.append(Answer.steady("half of the states", states // 2, "the sum over so many states", noise))
    conditions = (
        "Every step has noise of its own, in every state, and this is that noise alone, as measurements have it. "
        "Released counts add up to the population, and use that users move as the chain says; their error is smaller "
        "where the chain is strong, and each released record holds its own standard error and 90 % interval."
    )
    return ErrorModel(
        tuple(answers),
        sizes="states",
        growth="The error does not grow: every step is counted anew, which is why a horizon or a period must end it",
        formula="sd(L) = sqrt(L · V),  V = variance of discrete Laplace noise of scale 2/ε_step",
        conditions=conditions,
    )


def _remarks(stream: Stream) -> Iterator[str]:
    population = StatesDomainSection.from_stream(stream).population
    yield (
        "What the estimates make of the noisy counts costs nothing. They rest on the declared population of "
        f"{population:,}; privacy does not: the noise hides any one user's records whoever else sends."
    )
    yield from leakage_lines(_engine(stream))


def leakage(engine: Markov, *, steps: int = _CURVE) -> Leakage | None:
    """Return the leakage of at most `steps`, up to the horizon; None where the chain is unknown or has many states."""
    config = engine.config
    if config.transition is None or config.transition.states > EXACT_STATES:
        return None
    shown = min(config.horizon or _CURVE, _CURVE, steps)
    return Adversary.from_matrix(config.transition.dense).curve([float(config.budget(step)) for step in range(shown)])


def leakage_lines(engine: Markov) -> Iterator[str]:
    """Say the leakage curve of one step's record, in words and figures."""
    config = engine.config
    if config.transition is None:
        yield (
            "Temporal privacy leakage is not known, since no chain is declared: somebody who knows how users move "
            "learns of one step from the others, at most what all steps cost together."
        )
        return
    curve = leakage(engine)
    if curve is None:
        yield (
            f"Temporal privacy leakage is worked out for at most {EXACT_STATES} states; with more it is bounded by "
            "what all steps cost together."
        )
        return
    steps = len(curve.total)
    shown = sorted({0, *(step for step in (1, 9, 99, 999) if step < steps - 1), steps - 1})
    figures = "; ".join(
        f"step {step + 1}: {curve.backward[step]:.3g} backward, {curve.forward[step]:.3g} forward, "
        f"{curve.total[step]:.3g} in all"
        for step in shown
    )
    worst = float(curve.total.max())
    yield (
        f"Temporal privacy leakage (Cao et al.) of ONE step's record, to somebody who knows the chain and sees {steps} "
        f"steps: {figures}. At worst {worst:.3g}, where that step alone costs {float(config.budget(0)):.3g}."
    )
    if config.horizon is None:
        supremum = Adversary.from_matrix(config.transition.dense).supremum(float(config.budget(1)))
        yield (
            "Without an end it grows beyond every bound."
            if supremum is None
            else f"Without an end it approaches {supremum:.3g}."
        )


def leakage_sections(engine: Markov, starts: Sequence[datetime]) -> Sequence[ReportSection]:
    """Return curves over the steps that began at `starts`; nothing where they are not known."""
    curve = leakage(engine, steps=len(starts))
    if curve is None or not starts:
        return []
    lines = {
        "in all": Curve(curve.total, RED),
        "from earlier steps": Curve(curve.backward, BLUE),
        "from later steps": Curve(curve.forward, AMBER),
    }
    panel = Panel(lines=lines, what="epsilon of one step's record")
    sub = (
        "Epsilon that these releases spend on one step's record, against somebody who knows the chain. By the chain "
        "and the budgets alone, not from data."
    )
    return [ReportSection("Temporal privacy leakage", sub, [LineChart(x=starts[: len(curve.total)], panels=[panel])])]


def judged(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[Judged]:
    """Return the error of a state's count against how many users are in it."""
    errors = [error for row in steps if (error := RMS.value(row.metrics)) is not None]
    if not errors:
        return [Judged(what="Users in a state", scales=(), how="")]
    rms = math.sqrt(sum(error**2 for error in errors) / len(errors))
    population, found = StatesDomainSection.from_stream(stream).population, []
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
    """Return names, true and first released counts of the last step; None where it released nothing."""
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


def sections(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Iterator[ReportSection]:
    """Yield the counts of the last step, and errors and leakage over the steps that released something."""
    released = [row.start for row in steps if RMS.value(row.metrics) is not None]
    if not released:
        return
    if (last := _last(audit)) is not None:
        more = f" The {SHOWN} states that hold most." if len(last[0]) > SHOWN else ""
        bars = pairs(*last, what="users in a state", most=SHOWN)
        yield ReportSection("Where the users are", f"In the last step, as first released.{more}", [bars])
    yield from over_time(
        "Error of the counts over time",
        "Root of the mean squared error over all states, of counts as first released, in users. Less is better; "
        "revisions of earlier steps are better still.",
        {RMS: BLUE},
        steps,
        what="rms error of a count, users",
        names=["error"],
    )
    yield from leakage_sections(_engine(stream), released)


VIEW = View(
    domain=_domain,
    error_model=_error_model,
    sections=sections,
    metrics=lambda stream: [RMS],
    judged=judged,
    events=lambda stream: "records of users",
    records=lambda stream: "released counts",
    terms=TERMS,
    error_unit="users",
    remarks=_remarks,
    picture=lambda stream: StatePicture(
        StatesDomainSection.from_stream(stream).field, StatesDomainSection.from_stream(stream).values, unseen=UNSEEN
    ),
)
