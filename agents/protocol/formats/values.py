"""What one value is, whoever wrote it: the same record is the same event in every format, file and frame.

A format gives texts, numbers, booleans and null, or what becomes one of these (`plain`). What a field can be is public
(`Kinds`), and where a value is something else, it is read once more by one rule, `typed`, whose table is in
docs/formats.md, "What a value is". Anything else stays what it is, and its field refuses it. CSV has texts alone:
`cell` says what they are.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

Kinds = Mapping[str, frozenset[str]]
"""Field -> out of `number`, `text`, `boolean`: what it can be."""

TEXT: Final = frozenset(("text",))
NUMBER: Final = frozenset(("number",))
NUMBER_OR_TEXT: Final = NUMBER | TEXT

NOT_FINITE: Final = msgspec.Raw(b"1e999")
"""Stands for a number that is none or that float64 does not hold; in JSON as a number that nobody's float64 holds."""

# Possessive, or a crafted text of a megabyte would be looked at as often as it has digits.
_NUMBER = re.compile(r"\s*+([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)\s*+", re.ASCII)
_NO_NUMBER = re.compile(r"\s*+[+-]?(?:nan|inf|infinity)\s*+", re.ASCII | re.IGNORECASE)
JSON_FRACTION: Final = r"(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""What may follow the whole part of a number in JSON; for Arrow's regular expressions too."""


def json_whole(more: str) -> str:
    """Return JSON's grammar of whole numbers, which has no zeros before others: ids such as 007 are none.

    Args: more: how many digits may follow the first one, as `*`.
    """
    return f"-?(?:0|[1-9][0-9]{more})"


# Where a text can stand as well.
_JSON_NUMBER = re.compile(json_whole("*") + JSON_FRACTION, re.ASCII)
_BOOLEANS = {"true": True, "false": False}
_PLAIN = frozenset((str, int, bool, type(None)))
MOST_BITS: Final = 1024
"""Of a whole number that is read as text: as many as float64 has room for."""


def plain(value: Any) -> Any:
    """Return what a format's own type is as an event's value. What can be none, such as bytes, stays what it is: of a
    wrong type.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(value) else NOT_FINITE
    if kind is Decimal:
        return _of_decimal(value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if kind.__name__ == "UUID":
        return str(value)
    return value


MOST_DECIMAL_BYTES: Final = 64
"""Of a decimal: 153 digits. To make a number of a million bytes takes a minute."""


def decimal_of(unscaled: bytes, scale: int) -> Decimal | bytes:
    """Return a decimal that is written as a whole number, big-endian, and how many of its digits are a fraction, with
    all its digits; one that is too long stays bytes, which no field can be.

    >>> decimal_of(b"\\x01\\x45", 2)
    Decimal('3.25')
    """
    if len(unscaled) > MOST_DECIMAL_BYTES:
        return unscaled
    sign, digits, _ = Decimal(int.from_bytes(unscaled, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -scale))


def _of_decimal(value: Decimal) -> Any:
    if not value.is_finite():
        return NOT_FINITE
    if value.as_tuple().exponent == 0:  # of no fraction by its type: an id, or a count
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else NOT_FINITE


def typed(value: Any, kinds: frozenset[str]) -> Any:
    """Return a value as one of the kinds that its field can be, where it can be read as one.

    >>> typed("12.50", NUMBER), typed(19970101, TEXT), typed("12.50", TEXT), typed("n/a", NUMBER)
    (12.5, '19970101', '12.50', 'n/a')
    """
    kind = type(value)
    if kind is str:
        if "text" in kinds:
            return value
        if not value:
            return None
        if "boolean" in kinds and (word := value.strip().lower()) in _BOOLEANS:
            return _BOOLEANS[word]
        return number(value) if "number" in kinds else value
    if kind is int and kinds == TEXT:
        return str(value) if value.bit_length() <= MOST_BITS else NOT_FINITE
    if kind is msgspec.Raw or (kind is float and not math.isfinite(value)):
        return "NaN" if kinds >= NUMBER_OR_TEXT else NOT_FINITE  # a text where one can be: no field has it
    return value


def number(text: str) -> Any:
    """Return the number that a text is, as people and programs write them; else the text.

    >>> [number(text) for text in (" 7", "007", "+.5", "4.", "7,5", "", "n/a")]
    [7, 7, 0.5, 4.0, '7,5', '', 'n/a']
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        return NOT_FINITE if _NO_NUMBER.fullmatch(text) else text
    digits = found[1]
    if len(digits) <= 18 and digits.lstrip("+-").isdigit():  # so many always fit 64 bits
        return int(digits)
    value = float(digits)
    return value if math.isfinite(value) else NOT_FINITE


def cell(text: str, kinds: frozenset[str] | None, decimal: str = ".") -> Any:
    """Return the value of a cell of CSV.

    Where a text can stand as well, what JSON would call a number is one, if float64 holds it: a time of 19 digits is a
    text. Args: kinds: None: nobody asks for it. decimal: what separates the fraction of a number.

    >>> cell("4,5", NUMBER, ","), cell("4,5", NUMBER), cell("007", TEXT), cell("", TEXT)
    (4.5, '4,5', '007', None)
    """
    if not text:
        return None
    if kinds is None or kinds == TEXT:
        return text
    plain_text = with_point(text, decimal)
    if plain_text is None:  # nothing that a field can be
        return text if "text" in kinds else []
    if "text" not in kinds:
        return typed(plain_text, kinds)
    if "boolean" in kinds and (word := text.strip().lower()) in _BOOLEANS:
        return _BOOLEANS[word]
    if "number" not in kinds or _JSON_NUMBER.fullmatch(plain_text) is None:
        return text
    value = number(plain_text)
    return value if type(value) is int or _same(value, plain_text) else plain_text


def with_point(text: str, decimal: str) -> str | None:
    """Return a number's text with a point before the fraction; None where it has a point of thousands."""
    if decimal == ".":
        return text
    return None if "." in text else text.replace(decimal, ".")


def _same(value: Any, text: str) -> bool:
    try:
        return type(value) is float and Decimal(repr(value)) == Decimal(text)
    except InvalidOperation:  # an exponent that Decimal has not, of 0
        return False
