"""Keys of engine `series`: `kind = "series"`, one number or several per step, and its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, StrictInt

from schemas.config.domain import NUMBERS, TEXTS, DomainSection, Question, TablesQuestion, questions_of
from schemas.config.engines.options import OnlyIn, OptionsSection, Share
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import ExactDecimal, FieldName, Number, Section, must
from schemas.errors import ConfigProblem

_MAX_LIMIT = 2.0**34
"""Largest limit, in sensitivities, for which exact sums fit into 64 bits."""


Limits = Annotated[
    tuple[Number, Number],
    must(lambda limits: limits[0] < limits[1], "are inverted or empty", "write limits = [low, high] with low < high"),
]
Sensitivity = Annotated[
    Number,
    must(lambda value: value > 0, "must be greater than 0", "write how far one user can move a reading at most"),
]
FieldShare = Annotated[
    ExactDecimal, must(lambda share: share > 0, "must be greater than 0", "write 1 for an even share of the budget")
]
Weight = Annotated[
    ExactDecimal,
    must(lambda value: 0 < value <= 1, "must lie in (0, 1]", "write 0.3, say: the part of each release that is new"),
]


MAX_BINS = 1000
MAX_GROUPS = 1000
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Names and levels of the percentiles that are released of a histogram."""
OF_HISTOGRAM = ("count", "mean", *PERCENTILES)
"""Numbers that are released of a histogram."""
SUFFIXES = ("", "_se", "_low", "_high")
"""Of the fields of a released number: itself, its standard error, and the ends of its 90 % interval."""


class EdgesSection(Section):
    """`edges` as a rule: bins of equal width, or of equal ratio."""

    header: ClassVar[str] = "edges"

    first: Number = Field(alias="from", examples=[1])
    """Lower edge of the first bin; what is below has a bin of its own."""
    last: Number = Field(alias="to", examples=[1000])
    """Upper edge of the last bin; what is above has a bin of its own."""
    bins: StrictInt = Field(ge=1, le=MAX_BINS, examples=[30])
    """Number of bins between the two."""
    scale: Literal["linear", "log"] = Field("linear", examples=["log"])
    """Whether bins have equal widths, or upper edges that are equal multiples of the lower ones."""

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse bins that do not ascend."""
        if self.first >= self.last:
            yield ConfigProblem("to", "is not above from", "write from = 0 and to = 100, say")
        elif self.scale == "log" and self.first <= 0:
            yield ConfigProblem(
                "from", "is not above 0, where multiples of it are edges", 'raise it, or write scale = "linear"'
            )

    @property
    def edges(self) -> tuple[float, ...]:
        """All edges, to twelve digits: the same on every machine."""
        parts = [each / self.bins for each in range(self.bins + 1)]
        if self.scale == "log":
            ratio = self.last / self.first
            found = [self.first * ratio**part for part in parts]
        else:
            found = [self.first + (self.last - self.first) * part for part in parts]
        return (self.first, *(float(f"{edge:.12g}") for edge in found[1:-1]), self.last)


def _edges(value: Any) -> Any:
    """Return the edges that a rule stands for; a list stays as it is."""
    if not isinstance(value, Mapping):
        return value
    section: EdgesSection = EdgesSection.__pydantic_validator__.validate_python(value)
    return section.edges


Edges = Annotated[
    tuple[Number, ...],
    must(
        lambda edges: 2 <= len(edges) <= MAX_BINS + 1 and all(low < high for low, high in pairwise(edges)),
        f"are not 2 to {MAX_BINS + 1} numbers in ascending order",
        "sort them, and write fewer where there are more",
    ),
    BeforeValidator(_edges),
]


Values = Annotated[
    tuple[Annotated[str, Field(strict=True, min_length=1)], ...],
    Field(min_length=1, max_length=MAX_GROUPS),
    must(lambda values: len(set(values)) == len(values), "name one value twice", "write every value once"),
]


class SeriesFieldSection(Section):
    """An entry of `fields`: one series."""

    header: ClassVar[str] = "[streams.domain.fields]"

    name: FieldName = Field(examples=["volume"])
    """Field of the raw events (but for a count), and of the released records."""
    of: Literal["sum", "count", "value", "histogram"] = Field(examples=["sum"])
    """`sum` of the field over the events of a step, their `count`, the `value` of a reading aggregated upstream, or the
    `histogram` of the field over the events of a step, with its percentiles.
    """
    limits: Limits | None = Field(None, examples=[[0, 10000]])
    """Public limits; values outside are clipped to them, and counted."""
    sensitivity: Sensitivity | None = Field(None, examples=[1])
    """With `value` only: how far one user can move a reading."""
    edges: Edges | None = Field(None, examples=[{"from": 1, "to": 1000, "bins": 30, "scale": "log"}])
    """With `histogram` only: public edges of its bins, as a list, or as a rule of `from`, `to`, `bins` and `scale`,
    which is "linear" or "log". A bin includes its lower edge, the last one its upper edge too. Values outside are
    counted in two bins of their own.
    """
    share: FieldShare = Field(Decimal(1), examples=[1])
    """Share of the budget, relative to the shares of the other fields."""

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse limits and sensitivities that are missing or meaningless."""
        if self.of == "histogram" and self.edges is None:
            yield ConfigProblem(
                "edges",
                "missing: nothing says which bins a histogram has",
                "add edges = { from = 0, to = 100, bins = 20 }, with your own ends, which must not come from the data",
            )
        if self.of != "histogram" and self.edges is not None:
            yield ConfigProblem("edges", f"a {self.of} has no bins", 'set of = "histogram", or remove the key')
        if self.of not in ("count", "histogram") and self.limits is None:
            yield ConfigProblem(
                "limits",
                "missing: without public limits one user could move the release by any amount",
                "add limits = [0, 10000], with your own bounds, which must not come from the data",
            )
        if self.of == "count" and self.limits is not None:
            yield ConfigProblem("limits", "a count adds 1 for each event and reads no field", "remove the key")
        if self.of == "histogram" and self.limits is not None:
            yield ConfigProblem("limits", "a histogram has edges: what is outside is counted as that", "remove the key")
        if self.of == "value" and self.sensitivity is None:
            yield ConfigProblem(
                "sensitivity",
                "missing: nothing says how far one user can move a reading",
                "add sensitivity = 1 if the reading counts people, or the largest contribution of one person",
            )
        if self.of != "value" and self.sensitivity is not None:
            why = {
                "histogram": "an event is in one bin of a histogram, which is its sensitivity",
                "count": "an event adds 1 to a count, which is its sensitivity",
                "sum": "the limits of a sum are its sensitivity",
            }
            yield ConfigProblem("sensitivity", why[self.of], "remove the key")
        max_limit = _MAX_LIMIT * (self.sensitivity or 1.0)
        if self.of == "value" and self.limits is not None and max(map(abs, self.limits)) > max_limit:
            yield ConfigProblem(
                "limits", "are wider than 2^34 times the sensitivity", "write narrower limits, or another unit"
            )

    @property
    def released(self) -> tuple[str, ...]:
        """Names of the numbers that are released of it."""
        return tuple(f"{self.name}_{what}" for what in OF_HISTOGRAM) if self.of == "histogram" else (self.name,)


