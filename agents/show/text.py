"""Plain text: tables, and texts that somebody else wrote."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

WIDTH = 80
"""Of texts in a terminal, which is seldom narrower."""


GAP = "  "


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Return plain columns; the last one is not padded.

    Args: width: of the terminal; columns that do not fit stand below, behind the first one again.

    >>> print(table(["id", "name", "sum"], [["1", "left", "2"]], width=9))
    id  name
    1   left
    <BLANKLINE>
    id  sum
    1   2
    """
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    blocks, wide = [[0]], widths[0]
    for column in range(1, len(head)):
        wide += len(GAP) + widths[column]
        if width is not None and wide > width and len(blocks[-1]) > 1:
            blocks.append([0])
            wide = widths[0] + len(GAP) + widths[column]
        blocks[-1].append(column)
    return "\n\n".join(
        "\n".join(GAP.join(line[each].ljust(widths[each]) for each in block).rstrip() for line in lines)
        for block in blocks
    )


def wrapped(text: str, *, first: str = "  ", rest: str = "  ") -> list[str]:
    """Return the lines of a text, at most `WIDTH` wide. Args: first, rest: what the first and the others begin with."""
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
