"""Points as a function of counts in plain Python, see `engines.spatial.points` and `engines.spatial.points`."""

from __future__ import annotations

import hashlib
import math

from engines.spatial.domain.box import BoxDomain

_MASK = (1 << 64) - 1


def _mix(word: int) -> int:
    word ^= word >> 30
    word = word * 0xBF58476D1CE4E5B9 & _MASK
    word ^= word >> 27
    word = word * 0x94D049BB133111EB & _MASK
    return word ^ word >> 31


class Points:
    """Of one stream on a box."""

    def __init__(self, name: str, domain: BoxDomain) -> None:
        digest = hashlib.sha256(b"privstream/points/1\0" + name.encode()).digest()
        self.keys = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")
        self.domain, self.depth = domain, domain.depth

    def word(self, node: int) -> int:
        """The public word of a cell."""
        return _mix(node * 0x9E3779B97F4A7C15 + self.keys[0] & _MASK)

    def first_of(self, node: int, count: int) -> int:
        """How many of a cell's first points go to its first child."""
        return (count + 1 - (self.word(node) & 1)) >> 1

    def difference(
        self, before: dict[int, int], after: dict[int, int]
    ) -> tuple[list[tuple[str, float, float]], list[str]]:
        """Records that appear and ids that go, leaf by leaf of the common refinement."""
        added: list[tuple[str, float, float]] = []
        removed: list[str] = []
        stack: list[tuple[int, int | None, int | None]] = [(1, None, None)]
        while stack:
            node, was, now = stack.pop()
            was, now = before.get(node, was), after.get(node, now)
            if was is not None and now is not None:
                # One of both may be a leaf above: then the other one has no leaf below this.
                for index in range(was, now):
                    added.append(self._record(node, index))
                for index in range(now, was):
                    removed.append(self._name(*self._finest(node, index)))
                continue
            firsts = tuple(None if count is None else self.first_of(node, count) for count in (was, now))
            stack.append((2 * node, *firsts))
            seconds = (None if c is None or f is None else c - f for c, f in zip((was, now), firsts, strict=True))
            stack.append((2 * node + 1, *seconds))
        return added, removed

    def _finest(self, node: int, index: int) -> tuple[int, int]:
        while node < 1 << self.depth:
            node, index = 2 * node + ((index & 1) ^ (self.word(node) & 1)), index >> 1
        return node, index

    def _name(self, node: int, index: int) -> str:
        return f"{node - (1 << self.depth):0{-(-self.depth // 4)}x}-{index:x}"

    def _record(self, cell: int, number: int) -> tuple[str, float, float]:
        node, index = self._finest(cell, number)
        column = row = 0
        for level in range(self.depth):
            bit = (node >> (self.depth - 1 - level)) & 1
            if level % 2 == 0:
                column = 2 * column + bit
            else:
                row = 2 * row + bit
        start = self.word(node)
        fx = (start + index * 0xC13FA9A902A6328F & _MASK) >> 11
        fy = (_mix(start ^ self.keys[1]) + index * 0x91E10DA5C79E7B1D & _MASK) >> 11
        xmin, ymin, xmax, ymax = self.domain.bounds
        x = _place(xmin, (xmax - xmin) / (1 << self.domain.x_bits), column, fx * 2.0**-53)
        y = _place(ymin, (ymax - ymin) / (1 << self.domain.y_bits), row, fy * 2.0**-53)
        return self._name(node, index), x, y


def _place(low: float, width: float, cell: int, fraction: float) -> float:
    return round((cell + (1 / 512 + fraction * (510 / 512))) * width + low, math.ceil(3 - math.log10(width)))