class SeriesDomainSection(DomainSection):
    """`kind = "series"`: one series of numbers, or several."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, populate_by_name=True)

    kind: Literal["series"] = "series"
    series: tuple[SeriesFieldSection, ...] = Field(
        alias="fields", min_length=1, max_length=64, examples=[[{"name": "visits", "of": "count"}]]
    )
    """The series of the stream."""
    by: Annotated[FieldName | None, Question(field_kinds=TEXTS, optional=True)] = Field(None, examples=["carrier"])
    """Field of the raw events, a text, by whose values events are counted apart; each event is in one group, so that a
    group costs no other one any epsilon. Not for readings.
    """
    values: Annotated[Values | None, Question(public="values", field_keys=("by",), optional=True)] = Field(
        None, examples=[["AA", "UA"]]
    )
    """All values of `by`, public; an event with another one is refused and counted."""

    @classmethod
    def questions(cls) -> tuple[Question | TablesQuestion, ...]:
        histogram = Question(key="of", default="histogram")
        edges = Question(key="edges", example="{ from = N, to = N, bins = 30 }")
        percentiles = TablesQuestion(
            key="fields",
            text='Or a number: its sum by of = "sum", or of = "value" where each event is a reading, with limits = '
            "[N, N] in place of edges; or how it is distributed (count, mean, median, p90, p95 and p99 of each step), "
            "in bins between two public ends that you choose",
            field_key="name",
            questions=(histogram, edges),
            field_kinds=NUMBERS,
        )
        fields = TablesQuestion(
            key="fields",
            text="Which numbers are released? None: how many events there are.",
            field_key="name",
            questions=(
                Question(key="of", default="sum"),
                Question(key="limits", example="[N, N]", public="range"),
            ),
            field_kinds=NUMBERS,
            fallback={"name": "events", "of": "count"},
            instead=percentiles,
        )
        return fields, *questions_of(cls, apart_from="fields")

    @property
    def readings(self) -> bool:
        """Whether records are readings that were aggregated upstream and name no user."""
        return all(field.of == "value" for field in self.series)

    @property
    def all_counts(self) -> bool:
        """See `DomainSection`: true of histograms."""
        return all(field.of == "histogram" for field in self.series)

    @property
    def outside(self) -> str:  # type: ignore[override]
        if self.all_counts:
            return "Values outside are in two bins of their own."
        return "Values outside are clipped and counted."

    @property
    def names_user(self) -> bool:  # type: ignore[override]
        return not self.readings

    @property
    def fields(self) -> tuple[str, ...]:
        by = () if self.by is None else (self.by,)
        return (*by, *(field.name for field in self.series if field.of != "count"))

    def roles(self) -> Iterator[tuple[str, str]]:
        if self.by is not None:
            yield "by", self.by
        for index, field in enumerate(self.series):
            if field.of != "count":
                yield f"fields[{index}].name", field.name

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse duplicate names, and readings beside sums."""
        for index, field in enumerate(self.series):
            if field.name in [earlier.name for earlier in self.series[:index]]:
                yield ConfigProblem(f"fields[{index}].name", "is the name of an earlier entry", "list each field once")
        if not self.readings and any(field.of == "value" for field in self.series):
            yield ConfigProblem(
                "fields",
                "mix readings, whose users are unknown, with sums over users",
                'describe them as two streams: one with of = "value" only',
            )
        if not self.all_counts and any(field.of == "histogram" for field in self.series):
            yield ConfigProblem(
                "fields",
                "mix histograms, whose noise is that of counts, with other numbers",
                'describe them as two streams: one with of = "histogram" only, which counts its events too',
            )
        if (self.by is None) != (self.values is None):
            key, other = ("values", "by") if self.values is None else ("by", "values")
            yield ConfigProblem(
                key,
                f"missing beside {other}: groups are the public values of a field",
                'write by = "carrier" and values = ["AA", "UA"], say',
            )
        if self.by is not None and self.readings:
            yield ConfigProblem(
                "by",
                "would divide readings, each of which every user is in",
                "remove by and values, or name each series",
            )
        numbers = [name + suffix for field in self.series for name in field.released for suffix in SUFFIXES]
        released = ["step", *([] if self.by is None else [self.by]), *numbers]
        if len(set(released)) < len(released):
            yield ConfigProblem("fields", "would release two values under one name", "rename a field")


