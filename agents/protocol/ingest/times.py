"""The time field of raw events: a fast way for fixed-width texts and numbers, an exact one for everything else.

The fast way accepts a text only where it gives what the exact way would; it is an optimisation that no result shows.

| format         | accepted                                                                                   |
|----------------|--------------------------------------------------------------------------------------------|
| s, ms, us      | numbers, or texts that are numbers; rounded to microseconds                                |
| ns             | the same; cut to microseconds                                                              |
| iso            | what `datetime.fromisoformat` reads                                                        |
| strptime       | what `datetime.strptime` reads                                                             |

Nanoseconds are cut wherever they stand, as `fromisoformat` does: rounded, the last of a step would join the next.
A number means the shortest decimal that it is written as, so 0.1 and "0.1" are one time.

Texts without an offset are local times of the zone. Of two equal ones in autumn the earlier counts; one that clocks
skipped in spring is read as if they had not yet gone forward: `fold` 0 of PEP 495. Both are told from other times.
Times outside the years 1 to 9999 are unusable.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple, cast
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from agents.protocol.formats.values import NUMBER_OR_TEXT, TEXT, number
from schemas.arrays import BoolArray, IntArray, ReasonArray, distinct, rows_by
from schemas.config.timing import NUMERIC_FORMATS
from schemas.events import Reason
from schemas.steps import ONE_US, epoch_us

ByteMatrix = npt.NDArray[np.uint8]

DIGITS = "YodHMSfhn"
_DIRECTIVES = {"Y": "YYYY", "m": "oo", "d": "dd", "H": "HH", "M": "MM", "S": "SS", "f": "ffffff"}
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Layout:
    """Times written in columns: every digit at a fixed place, so that a batch is read as a matrix of bytes.

    Attributes:
        text: one letter for each digit: `Y` year, `o` month, `d` day, `H` hour, `M` minute, `S` second, `f` fraction of
            a second; `z` the sign, `h` hours and `n` minutes of an offset; `?` the letter T or a space; anything else
            stands for itself.
    """

    text: str

    @property
    def width(self) -> int:
        return len(self.text)

    @staticmethod
    def of_strptime(pattern: str) -> Layout | None:
        """Return the layout of a pattern whose directives all have a fixed width when written in full; None for any
        other.

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
        # At the ends of the calendar a zone's offset can lead out of it: left to the exact way.
        good &= (year >= 1000) & (year <= 9990) & (month >= 1) & (month <= 12)
        months = ((year - 1970) * 12 + month - 1).astype("M8[M]")
        begins, ends = (each.astype("M8[D]").astype(np.int64) for each in (months, months + 1))
        good &= (day >= 1) & (day <= ends - begins) & (hour <= 23) & (minute <= 59) & (second <= 59)
        seconds = (((begins + day - 1) * 24 + hour) * 60 + minute) * 60 + second
        fraction = values.get("f", zero) * 10 ** (6 - self.text.count("f"))
        us: IntArray = seconds * _SECOND_US + fraction
        return us


_ISO = [f"YYYY-oo-dd?HH:MM:SS{part}{zone}" for part in ("", ".fff", ".ffffff") for zone in ("", "Z", "zhh:nn")]
ISO_LAYOUTS = {len(text): Layout(text) for text in _ISO}
"""By width; the widths differ, so a text has at most one."""


LOCAL_EPOCH = datetime(1970, 1, 1)
HOUR_US = 3_600_000_000
MIN_US = epoch_us(datetime.min.replace(tzinfo=UTC))
MAX_US = epoch_us(datetime.max.replace(tzinfo=UTC))
_EXACT_FLOAT = 2.0**53
_MOST_DIGITS = 20
"""Before the point, of a number that can be a time."""
KNOWN_BYTES = 2 << 20  # of texts and their times, for each parser: a source partition has one for each of its streams
_ENTRY_BYTES = 300  # of an entry without its letters, of at most 4 bytes: three objects, and their share of the table
_KNOWN_HOURS = 1 << 13  # under 2 MiB as well


