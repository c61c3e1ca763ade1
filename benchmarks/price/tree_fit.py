"""A graphical model fitted to noisy marginals, in numpy: Private-PGM's mirror descent ([mckenna2019], algorithm 1).

For `aim_process`, whose every round fits another junction tree: JAX would compile for longer than it computes. Imports
numpy only, so that the tests can compare it with a joint distribution written out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Clique = tuple[int, ...]
ITERATIONS = 100
GROW = 1.2
"""Of the step length after a step that was taken; one that was not halves it."""


@dataclass(frozen=True)
class Measured:
    """A marginal `(cells,)`, last attribute fastest, and the deviation of its noise."""

    clique: Clique
    counts: np.ndarray
    deviation: float


def tree_of(sizes: Sequence[int], cliques: Sequence[Clique]) -> list[Clique]:
    """Maximal cliques of a junction tree: attributes are eliminated by the least table that this makes."""
    near = {attribute: {attribute} for attribute in range(len(sizes))}
    for clique in cliques:
        for attribute in clique:
            near[attribute] |= set(clique)
    weight = np.log(np.asarray(sizes, float))
    found: list[set[int]] = []
    while near:
        first = min(near, key=lambda each: sum(weight[other] for other in near[each]))
        group = near.pop(first)
        for other in group - {first}:
            near[other] = (near[other] | group) - {first}
        if not any(group <= larger for larger in found):
            found.append(group)
    return [tuple(sorted(group)) for group in found]


def _links(tree: Sequence[Clique]) -> list[tuple[int, int]]:
    """(child, parent) from the leaves up: a spanning tree of the most shared attributes, rooted at the first clique."""
    inside, links = [0], []
    best = {at: (len(set(tree[at]) & set(tree[0])), 0) for at in range(1, len(tree))}
    while best:
        child = max(best, key=lambda at: best[at][0])
        links.append((child, best.pop(child)[1]))
        inside.append(child)
        for at, (shared, _) in best.items():
            if len(set(tree[at]) & set(tree[child])) > shared:
                best[at] = (len(set(tree[at]) & set(tree[child])), child)
    return links[::-1]


def _summed(table: np.ndarray, held: Clique, wanted: Clique) -> np.ndarray:
    """Onto `wanted`, in its order."""
    kept = tuple(attribute for attribute in held if attribute in wanted)
    small = table.sum(axis=tuple(at for at, attribute in enumerate(held) if attribute not in wanted))
    return np.transpose(small, [kept.index(attribute) for attribute in wanted])


def _spread(table: np.ndarray, held: Clique, over: Clique) -> np.ndarray:
    """Of sorted `held`, to be added to a table of sorted `over`."""
    sizes = iter(table.shape)
    return table.reshape([next(sizes) if attribute in held else 1 for attribute in over])


def _log_summed(table: np.ndarray, held: Clique, wanted: Clique) -> np.ndarray:
    axes = tuple(at for at, attribute in enumerate(held) if attribute not in wanted)
    if not axes:
        return table
    top = table.max(axis=axes, keepdims=True)
    return np.log(np.exp(table - top).sum(axis=axes)) + top.squeeze(axis=axes)


class TreeModel:
    """A distribution over all attributes, as counts of `total` rows.

    Attributes:
        potentials: by measured clique, logarithms. tree: maximal cliques. tables: their counts.
    """

    def __init__(self, sizes: Sequence[int], potentials: dict[Clique, np.ndarray], total: float, step: float) -> None:
        self.sizes, self.potentials, self.total, self.step = tuple(sizes), potentials, total, step
        self.tree = tree_of(sizes, list(potentials))
        self.links = _links(self.tree)
        self.home = {c: next(t for t in self.tree if set(c) <= set(t)) for c in potentials}
        self.tables = self._beliefs()

    def _beliefs(self) -> dict[Clique, np.ndarray]:
        logs = [np.zeros([self.sizes[a] for a in clique]) for clique in self.tree]
        place = {clique: at for at, clique in enumerate(self.tree)}
        for clique, potential in self.potentials.items():
            logs[place[self.home[clique]]] += _spread(potential, clique, self.home[clique])
        up = {}
        for child, parent in self.links:
            shared = tuple(a for a in self.tree[child] if a in self.tree[parent])
            up[child] = _log_summed(logs[child], self.tree[child], shared)
            logs[parent] += _spread(up[child], shared, self.tree[parent])
        for child, parent in self.links[::-1]:
            shared = tuple(a for a in self.tree[child] if a in self.tree[parent])
            down = _log_summed(logs[parent], self.tree[parent], shared) - up[child]
            logs[child] += _spread(down, shared, self.tree[child])
        tables = {}
        for clique, log in zip(self.tree, logs, strict=True):
            likely = np.exp(log - log.max())
            tables[clique] = likely * (self.total / likely.sum())
        return tables

    def marginal(self, wanted: Clique) -> np.ndarray:
        """Counts of one or two attributes."""
        for clique in self.tree:
            if set(wanted) <= set(clique):
                return _summed(self.tables[clique], clique, wanted)
        # Along the way from one attribute to the other: what comes next, given what it shares with what was before.
        way = self._way(*wanted)
        shared = [tuple(a for a in clique if a in after) for clique, after in itertools.pairwise(way)]
        running = _summed(self.tables[way[0]], way[0], (wanted[0], *shared[0]))
        for clique, before, after in zip(way[1:], shared, [*shared[1:], wanted[1:]], strict=True):
            running = self._moved(running, clique, before, after)
        return running

    def _moved(self, running: np.ndarray, clique: Clique, before: Clique, after: Clique) -> np.ndarray:
        """From counts of (first, *before) to those of (first, *after), by the clique's share of after in before."""
        both = tuple(dict.fromkeys((*before, *after)))
        joint = _summed(self.tables[clique], clique, both)
        given = _summed(joint, both, before)
        share = np.divide(running, given, out=np.zeros_like(running), where=given > 1e-12)
        letter = dict(zip((-1, *both), "abcdefghijklmnopqrstuvwxyz", strict=False))
        text = ["".join(letter[a] for a in names) for names in ((-1, *before), both, (-1, *after))]
        return np.einsum(f"{text[0]},{text[1]}->{text[2]}", share, joint)

    def _way(self, first: int, last: int) -> list[Clique]:
        near: dict[int, list[int]] = {at: [] for at in range(len(self.tree))}
        for child, parent in self.links:
            near[child].append(parent)
            near[parent].append(child)
        starts = [at for at, clique in enumerate(self.tree) if first in clique]
        came: dict[int, int | None] = dict.fromkeys(starts)
        queue = list(starts)
        for at in queue:
            if last in self.tree[at]:
                way = [at]
                while (before := came[way[-1]]) is not None:
                    way.append(before)
                return [self.tree[each] for each in way[::-1]]
            for other in near[at]:
                if other not in came:
                    came[other] = at
                    queue.append(other)
        raise AssertionError("a junction tree is connected")

    def rows(self, count: int, random: np.random.Generator) -> np.ndarray:
        """`(count, attributes)` codes, drawn clique by clique from the root, each given what is drawn already."""
        drawn = np.zeros((count, len(self.sizes)), np.int64)
        done: set[int] = set()
        for at in [0, *(child for child, _ in self.links[::-1])]:
            clique = self.tree[at]
            known, new = tuple(a for a in clique if a in done), tuple(a for a in clique if a not in done)
            table = _summed(self.tables[clique], clique, (*known, *new))
            shape = [self.sizes[a] for a in new]
            likely = table.reshape(-1, int(np.prod(shape, dtype=np.int64)))
            group = (
                np.ravel_multi_index([drawn[:, a] for a in known], [self.sizes[a] for a in known])
                if known
                else np.zeros(count, np.int64)
            )
            sums = likely.cumsum(axis=1)
            for value in np.unique(group):
                members = np.flatnonzero(group == value)
                # Systematic: numbers of rows come out within one of what is expected.
                marks = (random.permutation(len(members)) + random.random()) / len(members) * sums[value, -1]
                cells = np.minimum(np.searchsorted(sums[value], marks, side="right"), likely.shape[1] - 1)
                drawn[members[:, None], list(new)] = np.stack(np.unravel_index(cells, shape), axis=1)
            done |= set(clique)
        return drawn


