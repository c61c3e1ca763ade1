"""The range-query metric against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.contract import Columns
from engines.spatial.domain.box import BoxDomain
from engines.spatial.evaluators import GRID_DEPTH, SIZES, Rectangles, SpatialEvaluator
from schemas.blocks import Folded
from tests.examples import examples

BOX = BoxDomain("lon", "lat", (10.0, 50.0, 14.0, 52.0), 18)
EVALUATOR = SpatialEvaluator.over(BOX)


def points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return 10 + 4 * random.beta(2, 5, count), 50 + 2 * random.beta(3, 3, count)


def folded(x: np.ndarray, y: np.ndarray) -> Folded:
    keys, reasons = EVALUATOR.domain.encode(Columns({"lon": x, "lat": y}, {}, np.ones(len(x), np.int8)))
    assert not reasons.any()
    return Folded.from_keys(keys)


@settings(max_examples=examples(0.2))
@given(true=st.integers(0, 300), synthetic=st.integers(0, 300), seed=st.integers(0, 1000))
def test_errors_equal_brute_force(true: int, synthetic: int, seed: int) -> None:
    x, y = points(true, seed)
    sx, sy = points(synthetic, seed + 1)
    measured = EVALUATOR.measure(folded(x, y), {"lon": sx.tolist(), "lat": sy.tolist()})
    side = 1 << (GRID_DEPTH // 2)
    for name, queries in EVALUATOR.queries.items():
        errors = []
        for left, bottom, right, top in zip(queries.left, queries.bottom, queries.right, queries.top, strict=True):
            edges = (10 + 4 * left / side, 10 + 4 * right / side, 50 + 2 * bottom / side, 50 + 2 * top / side)
            counts = [
                int(((edges[0] <= px) & (px < edges[1]) & (edges[2] <= py) & (py < edges[3])).sum())
                for px, py in ((x, y), (sx, sy))
            ]
            errors.append(abs(counts[0] - counts[1]) / max(counts[0], 0.001 * true if true else 1))
        assert measured[f"error_{name}"] == pytest.approx(np.mean(errors))


def test_the_truth_has_no_error_and_deletes_take_away() -> None:
    x, y = points(500, 3)
    truth = folded(x, y)
    assert set(EVALUATOR.measure(truth, {"lon": x.tolist(), "lat": y.tolist()}).values()) == {0.0}
    gone = Folded(truth.keys | np.uint64(1), truth.counts)
    assert set(EVALUATOR.measure(truth.merge(gone), {"lon": [], "lat": []}).values()) == {0.0}


@pytest.mark.parametrize("size", sorted(SIZES))
def test_rectangles_have_their_sizes_and_stay_inside(size: str) -> None:
    side = 1 << (GRID_DEPTH // 2)
    queries = EVALUATOR.queries[size]
    wide, high = queries.right - queries.left, queries.top - queries.bottom
    low, limit = SIZES[size]
    share = wide * high / side**2
    assert (share > 0.9 * low).all()
    assert (share < 1.1 * limit).all()
    assert (queries.left >= 0).all()
    assert (queries.bottom >= 0).all()
    assert (queries.right <= side).all()
    assert (queries.top <= side).all()
    aspects = np.log(wide / high)
    assert abs(aspects.mean()) < 0.15
    assert np.abs(aspects).max() < 1.2


def test_rectangles_never_change() -> None:
    """Figures of different versions can only be compared if they ask the same questions."""
    queries = Rectangles.random(3, area=SIZES["medium"], columns=1024, rows=1024, seed="medium")
    assert np.stack([queries.left, queries.bottom, queries.right, queries.top]).tolist() == [
        [571, 886, 492],
        [922, 30, 322],
        [606, 986, 565],
        [960, 110, 371],
    ]
