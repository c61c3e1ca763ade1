"""Tables that agree with each other, fitted to the evidence: one-way marginals first, then the larger ones.

Post-processing. One-way: the settled estimate, drawn to even counts as far as noise explains it, grown in proportion,
plus what recent blocks show beyond their noise. Pairs: independence, corrected by the believed part of the noisy
residual; from those a forest, whose paths, and a few factors of all residuals, give every pair a better prior;
corrected again and raked to the one-way marginals. Marginals of three: no interaction of three, corrected and raked to
their pairs. Where a ttl has taken blocks, what they showed comes first, and is corrected by what the others show.
Sums run in a fixed order.
Sources: simplex projection by sorting ([held1974]); shrinkage by the share of the spread that noise explains
([james1961]); iterative proportional fitting ([deming1940]); moment estimates of the prior variance as in empirical
Bayes ([efron1973]; [paule1982]).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from engines.tabular.forest import along_paths, dependences, spanning_forest
from engines.tabular.growing.blocks import StepBlock
from engines.tabular.growing.factors import blended, low_rank
from engines.tabular.growing.schedule import PURE
from engines.tabular.marginals import Marginals
from engines.tabular.records import Fitted
from schemas.arrays import BoolArray, FloatArray, IntArray

LEAST = 1e-3
"""Rows that every value is taken to have at least: what is not seen is not impossible."""
BELIEVED = 2.0
"""Recent news count from so many times their noise."""
SAMPLED = 2.0
"""Variance of a block's counts, beside that of a sample of the table: its rows are of other times."""
_POSSIBLE = 0.05
"""Part of what independence gives that factors leave to a cell at least."""
_FIRST, _LAST = 6, 30
_TINY = 1e-9
_SMALLEST = 1e-300
_ROUNDS = 3
_CAUTION = 4.0
"""How many of its own variances a moment estimate, squared, is weighed against."""


def simplex(values: FloatArray, total: float) -> FloatArray:
    """Return the nearest non-negative vector of this sum, which is positive.

    >>> simplex(np.array([3.0, -1.0, 1.0]), 2.0)
    array([2., 0., 0.])
    """
    falling = np.sort(values)[::-1]
    shifts = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > shifts)[-1])
    projected: FloatArray = np.maximum(values - shifts[last], 0.0)
    return projected


def shrunken(counts: FloatArray, variance: float, total: float) -> FloatArray:
    """Draw noisy counts of one attribute towards even ones as far as noise explains their spread; on the simplex."""
    size = len(counts)
    spread = counts - counts.mean()
    signal = max(0.0, 1 - variance * (size - 1) / max(float((spread * spread).sum()), _TINY))
    return simplex(total / size + signal * spread, total)


def news_share(residual: FloatArray, variance: float, *, least: float) -> float:
    """Return how much of a centred residual to believe: 0 below `least` times the noise, then 1 less its share."""
    size = len(residual)
    noise = variance * max(size - 1, 1)
    ratio = float((residual * residual).sum()) / max(noise, _TINY)
    return 1 - 1 / ratio if ratio > least else 0.0