def fitted(sizes: Sequence[int], measured: Sequence[Measured], start: TreeModel | None) -> TreeModel:
    """The model of measured cliques that is nearest to the measurements, weighted by their variances.

    Args: start: of a fit to some of them.
    """
    weights: dict[Clique, float] = {}
    means: dict[Clique, np.ndarray] = {}
    for each in measured:
        counts = each.counts.reshape([sizes[a] for a in each.clique])
        weight = each.deviation**-2
        weights[each.clique] = weights.get(each.clique, 0.0) + weight
        means[each.clique] = means.get(each.clique, 0.0) + weight * counts
    means = {clique: sums / weights[clique] for clique, sums in means.items()}
    trust = {clique: weights[clique] / means[clique].size for clique in means}
    total = max(sum(trust[c] * means[c].sum() for c in means) / sum(trust.values()), 1.0)
    before = start.potentials if start is not None else {}
    potentials = {c: before[c] if c in before else np.zeros(means[c].shape) for c in means}
    model = TreeModel(
        sizes, potentials, total, start.step if start is not None else 1 / (total * max(weights.values()))
    )
    marginals, loss = _loss(model, means, weights)
    for _ in range(ITERATIONS):
        slopes = {c: weights[c] * (marginals[c] - means[c]) for c in means}
        stepped = {c: model.potentials[c] - model.step * slopes[c] for c in means}
        other = TreeModel(sizes, stepped, total, model.step * GROW)
        there, less = _loss(other, means, weights)
        enough = 0.5 * sum(float((slopes[c] * (marginals[c] - there[c])).sum()) for c in means)
        if loss - less >= enough:
            model, marginals, loss = other, there, less
        else:
            model.step /= 2
    return model


def _loss(
    model: TreeModel, means: dict[Clique, np.ndarray], weights: dict[Clique, float]
) -> tuple[dict[Clique, np.ndarray], float]:
    marginals = {c: _summed(model.tables[model.home[c]], model.home[c], c) for c in means}
    return marginals, 0.5 * sum(weights[c] * float(((marginals[c] - means[c]) ** 2).sum()) for c in means)
