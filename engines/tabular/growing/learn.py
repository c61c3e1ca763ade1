"""What a step learns: totals at every step, and the blocks that close with it.

Privacy: private counts leave through the totals' counter and `measure` alone. An event is counted by the totals when it
arrives. Its cells join the pending counts of the lines that are open then: while the stream is early the one-way line
alone, later both. A line's pending counts are measured whole, once, and set to zero. Which lines close, and how a
budget is shared among marginals, depends on released values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engines.core.contract import State
from engines.core.noise import NoiseSource
from engines.core.shares import CellNoise
from engines.tabular.batches import EventRows
from engines.tabular.fitted import Fitted
from engines.tabular.growing.blocks import Evidence, StepBlock, improved, together
from engines.tabular.growing.config import GrowingParts
from engines.tabular.growing.measure import measure, variances
from engines.tabular.growing.schedule import FIRST_REST, REST, UNKNOWN, block_weights, larger_weights
from engines.tabular.growing.totals import Totals
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line of blocks: what its open block holds, PRIVATE, and where the last one ended, public.

    Attributes:
        pending: `(cells,)` int64 net counts of events that were not measured yet.
        covered: events since the start that closed blocks hold, by the released totals.
        grown: inserts less deletes since the start, at the last close. step: of the last close.
    """

    pending: IntArray
    covered: float = 0.0
    grown: float = 0.0
    step: int = -1

    def plus(self, counts: IntArray) -> Line:
        """With the PRIVATE counts of a step's events."""
        return Line(self.pending + counts, self.covered, self.grown, self.step)

    def closed(self, totals: Totals, step: int) -> Line:
        """After its block was measured: an event that was in it is never looked at again."""
        return Line(np.zeros_like(self.pending), totals.events, totals.grown, step)

    def arrays(self, name: str) -> State:
        return {
            f"{name}/pending": self.pending.copy(),
            f"{name}/public": np.array([self.covered, self.grown, float(self.step)]),
        }

    def restored(self, state: Mapping[str, np.ndarray], name: str) -> Line:
        """Raises: EngineInputError if arrays are missing or of another shape."""
        try:
            pending = np.array(state[f"{name}/pending"], np.int64)
            covered, grown, step = state[f"{name}/public"].tolist()
        except (KeyError, ValueError):
            raise EngineInputError(f"state lacks {name}") from None
        if pending.shape != self.pending.shape:
            raise EngineInputError(f"state has another number of cells in {name}")
        return Line(pending, covered, grown, int(step))


@dataclass(frozen=True, slots=True, eq=False)
class GrowingState:
    """All that an engine knows after a step but its rows. A value; the lines are PRIVATE, the rest was released."""

    totals: Totals
    ones: Line
    larger: Line
    early: bool
    blocks: int
    evidence: Evidence
    fitted: Fitted | None
    """None before anything was measured."""


@dataclass(frozen=True, slots=True, eq=False)
class ClosedBlock:
    """Noisy counts of a closed block: `counts` `(cells,)` int64 and `laws` of each marginal's noise; `larger` says of
    which layout. The block covers steps since + 1 to this one.
    """

    larger: bool
    since: int
    counts: IntArray
    laws: tuple[CellNoise, ...]


