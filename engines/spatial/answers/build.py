"""Counts of regions from held leaf counters: every event is in one measured cell, so cells are added up.

Each measurement is the net number of the events of some steps in one cell, once, with noise of its own: the sum of the
cells and steps that make a question is unbiased, its noise has the sum of their variances, and no other combination of
what was measured says more of these events. What the region or the steps cut is shared as finer cells say, or evenly.
Privacy: post-processing of measurements.
Source: ours; docs/notes/0030-held-leaf-counters.md for what is measured when.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engines.core.answers.contract import (
    Answerer,
    Asked,
    CountAnswer,
    CountQuestion,
    Measured,
    QueryError,
    Sum,
    answered,
)
from engines.core.registry import uncorrected_engine
from engines.spatial.answers.places import Cells, MeasuredRectangles, Zones, fields_of
from engines.spatial.build import domain
from engines.spatial.domain import ZoneDomain
from engines.spatial.held.engine import HeldLeaves
from schemas.arrays import BoolArray, FloatArray
from schemas.config import Stream

_ROUNDING = 1e-6
SMOOTHING_SD = 0.6
"""Standard deviations of what was measured below a cell by which its shares are smoothed; as `held.estimate`."""


def answers(stream: Stream, measured: Measured, latest: int) -> Answerer:
    """Raises: QueryError in mode `paper`: its counts overlap, and hold expiries."""
    if stream.mode != "default":
        raise QueryError(
            f'mode "{stream.mode}" of engine {stream.engine} does not answer questions: its measurements hold expiries '
            'and overlap in ways that only its own estimates undo. Fix: mode = "default" for a new stream, or count '
            "the synthetic points (privstream export)."
        )
    made = domain(stream)
    places: list[Any] = [tuple(told["zones"] if "zones" in told else told["cell"]) for _, told in measured]
    order = {place: index for index, place in enumerate(dict.fromkeys(places))}
    cells: Cells
    if isinstance(made, ZoneDomain):
        cells = Zones(list(order), made.field, dict(zip(made.names, made.measures, strict=True)))
    else:
        cells = MeasuredRectangles(list(order), (made.number_fields[0], made.number_fields[1]))
    engine = uncorrected_engine(stream)
    assert isinstance(engine, HeldLeaves)
    return SpatialAnswers(
        cells,
        np.array([order[place] for place in places], np.int64),
        measured,
        latest=latest,
        longest=engine.config.counter.longest,
        fields=fields_of(made),
        regions=not isinstance(made, ZoneDomain),
        deletes=stream.domain.operation_field is not None,
    )


class SpatialAnswers:
    """Implements `engines.core.answers.contract.Answerer`.

    Args:
        cells: the different ones; at: which one each measurement is of.
        latest: the last step that is public. longest: steps after which every cell is measured.
        deletes: whether events delete others, so that what waits may be negative.
    """

    series = ()

    def __init__(
        self,
        cells: Cells,
        at: np.ndarray,
        measured: Measured,
        *,
        latest: int,
        longest: int,
        fields: dict[str, Asked] | Any,
        regions: bool,
        deletes: bool,
    ) -> None:
        self._cells, self._at = cells, at
        self.fields, self.regions = fields, regions
        self._until = np.array([step for step, _ in measured], np.int64)
        since = np.array([told["since"] for _, told in measured], np.int64)
        # A later group of a burst is of the step itself.
        self._since = np.minimum(since, self._until - 1)
        self._values = np.array([told["increment"] for _, told in measured], np.float64)
        self._variances = np.array([told["variance"] for _, told in measured], np.float64)
        self._latest, self._longest, self._deletes = latest, longest, deletes
        self._nested: dict[int, BoolArray] = {}

    def answer(self, question: CountQuestion) -> CountAnswer:
        """See `Answerer`."""
        first, last = question.first, question.last
        begin, end = np.maximum(self._since, first - 1), np.minimum(self._until, last)
        time = np.clip(end - begin, 0, None) / (self._until - self._since)
        region = self._cells.shares(question)
        shared = self._shared(region, time > 0)
        whole = (region[self._at] >= 1) & (time >= 1)
        some = (region[self._at] > 0) & (time > 0)
        pending = self._pending(question)
        return answered(
            self._sum(shared[self._at] * time),
            self._sum(whole.astype(np.float64)),
            self._sum(some.astype(np.float64)),
            pending=pending,
            bounded=pending < _ROUNDING,
            signed=self._deletes,
        )

    @property
    def settled(self) -> int:
        """See `Answerer`."""
        oldest = max(self._latest - self._longest, -1)
        for step in range(self._latest, oldest, -1):
            if self._pending(CountQuestion(step, step)) < _ROUNDING:
                return step
        return oldest if len(self._until) else -1

    def _sum(self, weights: FloatArray) -> Sum:
        noise = weights * weights * self._variances
        return Sum(float(weights @ self._values), float(noise.sum()), float((noise * noise).sum()))

    def _shared(self, region: FloatArray, asked: BoolArray) -> FloatArray:
        """`(cells,)` the share of each cell's events that is the region's: of a cut one as the cells inside say."""
        mass = np.bincount(self._at[asked], np.maximum(self._values[asked], 0.0), len(region))
        noise = np.bincount(self._at[asked], self._variances[asked], len(region))
        shared = region.copy()
        cut = np.flatnonzero((region > 0) & (region < 1))
        for cell in cut[np.argsort(self._cells.sizes[cut], kind="stable")].tolist():
            below = self._nested.get(cell)
            if below is None:
                below = self._nested[cell] = self._cells.inside(cell)
            smooth = SMOOTHING_SD * np.sqrt(noise[below].sum()) + 0.5
            shared[cell] = (shared[below] @ mass[below] + smooth * region[cell]) / (mass[below].sum() + smooth)
        return shared

    def _pending(self, question: CountQuestion) -> float:
        """Share of the region and steps that no measurement covers yet; every cell is measured within `longest` "
        "steps."""
        steps = question.last - question.first + 1
        open_from = max(question.first, self._latest - self._longest + 1, 0)
        beyond = max(0, question.last - self._latest)
        if open_from > question.last or not len(self._until):
            return 1.0 if not len(self._until) else 0.0
        recent = np.zeros(len(self._cells.sizes), np.bool_)
        recent[self._at[self._until > self._latest - self._longest]] = True
        size = self._cells.covered(question, recent)
        missing = float(beyond)
        for step in range(open_from, min(question.last, self._latest) + 1) if size > 0 else ():
            covering = np.zeros_like(recent)
            covering[self._at[self._until >= step]] = True
            missing += 1 - self._cells.covered(question, covering) / size
        return min(max(missing / steps, 0.0), 1.0)
