"""What all sections share, and the kinds of values that their keys hold.

A section is frozen, has no unknown keys, and checks that look at several keys at once. A public file that a
configuration names, a map, a matrix or a schema, is read once, when the configuration is.

Durations are `datetime.timedelta`, whole microseconds, and exact: no floating point between the file and the integer.
A day is 24 hours and a week 7 days, also across a change to summer time. Where a key takes units of the calendar too,
`"1 day"` goes from midnight to midnight: see `schemas.steps`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from schemas.errors import ConfigError, ConfigProblem
from schemas.steps import CALENDAR_PATTERN, CalendarLength, Length, parse_calendar

COLLECT = "collect"
"""In the validation context: the loader runs the checks of `problems` itself, to list everything at once."""
FOLDER = "folder"
"""In the validation context: the folder of the configuration, from which paths of public files go."""


class Section(BaseModel):
    """A TOML table. `problems` holds what types alone cannot say; keys in it are relative to the section."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def problems(self) -> Iterator[ConfigProblem]:
        """What is wrong with the keys of this section taken together."""
        return iter(())

    @model_validator(mode="after")
    def _refuse_problems(self, info: ValidationInfo) -> Self:
        if not (info.context or {}).get(COLLECT) and (found := tuple(self.problems())):
            raise ConfigError(found)
        return self


def refusal(reason: str, fix: str, *, at: str = "") -> PydanticCustomError:
    """An error for a validator to raise; `at` names a key below the one being validated."""
    return PydanticCustomError("refused", "{reason}; {fix}", {"reason": reason, "fix": fix, "at": at})


def below(prefix: str, problems: Iterable[ConfigProblem], *, stream: str | None = None) -> Iterator[ConfigProblem]:
    """The same problems seen from further up: keys get the prefix, reasons the name of the stream."""
    for problem in problems:
        joint = "." if prefix and problem.key and not problem.key.startswith("[") else ""
        reason = f'stream "{stream}": {problem.reason}' if stream is not None else problem.reason
        yield ConfigProblem(f"{prefix}{joint}{problem.key}", reason, problem.fix)


LARGEST_FILE_BYTES = 256 << 20


class PublicFile(Section):
    """A file's place and content. In the configuration it is written as its path, relative to the configuration.

    Attributes:
        path: as resolved. sha256: of the content, in hexadecimal; what fingerprints hold. content: the bytes.
    """

    path: str
    sha256: str
    content: bytes = Field(repr=False)


