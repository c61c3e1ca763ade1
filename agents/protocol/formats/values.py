"""What a format gives as what the fields of an event can be: texts, numbers, booleans and null, as JSON has them."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

from agents.protocol.formats.contract import UnreadableError
from schemas.events import Reason

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ONE_US = datetime.timedelta(microseconds=1)
PLAIN: frozenset[type] = frozenset((str, int, bool, type(None)))
"""Types that stay what they are."""
_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}


def plain(value: Any) -> Any:
    """A value of a domain's field, or a user. What can be none, such as bytes, stays what it is: of a wrong type.

    Raises: UnreadableError: a number that is none, or beyond float64.
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise UnreadableError(Reason.NOT_FINITE)
        return value
    if kind is decimal.Decimal:
        return _of_decimal(value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if kind.__name__ == "UUID":
        return str(value)
    return value


def _of_decimal(value: decimal.Decimal) -> int | float:
    if not value.is_finite():
        raise UnreadableError(Reason.NOT_FINITE)
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)  # it is finite
    if exponent == 0:  # of no fraction by its type: an id, or a count
        return int(value)
    number = float(value)
    if not math.isfinite(number):
        raise UnreadableError(Reason.NOT_FINITE)
    return number


def instant(value: Any, unit: str | None) -> Any:
    """The time of an event. One that its format knows to be an instant is that, whatever unit it was written in.

    Args: unit: `s`, `ms`, `us` where a number is configured; None: a text.
    """
    if unit is None or not isinstance(value, datetime.datetime):
        return plain(value)
    if value.tzinfo is None:  # a local time is no number of anything
        return value.isoformat()
    us = (value - _EPOCH) // _ONE_US
    whole, rest = divmod(us, _UNIT_US[unit])
    # As text where it is no whole number: floats have not enough digits.
    return whole if rest == 0 else format(decimal.Decimal(us) / _UNIT_US[unit], "f")
