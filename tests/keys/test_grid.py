"""Cells of a public grid as keys."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engines.checks.contract_case import contract_case
from engines.core.contract import Columns
from engines.keys.build import domain as domain_of
from engines.keys.domain import KeysDomain
from engines.keys.grid import KeyGrid
from schemas.config.engines.keys import GridSection
from schemas.events import Reason

GRID = {"x": "lon", "y": "lat", "bounds": [-1.0, 10.0, 5.0, 12.0], "columns": 6, "rows": 4}


def made() -> KeysDomain:
    return domain_of(
        contract_case("keys").stream("public", {"domain": {"field": None, "grid": GRID, "max_key_bytes": 20}})
    )


def encoded(x: list[float], y: list[float]) -> tuple[list[tuple[Any, ...]], list[Reason], list[str]]:
    domain, columns = made(), Columns({"lon": np.array(x), "lat": np.array(y)}, {}, np.ones(len(x), np.int8))
    keys, reasons = domain.encode(columns)
    return (
        domain.decode(keys[reasons == 0]),
        [Reason(each) for each in reasons.tolist()],
        list(domain.at_fault(columns)),
    )


@given(st.lists(st.tuples(st.floats(-1, 5, exclude_max=True), st.floats(10, 12, exclude_max=True)), min_size=1))
def test_a_point_is_in_the_cell_whose_middle_is_nearest(points: list[tuple[float, float]]) -> None:
    x, y = map(list, zip(*points, strict=True))
    names, reasons, _ = encoded(x, y)
    assert set(reasons) == {Reason.ACCEPTED}
    middles = set(GridSection.model_validate(GRID).middles)
    assert len(middles) == 24
    for point, name in zip(points, names, strict=True):
        assert name in middles
        assert all(isinstance(each, float) for each in name)
        assert abs(point[0] - name[0]) <= 0.5 * (1 + 1e-9)
        assert abs(point[1] - name[1]) <= 0.25 * (1 + 1e-9)


def test_cells_have_their_lower_edges_and_not_the_box_its_upper_ones() -> None:
    names, *_ = encoded([-1.0, 0.0, np.nextafter(5.0, 0)], [10.0, 10.5, np.nextafter(12.0, 0)])
    assert names == [(-0.5, 10.25), (0.5, 10.75), (4.5, 11.75)]
    _, reasons, faults = encoded([5.0, 0.0, 9.0, np.nan, np.inf], [10.0, 12.0, 9.0, 11.0, 1.0])
    assert reasons == [Reason.OUTSIDE_DOMAIN] * 3 + [Reason.NOT_FINITE] * 2
    assert faults == ["lon", "lat", "lon and lat", "lon", "lon and lat"]


@given(st.integers(1, 300), st.floats(1e-3, 1e6), st.floats(-1e6, 1e6))
def test_no_point_of_a_box_rounds_out_of_its_last_cell(columns: int, width: float, low: float) -> None:
    grid = KeyGrid(x="x", y="y", bounds=(low, 0.0, low + width, 1.0), columns=columns, rows=1)
    last = np.nextafter(low + width, -np.inf)
    assert grid.cells(np.array([low, last]), np.zeros(2)).tolist() == [0, columns - 1]
