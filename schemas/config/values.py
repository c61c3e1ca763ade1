"""The base of all sections, and the types of their values.

A section is frozen, refuses unknown keys, and validates its keys together. A public file that a configuration names (a
map, a matrix or a schema) is read once, together with the configuration.

Durations are exact: `datetime.timedelta` in whole microseconds, without floating point between the file and the
integer. A day is 24 hours and a week 7 days, also across a change to summer time. For keys that also accept calendar
units, `"1 day"` goes from midnight to midnight; see `schemas.steps`.
"""

from __future__ import annotations

import difflib
import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args
from urllib.parse import SplitResult, urlsplit

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from schemas.errors import ConfigError, ConfigProblem
from schemas.steps import CALENDAR_PATTERN, CalendarLength, Length, length_fields, parse_calendar

FOLDER = "folder"
"""Key of the validation context for the folder to which paths of public files are relative."""

Location = tuple[int | str, ...]

_WORDS = {
    "string_type": ("must be a text", "write one text in double quotes, and nothing around it"),
    "string_too_short": ("is empty", "write a name"),
    "string_too_long": ("is too long", "write a shorter name"),
    "int_type": ("must be a whole number", "write a whole number without quotes"),
    "bool_type": ("is not true or false", "write true or false, without quotes"),
    "path_type": ("must be the path of a file or folder", "write the path in double quotes"),
    "model_type": ("must be a table", "write it as a section in square brackets, or as {{ key = value, ... }}"),
    "tuple_type": ("must be a list", "write a list in square brackets"),
    "too_short": ("has too few entries", "add the missing ones"),
    "too_long": ("has too many entries", "remove some"),
    "greater_than_equal": ("must be at least {ge}", "write {ge} or more"),
    "less_than_equal": ("must be at most {le}", "write {le} or less"),
    "literal_error": ("is not one of the possible values", "write {expected}"),
}
"""Reason and fix for each type of error of pydantic that can be explained without the declaration of the key."""


class Section(BaseModel):
    """A TOML table. `problems` yields what types cannot express.

    Every error of pydantic becomes a `ConfigProblem` in the section of its key, which knows the declarations of the
    keys; `model_validate` raises all of them as one `ConfigError`.

    Attributes:
        header: name of the section in messages.
        unpinned: keys that may change under a running stream.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)

    header: ClassVar[str] = ""
    unpinned: ClassVar[frozenset[str]] = frozenset()

    def problems(self) -> Iterator[ConfigProblem]:
        """Yield contradictions between the keys of this section; keys of problems are relative to it."""
        return iter(())

    @classmethod
    def model_validate(cls, obj: Any, **settings: Any) -> Self:
        """Return the section with the values of a mapping. Raises: ConfigError with every problem."""
        try:
            return super().model_validate(obj, **settings)
        except ValidationError as error:
            raise ConfigError([_problem(details) for details in error_details(error)]) from None

    def revised(self, **values: Any) -> Self:
        """Return the section with other values for these keys, validated like a file. Raises: ConfigError."""
        return self.model_validate(self.explicit | values)

    @property
    def explicit(self) -> dict[str, Any]:
        """The validated values of the keys that are not left to their defaults."""
        fields = type(self).model_fields
        return {fields[name].alias or name: getattr(self, name) for name in self.model_fields_set}

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_words(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            section = handler(value)
        except ValidationError as error:
            details = error_details(error)
            raise refusals(
                (each["loc"], each["ctx"] if each["type"] == "refused" else cls._in_words(each))
                for each in details
                if not _is_consequence(each, details)
            ) from None
        if found := tuple(section.problems()):
            raise refusals(((), problem) for problem in found)
        return section

    @classmethod
    def _in_words(cls, details: ErrorDetails) -> ConfigProblem:
        """Return the problem for an error of pydantic about a key of this section, or about the whole section."""
        location, kind = details["loc"], details["type"]
        name = str(location[0]) if location else ""
        field = next((field for key, field in cls.model_fields.items() if name in (key, field.alias)), None)
        inner = None if field is None else section_in(field.annotation)
        many = inner is not None and inner.header.startswith("[[")
        if kind == "extra_forbidden":
            return ConfigProblem("", "unknown key", cls._nearest(name))
        if kind == "too_short" and inner is not None:
            return ConfigProblem("", "is empty", f"describe at least one in a {inner.header} section")
        if kind == "tuple_type" and inner is not None and many:
            return ConfigProblem("", "must be a list", f"write each as a section in double brackets: {inner.header}")
        if kind in _WORDS:
            context = {key: str(value).replace("'", '"') for key, value in details.get("ctx", {}).items()}
            reason, fix = (words.format_map(context) for words in _WORDS[kind])
            return ConfigProblem("", reason, fix)
        reason = "missing" if kind == "missing" else "cannot be used"
        if field is None or len(location) > 1:
            return ConfigProblem("", reason, "write all entries of the list")
        if inner is not None:
            return ConfigProblem("", reason, f"add a {inner.header} section")
        example = orjson.dumps(field.examples[0]).decode() if field.examples else '"..."'
        return ConfigProblem("", reason, f"add {name} = {example} to {cls.header}, with your own value")

    @classmethod
    def _nearest(cls, typo: str) -> str:
        """Return a fix for an unknown key: a similar key, another section that has it, or the keys of this section."""
        keys = cls.key_names()
        if near := difflib.get_close_matches(typo.lower(), sorted(keys), n=1, cutoff=0.7):
            return f"did you mean {near[0]}?"
        elsewhere = {
            model.header: None
            for model in sections_below(Section)
            if typo in model.key_names() and model.header.startswith("[")
        }
        if others := [header for header in elsewhere if header != cls.header]:
            return f"move it to {' or '.join(others)}"
        return f"remove it; keys of {cls.header} are {', '.join(keys)}"

    def fingerprint_fields(self) -> dict[str, Any]:
        """Return the keys on which the guarantee and the meaning of stored states depend: all but `unpinned`.

        Values are integers, texts, floats, lists and None: durations are in microseconds, decimals are fractions, and
        files are represented by their digests.
        """
        pinned: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            key, value = field.alias or name, getattr(self, name)
            if name not in self.unpinned:
                is_length = timedelta in types_in(field.annotation)
                pinned |= length_fields(key, value) if is_length else {key: _pinned(value)}
        return pinned

    @classmethod
    def key_names(cls) -> list[str]:
        """Return the names of the keys in the file."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def _pinned(value: Any) -> Any:
    match value:
        case bool():
            return int(value)
        case Decimal():
            return str(Fraction(value))
        case PublicFile():
            return value.sha256
        case Section():
            return value.fingerprint_fields()
        case tuple():
            return [_pinned(each) for each in value]
    return value


