"""Temporal privacy leakage of a markov stream: in words and as a row of bars for `explain`, as curves for the report.

A function of the public chain and the budgets alone: nothing here has seen data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime

from agents.show.pages.metrics import plain
from agents.show.pages.plots import AMBER, BLUE, RED, curves
from engines.markov.engine import Markov
from engines.markov.leakage import EXACT_STATES, Adversary, Leakage

_CURVE = 1000
"""Steps at most that a curve is worked out for."""
_BARS = 60
_LEVELS = "▁▂▃▄▅▆▇█"


def leakage(engine: Markov, *, steps: int = _CURVE) -> Leakage | None:
    """By step, up to the horizon and at most `steps`; None where the chain is not known or has too many states."""
    config = engine.config
    if config.transition is None or config.transition.states > EXACT_STATES:
        return None
    shown = min(config.horizon or _CURVE, _CURVE, steps)
    return Adversary.of(config.transition.dense).curve([float(config.budget(step)) for step in range(shown)])


def bars(values: Sequence[float]) -> str:
    """A row of bars from 0 to the largest value; with more than 60 values, each the largest of several.

    >>> bars([1.0, 4.0, 8.0])
    '▁▄█'
    """
    each = math.ceil(len(values) / _BARS)
    tops = [max(values[at : at + each]) for at in range(0, len(values), each)]
    most = max(tops)
    return "".join(_LEVELS[max(round(top / most * len(_LEVELS)) - 1, 0)] for top in tops)


def leakage_lines(engine: Markov) -> Iterator[str]:
    """The leakage curve of one step's record, in words, figures and bars."""
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
    yield f"In all, from the first step to step {steps}, of {worst:.3g}: {bars(curve.total.tolist())}"
    if config.horizon is None:
        supremum = Adversary.of(config.transition.dense).supremum(float(config.budget(1)))
        yield (
            "Without an end it grows beyond every bound."
            if supremum is None
            else f"Without an end it approaches {supremum:.3g}."
        )


def leakage_section(engine: Markov, starts: Sequence[datetime]) -> Sequence[str]:
    """HTML for the report: curves over the steps that began at `starts`; nothing where they are not known."""
    curve = leakage(engine, steps=len(starts))
    if curve is None or not starts:
        return []
    lines = {
        "in all": curve.total.tolist(),
        "from earlier steps": curve.backward.tolist(),
        "from later steps": curve.forward.tolist(),
    }
    return [
        "<h2>Temporal privacy leakage</h2><p class=sub>Epsilon that these releases spend on one step's record, against "
        "somebody who knows the chain. By the chain and the budgets alone, not from data.</p>",
        curves(
            starts[: len(curve.total)],
            lines,
            {"in all": RED, "from earlier steps": BLUE, "from later steps": AMBER},
            what="epsilon of one step's record",
            text=plain,
            percent=False,
        ),
    ]
