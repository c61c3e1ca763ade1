"""Which bound on a user's contributions to choose: the grid, the two parts of the error, the recommendation. Pure.

A small bound drops events, and nothing brings them back: bias. A large one leaves each event a small share of epsilon:
noise. The truth that the bound lets through, compared once with all of the truth and once with the release, tells the
two apart. All figures here are true values: for the operator only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np

from agents.show.view import Metric, errors
from engines.core.contract import Evaluator
from schemas.blocks import Folded
from schemas.errors import PrivstreamError

NOT_COVERED = (
    "A bound that is chosen from private data is itself a function of private data, and no guarantee covers it: who "
    "knows the bound has learnt something of them. Choose it on a public file, or on an old one of people who are in "
    "no stream that it is used for."
)
TRUE_VALUES = (
    "NOT PRIVATE. For the operator only: shares and errors are TRUE values. Do not publish, send or commit them."
)
LADDER = tuple(step * 10**power for power in range(7) for step in (1, 2, 5) if step * 10**power <= 1_000_000)
"""Bounds from which the default ones are taken."""
BELOW, ABOVE = 20, 5
"""How many times smaller and larger than the configured bound a default one is at most."""
LEAST = 1e-3
"""Of the largest error of its name: where errors are multiplied with each other, smaller ones count as so large."""
APART = 2.0
"""Standard deviations of their difference by which two bounds are told apart."""


@dataclass(frozen=True, slots=True)
class ErrorSplit:
    """Errors by name, see `agents.show.view.errors`.

    Attributes:
        bias: of what the bound lets through, as if released without noise, against the whole truth.
        noise: of the release against what the bound lets through.
        total: of the release against the whole truth. Not the sum: the two parts can make good for each other.
    """

    bias: Mapping[str, float]
    noise: Mapping[str, float]
    total: Mapping[str, float]

    @property
    def known(self) -> bool:
        """Whether anything was released, and compared."""
        return any(math.isfinite(value) for value in self.total.values())


@dataclass(frozen=True, slots=True)
class TuneCell:
    """One bound at one epsilon. Shares are of usable rows, in all steps and in the first and last third of them.

    Attributes:
        runs: the errors of each run, a mean over the steps that count; empty where nothing was released.
    """

    bound: int
    epsilon: Decimal
    accepted: float
    accepted_first: float
    accepted_last: float
    runs: tuple[ErrorSplit, ...]

    @property
    def errors(self) -> ErrorSplit:
        """The mean over all runs."""
        return mean(self.runs)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The bound of least error at one epsilon.

    Attributes:
        bound: None where no bound gave an error to compare.
        alike: other bounds that so many runs do not tell from it.
        spread: standard deviation of a run's error near the bound, relative to it; None where there is one run of each.
        edge: "smallest" or "largest" where the bound is the first or last of several tried; never 1.
    """

    epsilon: Decimal
    bound: int | None
    alike: tuple[int, ...] = ()
    spread: float | None = None
    edge: str = ""

    def sentence(self) -> str:
        if self.bound is None:
            return f"epsilon {self.epsilon}: nothing was released, so no bound can be recommended"
        told = f"epsilon {self.epsilon}: max_contributions = {self.bound} has the least error"
        if self.spread is None:
            told += " (of one run: --runs 3 tells how much runs differ)"
        elif self.alike:
            *others, last = map(str, self.alike)
            named = f"{', '.join(others)} and {last}" if others else last
            told += f", but {named} {'is' if len(self.alike) == 1 else 'are'} within what runs differ by"
            told += f" ({self.spread:.1%})"
        else:
            told += f", by more than runs differ ({self.spread:.1%})"
        if self.edge:
            told += f"; it is the {self.edge} of those tried, so try {self.edge.removesuffix('st')}r ones"
        return told


def default_bounds(configured: int, *, charge: int = 1) -> tuple[int, ...]:
    """Of 1, 2, 5, 10, 20, 50 and so on those near the configured bound, and that one. No data are looked at.

    Args:
        charge: of one event: smaller bounds let nothing through.
    """
    near = [bound for bound in LADDER if configured <= BELOW * bound and bound <= ABOVE * configured]
    return tuple(sorted({bound for bound in (*near, configured) if bound >= charge}))


def default_epsilons(configured: Decimal) -> tuple[Decimal, ...]:
    """Half, all and twice of the configured epsilon."""
    return tuple((configured * factor).normalize() for factor in (Decimal("0.5"), Decimal(1), Decimal(2)))


