"""Scores: one number for each run, learnt from examples, that is large where the second input is likelier.

Any score gives a valid audit, since its events are fixed before the runs that bound them; better ones give sharper
bounds. Three kinds are learnt: single columns, a sum of log-likelihood ratios of binned columns (what the joint
likelihood ratio is where columns are independent), and a linear discriminant (where they are not).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engines.auditor.observations import FOCUS, Observations, names_of
from schemas.arrays import FloatArray, IntArray

BINS = 16
SINGLES = 10
COMBINED = 24
_ABSENT = -1e300  # below every released value


def column(observed: Observations, name: str) -> FloatArray:
    found = observed.columns.get(name)
    return np.full(observed.runs, np.nan) if found is None else found


@dataclass(frozen=True, slots=True, eq=False)
class Binned:
    """One column cut at `edges`, and the log-likelihood ratio of every bin; the last one is absence."""

    name: str
    edges: FloatArray
    ratios: FloatArray
    distance: float

    @staticmethod
    def learnt(name: str, zero: FloatArray, one: FloatArray) -> Binned:
        both = np.concatenate([zero, one])
        known = both[~np.isnan(both)]
        edges = np.unique(known)[1:]
        if edges.size >= BINS:
            edges = np.unique(np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1], method="nearest"))
        counts = [np.bincount(_bins(side, edges), minlength=edges.size + 2) for side in (zero, one)]
        total = np.maximum(counts[0] + counts[1], 1)
        distance = float(((counts[1] - counts[0]) ** 2 / total).sum()) - edges.size - 1
        # Half a run more for each bin: an event that was seen on one side only is strong, but not infinitely so.
        ratios = np.log((counts[1] + 0.5) / (counts[0] + 0.5))
        return Binned(name, edges, ratios, distance)

    def apply(self, observed: Observations) -> FloatArray:
        return self.ratios[_bins(column(observed, self.name), self.edges)]


def _bins(values: FloatArray, edges: FloatArray) -> IntArray:
    bins = np.searchsorted(edges, values, side="right").astype(np.int64)
    bins[np.isnan(values)] = edges.size + 1
    return bins


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """Fisher's discriminant of columns and of their presence."""

    names: tuple[str, ...]
    fill: FloatArray
    weights: FloatArray

    @staticmethod
    def learnt(names: Sequence[str], zero: Observations, one: Observations) -> Linear:
        fill = np.zeros(len(names))
        for index, name in enumerate(names):
            both = np.concatenate([column(zero, name), column(one, name)])
            known = both[~np.isnan(both)]
            fill[index] = known.mean() if known.size else 0.0
        sides = [_filled(names, fill, side) for side in (zero, one)]
        spread = (np.cov(sides[0], rowvar=False) + np.cov(sides[1], rowvar=False)) / 2
        spread = np.atleast_2d(spread)
        # Columns without spread within a side, and columns that say the same, must not make this singular.
        spread[np.diag_indices_from(spread)] += 1e-6 + 1e-4 * spread.diagonal()
        weights = np.linalg.lstsq(spread, sides[1].mean(axis=0) - sides[0].mean(axis=0), rcond=None)[0]
        return Linear(tuple(names), fill, weights)

    def apply(self, observed: Observations) -> FloatArray:
        score: FloatArray = _filled(self.names, self.fill, observed) @ self.weights
        return score


def _filled(names: Sequence[str], fill: FloatArray, observed: Observations) -> FloatArray:
    values = np.stack([column(observed, name) for name in names], axis=1)
    absent = np.isnan(values)
    return np.concatenate([np.where(absent, fill, values), ~absent], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """All scores that were learnt; `names` and the results of `apply` are in one order."""

    singles: tuple[str, ...]
    ratios: Mapping[str, tuple[Binned, ...]]
    linear: Linear | None

    @staticmethod
    def learnt(zero: Observations, one: Observations) -> Scores:
        """Learn from runs on either input, at least two each."""
        candidates = [Binned.learnt(name, column(zero, name), column(one, name)) for name in names_of(zero, one)]
        ranked = sorted(candidates, key=lambda each: (-each.distance, each.name))
        # Three standard deviations of a chi-square say that a column differs; the best one is taken in any case.
        telling = [each for each in ranked if each.distance > 3 * np.sqrt(2.0 * (each.edges.size + 1))]
        kept = tuple((telling or ranked[:1])[:COMBINED])
        focused = tuple(each for each in candidates if each.name.startswith(FOCUS))
        singles = tuple(dict.fromkeys(each.name for each in [*ranked[:SINGLES], *focused]))
        linear = Linear.learnt(singles, zero, one) if singles else None
        ratios = {"likelihood ratio": kept, "focused likelihood ratio": focused}
        return Scores(singles, {name: parts for name, parts in ratios.items() if parts}, linear)

    @property
    def names(self) -> list[str]:
        return [*self.singles, *self.ratios, *(["linear"] if self.linear is not None else [])]

    def apply(self, observed: Observations) -> list[FloatArray]:
        scores = [np.nan_to_num(column(observed, name), nan=_ABSENT) for name in self.singles]
        for parts in self.ratios.values():
            # To a thousandth: sums of equal ratios must be equal.
            scores.append(np.round(np.sum([each.apply(observed) for each in parts], axis=0), 3))
        if self.linear is not None:
            scores.append(self.linear.apply(observed))
        return scores
