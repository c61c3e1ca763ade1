"""Keys of engine `keys`: `kind = "keys"`, values that nobody listed, or that a public list or grid has; its options."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from math import isfinite
from typing import Annotated, Any, ClassVar, Literal

import orjson
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import ErrorDetails

from schemas.config.domain import DomainSection, Question
from schemas.config.engines.options import OnlyIn, OptionsSection
from schemas.config.engines.series import Limits
from schemas.config.engines.spatial import are_degrees, check_box, geojson, named_features, unnamed_features
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import FieldName, Number, PublicFile, PublicFileAt, Section, json_in, must, refusal
from schemas.errors import ConfigProblem
from schemas.steps import steps_in

LISTING_SHARE = Fraction(2, 5)
"""Share of delta that keys have which are listed though one user alone decides whether enough people have them."""
MOST_TESTS = 1000
"""Steps of a period at most: each is a test of every key."""
_WHOLE = 2**63
VALUE_SHARE = Fraction(1, 3)
"""Share of mu^2 that sums of values have: a third costs their error a sixteenth beside a half, where it adds up from
both counters, and leaves counts and thresholds nearer to what they are without values."""
PUBLIC = "public"
"""Mode in which all keys are of a public list."""
MOST_LISTED = 100_000
"""Keys of a public list at most: each is released at every step."""
RELEASED = ("step", "count", "error", "found")
"""Fields of synthetic records beside those of the key."""
OF_VALUES = ("sum", "sum_error", "mean", "mean_error")
"""Those that events with a value have besides."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _share(value: str) -> str:
    return f"1/{_denominator(value)}"


def _denominator(value: str) -> int:
    one, _, rest = value.partition("/")
    if one.strip() != "1" or not rest.strip().isdecimal():
        return 0
    return int(rest)


Sample = Annotated[
    str,
    Field(strict=True),
    must(
        lambda value: 1 <= _denominator(value) <= 2**20,
        "must be 1 divided by a whole number up to 1048576",
        'write sample = "1/16" for a sixteenth of all keys',
    ),
    AfterValidator(_share),
]


Scalar = Annotated[str, Field(strict=True)] | StrictBool | StrictInt | StrictFloat
"""A value of a field."""


class ValueSection(Section):
    """`value`: a number that records bring to their key, whose sum and mean are released beside the count."""

    header: ClassVar[str] = "value"

    field: FieldName = Field(examples=["price"])
    """Field of the raw events that holds the number."""
    limits: Limits = Field(examples=[[0.0, 100.0]])
    """Smallest and largest value; others are clipped to them, and counted. Noise grows with their distance."""


