"""What a step learns: totals at every step, and the blocks that close with it.

Privacy: private counts leave through the totals' counter and `measure` alone. An event is counted by the totals when it
arrives. Its cells join the pending counts of the lines that are open then: while the stream is early the one-way line
alone, later both. A line's pending counts are measured whole, once, and set to zero. Which lines close, how a
budget is shared among marginals, and which of them count a row, depends on released values only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from engines.core.contract import State
from engines.core.noise import LEAST_VARIANCE, NoiseSource
from engines.core.shares import CellNoise
from engines.core.state import reading
from engines.tabular.contrasts import Contrasts
from engines.tabular.growing.blocks import Evidence, StepBlock, improved, together
from engines.tabular.growing.config import GrowingConfig, parts_of
from engines.tabular.growing.fit import expected
from engines.tabular.growing.schedule import FIRST_REST, REST, UNKNOWN, block_weights, larger_weights
from engines.tabular.growing.totals import Totals
from engines.tabular.growing.usual import UsualValues, crowded, lacking
from engines.tabular.marginals import EventRows, Marginals
from engines.tabular.records import Fitted
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError


def measure(counts: IntArray, layout: Marginals, laws: Sequence[CellNoise], noise: NoiseSource) -> IntArray:
    """Return noisy counts `(cells,)` of PRIVATE ones, each marginal under its own law.

    Guarantee: costs one event the sum of the costs (epsilon, or mu^2) of the laws of the marginals that count it: it
        moves one cell of each by 1, and all cells of a marginal have noise of that marginal's law.
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
    """Return the variance of the noise of one cell of each marginal, `(marginals,)`, `LEAST_VARIANCE` at least."""
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
        """Return the line with the PRIVATE counts of a step's events, too."""
        return replace(self, pending=self.pending + counts)

    def widened(self, before: Marginals, after: Marginals) -> Line:
        """Return the line with the same counts, over what is measured of a table with more values."""
        return replace(self, pending=before.widened(self.pending, after))

    def closed(self, totals: Totals, step: int, layout: Marginals) -> Line:
        """Return the line after its block was measured: an event that was in it is never looked at again.

        Args: layout: of the next block.
        """
        return Line(np.zeros(layout.cells, np.int64), totals.events, totals.grown, step)

    def arrays(self, name: str) -> State:
        return {
            f"{name}/pending": self.pending.copy(),
            f"{name}/public": np.array([self.covered, self.grown, float(self.step)]),
        }

    @staticmethod
    def restored(state: Mapping[str, np.ndarray], name: str, layout: Marginals) -> Line:
        """Return the line of this name. Raises: EngineInputError if arrays are missing or of another layout."""
        with reading():
            pending = np.array(state[f"{name}/pending"], np.int64)
            covered, grown, step = state[f"{name}/public"].tolist()
        if pending.shape != (layout.cells,):
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
    usual: UsualValues | None = None
    """Of the open block of larger marginals; None where all of them count all rows."""
    crowded: bool = False
    """Whether a block lost too many rows to pairs that leave some out: no later block does."""

    def counted(self, config: GrowingConfig) -> Marginals:
        """Return what is counted of the open block of larger marginals."""
        return config.of_larger.measured if self.usual is None else self.usual.measured

    def widened(self, before: GrowingConfig, after: GrowingConfig) -> GrowingState:
        """Return what is known in terms of a table with more values: that nothing measured so far has them."""
        ones, larger = (before.ones, after.ones), (before.larger, after.larger)
        wider = replace(self, usual=None if self.usual is None else self.usual.widened(after.larger))
        return replace(
            wider,
            ones=self.ones.widened(before.of_ones.measured, after.of_ones.measured),
            larger=self.larger.widened(self.counted(before), wider.counted(after)),
            evidence=self.evidence.widened(ones, larger),
            fitted=None if self.fitted is None else self.fitted.widened(ones, larger),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ClosedBlock:
    """Noisy counts of a closed block, which covers steps since + 1 to this one.

    Attributes:
        larger: of which line. contrasts: of which layout. usual: what its marginals leave out.
        counts: `(cells,)` int64; last, where rows are left out, how many were lost.
        laws: of each marginal's noise, and of that count.
        variances: of the same.
    """

    larger: bool
    since: int
    counts: IntArray
    laws: tuple[CellNoise, ...]
    contrasts: Contrasts
    usual: UsualValues | None = None

    @property
    def variances(self) -> FloatArray:
        return variances(self.laws)

    @property
    def lost(self) -> tuple[int, float]:
        """The noisy number of lost rows, and its variance; 0 where no marginal leaves rows out."""
        return (0, 0.0) if self.usual is None else (int(self.counts[-1]), float(self.variances[-1]))


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
        larger = before.larger
        if gathers:
            kept = None if before.usual is None else before.usual.kept
            larger = larger.plus(rows.counts(before.counted(config), kept))
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
            noise = 1.0 if now.usual is None else now.usual.noise
            if schedule.larger_due(fresh, now.larger.covered, totals.alive, drift, noise):
                return True, True
        return schedule.ones_due(totals.events - now.ones.covered, now.ones.covered, totals.alive), False

    def close(self, *, larger: bool) -> None:
        """Measure the one-way line, and the larger one if so; then fit, and say what the next block leaves out."""
        now, config, step = self.learnt, self.config, self.step
        share, _ = config.line_shares(early=now.early)
        apart = now.early and not config.schedule.early_share
        sizes = np.array(config.ones.sizes, np.float64)
        laws = config.laws(share, parts_of(config.recipe.best(np.sqrt(sizes))))
        counts = measure(now.ones.pending, config.of_ones.measured, laws, self.noise.child("ones"))
        self.measured.append(ClosedBlock(False, now.ones.step, counts, laws, config.of_ones))
        block = StepBlock(
            first=now.ones.step,
            last=step,
            net=now.totals.grown - now.ones.grown,
            ones=config.of_ones.tables(counts),
            ones_variance=variances(laws) * config.of_ones.finer,
            larger=np.zeros(0),
            larger_variance=np.zeros(0),
            larger_net=np.zeros(0),
        )
        if larger:
            evidence = now.evidence.settle(self._settled(together([*now.evidence.recent, block])))
        else:
            evidence = now.evidence.settle(block) if apart else now.evidence.with_recent(block)
        self.learnt = replace(
            now,
            ones=now.ones.closed(now.totals, step, config.of_ones.measured),
            early=now.early and config.schedule.early(now.totals.events),
            blocks=now.blocks + larger,
            evidence=evidence,
            fitted=config.fitter.fit(*evidence.sums(step), evidence.past, max(now.totals.alive, 1.0)),
        )
        if larger or apart:
            lost = crowded(*self.measured[-1].lost, now.totals.grown - now.larger.grown)
            self.learnt = replace(self.learnt, crowded=now.crowded or lost)
            opened = replace(self.learnt, usual=self._usual())
            line = now.larger.closed(now.totals, step, opened.counted(config))
            self.learnt = replace(opened, larger=line)

    def _settled(self, recent: StepBlock) -> StepBlock:
        """Measure the larger marginals over the steps of these recent blocks."""
        now, config, usual = self.learnt, self.config, self.learnt.usual
        contrasts = config.of_larger if usual is None else usual.contrasts
        _, share = config.line_shares(early=now.early)
        rest = FIRST_REST if config.sampled and now.blocks == 0 else REST
        parts = self._parts(share, contrasts.finer, rest) if usual is None else usual.parts
        laws = config.laws(share, parts, None if usual is None else usual.limit)
        counts = measure(now.larger.pending, now.counted(config), laws, self.noise.child("larger"))
        closed = ClosedBlock(True, now.larger.step, counts, laws, contrasts, usual)
        self.measured.append(closed)
        table, noise = contrasts.tables(counts), closed.variances[: len(contrasts.finer)] * contrasts.finer
        ones, variance = improved(
            recent.ones,
            recent.ones_variance,
            table,
            noise,
            ones_layout=config.ones,
            of_larger=contrasts,
            partial=(False,) * len(noise) if usual is None else usual.partial,
        )
        if usual is not None and now.fitted is not None:
            net = max(recent.net, 1.0)
            rows = expected(now.fitted.ones, ones, variance, net, layout=config.ones, single=config.of_ones.single)
            noise = noise + lacking(*closed.lost) * np.array(usual.partial)
            table, noise = usual.completed(table, noise, rows, net)
        # Where rows are deleted, only the plain sum is what is left.
        weight = block_weights(recent.net, noise) if config.sampled else np.ones(len(noise))
        return replace(
            recent,
            ones=ones,
            ones_variance=variance,
            larger=table * config.larger.spread(weight),
            larger_variance=noise * (weight * weight),
            larger_net=recent.net * weight,
        )

    def _parts(self, share: Fraction, finer: FloatArray, rest: float) -> tuple[int, ...]:
        """Return the parts by which the larger marginals share their budget.

        Args: finer: see `Contrasts`. rest: see `larger_weights`.
        """
        now, config = self.learnt, self.config
        return parts_of(
            larger_weights(
                config.weights,
                config.larger.lengths.astype(np.float64),
                np.sqrt(finer),
                self._apart(),
                max(now.totals.alive, 1.0),
                config.recipe.scale(share),
                now.blocks,
                rest=rest,
                recipe=config.recipe,
            )
        )

    def _usual(self) -> UsualValues | None:
        """Return what the block that opens leaves out, by what is known at its beginning: all that follows is private
        until it closes.
        """
        now, config = self.learnt, self.config
        if now.fitted is None or now.early or now.crowded:
            return None
        # No pair has less than the others: its row would find room for few of those that have more.
        parts = self._parts(config.larger_share, np.ones(len(config.larger)), rest=1.0)
        return config.usual(now.fitted.ones, parts)

    def _apart(self) -> FloatArray:
        """Return the L1 distance that larger marginals may have from their priors, as a share: as fitted, or what noise
        hides.
        """
        now, config = self.learnt, self.config
        settled, _ = now.evidence.sums(self.step)
        hidden = np.full(len(config.larger), UNKNOWN)
        if now.fitted is None or settled is None or not settled.complete or not (settled.larger_net > 0).all():
            return hidden
        noise = config.larger.lengths * np.sqrt(settled.larger_variance) / settled.larger_net
        apart: FloatArray = np.maximum(now.fitted.apart, np.minimum(noise, hidden))
        return apart
