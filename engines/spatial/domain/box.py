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

from engines.contract import Columns
from schemas.blocks import IntArray, KeyArray
from schemas.errors import EngineInputError
from schemas.events import Reason

FloatArray = npt.NDArray[np.floating[Any]]

MAX_DEPTH = 32
_ONE = np.uint64(1)


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


@dataclass(frozen=True, slots=True)
class BoxDomain:
    """Half-open rectangle `[xmin, xmax) x [ymin, ymax)`, halved `depth` times. Implements `engines.contract.Domain`.

    A key is one word, `cell code << 1 | (1 if delete else 0)`.

    Args:
        x_field, y_field: names of the coordinates in raw and in synthetic records.
        bounds: xmin, ymin, xmax, ymax in the coordinates' own unit.
        depth: halvings, 1 to 32; x gets the odd one.
    Raises: EngineInputError if the bounds are empty or not finite, or the finest cell is too small for float64.

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
    _x_table: KeyArray = field(init=False, repr=False, compare=False)
    _y_table: KeyArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bounds = tuple(float(bound) for bound in self.bounds)
        if len(bounds) != 4 or not all(np.isfinite(bounds)) or bounds[0] >= bounds[2] or bounds[1] >= bounds[3]:
            raise EngineInputError("bounds must be four finite numbers, xmin < xmax and ymin < ymax")
        if not 1 <= self.depth <= MAX_DEPTH:
            raise EngineInputError(f"depth must be in 1 to {MAX_DEPTH}")
        if not np.isfinite(bounds[2] - bounds[0]) or not np.isfinite(bounds[3] - bounds[1]):
            raise EngineInputError("bounds must span a finite width and height")
        object.__setattr__(self, "bounds", bounds)
        for low, high, bits in ((bounds[0], bounds[2], self.x_bits), (bounds[1], bounds[3], self.y_bits)):
            # 2**14 numbers in a cell leave room for positions that stay inside after rounding.
            if (high - low) / (1 << bits) < 2**14 * np.spacing(max(abs(low), abs(high))):
                raise EngineInputError("depth is too large for these bounds: float64 can not tell the cells apart")
        object.__setattr__(self, "_x_table", spread_table(self.x_bits, top=self.depth))
        object.__setattr__(self, "_y_table", spread_table(self.y_bits, top=self.depth - 1))

    @property
    def x_bits(self) -> int:
        return (self.depth + 1) // 2

    @property
    def y_bits(self) -> int:
        return self.depth // 2

    @property
    def number_fields(self) -> tuple[str, ...]:
        return (self.x_field, self.y_field)

    @property
    def text_fields(self) -> tuple[str, ...]:
        return ()

    @property
    def value_fields(self) -> tuple[str, ...]:
        return ()

    @property
    def words(self) -> int:
        return 1

    def encode(self, columns: Columns) -> tuple[KeyArray, npt.NDArray[np.uint8]]:
        """Keys `(events, 1)` and reasons `(events,)`, see `engines.contract.Domain`.

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
        finite = np.isfinite(x) & np.isfinite(y)
        reasons = np.where(finite, Reason.OUTSIDE_DOMAIN, Reason.NOT_FINITE).astype(np.uint8)
        reasons[inside] = Reason.ACCEPTED
        keys = self._keys(np.where(inside, x, xmin), np.where(inside, y, ymin), columns.operations)
        keys[~inside] = 0
        return keys, reasons

    def _keys(self, x: FloatArray, y: FloatArray, operations: npt.NDArray[np.int8]) -> KeyArray:
        """Keys of points inside. Clipping catches a product that rounds up to the number of columns."""
        xmin, ymin, xmax, ymax = self.bounds
        column, row = x - xmin, y - ymin
        column *= (1 << self.x_bits) / (xmax - xmin)
        row *= (1 << self.y_bits) / (ymax - ymin)
        keys: KeyArray = self._x_table.take(column.astype(np.intp), mode="clip")
        keys |= self._y_table.take(row.astype(np.intp), mode="clip")
        keys |= operations < 0
        return keys.reshape(-1, 1)

    def grid(self, codes: IntArray) -> tuple[IntArray, IntArray]:
        """Column and row of finest cells, `(cells,)` each, counted from xmin and ymin."""
        column, row = np.zeros_like(codes), np.zeros_like(codes)
        for index in range(self.depth):
            target = row if index % 2 else column
            target <<= 1
            target |= (codes >> (self.depth - 1 - index)) & 1
        return column, row

    def corners(self, nodes: IntArray, depths: IntArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Bounds of tree nodes: xmin, ymin, xmax, ymax, `(nodes,)` each, in the coordinates' unit.

        Args:
            nodes: `(nodes,)` heap numbers. depths: `(nodes,)` their depths.
        """
        xmin, ymin, xmax, ymax = self.bounds
        column, row = self.grid((nodes << (self.depth - depths)) - (1 << self.depth))
        wide = np.int64(1) << (self.x_bits - (depths + 1) // 2)
        high = np.int64(1) << (self.y_bits - depths // 2)
        dx, dy = (xmax - xmin) / (1 << self.x_bits), (ymax - ymin) / (1 << self.y_bits)
        return xmin + column * dx, ymin + row * dy, xmin + (column + wide) * dx, ymin + (row + high) * dy
