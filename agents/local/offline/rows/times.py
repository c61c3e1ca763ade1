"""How times are written that somebody else wrote: the `[streams.time] format` that reads them. Never a time itself."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

LOOKED_AT = 200
"""Values that are enough."""
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
"""Forms of times that are not ISO; the first that fits all looked at is offered."""
NUMERIC = (("s", 1e8, 1e11), ("ms", 1e11, 1e14), ("us", 1e14, 1e17))
"""Of times in numbers since 1970: from 1973 to 5138."""


def time_form(values: Iterable[Any]) -> str:
    """The format in which all values are times, but for nulls; empty: none is known, or there are no values.

    >>> time_form(["31/12/2016 23:59:00", None]), time_form([1.48e9]), time_form(["2016-12-31"]), time_form(["noon"])
    ('%d/%m/%Y %H:%M:%S', 's', 'iso', '')
    """
    there = [value for value in values if value is not None]
    if not there:
        return ""
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in there):
        return next((form for form, low, high in NUMERIC if all(low <= value < high for value in there)), "")
    if not all(isinstance(value, str) for value in there):
        return ""
    if all(reads(datetime.fromisoformat, value) for value in there):
        return "iso"
    return next((form for form in PATTERNS if all(reads(datetime.strptime, value, form) for value in there)), "")


def reads(read: Any, *arguments: str) -> bool:
    """Whether `read` takes them."""
    try:
        read(*arguments)
    except ValueError:
        return False
    return True


def how_to_read(values: Iterable[Any], configured: str) -> str:
    """What to write into the configuration, where that is known, and is not what is there.

    >>> how_to_read(["31.12.2016"], "iso")
    'set [streams.time] format = "%d.%m.%Y", as the field is written'
    """
    form = time_form(values)
    if not form or form == configured:
        return "set [streams.time] format to how the field is written"
    return f'set [streams.time] format = "{form}", as the field is written'