def _read(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        if isinstance(value, (PublicFile, dict)):
            return value
        raise refusal("must be the path of a file", "write the path in double quotes")
    folder: Any = info.context.get(FOLDER) if isinstance(info.context, dict) else None
    path = Path(folder or ".") / value
    fix = "name a file that this user may read; its path is relative to the configuration file"
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise refusal(f"cannot be read: {reason}", fix) from None
    if len(content) > LARGEST_FILE_BYTES:
        raise refusal(f"is larger than {LARGEST_FILE_BYTES >> 20} MiB", "simplify it")
    return {"path": str(path), "sha256": hashlib.sha256(content).hexdigest(), "content": content}


PublicFileAt = Annotated[PublicFile, BeforeValidator(_read, json_schema_input_type=str)]
"""Type of a key that names a public file by its path."""


UNITS_US = {
    "w": 604_800_000_000,
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
DURATION_PATTERN = r"-?([0-9]+(\.[0-9]+)?(w|d|h|min|ms|us|m|s))+"
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(w|d|h|min|ms|us|m|s)", re.ASCII)
_WHOLE = re.compile(DURATION_PATTERN, re.ASCII)
_LONGEST_US = 100 * 366 * UNITS_US["d"]
_DURATION_MEND = 'write a number and a unit out of us, ms, s, min, h, d, w, such as "30s", "6h" or "1d"'

_CALENDAR_LIKE = re.compile(r"day|week|month|quarter|year", re.IGNORECASE)
_CALENDAR_MEND = 'write a whole number, a space and day, week, month, quarter or year, such as "1 day" or "3 months"'

_SMALLEST, _LARGEST = Decimal("1e-12"), Decimal("1e12")


def parse_duration(value: object) -> timedelta:
    """`"6h"`, `"500ms"`, `"1h30min"` as a timedelta; exact, in whole microseconds.

    Raises: ValueError (pydantic's custom error) for anything else, numbers without a unit included.

    >>> parse_duration("1h30min")
    datetime.timedelta(seconds=5400)
    """
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise refusal("a duration needs a unit", _DURATION_MEND)
    text = value.strip()
    if not _WHOLE.fullmatch(text):
        raise refusal("not a duration", _DURATION_MEND)
    total = sum(Decimal(number) * UNITS_US[unit] for number, unit in _PART.findall(text))
    if total > _LONGEST_US:
        raise refusal("longer than a hundred years", "write a shorter duration")
    if total != int(total):
        raise refusal("not a whole number of microseconds", "round it to microseconds")
    return timedelta(microseconds=-int(total) if text.startswith("-") else int(total))


def format_duration(duration: timedelta) -> str:
    """The shortest text with one unit that `parse_duration` reads back exactly.

    >>> format_duration(timedelta(hours=6)), format_duration(timedelta(seconds=90))
    ('6h', '90s')
    """
    total = microseconds(duration)
    if total == 0:
        return "0s"
    for unit in ("d", "h", "min", "s", "ms"):
        if total % UNITS_US[unit] == 0:
            return f"{total // UNITS_US[unit]}{unit}"
    return f"{total}us"


def parse_length(value: object) -> Length:
    """A duration, or units of the calendar such as `"1 day"`. Raises: ValueError, as `parse_duration`.

    >>> str(parse_length("2 months")), parse_length("1d")
    ('2 months', datetime.timedelta(days=1))
    """
    if isinstance(value, CalendarLength):
        return value
    if not isinstance(value, str) or (length := parse_calendar(value.strip())) is None:
        if isinstance(value, str) and _CALENDAR_LIKE.search(value):
            raise refusal("not a number of calendar units", _CALENDAR_MEND)
        return _positive(parse_duration(value))
    if not length.most:
        raise refusal("longer than a hundred years", "write fewer units")
    return length


def format_length(length: Length) -> str:
    """The text that `parse_length` reads back."""
    return str(length) if isinstance(length, CalendarLength) else format_duration(length)


def microseconds(duration: timedelta) -> int:
    """A duration in whole microseconds, exact."""
    return duration // timedelta(microseconds=1)


def _not_negative(duration: timedelta) -> timedelta:
    if duration < timedelta(0):
        raise refusal("is negative", 'write "0s" or more')
    return duration


def _positive(duration: timedelta) -> timedelta:
    if duration <= timedelta(0):
        raise refusal("is not longer than nothing", 'write a positive duration such as "6h"')
    return duration


def exact_decimal(value: object) -> Decimal:
    """A number exactly as it was written: 0.1 is one tenth. FloatArray go through their shortest text."""
    if isinstance(value, Decimal):
        number = value
    elif isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise refusal("not a number", "write a decimal number such as 1.0")
    else:
        try:
            number = Decimal(repr(value) if isinstance(value, float) else value)
        except InvalidOperation:
            raise refusal("not a number", "write a decimal number such as 1.0") from None
    if not number.is_finite():
        raise refusal("is not finite", "write a finite decimal number such as 1.0")
    if (number and not _SMALLEST <= abs(number) <= _LARGEST) or len(number.as_tuple().digits) > 40:
        raise refusal("is out of all proportion", "write a number between 1e-12 and 1e12 with at most 40 digits")
    return number


def plain_number(value: object) -> float:
    """A float from a TOML number; texts and booleans are refused, NaN and infinities pass on to the caller."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise refusal("not a number", "write a number without quotes")
    try:
        return float(value)
    except OverflowError:
        raise refusal("is too large", "write a smaller number") from None


def _finite(value: float) -> float:
    if value - value != 0.0:
        raise refusal("is not a finite number", "write a finite number")
    return value


def _at_least_zero(value: float) -> float:
    if value < 0:
        raise refusal("must be at least 0", "write 0 or more")
    return value


_duration_text = PlainSerializer(format_duration, return_type=str, when_used="json")
_duration_schema = WithJsonSchema({"type": "string", "pattern": f"^{DURATION_PATTERN}$"})
Duration = Annotated[
    timedelta, BeforeValidator(parse_duration), AfterValidator(_not_negative), _duration_text, _duration_schema
]
PositiveDuration = Annotated[
    timedelta, BeforeValidator(parse_duration), AfterValidator(_positive), _duration_text, _duration_schema
]
StepLength = Annotated[
    timedelta | CalendarLength,
    PlainValidator(parse_length),
    PlainSerializer(format_length, return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"^({DURATION_PATTERN}|{CALENDAR_PATTERN})$"}),
]
"""Of a step, or of so many steps that they have a length of their own."""
ExactDecimal = Annotated[
    Decimal,
    BeforeValidator(exact_decimal),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^[0-9.eE+-]+$"}]}),
]
Number = Annotated[float, BeforeValidator(plain_number), AfterValidator(_finite), WithJsonSchema({"type": "number"})]
NotNegative = Annotated[Number, AfterValidator(_at_least_zero)]
Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
EVENT_FIELD = "name of a field of the raw events"
"""Marks keys that hold one, for whoever asks which key does."""
FieldName = Annotated[str, Field(strict=True, min_length=1, max_length=256), EVENT_FIELD]
"""Name of a top-level field of the raw events."""


def _plain_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", value, re.ASCII):
        raise refusal(
            "has characters that are not allowed in this name",
            "use letters, digits, _ and - only; it becomes part of topic names, where a dot separates the parts",
        )
    return value


def _topic_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]+", value, re.ASCII) or value in (".", ".."):
        raise refusal("is not a legal Kafka topic name", "use letters, digits, '.', '_' and '-' only")
    return value


PlainName = Annotated[str, Field(strict=True, min_length=1, max_length=100), AfterValidator(_plain_name)]
TopicName = Annotated[str, Field(strict=True, min_length=1, max_length=249), AfterValidator(_topic_name)]


def base_address(value: str, *, fix: str, secrets: str) -> SplitResult:
    """An http or https address. Raises: the refusal, which does not repeat it: people write passwords into addresses.

    Args: secrets: where a name and a password belong.
    """
    try:
        url = urlsplit(value)
        good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        raise refusal("is not an http or https address", fix) from None
    if not good or not value.isascii() or re.search(r"[\s\\]", value):
        raise refusal("is not an http or https address", fix)
    if "@" in value:  # a slash in a password ends the name of the host, and what is behind it looks like a path
        raise refusal("has a name or password in it", secrets)
    return url


def is_loopback(url: SplitResult) -> bool:
    """Whether an address names this machine alone."""
    try:
        return ipaddress.ip_address(url.hostname or "").is_loopback
    except ValueError:
        return url.hostname == "localhost"
