"""Tables: `default` after the last step against AIM on the whole table; and what ties they keep."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.data import DATA
from benchmarks.environments import runs
from benchmarks.price.aim import aim
from benchmarks.size import sized
from benchmarks.tabular.metrics import METRICS, errors
from benchmarks.tabular.modes import DELTA, growing, growing_pairs, pairs
from benchmarks.tabular.streams import STREAMS, StreamData
from benchmarks.tabular.ties import EPSILON as TIES_EPSILON
from benchmarks.tabular.ties import TABLES, sample, strong
from engines.core.noise import seeded
from engines.tabular.growing.engine import GrowingBlocks

PART, TIES = "table", "ties"
EPSILON = Fraction(1)
FIGURES = METRICS
OURS, PURE, RIVAL = "default, delta", "default", "AIM"
METHODS = (OURS, PURE, *([RIVAL] if runs("price") else []), "one batch, delta", "one batch")
SEEDS = 5
QUICK_STEPS = sized(60, smallest=2)
FULL = ("adult-randomised-200", "minneapolis-200", "evictions-weekly")


def data(*, quick: bool) -> list[str]:
    """Streams, cut where it must be quick."""
    if not (DATA / "adult").is_dir():
        return []
    return [f"evictions-weekly, {QUICK_STEPS} steps"] if quick else list(FULL)


def tied(*, quick: bool) -> list[str]:
    """Tables of `benchmarks.tabular.ties`."""
    if not (DATA / "adult").is_dir():
        return []
    return ["evictions"] if quick else list(TABLES)


def stream(name: str, seed: int) -> StreamData:
    name, _, steps = name.partition(", ")
    return STREAMS[name](seed, QUICK_STEPS if steps else None)


def in_one(whole: StreamData) -> StreamData:
    """The same rows in one step."""
    rows = np.concatenate(whole.inserts)
    return StreamData(whole.domain, [rows], [rows[:0]], table=whole.table)


def driven(of: StreamData, epsilon: Fraction, seed: int, *, delta: float, records: bool) -> GrowingBlocks:
    """The engine after the last step."""
    engine = growing(of, epsilon, records=records, delta=delta)
    for step in range(len(of.inserts)):
        engine.step(of.batch(step), seeded(seed).child("price", step))
    return engine


def run(name: str, method: str, seed: int) -> dict[str, float]:
    """Errors of all pairs after the last step."""
    whole = stream(name, seed)
    rows = np.concatenate(whole.inserts)
    layout = pairs(whole.domain)
    true = layout.counts(rows, np.ones(len(rows), np.int64))
    if method == RIVAL:
        released = aim(rows, whole.domain.sizes, epsilon=float(EPSILON), delta=DELTA, seed=seed).pairs
    else:
        of = in_one(whole) if method.startswith("one batch") else whole
        released = growing_pairs(driven(of, EPSILON, seed, delta=_delta(method), records=False))
    return dict(zip(METRICS, errors(layout, true, released), strict=True))


def run_ties(name: str, method: str, seed: int) -> dict[str, float]:
    """Mean of Cramer's V of synthetic rows over the true one."""
    of = sample(name, seed)
    true = np.concatenate(of.inserts)
    if method == RIVAL:
        found = aim(true, of.domain.sizes, epsilon=float(TIES_EPSILON), delta=DELTA, seed=seed, rows=len(true)).rows
        assert found is not None
    else:
        of = in_one(of) if method.startswith("one batch") else of
        found = driven(of, TIES_EPSILON, seed, delta=_delta(method), records=True)._rows.codes
    both = strong(of.domain, true, found)
    return {"ties": float((both[:, 1] / both[:, 0]).mean())}


def _delta(method: str) -> float:
    return DELTA if method.endswith("delta") else 0.0
