"""Whether synthetic rows keep what ties attributes together: Cramer's V of pairs, synthetic over true, at epsilon 2.

Three tables of some 10^4 rows and eight attributes, 200 rows a step; V after the last step, of the synthetic rows, with
the bias of a sample taken off (Bergsma 2013). Pairs whose true V is above .1 count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import sqrt

import numpy as np

from benchmarks.tabular.modes import growing
from benchmarks.tabular.streams import Codes, StreamData, Table, adult, evictions, stops
from engines.noise import seeded
from engines.tabular import TableDomain

EPSILON = Fraction(2)
SEEDS = 5
ROWS, BATCH = 10_000, 200
STRONG = 0.1
TABLES: Mapping[str, tuple[Callable[[], Table], Sequence[str]]] = {
    "adult": (
        adult,
        ("workclass", "education", "marital-status", "occupation", "relationship", "sex", "hours", "income"),
    ),
    "minneapolis": (
        stops,
        ("problem", "personSearch", "vehicleSearch", "race", "gender", "policePrecinct", "hour", "lat"),
    ),
    "evictions": (
        lambda: evictions()[0],
        (
            "Supervisor District",
            "Non Payment",
            "Breach",
            "Nuisance",
            "Owner Move In",
            "Ellis Act WithDrawal",
            "Late Payments",
            "Roommate Same Unit",
        ),
    ),
}


def cramers_v(left: Codes, right: Codes, shape: tuple[int, int]) -> float:
    """Bias-corrected, from 0 to 1; 0 where an attribute has one value only.

    >>> codes = np.arange(100) % 2
    >>> cramers_v(codes, codes, (2, 2)), cramers_v(codes, np.arange(100) // 50, (2, 2))
    (1.0, 0.0)
    """
    counts = np.bincount(left * shape[1] + right, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    rows, (r, k) = counts.sum(), counts.shape
    if min(r, k) < 2:
        return 0.0
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / rows
    phi = float(((counts - expected) ** 2 / expected).sum()) / rows
    phi = max(0.0, phi - (r - 1) * (k - 1) / (rows - 1))
    least = min(r - (r - 1) ** 2 / (rows - 1), k - (k - 1) ** 2 / (rows - 1)) - 1
    return round(sqrt(phi / least), 12)


def sample(name: str, seed: int) -> StreamData:
    """Rows of a table in steps, without the last ones that fill none."""
    make, wanted = TABLES[name]
    table = make()
    places = [table.domain.names.index(each) for each in wanted]
    domain = TableDomain(tuple(table.domain.attributes[place] for place in places))
    rows = np.random.default_rng(3000 + seed).permutation(len(table.codes))[:ROWS]
    codes = table.codes[np.sort(rows)][:, places]
    inserts = [codes[at : at + BATCH] for at in range(0, len(codes) - BATCH + 1, BATCH)]
    return StreamData(domain, inserts, [codes[:0]] * len(inserts), table=name)


def strong(domain: TableDomain, true: Codes, synthetic: Codes) -> np.ndarray:
    """`(strong pairs, 2)`: true V, and that of the synthetic rows."""
    found = []
    for left in range(len(domain.sizes)):
        for right in range(left + 1, len(domain.sizes)):
            shape = (domain.sizes[left], domain.sizes[right])
            found.append([cramers_v(of[:, left], of[:, right], shape) for of in (true, synthetic)])
    both = np.array(found)
    return both[both[:, 0] > STRONG]


def ties(name: str, seed: int) -> np.ndarray:
    """`(strong pairs, 2)`: true V, and that of the synthetic rows."""
    data = sample(name, seed)
    engine = growing(data, EPSILON, records=True)
    for step in range(len(data.inserts)):
        engine.step(data.batch(step), seeded(seed).child("ties", step))
    return strong(data.domain, np.concatenate(data.inserts), engine._rows.codes)


def measured() -> dict[str, np.ndarray]:
    """Of each table, `(seeds,)` mean ratios over its strong pairs."""
    return {
        name: np.array([float((both[:, 1] / both[:, 0]).mean()) for both in (ties(name, s) for s in range(SEEDS))])
        for name in TABLES
    }


def table(found: Mapping[str, np.ndarray]) -> Iterator[str]:
    yield "\n## Ties: Cramer's V of synthetic rows over the true one, at epsilon 2\n"
    yield "| table | mean of pairs with a true V above .1 |"
    yield "|---|---|"
    for name, ratios in found.items():
        yield f"| {name} | {ratios.mean():.3f} ± {ratios.std(ddof=1):.3f} ({len(ratios)}) |"


def summary(found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """For the last line."""
    return {"ties": round(float(np.mean([ratios.mean() for ratios in found.values()])), 3)}