class Learning:
    """One step: what it measures and what is known after it. `learnt` and `measured` are its results."""

    def __init__(self, parts: GrowingParts, before: GrowingState, step: int, noise: NoiseSource) -> None:
        self.parts = parts
        self.learnt = before
        self.step = step
        self.noise = noise
        self.measured: list[ClosedBlock] = []

    def arrive(self, rows: EventRows) -> None:
        """Count the step's PRIVATE rows, of active attributes."""
        before, parts = self.learnt, self.parts
        totals = before.totals.after(rows.totals(), self.noise.child("totals"))
        ones = before.ones.plus(rows.counts(parts.ones))
        # Early, where larger marginals have no budget, their events pay for better one-way ones.
        gathers = not before.early or parts.schedule.early_share > 0
        larger = before.larger.plus(rows.counts(parts.larger)) if gathers else before.larger
        self.learnt = GrowingState(
            totals, ones, larger, before.early, before.blocks, before.evidence.at(self.step), before.fitted
        )

    def due(self) -> tuple[bool, bool]:
        """Whether one-way, and whether larger marginals are measured now. Public."""
        now, schedule = self.learnt, self.parts.schedule
        totals = now.totals
        if not len(self.parts.ones):
            return False, False
        if now.early:
            ended = schedule.early_share > 0 and not schedule.early(totals.events)
            if ended:
                return True, True
        elif len(self.parts.larger):
            fresh = totals.events - now.larger.covered
            drift = 0.0 if now.fitted is None else now.fitted.drift
            if schedule.larger_due(fresh, now.larger.covered, totals.alive, drift):
                return True, True
        return schedule.ones_due(totals.events - now.ones.covered, now.ones.covered, totals.alive), False

    def close(self, *, larger: bool) -> None:
        """Measure the one-way line, and the larger one if so; then fit."""
        now, parts, step = self.learnt, self.parts, self.step
        share, _ = parts.line_shares(early=now.early)
        apart = now.early and not parts.schedule.early_share
        sizes = np.array(parts.ones.sizes, np.float64)
        laws = parts.laws(share, parts.recipe.best(np.sqrt(sizes)))
        counts = measure(now.ones.pending, parts.ones, laws, self.noise.child("ones"))
        self.measured.append(ClosedBlock(False, now.ones.step, counts, laws))
        block = StepBlock(
            now.ones.step,
            step,
            now.totals.grown - now.ones.grown,
            counts.astype(np.float64),
            variances(laws),
            np.zeros(0),
            np.zeros(0),
            np.zeros(0),
        )
        if larger:
            evidence = now.evidence.settle(self._settled(together([*now.evidence.recent, block])))
        else:
            evidence = now.evidence.settle(block) if apart else now.evidence.with_recent(block)
        ones = now.ones.closed(now.totals, step)
        self.learnt = GrowingState(
            now.totals,
            ones,
            now.larger.closed(now.totals, step) if larger or apart else now.larger,
            now.early and parts.schedule.early(now.totals.events),
            now.blocks + larger,
            evidence,
            parts.fitter.fit(*evidence.sums(step), evidence.past, max(now.totals.alive, 1.0)),
        )

    def _settled(self, recent: StepBlock) -> StepBlock:
        """Measure the larger marginals over the steps of these recent blocks."""
        now, parts = self.learnt, self.parts
        first = parts.sampled and now.blocks == 0
        _, share = parts.line_shares(early=now.early)
        weights = larger_weights(
            parts.weights,
            parts.larger.lengths.astype(np.float64),
            self._apart(),
            max(now.totals.alive, 1.0),
            parts.recipe.scale(share),
            now.blocks,
            rest=FIRST_REST if first else REST,
            recipe=parts.recipe,
        )
        laws = parts.laws(share, weights)
        counts = measure(now.larger.pending, parts.larger, laws, self.noise.child("larger"))
        self.measured.append(ClosedBlock(True, now.larger.step, counts, laws))
        table, noise = counts.astype(np.float64), variances(laws)
        ones, variance = improved(
            recent.ones,
            recent.ones_variance,
            table,
            noise,
            ones_layout=parts.ones,
            larger_layout=parts.larger,
        )
        # Where rows are deleted, only the plain sum is what is left.
        weight = block_weights(recent.net, noise) if parts.sampled else np.ones(len(noise))
        return StepBlock(
            recent.first,
            recent.last,
            recent.net,
            ones,
            variance,
            table * parts.larger.spread(weight),
            noise * (weight * weight),
            recent.net * weight,
        )

    def _apart(self) -> FloatArray:
        """L1 distance that larger marginals may have from their priors, as a share: as fitted, or what noise hides."""
        now, parts = self.learnt, self.parts
        settled, _ = now.evidence.sums(self.step)
        hidden = np.full(len(parts.larger), UNKNOWN)
        if now.fitted is None or settled is None or not settled.complete or not (settled.larger_net > 0).all():
            return hidden
        noise = parts.larger.lengths * np.sqrt(settled.larger_variance) / settled.larger_net
        apart: FloatArray = np.maximum(now.fitted.apart, np.minimum(noise, hidden))
        return apart
