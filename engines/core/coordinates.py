"""Points of a box, whichever engine reads them."""

from __future__ import annotations

import numpy as np

from engines.core.contract import Columns
from schemas.arrays import FloatArray, ReasonArray
from schemas.events import Reason


def refused(x: FloatArray, y: FloatArray) -> ReasonArray:
    """Return why points would be refused that a domain does not hold, `(points,)`."""
    finite = np.isfinite(x) & np.isfinite(y)
    return np.where(finite, Reason.OUTSIDE_DOMAIN, Reason.NOT_FINITE).astype(np.uint8)


def coordinates_at_fault(
    columns: Columns, fields: tuple[str, str], bounds: tuple[float, float, float, float]
) -> list[str]:
    """Name the coordinate that puts each refused point beyond the bounds; both where both do, or neither does.

    >>> outside = Columns({"x": np.array([2.0, 0.5, 0.5]), "y": np.array([0.5, 2.0, 0.5])}, {}, np.ones(3, np.int8))
    >>> coordinates_at_fault(outside, ("x", "y"), (0.0, 0.0, 1.0, 1.0))
    ['x', 'y', 'x and y']
    """
    x, y = (columns.numbers[field] for field in fields)
    xmin, ymin, xmax, ymax = bounds
    x_fits, y_fits = (x >= xmin) & (x < xmax), (y >= ymin) & (y < ymax)
    names = (*fields, " and ".join(fields))
    return [names[place] for place in np.where(x_fits == y_fits, 2, np.where(x_fits, 1, 0)).tolist()]
