"""The base of all domain models, and the questions of `privstream init` about them.

Guarantee: a question names the facts of a PUBLIC file that can answer it; no value of a private record answers one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import Field
from pydantic.fields import FieldInfo

from schemas.config.values import EVENT_FIELD, FieldName, Section, StepLength, types_in
from schemas.errors import ConfigProblem
from schemas.steps import Length

FieldKind = Literal["number", "text", "boolean"]
"""Type of the values of a field of the raw events."""
AnswerKind = Literal["field", "text", "texts", "number", "numbers", "whole"]
"""Type of an answer. `field` is the name of a field of the raw events; `texts` and `numbers` are lists."""
FromPublic = Literal["", "box", "range", "values", "edges", "whole", "nulls"]
"""A fact that a public file can provide: the bounding `box` of two fields; or of one field its `range`, all its
`values`, `edges` of bins, and whether its numbers are `whole` and some of its values are `nulls`."""
ANY: frozenset[FieldKind] = frozenset(("number", "text", "boolean"))
NUMBERS: frozenset[FieldKind] = frozenset(("number",))
TEXTS: frozenset[FieldKind] = frozenset(("text",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What `privstream init` asks of a key. It stands in the key's type, which says the rest of it: see `questions_of`.

    Attributes:
        key: name of the key in the section; in an `EngineSpec` its path in the stream, such as `options.horizon`.
        kind: type of the answer.
        text: what is asked, as a sentence.
        default: value if there is no answer; None if an answer is required.
        same_as: path in the stream of a key whose value is the default.
        field_kinds: types of fields that are offered as answers or, in a `TablesQuestion`, about which is asked.
        hints: usual names of the field, the most likely first.
        public: the fact of a public file that answers the question.
        field_keys: keys of the section that name the fields with that fact.
        of_user: name of the field that is computed of the user's where each user has one of what is asked.
        optional: whether it is asked only where `field_keys` are answered; else the key is written as a comment, with
            a field of the sample that fits, or of a public file one with few values.
        example: an answer that must still be written, in TOML; empty: by `kind`.
        unlisted: in a `TablesQuestion`, the answer for one field whose values nobody can list: a public file has too
            many of them, or there is none. It is said in a comment why.
    """

    key: str = ""
    kind: AnswerKind = "text"
    text: str = ""
    default: Any = None
    same_as: str = ""
    field_kinds: frozenset[FieldKind] = ANY
    hints: tuple[str, ...] = ()
    public: FromPublic = ""
    field_keys: tuple[str, ...] = ()
    of_user: str = ""
    optional: bool = False
    example: str = ""
    unlisted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesQuestion:
    """A question for a list of tables, each about one chosen field.

    Attributes:
        field_key: key of a table that holds the name of the field.
        questions: questions about each field; those that do not fit its type are skipped.
        field_kinds: types of fields that are offered.
        fallback: the only table if no field is chosen; None if one must be chosen.
        instead: other tables, which are offered in a comment where a field of the sample fits, or of a public file one
            with many values.
        unlisted: what the answer `unlisted` of a question means, as a sentence for a comment.
    """

    key: str
    text: str
    field_key: str
    questions: tuple[Question, ...]
    field_kinds: frozenset[FieldKind] = ANY
    fallback: Mapping[str, Any] | None = None
    instead: TablesQuestion | None = None
    unlisted: str = ""


def questions_of(model: type[Section], *, apart_from: str = "") -> Iterator[Question]:
    """Yield a question for each key that is required, or whose type has a `Question`: what it asks is the docstring.

    Args: apart_from: a key of which nothing is asked.
    """
    for name, field in model.model_fields.items():
        key = field.alias or name
        asked = next((each for each in field.metadata if isinstance(each, Question)), None)
        if key == apart_from or (asked is None and not field.is_required()):
            continue
        asked = asked or Question(hints=(name, *(each for each in field.examples or () if isinstance(each, str))))
        kind, example = _answer(field)
        text = " ".join((field.description or "").split())
        yield replace(asked, key=key, kind=kind, text=text, example=asked.example or example)


