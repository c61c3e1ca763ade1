"""Times written in columns: every digit at a fixed place, so that a batch is read as a matrix of bytes.

A layout is a text with one letter for each digit: `Y` year, `o` month, `d` day, `H` hour, `M` minute, `S` second, `f`
fraction of a second; `z` the sign, `h` hours and `n` minutes of an offset; `?` the letter T or a space; anything else
stands for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.arrays import BoolArray, IntArray

ByteMatrix = npt.NDArray[np.uint8]

DIGITS = "YodHMSfhn"
_DIRECTIVES = {"Y": "YYYY", "m": "oo", "d": "dd", "H": "HH", "M": "MM", "S": "SS", "f": "ffffff"}
_MONTH_DAYS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Layout:
    """See the module."""

    text: str

    @property
    def width(self) -> int:
        return len(self.text)

    @staticmethod
    def of_strptime(pattern: str) -> Layout | None:
        """The layout of a pattern whose directives all have a fixed width when written in full; None for any other.

        >>> Layout.of_strptime("%d.%m.%Y %H:%M").text
        'dd.oo.YYYY HH:MM'
        """
        text = ""
        seen = set()
        position = 0
        while position < len(pattern):
            letter = pattern[position]
            if letter == "%":
                directive = pattern[position + 1 : position + 2]
                if directive not in _DIRECTIVES or directive in seen:
                    return None
                seen.add(directive)
                text += _DIRECTIVES[directive]
                position += 2
                continue
            if letter in DIGITS + "z?" or not letter.isascii() or (letter.isspace() and letter != " "):
                return None
            text += letter
            position += 1
        return Layout(text) if {"Y", "m", "d"} <= seen else None

    def read(self, matrix: ByteMatrix) -> tuple[IntArray, IntArray | None, BoolArray]:
        """Read texts of exactly this width.

        Args: matrix: `(texts, width)`, their ASCII bytes.
        Returns: local microseconds since 1970, offsets from UTC or None where the layout has none, and which rows have
            this layout and an existing date; the others say nothing about whether they are a time.
        """
        columns = np.ascontiguousarray(matrix.T)
        good = np.ones(len(matrix), bool)
        values: dict[str, IntArray] = {}
        for place, letter in enumerate(self.text):
            column = columns[place]
            if letter in DIGITS:
                digit = column - np.uint8(48)  # wraps for bytes below "0", which are then above 9
                good &= digit <= 9
                before = values.get(letter)
                values[letter] = digit.astype(np.int64) if before is None else before * 10 + digit
            elif letter == "?":
                good &= (column == ord("T")) | (column == ord(" "))
            elif letter == "z":
                good &= (column == ord("+")) | (column == ord("-"))
            else:
                good &= column == ord(letter)
        us = self._microseconds(values, good)
        if "z" not in self.text:
            return us, np.zeros(len(us), np.int64) if self.text.endswith("Z") else None, good
        good &= (values["h"] <= 23) & (values["n"] <= 59)
        offsets = (values["h"] * 3600 + values["n"] * 60) * _SECOND_US
        offsets[columns[self.text.index("z")] == ord("-")] *= -1
        return us, offsets, good

    def _microseconds(self, values: dict[str, IntArray], good: BoolArray) -> IntArray:
        year, month, day = values["Y"], values["o"], values["d"]
        zero = np.zeros(len(good), np.int64)
        hour, minute, second = (values.get(letter, zero) for letter in "HMS")
        leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
        # At the ends of the calendar a zone's offset can lead out of it: left to the exact way.
        good &= (year >= 1000) & (year <= 9990) & (month >= 1) & (month <= 12)
        month_days = _MONTH_DAYS[np.where(good, month, 0)] - ((month == 2) & ~leap)
        good &= (day >= 1) & (day <= month_days) & (hour <= 23) & (minute <= 59) & (second <= 59)
        seconds = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
        fraction = values.get("f", zero) * 10 ** (6 - self.text.count("f"))
        us: IntArray = seconds * _SECOND_US + fraction
        return us


def _days(year: IntArray, month: IntArray, day: IntArray) -> IntArray:
    """Days since 1970-01-01 of a date of the Gregorian calendar, counted in years that begin with March."""
    year = year - (month <= 2)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days: IntArray = year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - 719_468
    return days


def _iso_layouts() -> dict[int, Layout]:
    texts = [f"YYYY-oo-dd?HH:MM:SS{part}{zone}" for part in ("", ".fff", ".ffffff") for zone in ("", "Z", "zhh:nn")]
    return {len(text): Layout(text) for text in texts}


ISO_LAYOUTS = _iso_layouts()
"""By width; the widths differ, so a text has at most one."""
