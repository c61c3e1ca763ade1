"""A box of the plane as a binary tree of cells: points in, integer keys out; cells in, their bounds out.

Bits of a cell code: the first halves x, the second y, and so on, so that a node of the tree is a prefix. A node is
named by its heap number `1 << depth | code`: the root is 1, the children of v are 2v and 2v + 1, and a smaller number
is never deeper.
Privacy: knows no data. What a record becomes depends on that record and on public bounds only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from engines.core.contract import Columns
from engines.core.coordinates import refused
from engines.spatial.domain.base import HALF, WHOLE, PlanarDomain, PublicWords, first_codes
from schemas.arrays import BoolArray, FloatArray, IntArray, KeyArray, ReasonArray
from schemas.errors import EngineInputError
from schemas.events import Reason

MAX_DEPTH = 32
_ONE = np.uint64(1)
# 0x5555..., 0x3333..., 0x0F0F..., up to the lower half of a word.
_MASKS = tuple(np.uint64(((1 << 64) - 1) // ((1 << (1 << power)) + 1)) for power in range(6))


def spread_table(bits: int, *, top: int) -> KeyArray:
    """Place the bits of every `bits`-bit number two apart, the highest at position `top`.

    Returns: `(2**bits,)` uint64.

    >>> [format(word, "05b") for word in spread_table(2, top=3)]
    ['00000', '00010', '01000', '01010']
    """
    values = np.arange(1 << bits, dtype=np.uint64)
    table = np.zeros(1 << bits, np.uint64)
    for index in range(bits):
        table |= ((values >> np.uint64(bits - 1 - index)) & _ONE) << np.uint64(top - 2 * index)
    return table


def deepest(low: float, high: float) -> int:
    """Return how often an interval can be halved: 2**14 numbers in a cell leave room for positions after rounding.

    >>> deepest(-74.05, -73.75), deepest(1e6, 1e6 + 1e-6)
    (30, -1)
    """
    return int(np.floor(np.log2((high - low) / np.spacing(max(abs(low), abs(high))) / 2**14)))


@dataclass(frozen=True, slots=True)
class BoxDomain(PlanarDomain):
    """Half-open rectangle `[xmin, xmax) x [ymin, ymax)`, halved `depth` times. Implements `SpatialDomain`.

    A key is one word, `cell code << 1 | (1 if delete else 0)`.

    Args:
        x_field, y_field: names of the coordinates in raw and in synthetic records.
        bounds: xmin, ymin, xmax, ymax in the coordinates' own unit.
        depth: halvings, 1 to 32; x gets the odd one.
    Raises: EngineInputError if the finest cell is too small for float64.

    | point                        | reason         |
    |------------------------------|----------------|
    | on the lower bound           | ACCEPTED       |
    | on the upper bound, or above | OUTSIDE_DOMAIN |
    | NaN or infinite              | NOT_FINITE     |
    """

    x_field: str
    y_field: str
    bounds: tuple[float, float, float, float]
    depth: int
    halved = True
    _x_table: KeyArray = field(init=False, repr=False, compare=False)
    _y_table: KeyArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bounds = tuple(map(float, self.bounds))
        if not 1 <= self.depth <= MAX_DEPTH:
            raise EngineInputError(f"depth must be in 1 to {MAX_DEPTH}")
        object.__setattr__(self, "bounds", bounds)
        for low, high, bits in ((bounds[0], bounds[2], self.x_bits), (bounds[1], bounds[3], self.y_bits)):
            if bits > (most := deepest(low, high)):
                raise EngineInputError(
                    "depth is too large for these bounds: float64 can not tell the cells apart; the deepest that works "
                    f"is {2 * most if bits == self.y_bits else 2 * most - 1}"
                )
        object.__setattr__(self, "_x_table", spread_table(self.x_bits, top=self.depth))
        object.__setattr__(self, "_y_table", spread_table(self.y_bits, top=self.depth - 1))

    @property
    def x_bits(self) -> int:
        return (self.depth + 1) // 2

    @property
    def y_bits(self) -> int:
        return self.depth // 2

    @property
    def cell_size(self) -> tuple[np.float64, np.float64]:
        """Width and height of a finest cell, in the coordinates' unit."""
        xmin, ymin, xmax, ymax = self.bounds
        return np.float64((xmax - xmin) / (1 << self.x_bits)), np.float64((ymax - ymin) / (1 << self.y_bits))

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """Return keys `(events, 1)` and reasons `(events,)`, see `engines.core.contract.Domain`.

        >>> box = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=2)
        >>> columns = Columns({"x": np.array([0.1, 0.9, 1.0]), "y": np.array([0.9, 0.9, 0.0])}, {}, np.int8([1, -1, 1]))
        >>> [array.tolist() for array in box.encode(columns)]
        [[[2], [7], [0]], [0, 0, 12]]
        """
        x, y = columns.numbers[self.x_field], columns.numbers[self.y_field]
        xmin, ymin, xmax, ymax = self.bounds
        inside = x >= xmin
        inside &= x < xmax
        inside &= y >= ymin
        inside &= y < ymax
        if inside.all():
            return self._keys(x, y, columns.operations), np.zeros(len(x), np.uint8)
        reasons = refused(x, y)
        reasons[inside] = Reason.ACCEPTED
        keys = self._keys(np.where(inside, x, xmin), np.where(inside, y, ymin), columns.operations)
        keys[~inside] = 0
        return keys, reasons

    def _keys(self, x: FloatArray, y: FloatArray, operations: npt.NDArray[np.int8]) -> KeyArray:
        """Return the keys of points inside. Clipping catches a product that rounds up to the number of columns."""
        xmin, ymin, xmax, ymax = self.bounds
        column, row = x - xmin, y - ymin
        column *= (1 << self.x_bits) / (xmax - xmin)
        row *= (1 << self.y_bits) / (ymax - ymin)
        keys: KeyArray = self._x_table.take(column.astype(np.intp), mode="clip")
        keys |= self._y_table.take(row.astype(np.intp), mode="clip")
        keys |= operations < 0
        return keys.reshape(-1, 1)

    def cells(self, x: FloatArray, y: FloatArray) -> IntArray:
        """Return the finest cells of points inside, `(points,)`."""
        return self._keys(x, y, np.ones(len(x), np.int8))[:, 0].astype(np.int64) >> 1

    def grid(self, codes: IntArray) -> tuple[IntArray, IntArray]:
        """Return column and row of finest cells, `(cells,)` each, counted from xmin and ymin."""
        words = codes.astype(np.uint64)
        odd, even = _every_other(words >> _ONE), _every_other(words)
        return (even, odd) if self.depth % 2 else (odd, even)

    def corners(self, nodes: IntArray, depths: IntArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return the bounds of nodes: xmin, ymin, xmax, ymax, `(nodes,)` each, in the coordinates' unit.

        Args:
            nodes: `(nodes,)` heap numbers. depths: `(nodes,)` their depths.
        """
        xmin, ymin, _, _ = self.bounds
        column, row = self.grid(first_codes(nodes, depths, self.depth))
        wide = np.int64(1) << (self.x_bits - (depths + 1) // 2)
        high = np.int64(1) << (self.y_bits - depths // 2)
        dx, dy = self.cell_size
        return xmin + column * dx, ymin + row * dy, xmin + (column + wide) * dx, ymin + (row + high) * dy

    @property
    def identity(self) -> tuple[Any, ...]:
        return (self.bounds, self.depth)

    def divisible(self, nodes: IntArray, depths: IntArray) -> BoolArray:
        return depths < self.depth

    def left_shares(self, nodes: IntArray, depths: IntArray) -> IntArray:
        return np.where(depths < self.depth, HALF, WHOLE)

    def described(self, nodes: IntArray, depths: IntArray) -> list[dict[str, Any]]:
        return [{"cell": cell} for cell in np.stack(self.corners(nodes, depths), axis=1).tolist()]

    def points(self, public: PublicWords, nodes: IntArray, indices: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return x and y of points, rounded to a thousandth of the finest cell or better, and inside their cells."""
        fx, fy = public.positions(nodes, indices)
        column, row = self.grid(nodes - (1 << self.depth))
        xmin, ymin, _, _ = self.bounds
        dx, dy = self.cell_size
        return _place(xmin, dx, column, fx), _place(ymin, dy, row, fy)


def _place(low: float, width: float, cell: IntArray, fraction: FloatArray) -> FloatArray:
    # A 512th of the cell stays free on each side: rounding moves a point by a 2000th at most, and never out of its
    # cell.
    inner = (cell + (1 / 512 + fraction * (510 / 512))) * width + low
    return rounded(inner, width)


def rounded(values: FloatArray, width: float) -> FloatArray:
    """Round coordinates to as many decimals as a thousandth of a cell's width needs."""
    decimals = int(np.ceil(3 - np.log10(width)))
    return np.round(values, decimals) if decimals < 300 else values


def _every_other(words: KeyArray) -> IntArray:
    """Return bits 0, 2, 4, ... of each word, side by side.

    >>> _every_other(np.array([0b110111], np.uint64)).tolist()
    [7]
    """
    words = words & _MASKS[0]
    for shift, mask in enumerate(_MASKS[1:]):
        words = (words | (words >> np.uint64(1 << shift))) & mask
    return words.astype(np.int64)
