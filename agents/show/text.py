"""Plain text: tables, and texts that somebody else wrote."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

WIDTH = 80
"""Of texts in a terminal, which is seldom narrower."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return plain columns; the last one is not padded."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def wrapped(text: str, *, first: str = "  ", rest: str = "  ") -> list[str]:
    """Return the lines of a text, at most `WIDTH` wide.

    Args: first, rest: what the first line and the others begin with.
    """
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def number_of(count: int, what: str) -> str:
    """Return so many of what is called so in the singular.

    >>> number_of(1, "row"), number_of(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """Return a text as it can be shown, whatever is in it: no control sequence reaches a terminal or a picture.

    >>> printable("a\x1b[2J")
    'a\ufffd[2J'
    """
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def value_text(value: object) -> str:
    """Return a value of JSON as it can be shown; texts that read as other values stand in quotes.

    >>> [value_text(each) for each in ("a", "", 1, "1", True, "true")]
    ['a', '(empty)', '1', '"1"', 'true', '"true"']
    """
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        other = isinstance(json.loads(value), (int, float))
    except (ValueError, RecursionError):
        other = False
    return f'"{printable(value)}"' if other else printable(value) or "(empty)"