def bounds_of(text: str) -> tuple[int, ...]:
    """Bounds from a text such as "1,2,5", each once and in order. Raises: PrivstreamError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 7 and 1 <= int(part) <= LADDER[-1] for part in parts):
        raise PrivstreamError(
            f"--bounds must be whole numbers from 1 to {LADDER[-1]:,} with commas between them. "
            "Fix: write for example --bounds 1,2,5,10,20."
        )
    return tuple(sorted({int(part) for part in parts}))


def epsilons_of(text: str) -> tuple[Decimal, ...]:
    """Epsilons from a text such as "0.5,1,2", each once and in order. Raises: PrivstreamError."""
    try:
        values = {Decimal(part.strip()) for part in text.split(",")}
    except InvalidOperation:
        values = {Decimal(0)}
    if not all(value.is_finite() and value > 0 for value in values):
        raise PrivstreamError(
            "--epsilons must be positive numbers with commas between them. Fix: write for example --epsilons 0.5,1,2."
        )
    return tuple(sorted(values))


def compare(
    evaluator: Evaluator,
    metrics: Sequence[Metric],
    whole: Folded,
    kept: Folded,
    released: Mapping[str, Sequence[object]],
) -> ErrorSplit:
    """The errors of one step.

    Args:
        metrics: of the stream; those that are errors are compared.
        whole, kept: all events, and those that the bound lets through, as the evaluator encodes them. Private.
        released: columns as `Evaluator.measure` takes them.
    """
    return ErrorSplit(
        bias=errors(metrics, evaluator.exact(whole, kept)),
        noise=errors(metrics, evaluator.measure(kept, released)),
        total=errors(metrics, evaluator.measure(whole, released)),
    )


def last_third(splits: Sequence[ErrorSplit]) -> Sequence[ErrorSplit]:
    """Of the steps in which something was compared, those that count: the last third, one at least."""
    known = [split for split in splits if split.known]
    return known[-max(1, len(known) // 3) :]


def mean(splits: Sequence[ErrorSplit]) -> ErrorSplit:
    """Name by name, over those in which a number is known; NaN where none is."""
    return ErrorSplit(*(_mean([getattr(split, part) for split in splits]) for part in ("bias", "noise", "total")))


def _mean(errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for each in errors for name in each)
    found = {}
    for name in names:
        known = [each[name] for each in errors if math.isfinite(each.get(name, math.nan))]
        found[name] = math.fsum(known) / len(known) if known else math.nan
    return found


def shares(kept: Sequence[int], usable: Sequence[int]) -> tuple[float, float, float]:
    """Share that is kept: of all rows, and of those in the first and last third of the steps; NaN where none is usable.

    Args:
        kept, usable: rows by step.
    """
    third = max(1, len(usable) // 3)
    parts = (slice(None), slice(None, third), slice(-third, None))
    totals = [(sum(kept[part]), sum(usable[part])) for part in parts]
    all_steps, first, last = (k / n if n else math.nan for k, n in totals)
    return all_steps, first, last


def recommend(cells: Iterable[TuneCell]) -> tuple[Recommendation, ...]:
    """For each epsilon the bound whose total errors have the least geometric mean, over their names and over runs."""
    by_epsilon: dict[Decimal, list[TuneCell]] = defaultdict(list)
    for cell in cells:
        by_epsilon[cell.epsilon].append(cell)
    return tuple(_best(epsilon, some) for epsilon, some in sorted(by_epsilon.items()))


def _best(epsilon: Decimal, cells: Sequence[TuneCell]) -> Recommendation:
    tried = sorted(cell.bound for cell in cells)
    cells = sorted((cell for cell in cells if cell.runs), key=lambda cell: cell.bound)
    names = [
        name
        for name in (cells[0].errors.total if cells else ())
        if all(math.isfinite(run.total.get(name, math.nan)) for cell in cells for run in cell.runs)
    ]
    if not names:
        return Recommendation(epsilon, None)
    # Logarithms of geometric means, (bounds, runs).
    scores = np.mean([_logarithms(cells, name) for name in names], axis=0)
    means, runs = scores.mean(axis=1), scores.shape[1]
    best = int(np.argmin(means))
    bound = cells[best].bound
    edge = ""
    if len(tried) > 1 and bound in (tried[0], tried[-1]) and bound > 1:
        edge = "smallest" if bound == tried[0] else "largest"
    if runs == 1:
        return Recommendation(epsilon, bound, edge=edge)
    variances = _pooled(scores.var(axis=1, ddof=1))
    near = means - means[best] <= APART * np.sqrt((variances + variances[best]) / runs)
    alike = tuple(cell.bound for cell, close in zip(cells, near, strict=True) if close and cell.bound != bound)
    return Recommendation(epsilon, bound, alike, math.sqrt(variances[best]), edge)


def _pooled(variances: np.ndarray) -> np.ndarray:
    """The mean of each and its neighbours: few runs know little of their own, and distant bounds have another."""
    return np.array([variances[max(0, at - 1) : at + 2].mean() for at in range(len(variances))])


def _logarithms(cells: Sequence[TuneCell], name: str) -> np.ndarray:
    """`(bounds, runs)`; all 0 where nobody errs."""
    values = np.array([[run.total[name] for run in cell.runs] for cell in cells], np.float64)
    largest = float(values.max())
    return np.log(np.maximum(values, LEAST * largest) / largest) if largest > 0 else np.zeros_like(values)


__all__ = [
    "NOT_COVERED",
    "TRUE_VALUES",
    "ErrorSplit",
    "Recommendation",
    "TuneCell",
    "bounds_of",
    "compare",
    "default_bounds",
    "default_epsilons",
    "epsilons_of",
    "last_third",
    "mean",
    "recommend",
    "shares",
]
