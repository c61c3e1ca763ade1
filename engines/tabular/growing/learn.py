"""What a step learns: totals at every step, and the blocks that close with it.

Privacy: private counts leave through the totals' counter and `measure` alone. An event is counted by the totals when it
arrives. Its cells join the pending counts of the lines that are open then: while the stream is early the one-way line
alone, later both. A line's pending counts are measured whole, once, and set to zero. Which lines close, and how a
budget is shared among marginals, depends on released values only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engines.core.contract import State
from engines.core.noise import LEAST_VARIANCE, NoiseSource
from engines.core.shares import CellNoise
from engines.tabular.growing.blocks import Evidence, StepBlock, improved, together
from engines.tabular.growing.config import GrowingConfig
from engines.tabular.growing.schedule import FIRST_REST, REST, UNKNOWN, block_weights, larger_weights
from engines.tabular.growing.totals import Totals
from engines.tabular.marginals import EventRows, Marginals
from engines.tabular.records import Fitted
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError


def measure(counts: IntArray, layout: Marginals, laws: Sequence[CellNoise], noise: NoiseSource) -> IntArray:
    """Return noisy counts `(cells,)` of PRIVATE ones, each marginal under its own law.

    Guarantee: costs one event the sum of the laws' costs (epsilon, or mu^2): it moves one cell of each marginal by 1,
        and all cells of a marginal have noise of that marginal's law.
    Raises: EngineInputError if a cost is too small for exact noise.
    """
    noisy = np.zeros(layout.cells, np.int64)
    groups: dict[CellNoise, list[int]] = {}
    for index, law in enumerate(laws):
        groups.setdefault(law, []).append(index)
    for law, members in sorted(groups.items(), key=lambda group: group[0].cost):
        cells = np.concatenate([np.arange(layout.offsets[i], layout.offsets[i + 1]) for i in members])
        noisy[cells] = law.added(counts[cells], noise.child("marginals", members[0]))
    return noisy


def variances(laws: Sequence[CellNoise]) -> FloatArray:
    """`(marginals,)` variance of the noise of one cell, `LEAST_VARIANCE` at least."""
    known = {law: max(LEAST_VARIANCE, law.variance) for law in set(laws)}
    return np.array([known[law] for law in laws])


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
        return replace(self, pending=self.pending + counts)

    def widened(self, before: Marginals, after: Marginals) -> Line:
        """With the same counts, over what is measured of a table with more values."""
        return replace(self, pending=before.widened(self.pending, after))

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

    def widened(self, before: GrowingConfig, after: GrowingConfig) -> GrowingState:
        """Return what is known in terms of a table with more values: that nothing measured so far has them."""
        ones, larger = (before.ones, after.ones), (before.larger, after.larger)
        return replace(
            self,
            ones=self.ones.widened(before.of_ones.measured, after.of_ones.measured),
            larger=self.larger.widened(before.of_larger.measured, after.of_larger.measured),
            evidence=self.evidence.widened(ones, larger),
            fitted=None if self.fitted is None else self.fitted.widened(ones, larger),
        )


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

    def __init__(self, config: GrowingConfig, before: GrowingState, step: int, noise: NoiseSource) -> None:
        self.config = config
        self.learnt = before
        self.step = step
        self.noise = noise
        self.measured: list[ClosedBlock] = []

    def arrive(self, rows: EventRows) -> None:
        """Count the step's PRIVATE rows, of active attributes."""
        before, config = self.learnt, self.config
        totals = before.totals.after(rows.totals(), self.noise.child("totals"))
        ones = before.ones.plus(rows.counts(config.of_ones.measured))
        # Early, where larger marginals have no budget, their events pay for better one-way ones.
        gathers = not before.early or config.schedule.early_share > 0
        larger = before.larger.plus(rows.counts(config.of_larger.measured)) if gathers else before.larger
        self.learnt = replace(before, totals=totals, ones=ones, larger=larger, evidence=before.evidence.at(self.step))

    def due(self) -> tuple[bool, bool]:
        """Whether one-way, and whether larger marginals are measured now. Public."""
        now, schedule = self.learnt, self.config.schedule
        totals = now.totals
        if not len(self.config.ones):
            return False, False
        if now.early:
            ended = schedule.early_share > 0 and not schedule.early(totals.events)
            if ended:
                return True, True
        elif len(self.config.larger):
            fresh = totals.events - now.larger.covered
            drift = 0.0 if now.fitted is None else now.fitted.drift
            if schedule.larger_due(fresh, now.larger.covered, totals.alive, drift):
                return True, True
        return schedule.ones_due(totals.events - now.ones.covered, now.ones.covered, totals.alive), False

    def close(self, *, larger: bool) -> None:
        """Measure the one-way line, and the larger one if so; then fit."""
        now, config, step = self.learnt, self.config, self.step
        share, _ = config.line_shares(early=now.early)
        apart = now.early and not config.schedule.early_share
        sizes = np.array(config.ones.sizes, np.float64)
        laws = config.laws(share, config.recipe.best(np.sqrt(sizes)))
        counts = measure(now.ones.pending, config.of_ones.measured, laws, self.noise.child("ones"))
        self.measured.append(ClosedBlock(False, now.ones.step, counts, laws))
        block = StepBlock(
            now.ones.step,
            step,
            now.totals.grown - now.ones.grown,
            config.of_ones.tables(counts),
            variances(laws) * config.of_ones.finer,
            np.zeros(0),
            np.zeros(0),
            np.zeros(0),
        )
        if larger:
            evidence = now.evidence.settle(self._settled(together([*now.evidence.recent, block])))
        else:
            evidence = now.evidence.settle(block) if apart else now.evidence.with_recent(block)
        self.learnt = replace(
            now,
            ones=now.ones.closed(now.totals, step),
            larger=now.larger.closed(now.totals, step) if larger or apart else now.larger,
            early=now.early and config.schedule.early(now.totals.events),
            blocks=now.blocks + larger,
            evidence=evidence,
            fitted=config.fitter.fit(*evidence.sums(step), evidence.past, max(now.totals.alive, 1.0)),
        )

    def _settled(self, recent: StepBlock) -> StepBlock:
        """Measure the larger marginals over the steps of these recent blocks."""
        now, config = self.learnt, self.config
        first = config.sampled and now.blocks == 0
        _, share = config.line_shares(early=now.early)
        weights = larger_weights(
            config.weights,
            config.larger.lengths.astype(np.float64),
            np.sqrt(config.of_larger.finer),
            self._apart(),
            max(now.totals.alive, 1.0),
            config.recipe.scale(share),
            now.blocks,
            rest=FIRST_REST if first else REST,
            recipe=config.recipe,
        )
        laws = config.laws(share, weights)
        counts = measure(now.larger.pending, config.of_larger.measured, laws, self.noise.child("larger"))
        self.measured.append(ClosedBlock(True, now.larger.step, counts, laws))
        table, noise = config.of_larger.tables(counts), variances(laws) * config.of_larger.finer
        ones, variance = improved(
            recent.ones,
            recent.ones_variance,
            table,
            noise,
            ones_layout=config.ones,
            of_larger=config.of_larger,
        )
        # Where rows are deleted, only the plain sum is what is left.
        weight = block_weights(recent.net, noise) if config.sampled else np.ones(len(noise))
        return StepBlock(
            recent.first,
            recent.last,
            recent.net,
            ones,
            variance,
            table * config.larger.spread(weight),
            noise * (weight * weight),
            recent.net * weight,
        )

    def _apart(self) -> FloatArray:
        """L1 distance that larger marginals may have from their priors, as a share: as fitted, or what noise hides."""
        now, config = self.learnt, self.config
        settled, _ = now.evidence.sums(self.step)
        hidden = np.full(len(config.larger), UNKNOWN)
        if now.fitted is None or settled is None or not settled.complete or not (settled.larger_net > 0).all():
            return hidden
        noise = config.larger.lengths * np.sqrt(settled.larger_variance) / settled.larger_net
        apart: FloatArray = np.maximum(now.fitted.apart, np.minimum(noise, hidden))
        return apart
