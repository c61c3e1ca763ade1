"""On which line of a TOML file a key stands: for messages. The parser does not say."""

from __future__ import annotations

import re
from collections import Counter

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?")
_KEY = re.compile(r"\s*([A-Za-z0-9_\-.\"]+)\s*=")


def lines_of(text: str) -> dict[str, int]:
    """Key as in a `ConfigProblem` -> line, from 1 on; headers too. A guess where texts or lists go over several lines.

    >>> lines_of('[job]\\nname = "a"\\n[[streams]]\\n[streams.privacy]\\nepsilon = 1')
    {'job': 1, 'job.name': 2, 'streams[0]': 3, 'streams[0].privacy': 4, 'streams[0].privacy.epsilon': 5}
    """
    found: dict[str, int] = {}
    tables: Counter[str] = Counter()
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            brackets, name = header.groups()
            if brackets == "[[":
                section = f"{_below(name, tables)}[{tables[name]}]"
                tables[name] += 1
            else:
                section = _below(name, tables)
            found.setdefault(section, number)
        elif key := _KEY.match(line):
            name = key[1].replace('"', "")
            found.setdefault(f"{section}.{name}" if section else name, number)
    return found


def line_of(key: str, lines: dict[str, int]) -> int | None:
    """Of the key, or of what it stands in: a key that is missing has no line of its own."""
    while key:
        if key in lines:
            return lines[key]
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return None


def _below(name: str, tables: Counter[str]) -> str:
    """`streams.privacy` is that of the last `[[streams]]`."""
    head, dot, rest = name.partition(".")
    return f"{head}[{tables[head] - 1}]{dot}{rest}" if tables[head] and dot else name
