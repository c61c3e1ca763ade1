"""Small tables and streams for tests."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from engines.core.contract import Batch
from engines.tabular.domain import Category, Impossible, TableDomain
from engines.tabular.growing.config import GrowingConfig
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.marginals import Workload, every_marginal
from schemas.arrays import IntArray
from schemas.blocks import Folded


def table(*sizes: int, impossible: tuple[Impossible, ...] = ()) -> TableDomain:
    """Attributes a, b, ... with values 0, 1, ..."""
    attributes = (Category(field="abcdefgh"[i], values=tuple(range(size))) for i, size in enumerate(sizes))
    return TableDomain(tuple(attributes), impossible)


def growing(domain: TableDomain, epsilon: Fraction = Fraction(1), **changes: Any) -> GrowingBlocks:
    return GrowingBlocks(GrowingConfig(name="t", domain=domain, epsilon=epsilon, **changes))


def folded(domain: TableDomain, codes: IntArray, signs: IntArray | None = None) -> Folded:
    """Events of rows `(rows, attributes)`, all inserted where no signs are given."""
    operations = np.ones(len(codes), np.int8) if signs is None else np.array(signs, np.int8)
    return Folded.of(domain.keys.pack(np.asarray(codes, np.int64).reshape(-1, len(domain.sizes)), operations))


def random_rows(domain: TableDomain, rows: int, seed: int) -> IntArray:
    """Dependent attributes: half of the rows have the code of the first one in all, as far as there is one."""
    random = np.random.default_rng(seed)
    codes = np.stack([random.integers(0, size, rows) for size in domain.sizes], axis=1)
    same = random.random(rows) < 0.5
    codes[same] = np.minimum(codes[same, :1], np.array(domain.sizes) - 1)
    return codes


@st.composite
def streams(draw: st.DrawFn, domain: TableDomain, *, deletes: bool, most: int = 400, steps: int = 5) -> list[Batch]:
    """Steps with few rows, many, none, or deletes only."""
    made = []
    for step in range(draw(st.integers(1, steps))):
        rows = draw(st.sampled_from([0, 1, 7, most]))
        codes = random_rows(domain, rows, draw(st.integers(0, 2**16)))
        signs = np.ones(rows, np.int64)
        if deletes:
            signs[: draw(st.sampled_from([0, rows // 3, rows]))] = -1
        made.append(Batch(step, folded(domain, codes, signs)))
    return made


def triples(domain: TableDomain) -> Workload:
    return every_marginal(len(domain.sizes), (1, 2, 3))
