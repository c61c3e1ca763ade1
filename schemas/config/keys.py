"""Keys of engine `keys`: `kind = "keys"`, values of fields that nobody listed, and its options."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt
from pydantic_core import ErrorDetails

from schemas.config.domain import DomainSection, Question, TablesQuestion
from schemas.config.options import OptionsSection
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import FieldName, must
from schemas.errors import ConfigProblem
from schemas.steps import steps_in

LISTING_SHARE = Fraction(2, 5)
"""Share of delta that keys have which are listed though one user alone decides whether enough people have them."""
MOST_TESTS = 1000
"""Steps of a period at most: each is a test of every key."""
RELEASED = ("step", "count", "error", "found")
"""Fields of synthetic records beside those of the key."""


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


class KeysDomainSection(DomainSection):
    """`kind = "keys"`: values of one field, or combinations of values of several; nobody lists them."""

    outside: ClassVar[str] = "Keys that are too long are refused and counted."

    kind: Literal["keys"] = "keys"
    field: Annotated[tuple[FieldName, ...], BeforeValidator(_listed), Field(min_length=1, max_length=8)] = Field(
        examples=["page"]
    )
    """Field whose values are counted, or a list of fields whose combinations are: texts, numbers or booleans."""
    max_key_bytes: StrictInt = Field(64, ge=1, le=1024, examples=[64])
    """Length of a key at most, in bytes of UTF-8, with one more between fields; each key takes as much memory."""

    @classmethod
    def questions(cls) -> tuple[Question | TablesQuestion, ...]:
        text = "Whose values are counted, though nobody can list them?"
        return (Question(key="field", kind="field", text=text, hints=("page", "url", "query", "word", "key")),)

    @property
    def fields(self) -> tuple[str, ...]:
        return self.field

    def roles(self) -> Iterator[tuple[str, str]]:
        for name in self.field:
            yield "field", name

    @classmethod
    def _in_words(cls, details: ErrorDetails) -> ConfigProblem:
        if details["type"] == "extra_forbidden" and details["loc"][0] in ("op", "ttl"):
            return ConfigProblem(
                "",
                "would delete events, and the privacy of keys rests on counts that do not fall within a period",
                "remove it; counts of a period end with it, so set per in [streams.privacy] to forget what is old",
            )
        return super()._in_words(details)

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse names of what is released beside the key."""
        for name in self.field:
            if name in RELEASED:
                yield ConfigProblem(
                    "field",
                    f'field "{name}" of synthetic records would be a part of the key and say something of it',
                    "name another field, such as one that [streams.map] computes",
                )


class KeysOptions(OptionsSection):
    """`[streams.options]` of engine `keys`."""

    unpinned: ClassVar[frozenset[str]] = frozenset({"max_keys"})

    horizon: StrictInt | None = Field(None, ge=1, le=MOST_TESTS, examples=[10])
    """Number of steps, where the bound does not renew. After them the stream continues with empty releases."""
    least_count: StrictInt = Field(5, ge=1, le=1_000_000, examples=[5])
    """People that a key must truly have before it is tested; fewer are never listed, and cost no computation."""
    max_keys: StrictInt = Field(1_000_000, ge=1, le=1_000_000_000, examples=[1_000_000])
    """Keys of a period at most, listed or not; one more stops the stream, and nothing is lost."""
    sample: Sample = Field("1/1", examples=["1/16"])
    """Public share of all keys, by their hash, that is counted at all; records with other keys are left out."""

    @property
    def one_in(self) -> int:
        """Denominator of `sample`."""
        return _denominator(self.sample)

    def stream_problems(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Refuse a stream whose periods have no end, and one with two."""
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