def _answer(field: FieldInfo) -> tuple[AnswerKind, str]:
    """Return the kind of an answer, and for numbers how many there are to be written."""
    types = (*field.metadata, *types_in(field.annotation))
    if EVENT_FIELD in types:
        return "field", ""
    example = field.examples[0] if field.examples else ""
    if isinstance(example, list):
        numbers = all(isinstance(each, (int, float)) for each in example)
        return ("numbers", f"[{', '.join('N' * len(example))}]") if numbers else ("texts", "")
    return ("whole" if int in types else "number" if float in types else "text"), ""


class HasDomain(Protocol):
    """A configured stream, as far as its domain is concerned."""

    @property
    def name(self) -> str: ...

    @property
    def domain(self) -> DomainSection: ...


class DomainSection(Section):
    """`[streams.domain]` of any kind. It is public by declaration.

    Attributes:
        names_user: False if records name no user because they are aggregated upstream; `[streams.privacy]` then has no
            user and no bound.
        outside: what happens to events outside the domain, as a sentence.
    """

    header: ClassVar[str] = "[streams.domain]"
    names_user: ClassVar[bool] = True
    outside: ClassVar[str] = "Events outside are refused and counted."

    kind: str

    @classmethod
    def from_stream(cls, stream: HasDomain) -> Self:
        """Return the domain of a stream, with the type of this class."""
        domain = stream.domain
        assert isinstance(domain, cls), f"stream {stream.name} has another kind of domain"
        return domain

    @classmethod
    def questions(cls) -> tuple[Question | TablesQuestion, ...]:
        """Return the questions of `privstream init` about this section, in order."""
        return tuple(questions_of(cls))

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """Fields of the raw events that the domain reads, in order."""

    @property
    def all_counts(self) -> bool:
        """Whether all that is measured are counts, for which modes that need a delta have Laplace noise without one."""
        return False

    @property
    def finds_values(self) -> bool:
        """Whether values that nobody listed are found, for which a threshold has a part of delta."""
        return False

    @property
    def coordinates(self) -> tuple[str, str] | None:
        """Fields of a synthetic record that hold its x and y; None if records have no place."""
        return None

    @property
    def in_degrees(self) -> bool:
        """Whether `coordinates` are longitude and latitude, as far as the configuration tells."""
        return False

    @property
    def operation_field(self) -> str | None:
        """Field that holds `insert` or `delete`; None if every event is an insert."""
        return None

    @property
    def trip_field(self) -> str | None:
        """Field by whose value records form a trip, which is ONE contribution; None if every record is one."""
        return None

    @property
    def lifetime(self) -> Length | None:
        """Time after which an insert expires; None if it never does."""
        return None

    @property
    def deletion_key(self) -> str | None:
        """The key that says how events are deleted, `op` or `ttl`; None if they stay."""
        if self.operation_field is not None:
            return "op"
        return "ttl" if self.lifetime is not None else None

    def roles(self) -> Iterator[tuple[str, str]]:
        """Yield the keys of this section that name a field of the raw events, each with the name of the field.

        No field may have two roles.
        """
        for name, field in type(self).model_fields.items():
            if EVENT_FIELD in (*field.metadata, *types_in(field.annotation)) and (event_field := getattr(self, name)):
                yield name, event_field


class DeletableDomainSection(DomainSection):
    """A domain whose events can be deleted, by another event or by time."""

    op: FieldName | None = Field(None, examples=["action"])
    """Field that holds `insert` or `delete`; absent: every event is an insert."""
    ttl: StepLength | None = Field(None, examples=["30d"])
    """Time after which an insert expires, in whole steps; `"30 days"` with calendar steps; absent: it never expires."""

    @property
    def operation_field(self) -> str | None:
        return self.op

    @property
    def lifetime(self) -> Length | None:
        return self.ttl

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse two ways to delete events."""
        if self.op is not None and self.ttl is not None:
            yield ConfigProblem(
                "ttl", "op and ttl would both delete the same events", "keep op or ttl, and remove the other"
            )