class Times(NamedTuple):
    """What is read of values.

    Attributes:
        us: microseconds since 1970 UTC; 0 where a value cannot be read.
        usable: whether it can.
        doubts: AMBIGUOUS_TIME where clocks showed a local time twice, NONEXISTENT_TIME where they skipped it, else 0.
    """

    us: IntArray
    usable: BoolArray
    doubts: ReasonArray


@dataclass(slots=True)
class TimeParser:
    """Reads one configured format. Holds caches of public conversions, no events' times beyond them, in bounded memory
    whatever the texts are.
    """

    format: str
    zone: ZoneInfo
    _layouts: dict[int, Layout] = field(init=False)
    _known: dict[str, tuple[int | None, int]] = field(init=False, default_factory=dict)
    _known_bytes: int = field(init=False, default=0)
    _offsets: dict[int, int | None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.format == "iso":
            self._layouts = dict(ISO_LAYOUTS)
        else:
            layout = None if self.numeric else Layout.of_strptime(self.format)
            self._layouts = {} if layout is None else {layout.width: layout}

    @property
    def numeric(self) -> bool:
        return self.format in NUMERIC_FORMATS

    @property
    def _unit_us(self) -> int:
        """Microseconds of the unit of a format of numbers other than ns."""
        return NUMERIC_FORMATS[self.format] // 1000

    @property
    def kinds(self) -> frozenset[str]:
        """What values can be times, see `agents.protocol.formats.values`."""
        return NUMBER_OR_TEXT if self.numeric else TEXT

    def parse(self, values: Sequence[object]) -> Times:
        """Return what is read of each value.

        Args: values: numbers and texts under a numeric format, texts otherwise.
        """
        if not self.numeric:
            return self._texts(cast(Sequence[str], values))
        return Times(*self._numbers(values), np.zeros(len(values), np.uint8))

    def exact(self, text: str) -> tuple[int | None, int]:
        """Return the microseconds of one text, None where it is no time, and its doubt as in `Times`: the meaning that
        the fast way must agree with.
        """
        try:
            read = datetime.fromisoformat(text) if self.format == "iso" else datetime.strptime(text, self.format)
            if read.tzinfo is not None:
                return epoch_us(read), 0
            local = read.replace(tzinfo=self.zone)
            return epoch_us(local), _doubt(local)
        except (ValueError, OverflowError):
            return None, 0

    def exact_number(self, value: object) -> int | None:
        """Return the microseconds of one number of a numeric format: the meaning that the fast way must agree with."""
        read = number(value) if type(value) is str else value
        if type(read) is float:
            if not read:
                return 0
            if not math.isfinite(read):
                return None
            # The text itself: it may have more digits than a float has room for.
            read = Decimal(value.strip() if type(value) is str else repr(value))
            if read.adjusted() > _MOST_DIGITS:  # before a product could have as many digits as an exponent says
                return None
        elif type(read) is not int:
            return None
        if self.format == "ns":
            us = read // 1000 if type(read) is int else math.floor(read / 1000)
        else:
            us = round(read * self._unit_us)
        return us if MIN_US <= us <= MAX_US else None

    def _numbers(self, values: Sequence[object]) -> tuple[IntArray, BoolArray]:
        kinds = set(map(type, values))
        if self.format == "ns":
            if kinds == {int}:
                with contextlib.suppress(OverflowError):
                    return np.fromiter(values, np.int64, len(values)) // 1000, np.ones(len(values), bool)
        elif kinds <= {int, float}:
            try:
                floats = np.fromiter(values, np.float64, len(values))
            except OverflowError:
                return self._one_by_one([self.exact_number(value) for value in values])
            with np.errstate(over="ignore"):  # a warning would tell of the data; what is too large is not usable
                scaled = floats * float(self._unit_us)
            size = np.abs(scaled)
            if (size < _EXACT_FLOAT).all():
                whole = np.rint(scaled)
                # A float is off its decimal by 2**-53 of itself at most, and the product by as much again: where the
                # two cannot lead to another microsecond, or nothing is rounded, this is what the exact way gives.
                # Whole numbers are never rounded, and most times are whole: they are not looked at one by one.
                if kinds == {int} or np.all(
                    (np.abs(scaled - whole) + size * 2.0**-52 < 0.5) | (floats == np.rint(floats))
                ):
                    return whole.astype(np.int64), np.ones(len(values), bool)
        return self._one_by_one([self.exact_number(value) for value in values])

    def _texts(self, texts: Sequence[str]) -> Times:
        times = np.zeros(len(texts), np.int64)
        usable = np.zeros(len(texts), bool)
        doubts = np.zeros(len(texts), np.uint8)
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        for length in distinct(lengths):
            layout = self._layouts.get(length)
            if layout is None:
                continue
            rows = np.flatnonzero(lengths == length)
            joined = "".join(texts if len(rows) == len(texts) else [texts[row] for row in rows.tolist()])
            if not joined.isascii():
                continue  # one crafted text costs the batch its speed, never its result
            local_us, offsets_us, good = layout.read(np.frombuffer(joined.encode(), np.uint8).reshape(-1, length))
            if offsets_us is None:
                offsets_us, known = self._zone_offsets(local_us, good)
                good &= known
            times[rows] = np.where(good, local_us - offsets_us, 0)
            usable[rows] = good
        for row in np.flatnonzero(~usable).tolist():
            us, doubt = self._cached(texts[row])
            if us is not None:
                times[row], usable[row], doubts[row] = us, True, doubt
        return Times(times, usable, doubts)

    def _cached(self, text: str) -> tuple[int | None, int]:
        if text in self._known:
            return self._known[text]
        read = self.exact(text)
        size = 4 * len(text) + _ENTRY_BYTES
        if self._known_bytes + size > KNOWN_BYTES:
            self._known.clear()
            self._known_bytes = 0
        if size <= KNOWN_BYTES:
            self._known[text] = read
            self._known_bytes += size
        return read

    def _zone_offsets(self, local_us: IntArray, good: BoolArray) -> tuple[IntArray, BoolArray]:
        """Return the offset of the zone at each local time where its whole hour has one; none where clocks change in
        the hour.
        """
        if self.zone.key == "UTC":
            return np.zeros(len(local_us), np.int64), np.ones(len(local_us), bool)
        hours = local_us // HOUR_US
        offsets = np.zeros(len(hours), np.int64)
        known = np.zeros(len(hours), bool)
        rows = np.flatnonzero(good)
        for hour, those in rows_by(hours[rows]):
            offset = self._hour_offset(hour)
            if offset is not None:
                offsets[rows[those]], known[rows[those]] = offset, True
        return offsets, known

    def _hour_offset(self, hour: int) -> int | None:
        if hour not in self._offsets:
            if len(self._offsets) >= _KNOWN_HOURS:
                self._offsets.clear()
            begin = LOCAL_EPOCH + timedelta(hours=hour)
            moments = [begin, begin + timedelta(hours=1) - ONE_US]
            seen = {moment.replace(tzinfo=self.zone, fold=fold).utcoffset() for moment in moments for fold in (0, 1)}
            offset = seen.pop()
            self._offsets[hour] = None if seen or offset is None else offset // ONE_US
        return self._offsets[hour]

    @staticmethod
    def _one_by_one(read: list[int | None]) -> tuple[IntArray, BoolArray]:
        usable = np.fromiter((us is not None for us in read), bool, len(read))
        return np.fromiter((us or 0 for us in read), np.int64, len(read)), usable


def _doubt(local: datetime) -> int:
    """Return the doubt of a local time, as in `Times`: where clocks go back, the offset before it is the larger one."""
    earlier, later = (local.replace(fold=fold).utcoffset() for fold in (0, 1))
    assert earlier is not None, "it has a zone"
    assert later is not None, "it has a zone"
    if earlier == later:
        return 0
    return Reason.AMBIGUOUS_TIME if earlier > later else Reason.NONEXISTENT_TIME
