"""Cells of a box: every point has one, and bounds and codes agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.contract import Columns
from engines.spatial.domain.box import BoxDomain
from engines.spatial.points import node_depths
from schemas.errors import EngineInputError
from schemas.events import Reason
from tests.examples import examples

BOUNDS = (-74.05, 40.60, -73.75, 40.90)


def encode(box: BoxDomain, x: object, y: object, operations: object = None) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.array(x, float), np.array(y, float)
    signs = np.ones(len(x), np.int8) if operations is None else np.array(operations, np.int8)
    keys, reasons = box.encode(Columns({"x": x, "y": y}, {}, signs))
    return keys[:, 0].astype(np.int64), reasons


def bisected(box: BoxDomain, x: float, y: float) -> int:
    """The slow obvious twin: halve one side after the other."""
    code, low, high = 0, list(box.bounds[:2]), list(box.bounds[2:])
    for level in range(box.depth):
        axis, value = level % 2, (x, y)[level % 2]
        middle = (low[axis] + high[axis]) / 2
        code = 2 * code + (value >= middle)
        if value >= middle:
            low[axis] = middle
        else:
            high[axis] = middle
    return code


@settings(max_examples=examples(4))
@given(
    depth=st.integers(1, 24),
    u=st.floats(0, 1, exclude_max=True),
    v=st.floats(0, 1, exclude_max=True),
    delete=st.booleans(),
)
def test_codes_are_bisections(depth: int, u: float, v: float, delete: bool) -> None:
    box = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth)
    keys, reasons = encode(box, [u], [v], [-1 if delete else 1])
    assert reasons.tolist() == [0]
    assert keys.tolist() == [2 * bisected(box, u, v) + delete]


@settings(max_examples=examples(2))
@given(depth=st.integers(1, 30), seed=st.integers(0, 2**32))
def test_cells_contain_their_points(depth: int, seed: int) -> None:
    box = BoxDomain("x", "y", BOUNDS, depth)
    random = np.random.default_rng(seed)
    x, y = random.uniform(BOUNDS[0], BOUNDS[2], 50), random.uniform(BOUNDS[1], BOUNDS[3], 50)
    keys, _ = encode(box, x, y)
    for up in range(depth + 1):
        nodes = ((1 << depth) | (keys >> 1)) >> up
        assert (node_depths(nodes) == depth - up).all()
        xmin, ymin, xmax, ymax = box.corners(nodes, node_depths(nodes))
        slack = 1e-9 * 0.3
        assert ((xmin - slack <= x) & (x <= xmax + slack) & (ymin - slack <= y) & (y <= ymax + slack)).all()


def test_edges_and_unusable_numbers() -> None:
    box = BoxDomain("x", "y", BOUNDS, 18)
    x0, y0, x1, y1 = BOUNDS
    below = np.nextafter(x1, x0)
    x = [x0, x1, below, np.nan, np.inf, x0, -200.0, x0, 1e300]
    y = [y0, y0, np.nextafter(y1, y0), y0, y0, -np.inf, y0, y1, y0]
    keys, reasons = encode(box, x, y)
    out, unusable = Reason.OUTSIDE_DOMAIN, Reason.NOT_FINITE
    assert reasons.tolist() == [0, out, 0, unusable, unusable, unusable, out, out, out]
    assert keys[[0, 2]].tolist() == [0, 2 * (2**18 - 1)]
    assert len(encode(box, [], [])[0]) == 0


@pytest.mark.parametrize(
    ("bounds", "depth"),
    [
        ((0, 0, 1, 1), 0),
        ((0, 0, 1, 1), 33),
        ((1e6, 0, 1e6 + 1e-6, 1), 20),
    ],
)
def test_unusable_boxes_are_refused(bounds: tuple[float, float, float, float], depth: int) -> None:
    with pytest.raises(EngineInputError):
        BoxDomain("x", "y", bounds, depth)
