"""From noisy counts scattered over a tree to non-negative integer counts that add up.

Consistent extension: a node's estimate is C_a + C_n + C_d: its share of what was measured at its ancestors, what was
measured at itself, what was measured below. Projection: from the root down, the children's estimates are moved by equal
amounts until they add up to their parent's count and none is negative (Euclidean projection onto the simplex), rounded
to integers.
Source: [kumar2024], equations 3.8 and 3.9 with C_a(root) = 0; the projection is ours.
Post-processing of released values: costs no privacy, so floats are allowed. They are exact here below 2**53 / 2**depth
events.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schemas.arrays import FloatArray, IntArray


def shared_from_above(own: Sequence[IntArray], splits: Sequence[IntArray]) -> list[FloatArray]:
    """C_a of every node: half of its parent's C_a and C_n.

    Args:
        own: C_n level by level, `(nodes of the level,)` each. The children of the i-th split node of a level are
            entries 2i and 2i + 1 of the next.
        splits: positions of the split nodes, level by level.
    """
    above: list[FloatArray] = [np.zeros(len(own[0]))]
    for level in range(len(own) - 1):
        split = splits[level]
        above.append(np.repeat(0.5 * (above[level][split] + own[level][split]), 2))
    return above


def variance_from_above(own: Sequence[FloatArray], splits: Sequence[IntArray]) -> list[FloatArray]:
    """Variance of every node's C_a: what is halved has a quarter of the variance. Arguments as above, of variances."""
    above: list[FloatArray] = [np.zeros(len(own[0]))]
    for level in range(len(own) - 1):
        split = splits[level]
        above.append(np.repeat(0.25 * (above[level][split] + own[level][split]), 2))
    return above


def gathered_from_below(
    own: Sequence[IntArray], below: Sequence[IntArray], splits: Sequence[IntArray]
) -> list[IntArray]:
    """C_d of every node: what its children measured and have below them. Leaves keep theirs.

    Args:
        own, splits: as above. below: C_d before, level by level; left as it is.
    """
    result = [level.copy() for level in below]
    for level in reversed(range(len(own) - 1)):
        children = (own[level + 1] + result[level + 1]).reshape(-1, 2)
        result[level][splits[level]] = children.sum(axis=1)
    return result


def project_pair(totals: IntArray, estimates: FloatArray, first_child: IntArray) -> IntArray:
    """Counts of pairs of children, nearest to their estimates among non-negative integers that add up to `totals`.

    Args:
        totals: `(cells,)` int64, not negative. estimates: `(2 * cells,)` in pairs. first_child: `(cells,)` 0 or 1, who
            takes the odd one when both children are equally near.
    Returns: `(2 * cells,)` int64.

    >>> project_pair(np.array([10, 3]), np.array([4.0, 8.0, -7.0, 2.0]), np.array([0, 0])).tolist()
    [3, 7, 0, 3]
    """
    left = 0.5 * (totals + estimates[0::2] - estimates[1::2])
    whole = np.floor(left)
    rest = left - whole
    up = (rest > 0.5) | ((rest == 0.5) & (first_child == 0))
    pairs = np.empty((len(totals), 2), np.int64)
    pairs[:, 0] = np.clip(whole + up, 0, totals).astype(np.int64)
    pairs[:, 1] = totals - pairs[:, 0]
    return pairs.reshape(-1)


def project(
    estimates: Sequence[FloatArray], splits: Sequence[IntArray], first_child: Sequence[IntArray]
) -> list[IntArray]:
    """Non-negative integer counts of a whole tree, level by level, every split node's being the sum of its children's.

    Args:
        estimates: C_a + C_n + C_d, level by level. splits: as above. first_child: per split node of each level, 0 or 1.
    """
    counts = [np.maximum(estimates[0], 0).astype(np.int64)]
    for level in range(len(estimates) - 1):
        counts.append(project_pair(counts[level][splits[level]], estimates[level + 1], first_child[level]))
    return counts
