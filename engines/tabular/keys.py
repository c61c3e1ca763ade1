"""Keys of table rows: mixed-radix codes, packed into as few uint64 words as they need, with the operation.

The lowest bit of the first word says delete. Attributes follow in order, each word taking as many as fit whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from schemas.arrays import IntArray, KeyArray
from schemas.errors import EngineInputError

_ROOM = 1 << 64


@dataclass(frozen=True, slots=True)
class RowKeys:
    """Packs rows of codes over attributes of these sizes.

    >>> keys = RowKeys((3, 4))
    >>> packed = keys.pack(np.array([[2, 1], [0, 3]]), np.array([1, -1], np.int8))
    >>> packed.tolist(), keys.codes(packed).tolist(), keys.signs(packed).tolist()
    ([[10], [19]], [[2, 1], [0, 3]], [1, -1])
    """

    sizes: tuple[int, ...]
    _places: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)
    _limits: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places, limits = [], [2]
        for size in self.sizes:
            if limits[-1] * size > _ROOM:
                limits.append(1)
            places.append((len(limits) - 1, limits[-1]))
            limits[-1] *= size
        object.__setattr__(self, "_places", tuple(places))
        object.__setattr__(self, "_limits", tuple(limits))

    @property
    def words(self) -> int:
        """Of one key."""
        return len(self._limits)

    def pack(self, codes: IntArray, operations: npt.NDArray[np.int8]) -> KeyArray:
        """`(rows, words)` uint64 keys of `(rows, attributes)` codes; operations are +1 insert, -1 delete."""
        keys = np.zeros((len(codes), self.words), np.uint64)
        keys[:, 0] = operations < 0
        for attribute, (word, stride) in enumerate(self._places):
            keys[:, word] += codes[:, attribute].astype(np.uint64) * np.uint64(stride)
        return keys

    def codes(self, keys: KeyArray) -> IntArray:
        """`(rows, attributes)` int64 codes of keys."""
        codes = np.empty((len(keys), len(self.sizes)), np.int64)
        for attribute, ((word, stride), size) in enumerate(zip(self._places, self.sizes, strict=True)):
            codes[:, attribute] = keys[:, word] // np.uint64(stride) % np.uint64(size)
        return codes

    def signs(self, keys: KeyArray) -> IntArray:
        """`(rows,)` int64: +1 insert, -1 delete."""
        return 1 - 2 * (keys[:, 0] & np.uint64(1)).astype(np.int64)

    def check(self, keys: KeyArray) -> None:
        """Raises: EngineInputError if keys are not `(rows, words)` uint64 or one is outside the domain."""
        if keys.ndim != 2 or keys.shape[1] != self.words or keys.dtype != np.uint64:
            raise EngineInputError(f"keys must be uint64, with {self.words} words each")
        for word, limit in enumerate(self._limits):
            if len(keys) and int(keys[:, word].max()) >= limit:
                raise EngineInputError("a key is outside the domain")
