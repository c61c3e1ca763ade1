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
    return Folded.from_keys(domain.keys.pack(np.asarray(codes, np.int64).reshape(-1, len(domain.sizes)), operations))


def batch(domain: TableDomain, step: int, codes: np.ndarray, signs: IntArray | None = None) -> Batch:
    return Batch(step, folded(domain, codes, signs))


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
        made.append(batch(domain, step, codes, signs))
    return made


def triples(domain: TableDomain) -> Workload:
    return every_marginal(len(domain.sizes), (1, 2, 3))


def random_batches(domain: TableDomain, *, steps: int, rows: int, seed: int, deletes: bool = False) -> list[Batch]:
    """Dependent attributes; every third step is empty; deletes undo earlier inserts."""
    rng = np.random.default_rng(seed)
    made, alive = [], np.zeros((0, len(domain.sizes)), np.int64)
    for step in range(steps):
        count = 0 if step % 3 == 2 else rows
        hidden = rng.integers(0, 2, count)
        codes = np.stack([np.minimum(hidden + rng.integers(0, size, count), size - 1) for size in domain.sizes], axis=1)
        gone = np.zeros((0, codes.shape[1]), np.int64)
        if deletes and len(alive):
            gone = alive[: len(alive) // 2]
            alive = alive[len(alive) // 2 :]
        alive = np.concatenate([alive, codes])
        signs = np.repeat([1, -1], [len(codes), len(gone)])
        made.append(batch(domain, step, np.concatenate([codes, gone]), signs))
    return made