def sections_below(model: type[Section]) -> Iterator[type[Section]]:
    """Yield the imported subclasses of a section, at all levels."""
    for each in model.__subclasses__():
        yield each
        yield from sections_below(each)


def types_in(annotation: object) -> Iterator[object]:
    """Yield an annotation and all of its arguments, at all levels."""
    yield annotation
    for part in get_args(annotation):
        yield from types_in(part)


def section_in(annotation: object) -> type[Section] | None:
    """Return the section in the type of a key, or in a list of the type; None if the key holds a plain value."""
    sections = (part for part in types_in(annotation) if isinstance(part, type) and issubclass(part, Section))
    return next((section for section in sections if section.header), None)


def error_details(error: ValidationError) -> list[ErrorDetails]:
    """Return the details of an error, without input values, which may be secret."""
    return error.errors(include_url=False, include_input=False)


def _is_consequence(details: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    """Return whether an error only follows from others: pydantic calls a list too short if its entries are refused."""
    location = details["loc"]
    return details["type"] == "too_short" and any(
        len(other["loc"]) > len(location) and other["loc"][: len(location)] == location for other in errors
    )


def refusal(reason: str, fix: str, *, at: str = "") -> PydanticCustomError:
    """Return an error for a validator to raise.

    Args:
        at: a key below the validated one; a leading "../" refers to the enclosing section.
    """
    return PydanticCustomError("refused", "{reason}; {fix}", {"reason": reason, "fix": fix, "at": at})


def refusals(errors: Iterable[tuple[Location, ConfigProblem | Mapping[str, Any]]]) -> ValidationError:
    """Return many errors as one for a validator to raise.

    Args:
        errors: for each its location below the validated value, and a problem or the context of a `refusal`.
    """
    return ValidationError.from_exception_data(
        "configuration",
        [
            InitErrorDetails(
                type=refusal(problem.reason, problem.fix, at=problem.key)
                if isinstance(problem, ConfigProblem)
                else refusal(**problem),
                loc=location,
                input=None,
            )
            for location, problem in errors
        ],
        hide_input=True,
    )


def _problem(details: ErrorDetails) -> ConfigProblem:
    location, context = details["loc"], details["ctx"]
    key: str = context["at"]
    while key.startswith("../"):
        location, key = location[:-1], key.removeprefix("../")
    return next(prefixed(key_path(location), [ConfigProblem(key, context["reason"], context["fix"])]))


def key_path(location: Sequence[int | str]) -> str:
    """Return a location as the path of a key.

    >>> key_path(("streams", 0, "domain", "bounds", 2))
    'streams[0].domain.bounds[2]'
    """
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def prefixed(prefix: str, problems: Iterable[ConfigProblem]) -> Iterator[ConfigProblem]:
    """Yield the problems with a prefix before their keys."""
    for problem in problems:
        separator = "." if prefix and problem.key and prefix[-1] != "/" and problem.key[0] != "[" else ""
        yield replace(problem, key=f"{prefix}{separator}{problem.key}")


def must(holds: Callable[[Any], object], reason: str, fix: str) -> AfterValidator:
    """Return a validator for the type of a key, which refuses values for which `holds` is false."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise refusal(reason, fix)
        return value

    return AfterValidator(check)


MAX_FILE_BYTES = 256 << 20


class PublicFile(Section):
    """A public file. The configuration holds its path, relative to the configuration.

    Attributes:
        path: path from which the file was read.
        sha256: SHA-256 of the content, in hexadecimal, for fingerprints.
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
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise refusal(f"cannot be read: {reason}", fix) from None
    if len(content) > MAX_FILE_BYTES:
        raise refusal(f"is larger than {MAX_FILE_BYTES >> 20} MiB", "simplify it")
    return {"path": str(path), "sha256": hashlib.sha256(content).hexdigest(), "content": content}


PublicFileAt = Annotated[PublicFile, BeforeValidator(_read, json_schema_input_type=str)]
"""Type of a key that names a public file by its path."""


def json_in(file: PublicFile, fix: str) -> Any:
    """Return what a public file holds as JSON. Refuse one that is none. Args: fix: what to write instead."""
    try:
        return orjson.loads(file.content)
    except orjson.JSONDecodeError:
        raise refusal("is not JSON", fix) from None


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
_DURATION = re.compile(DURATION_PATTERN, re.ASCII)
_LONGEST_US = 100 * 366 * UNITS_US["d"]
_DURATION_FIX = 'write a number and a unit out of us, ms, s, min, h, d, w, such as "30s", "6h" or "1d"'

_CALENDAR_FIX = 'write a whole number, a space and day, week, month, quarter or year, such as "1 day" or "3 months"'

_SMALLEST, _LARGEST = Decimal("1e-12"), Decimal("1e12")


def parse_duration(value: object) -> timedelta:
    """Return the exact duration that a text such as `"6h"`, `"500ms"` or `"1h30min"` denotes.

    Raises: ValueError (a custom error of pydantic) for anything else, numbers without a unit included.

    >>> parse_duration("1h30min")
    datetime.timedelta(seconds=5400)
    """
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise refusal("is a duration without a unit", _DURATION_FIX)
    text = value.strip()
    if not _DURATION.fullmatch(text):
        raise refusal("is not a duration", _DURATION_FIX)
    total = sum(Decimal(number) * UNITS_US[unit] for number, unit in _PART.findall(text))
    if total > _LONGEST_US:
        raise refusal("is longer than a hundred years", "write a shorter duration")
    if total != int(total):
        raise refusal("is not a whole number of microseconds", "round it to microseconds")
    return timedelta(microseconds=-int(total) if text.startswith("-") else int(total))


def format_duration(duration: timedelta) -> str:
    """Return a duration as a text with one unit, which `parse_duration` reads back exactly.

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
    """Return the duration or calendar length that a text denotes. Raises: ValueError; see `parse_duration`.

    >>> str(parse_length("2 months")), parse_length("1d")
    ('2 months', datetime.timedelta(days=1))
    """
    if isinstance(value, CalendarLength):
        return value
    if not isinstance(value, str) or (length := parse_calendar(value.strip())) is None:
        if isinstance(value, str) and not _DURATION.fullmatch(value.strip()):
            raise refusal(
                "is neither a duration nor a number of calendar units", f"{_DURATION_FIX}; or {_CALENDAR_FIX}"
            )
        return _positive(parse_duration(value))
    if not length.within_century:
        raise refusal("is longer than a hundred years", "write fewer units")
    return length


def format_length(length: Length) -> str:
    """Return a length as a text, which `parse_length` reads back."""
    return str(length) if isinstance(length, CalendarLength) else format_duration(length)


def microseconds(duration: timedelta) -> int:
    """Return the exact number of microseconds of a duration."""
    return duration // timedelta(microseconds=1)


def _positive(duration: timedelta) -> timedelta:
    if duration <= timedelta(0):
        raise refusal("must be longer than 0s", 'write a positive duration such as "6h"')
    return duration


def exact_decimal(value: object) -> Decimal:
    """Return a number exactly as it is written: 0.1 is one tenth. A float has the value of its shortest `repr`."""
    if isinstance(value, Decimal):
        number = value
    elif isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise refusal("is not a number", "write a decimal number such as 1.0")
    else:
        try:
            number = Decimal(repr(value) if isinstance(value, float) else value)
        except InvalidOperation:
            raise refusal("is not a number", "write a decimal number such as 1.0") from None
    if not number.is_finite():
        raise refusal("is not finite", "write a finite decimal number such as 1.0")
    if (number and not _SMALLEST <= abs(number) <= _LARGEST) or len(number.as_tuple().digits) > 40:
        raise refusal(
            "is too large, too small or too long", "write a number between 1e-12 and 1e12 with at most 40 digits"
        )
    return number


def plain_number(value: object) -> float:
    """Return a TOML number as a float. Texts and booleans are refused; NaN and infinities are left to the caller."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise refusal("is not a number", "write a number without quotes")
    try:
        return float(value)
    except OverflowError:
        raise refusal("is too large", "write a smaller number") from None


_duration_text = PlainSerializer(format_duration, return_type=str, when_used="json")
_duration_schema = WithJsonSchema({"type": "string", "pattern": f"^{DURATION_PATTERN}$"})
Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    must(lambda duration: duration >= timedelta(0), "is negative", 'write "0s" or more'),
    _duration_text,
    _duration_schema,
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
"""Type of a key for the length of one or several steps."""
ExactDecimal = Annotated[
    Decimal,
    BeforeValidator(exact_decimal),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^[0-9.eE+-]+$"}]}),
]
Number = Annotated[
    float,
    BeforeValidator(plain_number),
    must(isfinite, "is not a finite number", "write a finite number"),
    WithJsonSchema({"type": "number"}),
]
NotNegative = Annotated[Number, must(lambda value: value >= 0, "must be at least 0", "write 0 or more")]
EVENT_FIELD = "name of a field of the raw events"
"""Marks the types of keys that name a field, for `DomainSection.roles`."""
FieldName = Annotated[str, Field(strict=True, min_length=1, max_length=256), EVENT_FIELD]
"""Name of a top-level field of the raw events."""


PlainName = Annotated[
    str,
    Field(strict=True, min_length=1, max_length=100),
    must(
        re.compile(r"[A-Za-z0-9_-]+", re.ASCII).fullmatch,
        "has characters that are not allowed in this name",
        "use letters, digits, _ and - only; it becomes part of topic names, where a dot separates the parts",
    ),
]
TopicName = Annotated[
    str,
    Field(strict=True, min_length=1, max_length=249),
    must(
        re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]+", re.ASCII).fullmatch,
        "is not a legal Kafka topic name",
        "use letters, digits, '.', '_' and '-' only",
    ),
]