class GridSection(Section):
    """`grid`: cells of a box as public keys, each named by the coordinates of its middle."""

    header: ClassVar[str] = "grid"

    x: FieldName = Field(examples=["longitude"])
    """Field with the first coordinate, of raw events and of synthetic records."""
    y: FieldName = Field(examples=["latitude"])
    """Field with the second coordinate."""
    bounds: Annotated[tuple[Number, Number, Number, Number], AfterValidator(check_box)] = Field(
        examples=[[-74.05, 40.60, -73.75, 40.90]]
    )
    """`[xmin, ymin, xmax, ymax]`; what lies outside, or on an upper edge, is refused and counted."""
    columns: StrictInt = Field(ge=1, le=MOST_LISTED, examples=[16])
    """Number of cells from west to east."""
    rows: StrictInt = Field(ge=1, le=MOST_LISTED, examples=[16])
    """Number of cells from south to north."""

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse more cells than a public list may have keys."""
        if self.columns * self.rows > MOST_LISTED:
            yield ConfigProblem(
                "columns", f"and rows make {self.columns * self.rows:,} cells: at most {MOST_LISTED:,}", "write fewer"
            )

    @property
    def middles(self) -> Iterator[tuple[float, float]]:
        """Coordinates of the middles of the cells, row by row from the lower left one, to twelve digits."""
        xmin, ymin, xmax, ymax = self.bounds
        for row in range(self.rows):
            for column in range(self.columns):
                x, y = (
                    xmin + (column + 0.5) * (xmax - xmin) / self.columns,
                    ymin + (row + 0.5) * (ymax - ymin) / self.rows,
                )
                yield float(f"{x:.12g}"), float(f"{y:.12g}")


Listed = Annotated[tuple[Scalar | tuple[Scalar, ...], ...], Field(min_length=1, max_length=MOST_LISTED)]
"""Keys of a public list: one value each, or a list of one for each field."""
_LISTED: TypeAdapter[tuple[Scalar | tuple[Scalar, ...], ...]] = TypeAdapter(Listed)


def _list_file(file: PublicFile) -> PublicFile:
    """Return the file. Refuse one that has no list of keys, without a look at these."""
    fix = 'write a list as keys would be written, ["a", "b"], or name a GeoJSON file whose features have names'
    document = json_in(file, fix)
    if isinstance(document, dict):
        return geojson(file)
    try:
        _LISTED.validate_python(document)
    except ValidationError:
        raise refusal(f"is not a list of 1 to {MOST_LISTED:,} keys, texts, numbers or booleans", fix) from None
    return file


class KeysDomainSection(DomainSection):
    """`kind = "keys"`: values of one field, or combinations of values of several, or cells of a grid.

    Nobody lists them, or, in mode `public`, one of `keys`, `file` and `grid` does.
    """

    outside: ClassVar[str] = (
        "Keys that are too long, or not on the public list or grid if there is one, are refused and counted."
    )

    kind: Literal["keys"] = "keys"
    field: Annotated[
        tuple[FieldName, ...],
        BeforeValidator(_listed),
        Field(min_length=1, max_length=8),
        Question(hints=("page", "url", "query", "word", "key")),
    ] = Field((), examples=["page"])
    """Field whose values are counted, or a list of fields whose combinations are: texts, numbers or booleans. Not with
    `grid`."""
    max_key_bytes: StrictInt = Field(64, ge=1, le=1024, examples=[64])
    """Length of a key at most, in bytes of UTF-8, with one more between fields; each key takes as much memory."""
    keys: Listed | None = Field(None, examples=[["north", "south"]])
    """Mode `public`: all keys there are; with several fields a list of their values for each key."""
    file: Annotated[PublicFileAt, AfterValidator(_list_file)] | None = Field(None, examples=["shops.json"])
    """Mode `public`: a JSON file with such a list, or GeoJSON whose features are named by `name_property`; its path is
    relative to the configuration."""
    name_property: Annotated[str, Field(strict=True, min_length=1, max_length=256)] = Field("name", examples=["name"])
    """Property of the features of a GeoJSON file that holds the key, a text."""
    grid: GridSection | None = Field(
        None,
        examples=[
            {"x": "longitude", "y": "latitude", "bounds": [-74.05, 40.60, -73.75, 40.90], "columns": 16, "rows": 16}
        ],
    )
    """Mode `public`: cells of a box, into which records fall by two coordinates."""

    value: ValueSection | None = Field(None, examples=[{"field": "price", "limits": [0.0, 100.0]}])
    """Number of each record whose sum and mean are released for each key, with a third of the budget of the noise."""

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Fields of synthetic records that name a key: those of `field`, or the coordinates of a cell's middle."""
        return self.field if self.grid is None else (self.grid.x, self.grid.y)

    @property
    def fields(self) -> tuple[str, ...]:
        return self.key_fields if self.value is None else (*self.key_fields, self.value.field)

    @property
    def coordinates(self) -> tuple[str, str] | None:
        return None if self.grid is None else (self.grid.x, self.grid.y)

    @property
    def in_degrees(self) -> bool:
        return self.grid is not None and are_degrees((self.grid.x, self.grid.y), self.grid.bounds)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the keys that say which public keys there are."""
        return tuple(name for name in ("keys", "file", "grid") if getattr(self, name) is not None)

    @property
    def released(self) -> tuple[str, ...]:
        """Fields of synthetic records beside those of the key."""
        return RELEASED if self.value is None else (*RELEASED, *OF_VALUES)

    @property
    def finds_values(self) -> bool:
        return not self.sources

    def roles(self) -> Iterator[tuple[str, str]]:
        for key, name in zip(("grid.x", "grid.y"), self.coordinates or (), strict=False):
            yield key, name
        for name in self.field:
            yield "field", name
        if self.value is not None:
            yield "value.field", self.value.field

    @classmethod
    def _in_words(cls, details: ErrorDetails) -> ConfigProblem:
        if details["type"] == "extra_forbidden" and details["loc"][0] in ("op", "ttl"):
            return ConfigProblem(
                "",
                "would delete events, and the privacy of keys rests on counts that do not fall within a period",
                "remove it; counts of a period end with it, so set per in [streams.privacy] to forget what is old",
            )
        return super()._in_words(details)

    @property
    def public_keys(self) -> tuple[tuple[Scalar, ...], ...]:
        """Values of the fields of each public key, texts in NFC; empty where nobody listed them."""
        if self.grid is not None:
            return tuple(self.grid.middles)
        keys: Iterable[Any] = self.keys or ()
        if self.file is not None:
            document = orjson.loads(self.file.content)
            named = isinstance(document, dict)
            keys = dict.fromkeys(n for n, _ in named_features(self.file, self.name_property)) if named else document
        listed = (each if isinstance(each, (tuple, list)) else (each,) for each in keys)
        return tuple(tuple(map(_composed, values)) for values in listed)

    def fingerprint_fields(self) -> dict[str, Any]:
        listed = None if self.keys is None else [list(map(_text, values)) for values in self.public_keys]
        return {**super().fingerprint_fields(), "keys": listed}

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse a public list with a key twice or of other fields, and names of what is released beside the key."""
        listed, where = self.public_keys, self.sources[0] if self.sources else "keys"
        if bool(self.field) == (self.grid is not None):
            yield ConfigProblem(
                "field",
                "would be a part of the key beside the coordinates of the grid" if self.field else "missing",
                "remove it; records of a grid are named by the middle of their cell"
                if self.field
                else 'name the field whose values are counted, field = "page", or several',
            )
            return
        if len(self.sources) > 1:
            yield ConfigProblem(self.sources[1], f"is named beside {where}", "write one of keys, file and grid")
        unnamed = 0 if self.file is None else unnamed_features(self.file, self.name_property)
        if unnamed and listed:
            yield ConfigProblem(
                "name_property",
                f'{unnamed:,} features of the file have no text in "{self.name_property}", and would be no keys',
                "name each feature, or take it out of the file",
            )
        if self.file is not None and not listed:
            yield ConfigProblem(
                "name_property",
                f'no feature of the file has a text in "{self.name_property}"',
                "name the property of the features that holds the key",
            )
        if any(len(values) != len(self.key_fields) for values in listed):
            yield ConfigProblem(
                where,
                f"have another number of values than the {len(self.key_fields)} fields of a key",
                'write ["a", "b"] for one field, and [["a", "x"], ["b", "y"]] for two',
            )
        if len(set(map(_told_apart, listed))) < len(listed):
            yield ConfigProblem(
                where,
                "name one key twice: texts are compared in Unicode form NFC, and 1 and 1.0 are one",
                "write every key once",
            )
        if too_long := [values for values in listed if _bytes(values) > self.max_key_bytes]:
            yield ConfigProblem(
                where,
                f"have one of {_bytes(too_long[0]):,} bytes, above max_key_bytes = {self.max_key_bytes:,}",
                "raise domain.max_key_bytes, or shorten the key",
            )
        if not all(map(_usable, chain.from_iterable(listed))):
            yield ConfigProblem(
                where,
                "have a value that no record can have: a text with NUL, that begins with U+0001 or U+0002 or is not "
                "Unicode, or a number that is not finite or beyond 64 bits",
                "remove it",
            )
        for name in self.key_fields:
            if name in self.released:
                yield ConfigProblem(
                    "field" if self.grid is None else "grid",
                    f'field "{name}" of synthetic records would be a part of the key and say something of it',
                    "name another field, such as one that [streams.map] computes",
                )