class SeriesOptions(OptionsSection):
    """`[streams.options]` of engine `series`."""

    horizon: StrictInt | None = Field(None, ge=1, le=100_000_000, examples=[1000])
    """Number of steps, public. After them the stream continues with empty releases that say so."""
    decay: Annotated[Share | None, OnlyIn("default", "paper")] = Field(None, examples=[0.999])
    """Modes `default` and `paper`: r in weights w_t^2 proportional to r^t: a finite total without a horizon, with noise
    that grows for ever."""
    seasonal: Annotated[StrictBool, OnlyIn("default")] = Field(True, examples=[True])
    """Mode `default`: whether daily and weekly patterns are modelled."""
    weight: Annotated[Weight, OnlyIn("paper", "paper-binomial")] = Field(Decimal("0.3"), examples=[0.3])
    """Modes `paper` and `paper-binomial`: w_t after the first two steps."""
    correlation: Annotated[Literal["unknown", "positive"], OnlyIn("paper", "paper-binomial")] = Field(
        "unknown", examples=["unknown"]
    )
    """Modes `paper` and `paper-binomial`: whether the series is known to be positively correlated."""

    def stream_problems(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Refuse a stream without an end whose total cost would not be finite, and what a mode does not have."""
        if isinstance(domain, SeriesDomainSection) and domain.by is not None and mode != "default":
            yield ConfigProblem("domain.by", f'mode "{mode}" has no groups', 'set mode = "default"')
        if isinstance(domain, SeriesDomainSection) and domain.all_counts:
            if mode != "default":
                yield ConfigProblem("mode", f'mode "{mode}" has no histograms', 'set mode = "default"')
            if self.decay is not None:
                yield ConfigProblem(
                    "options.decay", "is not for histograms: each step has the same noise, for ever", "remove the key"
                )
            return
        if privacy is None or not isinstance(domain, SeriesDomainSection):
            return
        if privacy.per is not None or self.horizon is not None:
            if self.decay is not None:
                yield ConfigProblem("options.decay", "is for streams without an end", "remove decay, or the horizon")
            return
        if domain.readings and self.decay is None:
            yield ConfigProblem(
                "options.horizon",
                "missing: every user may be in every reading, so each step costs, and a stream without an end would "
                "cost an infinite epsilon",
                'add horizon = 1000 (steps); or per = "30d" to [streams.privacy], for a bound that renews; or '
                "decay = 0.999, for noise that grows for ever",
            )

    def draws_first_version(self, mode: str, *, one_a_step: bool) -> bool:
        return mode == "paper-binomial" and one_a_step

    @property
    def weight_fraction(self) -> Fraction:
        """`weight` as an exact fraction."""
        return Fraction(self.weight)

    @property
    def decay_fraction(self) -> Fraction | None:
        """`decay` as an exact fraction."""
        return None if self.decay is None else Fraction(self.decay)