def base_address(value: str, *, fix: str, secrets: str) -> SplitResult:
    """Return the parts of an http or https address.

    Args:
        fix: how to write the address, for the refusal.
        secrets: where a name and a password belong, for the refusal.
    Raises: a refusal, which does not repeat the address, because people write passwords into addresses.
    """
    try:
        url = urlsplit(value)
        good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        raise refusal("is not an http or https address", fix) from None
    if not good or not value.isascii() or re.search(r"[\s\\]", value):
        raise refusal("is not an http or https address", fix)
    if "@" in value:  # not `url.username`: a slash in a password ends the host, and the rest looks like a path
        raise refusal("contains a name or a password", secrets)
    return url


def is_loopback(url: SplitResult) -> bool:
    """Return whether an address refers to this machine."""
    try:
        return ipaddress.ip_address(url.hostname or "").is_loopback
    except ValueError:
        return url.hostname == "localhost"


_PATH_PART = re.compile(r'"([^"]*)"|([^."]+)')


def path_parts(text: str) -> tuple[str, ...]:
    """Split the path of a field; a text that is not of parts and dots stands for itself, as a whole.

    >>> path_parts('"a.b".c'), path_parts("a..b")
    (('a.b', 'c'), ('a..b',))
    """
    parts, at = [], 0
    while (found := _PATH_PART.match(text, at)) is not None:
        parts.append(found[2] if found[1] is None else found[1])
        at = found.end()
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            break
        at += 1
    return (text,)
