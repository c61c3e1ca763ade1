"""The domain of a table: attributes with public values, combinations that cannot be, and the keys of rows.

An event is one row, inserted or deleted. Its key holds one code for each attribute (`attributes`) and the operation
(`keys`). Of an event with several faults the first attribute's is reported; a combination that cannot be is
OUTSIDE_DOMAIN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engines.core.contract import Columns, ScalarKind
from engines.tabular.attributes import Attribute, Scalar
from engines.tabular.keys import RowKeys
from schemas.arrays import BoolArray, FloatArray, IntArray, KeyArray, ReasonArray
from schemas.errors import EngineInputError
from schemas.events import Reason

MAX_ATTRIBUTES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Impossible:
    """A structural zero: no row has one of `left_codes` in attribute `left` together with one of `right_codes` in
    attribute `right`. Attributes by index, left < right.
    """

    left: int
    left_codes: tuple[int, ...]
    right: int
    right_codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableDomain:
    """See the module; implements `engines.core.contract.Domain`.

    Args:
        attributes: one to 50, with distinct names.
        impossible: structural zeros; a value that cannot occur with any value of another attribute is refused.
    Raises: EngineInputError.

    >>> from engines.tabular.attributes import Category, Numeric
    >>> domain = TableDomain((Category(name="sex", values=("f", "m")), Numeric(name="age", edges=(0, 18, 120))))
    >>> columns = Columns({}, {}, np.int8([1, -1]), {"sex": ["m", "f"], "age": [17, 130]})
    >>> [array.tolist() for array in domain.encode(columns)]
    [[[2], [0]], [0, 12]]
    """

    attributes: tuple[Attribute, ...]
    impossible: tuple[Impossible, ...] = ()
    keys: RowKeys = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.attributes) <= MAX_ATTRIBUTES:
            raise EngineInputError(f"a table has 1 to {MAX_ATTRIBUTES} attributes, not {len(self.attributes)}")
        if len(set(self.names)) != len(self.names):
            raise EngineInputError("two attributes have the same name")
        object.__setattr__(self, "keys", RowKeys(self.sizes))
        for zero in self.impossible:
            self._check(zero)
        for left, right in sorted({(zero.left, zero.right) for zero in self.impossible}):
            possible = self.possible_pairs(left, right)
            if not (possible.any(axis=1).all() and possible.any(axis=0).all()):
                raise EngineInputError(
                    f"attributes {self.names[left]!r} and {self.names[right]!r}: structural zeros leave a value no "
                    "partner: remove the value or a zero"
                )

    def _check(self, zero: Impossible) -> None:
        if not 0 <= zero.left < zero.right < len(self.attributes):
            raise EngineInputError("a structural zero names two different attributes, the earlier one left")
        for attribute, codes in ((zero.left, zero.left_codes), (zero.right, zero.right_codes)):
            if not codes or any(not 0 <= code < self.sizes[attribute] for code in codes):
                raise EngineInputError(f"a structural zero names a value that {self.names[attribute]!r} lacks")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each attribute."""
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def rows(self) -> int:
        """How many different rows there can be, structural zeros included."""
        return math.prod(self.sizes)

    @property
    def number_fields(self) -> tuple[str, ...]:
        return ()

    @property
    def text_fields(self) -> tuple[str, ...]:
        return ()

    @property
    def value_fields(self) -> Mapping[str, frozenset[ScalarKind]]:
        return {attribute.name: attribute.kinds for attribute in self.attributes}

    @property
    def words(self) -> int:
        return self.keys.words

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """Keys `(events, words)` and reasons `(events,)`, see `engines.core.contract.Domain`."""
        codes, reasons = self.encode_values([columns.values[name] for name in self.names], len(columns.operations))
        keys = self.keys.pack(codes, columns.operations)
        keys[reasons != 0] = 0
        return keys, reasons

    def at_fault(self, columns: Columns) -> list[str]:
        """See `engines.core.contract.FaultNamingDomain`."""
        rows = len(columns.operations)
        fields = [""] * rows
        codes = np.empty((rows, len(self.attributes)), np.int64)
        for index, attribute in enumerate(self.attributes):
            codes[:, index], faults = attribute.encode(columns.values[attribute.name])
            for row in np.flatnonzero(faults).tolist():
                fields[row] = fields[row] or attribute.name
        for zero in self.impossible:
            pair = f"{self.names[zero.left]} and {self.names[zero.right]}"
            together = np.isin(codes[:, zero.left], zero.left_codes) & np.isin(codes[:, zero.right], zero.right_codes)
            for row in np.flatnonzero(together).tolist():
                fields[row] = fields[row] or pair
        return fields

    def encode_values(self, columns: Sequence[Sequence[object]], rows: int) -> tuple[IntArray, ReasonArray]:
        """Codes `(rows, attributes)` of raw columns in the attributes' order, and reasons `(rows,)`."""
        codes = np.empty((rows, len(self.attributes)), np.int64)
        reasons = np.zeros(rows, np.uint8)
        for index, (attribute, column) in enumerate(zip(self.attributes, columns, strict=True)):
            codes[:, index], fault = attribute.encode(column)
            reasons = np.where(reasons == 0, fault, reasons)
        if self.impossible:
            reasons[(reasons == 0) & ~self.possible(codes)] = Reason.OUTSIDE_DOMAIN
        return codes, reasons

    def decode_values(self, codes: IntArray, fractions: FloatArray) -> list[list[Scalar]]:
        """Raw columns of `(rows, attributes)` codes; `fractions`, of the same shape, place numbers in their bins."""
        return [a.decode(codes[:, i], fractions[:, i]) for i, a in enumerate(self.attributes)]

    def possible(self, codes: IntArray) -> BoolArray:
        """`(rows,)` False where a row has a structural zero."""
        fine = np.ones(len(codes), np.bool_)
        for zero in self.impossible:
            fine &= ~(np.isin(codes[:, zero.left], zero.left_codes) & np.isin(codes[:, zero.right], zero.right_codes))
        return fine

    def possible_pairs(self, left: int, right: int) -> BoolArray:
        """`(size of left, size of right)` False at structural zeros of these two attributes, left < right."""
        fine = np.ones((self.sizes[left], self.sizes[right]), np.bool_)
        for zero in self.impossible:
            if (zero.left, zero.right) == (left, right):
                fine[np.ix_(zero.left_codes, zero.right_codes)] = False
        return fine
