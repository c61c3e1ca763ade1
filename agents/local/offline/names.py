"""Names of columns, where they are looked at: a file without a header has in their place the values of its first row,
which are private. So a name that reads as a value is refused or at least not repeated, nor are those beside it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, time
from typing import Any

from agents.protocol.ingest.times import TimeParser
from agents.protocol.replay import RowTimes
from schemas import zones
from schemas.config.timing import NUMERIC_FORMATS

PATTERNS = (
    "%Y-%m-%d %H:%M:%S",
    "%Y/%m/%d %H:%M:%S",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%m/%d/%Y %I:%M:%S %p",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%Y%m%d",
)
"""Formats of times that are not ISO."""
COMPACT = "%Y%m%d"
"""Format that is tried before ISO, which includes it, because it also applies to numbers."""
LIKELY_US = range(10**14, 10**17)
"""Plausible times, in microseconds since 1970: from 1973 to 5138. Every number is a time of some year."""

WRITTEN_OUT = (
    *("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y"),
    *("%a, %d %b %Y %H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %Z", "%a %b %d %H:%M:%S %Y", "%d/%b/%Y:%H:%M:%S %z"),
    *("%d %b %Y %H:%M", "%d %b %Y %H:%M:%S", "%I:%M %p", "%I:%M:%S %p", "%m/%d/%Y %I:%M %p"),
)
"""Formats of times by which a name is recognised as a value; they are not offered as formats."""
_FIGURES = re.compile(r"[^\w@]*\d[\d\W]*([eE][-+]?\d+\W*)?")
"""Numbers, dates, times and telephone numbers: at least one digit, and no letter but that of an exponent."""
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_WORDS_OF_NUMBERS = ("nan", "inf", "infinity")
NO_HEADER = (
    "where the names of the columns should be there is a number, a time, an e-mail address or JSON, which is private "
    "and is not shown. Fix: write the columns' names into the first line; a column whose name is a number or a date "
    "needs another name, and JSON Lines a file named .jsonl."
)


def reads_as_value(name: str) -> bool:
    """Return whether a name is a number, a time, a date or an e-mail address, or the begin of an object of JSON.

    >>> [reads_as_value(name) for name in ("13.4", "2026-03-04T05:06:07Z", "5.3.2026", "a.b@example.org", "4 Mar 2026")]
    [True, True, True, True, True]
    >>> reads_as_value('{"user":"ann"')
    True
    >>> [reads_as_value(name) for name in ("lon", "zone_2", "2nd stop", "at", "km/h", "march")]
    [False, False, False, False, False, False]
    """
    name = name.strip()
    return bool(
        name.lstrip("[ ").startswith("{")
        or _FIGURES.fullmatch(name)
        or _ADDRESS.fullmatch(name.strip("<>"))
        or name.lstrip("+-").casefold() in _WORDS_OF_NUMBERS
        or (
            any(character.isdigit() for character in name)
            and (
                reads(float, name)
                or time_forms([name])
                or reads(time.fromisoformat, name)
                or any(reads(datetime.strptime, name, form) for form in WRITTEN_OUT)
            )
        )
    )


def lacking_column(field: str, key: str, columns: Sequence[str]) -> str:
    """Name a field that no column has, the key that names it, and a column that it may be: not where one of them reads
    as a value.

    >>> lacking_column("lat", "y", ["late", "Latitude"]), lacking_column("lon", "x", [" lon"])
    ('lat (y); is it late?', 'lon (x); is it " lon", with a space?')
    >>> lacking_column("user", "privacy.user", ["user17", "2026-03-04"])
    'user (privacy.user)'
    """
    if any(map(reads_as_value, columns)):
        return f"{field} ({key})"
    plain = {name.strip().casefold(): name for name in reversed(columns)}
    wanted = field.strip().casefold()
    begun = [name for name in plain if name.startswith(wanted)]
    close = [wanted] if wanted in plain else difflib.get_close_matches(wanted, plain, n=1) or begun[:1]
    if not close:
        return f"{field} ({key})"
    column = plain[close[0]]
    return f"{field} ({key}); is it " + (f"{column}?" if column == column.strip() else f'"{column}", with a space?')


def time_forms(values: Iterable[Any]) -> tuple[str, ...]:
    """Return each format in which ingest reads all values but nulls as times, without those that say what one before
    them says. More than one: the values do not tell.

    >>> time_forms(["01/02/2016", "03/02/2016"]), time_forms(["20160201"]), time_forms([1.48e9, None])
    (('%d/%m/%Y', '%m/%d/%Y'), ('%Y%m%d',), ('s',))
    >>> time_forms(["2016-12-31"]), time_forms(["noon"]), time_forms([17]), time_forms([None])
    (('iso',), (), (), ())
    """
    there = [value for value in values if value is not None]
    found: dict[tuple[int | None, ...], str] = {}
    for form in (COMPACT, *NUMERIC_FORMATS, "iso", *PATTERNS) if there else ():
        if form == COMPACT and any(len(str(value)) != len("YYYYMMDD") for value in there):
            continue
        times = RowTimes("at", TimeParser(form, zones.zone("UTC"))).parse([{"at": value} for value in there])
        likely = LIKELY_US if form in NUMERIC_FORMATS else None
        if all(at is not None and (likely is None or at in likely) for at in times):
            found.setdefault(tuple(times), form)
    return tuple(found.values())


def reads(read: Any, *arguments: str) -> bool:
    """Return whether `read` takes the arguments."""
    try:
        read(*arguments)
    except ValueError:
        return False
    return True
