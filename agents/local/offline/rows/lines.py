"""JSON Lines: one object on each line. A line that is none stays as it is, to be refused by itself as a record is.

Line by line instead of Arrow's reader, which adds a null for each missing field and turns texts into times.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import orjson

_READ_BYTES = 1 << 20


class BrokenLine(bytes):
    """A line that is no JSON object, as it stands in the file.

    Attributes:
        number: of the line, from 1 on.
    """

    number: int

    @classmethod
    def of(cls, line: bytes, number: int) -> Self:
        made = cls(line)
        made.number = number
        return made


Row = dict[str, Any] | BrokenLine


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines that are not empty, with their numbers; decoded only if they are wanted: a resumed replay skips many."""

    lines: list[tuple[int, bytes]]

    def __len__(self) -> int:
        return len(self.lines)

    def decode(self, skip: int) -> list[Row]:
        return [_row(line, number) for number, line in self.lines[skip:]]


def json_lines(stream: Any, batch_rows: int) -> Iterator[Lines]:
    """All lines of a stream of bytes, at most so many at a time."""
    at, rest = 0, b""
    while True:
        block = stream.read(_READ_BYTES)
        lines = (rest + block).split(b"\n")
        rest = lines.pop() if block else b""
        if at == 0 and lines:
            lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
        for first in range(0, len(lines), batch_rows):
            part = lines[first : first + batch_rows]
            yield Lines([(at + first + i + 1, line) for i, line in enumerate(part) if line.strip()])
        at += len(lines)
        if not block:
            return


def _row(line: bytes, number: int) -> Row:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return BrokenLine.of(line, number)
    return row if isinstance(row, dict) else BrokenLine.of(line, number)