def expected(
    shares: FloatArray,
    ones: FloatArray,
    variances: FloatArray,
    net: float,
    *,
    layout: Marginals,
    single: Sequence[bool],
) -> list[FloatArray]:
    """Return how many rows of a block have each value of each attribute.

    What was measured is drawn to the table's shares, the more, the larger its noise is beside what a sample of so many
    rows may differ by.

    Args:
        shares: `(cells,)` of the table. ones, variances: counts of the block, see `StepBlock`.
        net: rows of the block. single: see `Contrasts`.
    """
    found = []
    for attribute in range(len(layout)):
        counts, share = layout.table(ones, attribute), layout.table(shares, attribute)
        if single[attribute]:
            counts = counts + net / len(counts)
        noise, sampled = float(variances[attribute]), SAMPLED * net * share * (1 - share) + 1
        found.append((counts / noise + net * share / sampled) / (1 / noise + 1 / sampled))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """Tables with `ways` axes each, over a layout of tables with one axis less, as flat vectors.

    A side of a table is what is left after summing over one axis: of a pair its two one-way marginals, of a marginal of
    three its pairs.

    Attributes:
        layout: of the tables. below: of their sides.
        groups: for each axis `(cells,)`, the side cell of each cell once this axis is summed over.
        sources: for each axis `(side cells,)`, the cell of `below` that a side cell is.
        freedom: `(tables,)` share of the cells that remains when all sides are known.
    """

    layout: Marginals
    below: Marginals
    groups: tuple[IntArray, ...]
    sources: tuple[IntArray, ...]
    freedom: FloatArray

    @staticmethod
    def of(layout: Marginals, below: Marginals) -> Sides:
        """Return the sides of tables. Args: layout: cliques of one size, whose sides all are cliques of `below`."""
        places = {clique: index for index, clique in enumerate(below.cliques)}
        ways = len(layout.cliques[0]) if layout.cliques else 0
        groups: list[list[IntArray]] = [[] for _ in range(ways)]
        sources: list[list[IntArray]] = [[] for _ in range(ways)]
        for axis in range(ways):
            start = 0
            for index, clique in enumerate(layout.cliques):
                shape = layout.shape(index)
                side = shape[:axis] + shape[axis + 1 :]
                cells = int(np.prod(side))
                numbers = np.expand_dims(np.arange(start, start + cells).reshape(side), axis)
                groups[axis].append(np.broadcast_to(numbers, shape).ravel())
                place = places[clique[:axis] + clique[axis + 1 :]]
                sources[axis].append(np.arange(below.offsets[place], below.offsets[place + 1]))
                start += cells
        freedom = [np.prod([size - 1 for size in layout.shape(i)]) / layout.lengths[i] for i in range(len(layout))]
        return Sides(
            layout,
            below,
            tuple(np.concatenate(parts) for parts in groups),
            tuple(np.concatenate(parts) for parts in sources),
            np.array(freedom),
        )

    def targets(self, below: FloatArray) -> list[FloatArray]:
        """Return what the sides are to be, for each axis, given the tables below."""
        return [below[source] for source in self.sources]

    def centred(self, tables: FloatArray) -> FloatArray:
        """Return what remains of tables without their sides: mean zero along every axis."""
        for group, source in zip(self.groups, self.sources, strict=True):
            sizes = np.bincount(group, minlength=len(source))
            tables = tables - (np.bincount(group, tables, len(source)) / sizes)[group]
        return tables

    def rake(
        self, tables: FloatArray, targets: Sequence[FloatArray], *, rounds: int, tolerance: float = 1e-3
    ) -> FloatArray:
        """Fit non-negative tables to their sides, by iterative proportional fitting."""
        for _ in range(rounds):
            worst = 0.0
            for group, target in zip(self.groups, targets, strict=True):
                factors = target / np.maximum(np.bincount(group, tables, len(target)), _TINY * 1e-3)
                tables = tables * factors[group]
                worst = max(worst, float(np.abs(factors - 1).max(initial=0.0)))
            if worst < tolerance:
                break
        return tables

    def posterior(self, noisy: FloatArray, prior: FloatArray, variances: FloatArray, *, kurtosis: float) -> FloatArray:
        """Return the prior plus the believed part of the residual's interaction, cell by cell, by empirical Bayes.

        A cell's true residual is taken to have variance tau^2 w, where w is the prior to the power 5/4 (likely cells
        deviate more), scaled to mean 1 in each table; tau^2 comes from weighted moments, in three rounds, and is
        lowered as far as noise alone gives such moments: a marginal that noise hides stays at its prior.

        Args:
            variances: `(tables,)` of the noise of one cell.
            kurtosis: of that noise, see `Recipe`.
        """
        layout = self.layout
        residual = self.centred(noisy - prior)
        likely = np.maximum(prior, _TINY)
        w = likely * np.sqrt(np.sqrt(likely))
        w = w / layout.spread(layout.sums(w) / layout.lengths)
        noise = variances * self.freedom
        every = layout.spread(noise)
        excess = residual * residual - every
        tau2, trust = np.maximum(layout.sums(w * excess) / layout.sums(w * w), 0.0), w
        for _ in range(_ROUNDS):
            trust = 1 / (layout.spread(tau2) * w + every + _TINY)
            trust = trust * trust * w
            tau2 = np.maximum(layout.sums(trust * excess) / layout.sums(trust * w), 0.0)
        doubt = trust * every
        doubt = kurtosis * layout.sums(doubt * doubt) / np.maximum(layout.sums(trust * w), _SMALLEST) ** 2
        squared = tau2 * tau2
        tau2 = tau2 * (squared / (squared + _CAUTION * doubt + _SMALLEST))
        signal = layout.spread(tau2) * w
        believed: FloatArray = prior + signal / (signal + every) * residual
        return believed


