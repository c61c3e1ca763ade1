"""Plain text: tables, and texts that somebody else wrote."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return plain columns; the last one is not padded."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def printable(text: str) -> str:
    """Return a text as it can be shown, whatever is in it: no control sequence reaches a terminal or a picture.

    >>> printable("a\x1b[2J")
    'a\ufffd[2J'
    """
    return "".join(each if each.isprintable() else "\ufffd" for each in text)