def _composed(value: Scalar) -> Scalar:
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def _usable(value: Scalar) -> bool:
    if isinstance(value, str):
        return (
            value[:1] not in ("\1", "\2")
            and "\0" not in value
            and not any("\ud800" <= each < "\ue000" for each in value)
        )
    return isfinite(value) and not (isinstance(value, int) and not -_WHOLE <= value < _WHOLE)


def _told_apart(values: Sequence[Scalar]) -> tuple[object, ...]:
    """Return what is equal for equal keys: Python takes True for 1."""
    return tuple((isinstance(value, bool), value) for value in values)


def _bytes(values: Sequence[Scalar]) -> int:
    """Return the length of a key, as `engines.keys.domain` writes it."""
    return len(values) - 1 + sum(map(_length, values))


def _length(value: Scalar) -> int:
    return len(value.encode(errors="replace")) if isinstance(value, str) else 1 + len(_text(value))


def _text(value: Scalar) -> str:
    """Return a value as a text that distinguishes true, 1 and "1", and is the same for 1 and 1.0."""
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)


class KeysOptions(OptionsSection):
    """`[streams.options]` of engine `keys`."""

    unpinned: ClassVar[frozenset[str]] = frozenset({"max_keys"})

    horizon: StrictInt | None = Field(None, ge=1, le=MOST_TESTS, examples=[10])
    """Number of steps, where the bound does not renew. After them the stream continues with empty releases."""
    least_count: Annotated[StrictInt, OnlyIn("default")] = Field(5, ge=1, le=1_000_000, examples=[5])
    """Mode `default`: people that a key must truly have before it is tested; fewer are never listed, and cost no
    computation."""
    max_keys: Annotated[StrictInt, OnlyIn("default")] = Field(1_000_000, ge=1, le=1_000_000_000, examples=[1_000_000])
    """Mode `default`: keys of a period at most, listed or not; one more stops the stream, and nothing is lost."""
    sample: Annotated[Sample, OnlyIn("default")] = Field("1/1", examples=["1/16"])
    """Mode `default`: public share of all keys, by their hash, that is counted at all; records with other keys are left
    out."""
    max_per_key: StrictInt | None = Field(None, ge=1, le=10_000, examples=[3])
    """Count events, of one user with one key up to so many in a period, and not people; noise grows with it. Absent:
    each user counts once for a key, by the first record."""

    @property
    def pair_events(self) -> int:
        return self.max_per_key or 1

    @property
    def one_in(self) -> int:
        """Denominator of `sample`."""
        return _denominator(self.sample)

    def stream_problems(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Refuse a stream whose periods have no end, and one with two; and a public list without its mode."""
        if isinstance(domain, KeysDomainSection):
            yield from self._mode_problems(mode, domain)
        if privacy is None:
            return
        if privacy.per is None and self.horizon is None:
            yield ConfigProblem(
                "options.horizon",
                "missing: noise of a key is of one period, whose tests are counted beforehand",
                'set horizon = 10 (steps), or per = "10d" in [streams.privacy] for a bound that renews',
            )
        if privacy.per is None or time is None:
            return
        if self.horizon is not None:
            yield ConfigProblem("options.horizon", "is for streams whose bound does not renew", "remove the key")
        steps = steps_in(privacy.per, time.step)
        if steps and steps > MOST_TESTS:
            yield ConfigProblem(
                "privacy.per",
                f"has {steps:,} steps, each of which tests every key: at most {MOST_TESTS:,}",
                "make time.step longer: about ten steps a period list most keys",
            )

    def _mode_problems(self, mode: str, domain: KeysDomainSection) -> Iterator[ConfigProblem]:
        if mode != PUBLIC:
            for name in domain.sources[:1]:
                yield ConfigProblem(
                    f"domain.{name}",
                    "is a public list, and this mode finds keys that nobody listed",
                    'set mode = "public", where each key of the list is released, or remove the list',
                )
            return
        if not domain.sources:
            yield ConfigProblem(
                "domain.keys",
                'missing: mode "public" releases every key of a public list',
                'write keys = ["a", "b"], or file = "shops.json", or a grid',
            )
