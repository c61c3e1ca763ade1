"""A forest of attributes: the pairs that depend most, without a cycle, and what they say about all other pairs.

Source: [chow1968], with the squared Hellinger distance from independence in place of mutual information: it needs
a square root only, which is the same on every machine. Post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engines.tabular.marginals import Marginals
from schemas.arrays import FloatArray

_LEAST = 1e-9


def dependences(layout: Marginals, tables: FloatArray, independent: FloatArray) -> FloatArray:
    """Return the sum of (sqrt(p) - sqrt(q))^2 over the cells of each, `(tables,)`."""
    gaps = np.sqrt(tables) - np.sqrt(independent)
    return layout.sums(gaps * gaps)


def spanning_forest(pairs: Sequence[tuple[int, int]], scores: FloatArray, attributes: int) -> list[int]:
    """Return indices of pairs of a maximum spanning forest; pairs without a positive score are left out."""
    root = list(range(attributes))

    def find(attribute: int) -> int:
        while root[attribute] != attribute:
            attribute = root[attribute]
        return attribute

    chosen = []
    for index in np.argsort(-scores, kind="stable").tolist():
        left, right = (find(attribute) for attribute in pairs[index])
        if scores[index] > 0 and left != right:
            root[left] = right
            chosen.append(index)
    return chosen


def along_paths(
    edges: Mapping[tuple[int, int], FloatArray], ones: Sequence[FloatArray]
) -> dict[tuple[int, int], FloatArray]:
    """Return tables of all connected pairs (left < right) under the forest's model.

    Args:
        edges: tables of the forest's pairs, left < right, whose margins are `ones`.
    """
    neighbours: dict[int, list[tuple[int, FloatArray]]] = {}
    for (left, right), table in edges.items():
        neighbours.setdefault(left, []).append((right, table))
        neighbours.setdefault(right, []).append((left, table.T))
    # Given one attribute of an edge, the law of the other.
    given = {
        (here, there): table / np.maximum(ones[here], _LEAST)[:, None]
        for here, found in neighbours.items()
        for there, table in found
    }
    tables: dict[tuple[int, int], FloatArray] = {}
    for start in sorted(neighbours):
        reached: dict[int, FloatArray | None] = {start: None}
        waiting = [start]
        while waiting:
            here = waiting.pop()
            for there, table in neighbours[here]:
                if there in reached:
                    continue
                before = reached[here]
                # Sums by einsum, not by a matrix library, whose order of addition depends on the machine.
                joint = table if before is None else np.einsum("ij,jk->ik", before, given[here, there])
                reached[there] = joint
                waiting.append(there)
                if start < there:
                    tables[start, there] = joint
    return tables
