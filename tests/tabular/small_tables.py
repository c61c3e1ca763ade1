"""A small table and its streams, for tests of every tabular mode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engines.core.contract import Batch
from engines.tabular.domain import Category, TableDomain
from schemas.blocks import Folded

SIZES = (3, 2, 4)


def small_domain(sizes: Sequence[int] = SIZES) -> TableDomain:
    return TableDomain(tuple(Category(field=f"a{i}", values=tuple(range(size))) for i, size in enumerate(sizes)))


def batch(domain: TableDomain, step: int, codes: np.ndarray, signs: Sequence[int] | None = None) -> Batch:
    """Rows of codes, inserted, or deleted where the sign is -1."""
    operations = np.ones(len(codes), np.int8) if signs is None else np.array(signs, np.int8)
    keys = domain.keys.pack(np.array(codes, np.int64).reshape(-1, len(domain.sizes)), operations)
    return Batch(step, Folded.of(keys))


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
        signs = [1] * len(codes) + [-1] * len(gone)
        made.append(batch(domain, step, np.concatenate([codes, gone]), signs))
    return made