@dataclass(frozen=True, slots=True)
class MarginalFitter:
    """Args:

    ones, larger: layouts; one-way marginal `a` is attribute `a`; of the larger ones pairs come first, and with each
    marginal of three its pairs are there.
    possible: `(cells of larger ones,)` False at structural zeros, or None where there are none.
    kurtosis: of the noise, see `Recipe`.
    """

    ones: Marginals
    larger: Marginals
    possible: BoolArray | None = None
    kurtosis: float = PURE.kurtosis
    _pairs: Sides = field(init=False, repr=False, compare=False)
    _triples: Sides = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pairs = Marginals(self.larger.sizes, tuple(clique for clique in self.larger.cliques if len(clique) == 2))
        triples = Marginals(self.larger.sizes, tuple(clique for clique in self.larger.cliques if len(clique) == 3))
        object.__setattr__(self, "_pairs", Sides.of(pairs, self.ones))
        object.__setattr__(self, "_triples", Sides.of(triples, pairs))

    def start(self) -> Fitted:
        """Return even shares."""
        larger = 1 / self.larger.spread(self.larger.lengths.astype(np.float64))
        ones = 1 / self.ones.spread(self.ones.lengths.astype(np.float64))
        return Fitted(ones, larger, np.zeros(len(self.larger)), 0.0, np.zeros(0, np.int64))

    def fit(self, settled: StepBlock | None, recent: StepBlock | None, past: StepBlock | None, rows: float) -> Fitted:
        """Args: past: what expired. rows: alive, at least 1."""
        margins, drift = self._ones(settled, recent, past, rows)
        if not len(self.larger):
            return Fitted(margins / rows, np.zeros(0), np.zeros(0), drift, np.zeros(0, np.int64))
        known = [block for block in (past, settled) if block is not None and _usable(block)]
        pairs, independent, edges = self._fit_pairs(margins, known, rows)
        triples, prior = self._fit_triples(pairs, known, rows)
        larger = np.concatenate([pairs, triples])
        apart = self.larger.sums(np.abs(larger - np.concatenate([independent, prior]))) / rows
        return Fitted(margins / rows, larger / rows, apart, drift, edges)

    def _ones(
        self, settled: StepBlock | None, recent: StepBlock | None, past: StepBlock | None, rows: float
    ) -> tuple[FloatArray, float]:
        """Return counts of all attributes, and the drift."""
        margins, drift = [], 0.0
        for attribute in range(len(self.ones)):
            counts, news = self._one(attribute, settled, recent, past, rows)
            counts = np.maximum(counts, LEAST)
            margins.append(counts * (rows / counts.sum()))
            drift = max(drift, news)
        return np.concatenate(margins), drift / rows

    def _one(
        self,
        attribute: int,
        settled: StepBlock | None,
        recent: StepBlock | None,
        past: StepBlock | None,
        rows: float,
    ) -> tuple[FloatArray, float]:
        size = self.ones.sizes[attribute]
        if settled is None:
            if recent is None:
                return np.full(size, rows / size), 0.0
            part = self.ones.table(recent.ones, attribute)
            scale = rows / max(recent.net, 1.0)
            return shrunken(part * scale, float(recent.ones_variance[attribute]) * scale * scale, rows), 0.0
        before = max(settled.net, 1.0)
        counts, variance = self.ones.table(settled.ones, attribute), float(settled.ones_variance[attribute])
        base = shrunken(counts, variance, before)
        if past is not None and past.net > 0:
            back = before / past.net
            older = self.ones.table(past.ones, attribute) * back
            older = shrunken(older, float(past.ones_variance[attribute]) * back * back, before)
            change = counts - older
            change = change - change.mean()
            base = simplex(older + news_share(change, variance, least=1.0) * change, before)
        if recent is None:
            return base, 0.0
        growth = base * ((rows - before) / before)
        residual = self.ones.table(recent.ones, attribute) - base * (recent.net / before)
        residual = residual - residual.mean()
        share = news_share(residual, float(recent.ones_variance[attribute]), least=BELIEVED)
        return simplex(base + growth + share * residual, rows), share * float(np.abs(residual).sum())

    def _fit_pairs(
        self, margins: FloatArray, known: Sequence[StepBlock], rows: float
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return pairs, what they would be if attributes were independent, and the forest's edges."""
        sides = self._pairs
        targets = sides.targets(margins)
        independent = targets[0][sides.groups[0]] * targets[1][sides.groups[1]] / rows
        allowed = None if self.possible is None else self.possible[: sides.layout.cells]
        if allowed is not None:
            independent = sides.rake(independent * allowed, targets, rounds=_LAST)
        if not known:
            return independent, independent, np.zeros(0, np.int64)
        seen = [_scaled(block, sides.layout, 0, 0, rows) for block in known]

        def corrected(prior: FloatArray, rounds: int) -> FloatArray:
            for noisy, variances in seen:
                believed = np.maximum(sides.posterior(noisy, prior, variances, kurtosis=self.kurtosis), 0.0) + _TINY
                prior = sides.rake(believed if allowed is None else believed * allowed, targets, rounds=rounds)
            return prior

        first = corrected(independent, _FIRST)
        cliques = [(clique[0], clique[1]) for clique in sides.layout.cliques]
        edges = spanning_forest(cliques, dependences(sides.layout, first, independent), len(self.ones))
        prior = independent.copy()
        chosen = {cliques[i]: sides.layout.table(first, i) for i in edges}
        paths = along_paths(chosen, self._tables(margins))
        for index, clique in enumerate(cliques):
            if clique in paths:
                sides.layout.table(prior, index)[:] = paths[clique]
        noisy, variances = _mean(seen, sides.layout)
        residual, pairs, ones = sides.centred(noisy - independent), sides.layout, self.ones
        factors = low_rank(residual, variances, margins, pairs=pairs, ones=ones)
        tied = independent + blended(residual, variances, prior - independent, factors, pairs=pairs)
        prior = np.maximum(tied, _POSSIBLE * independent) + _TINY
        prior = sides.rake(prior if allowed is None else prior * allowed, targets, rounds=_FIRST)
        return corrected(prior, _LAST), independent, np.array(edges, np.int64)

    def _tables(self, margins: FloatArray) -> Sequence[FloatArray]:
        return [self.ones.table(margins, attribute) for attribute in range(len(self.ones))]

    def _fit_triples(self, pairs: FloatArray, known: Sequence[StepBlock], rows: float) -> tuple[FloatArray, FloatArray]:
        """Return marginals of three, and what they would be without an interaction of three."""
        sides = self._triples
        if not len(sides.layout):
            return np.zeros(0), np.zeros(0)
        targets = sides.targets(pairs)
        # Summed over its last axis a marginal of three is a pair; spread that evenly and rake.
        sizes = np.bincount(sides.groups[2], minlength=len(targets[2]))
        start = (targets[2] / sizes)[sides.groups[2]]
        prior = sides.rake(start, targets, rounds=_LAST)
        first, cells = len(self._pairs.layout), self._pairs.layout.cells
        fitted = prior
        for block in known:
            noisy, variances = _scaled(block, sides.layout, first, cells, rows)
            fitted = np.maximum(sides.posterior(noisy, fitted, variances, kurtosis=self.kurtosis), 0.0) + _TINY
            if self.possible is not None:
                fitted = fitted * self.possible[cells:]
            fitted = sides.rake(fitted, targets, rounds=_LAST)
        return fitted, prior


def _mean(seen: Sequence[tuple[FloatArray, FloatArray]], layout: Marginals) -> tuple[FloatArray, FloatArray]:
    """Return noisy counts and variances of several blocks as one, by inverse variance."""
    weights, counts = 1 / seen[0][1], seen[0][0] * layout.spread(1 / seen[0][1])
    for noisy, variances in seen[1:]:
        weights, counts = weights + 1 / variances, counts + noisy * layout.spread(1 / variances)
    return counts / layout.spread(weights), 1 / weights


def _usable(block: StepBlock) -> bool:
    """Whether larger marginals are known of it, and of a table that is there."""
    return block.complete and bool((block.larger_net > 0).all())


def _scaled(block: StepBlock, layout: Marginals, first: int, cell: int, rows: float) -> tuple[FloatArray, FloatArray]:
    """Return noisy counts of so many rows and their variances, of a layout that begins at a marginal and a cell."""
    part = slice(first, first + len(layout))
    scale = rows / block.larger_net[part]
    counts = block.larger[cell : cell + layout.cells] * layout.spread(scale)
    return counts, block.larger_variance[part] * (scale * scale)
