"""What every domain model has, whatever its kind, and what `privstream init` asks for it.

Guarantee: a question says what of a PUBLIC file can answer it; what private records hold answers nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo

from schemas.config.values import EVENT_FIELD, FieldName, Section, StepLength, types_in
from schemas.errors import ConfigProblem
from schemas.steps import Length

FieldKind = Literal["number", "text", "boolean"]
"""What values of a raw event's field are."""
AnswerKind = Literal["field", "text", "texts", "number", "numbers", "whole", "choice", "flag", "file", "duration"]
"""`field`: the name of a field of the raw events; `texts`, `numbers`: a list."""
FromPublic = Literal["", "box", "range", "values", "edges", "whole", "nulls"]
"""What a public file can say: `box` of two fields; of one its `range`, all `values`, `edges` of bins, and whether it is
`whole` or has `nulls`."""
ANY: frozenset[FieldKind] = frozenset(("number", "text", "boolean"))
NUMBERS: frozenset[FieldKind] = frozenset(("number",))
TEXTS: frozenset[FieldKind] = frozenset(("text",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One key that is asked for.

    Attributes:
        key: name of the key in the section; in an `EngineSpec` its place in the stream, such as `options.horizon`.
        text: what is asked, as a sentence; empty: what the key's documentation says.
        default: what is taken where nobody answers; None: somebody must.
        same_as: key below the stream whose answer is the default.
        of: kinds of fields that are offered, or, in an `Each`, for which it is asked.
        hints: names by which a field is likely meant, the likeliest first.
        about: keys of the section that name the fields of which a public file is asked.
        count: how many numbers there are; 0: any number of them.
    """

    key: str
    kind: AnswerKind
    text: str = ""
    default: Any = None
    same_as: str = ""
    choices: tuple[str, ...] = ()
    of: frozenset[FieldKind] = ANY
    hints: tuple[str, ...] = ()
    public: FromPublic = ""
    about: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Each:
    """A list of tables, of which each is about one field that is chosen.

    Attributes:
        field_key: key of a table that holds the field's name.
        inner: asked of each field; a field without a question left has only its name.
        without: the table where no field is chosen; None: one must be.
    """

    key: str
    text: str
    field_key: str
    inner: tuple[Question, ...]
    of: frozenset[FieldKind] = ANY
    without: Mapping[str, Any] | None = None


def required(model: type[Section]) -> Iterator[Question]:
    """Yield a question for each key that must be written, for a section that does not say what to ask."""
    for name, field in model.model_fields.items():
        if field.is_required():
            yield Question(key=field.alias or name, kind=_kind(field), hints=(name, *_examples(field)))


def _kind(field: FieldInfo) -> AnswerKind:
    if EVENT_FIELD in field.metadata:
        return "field"
    if get_origin(field.annotation) is Literal:
        return "choice"
    example = field.examples[0] if field.examples else ""
    if isinstance(example, list):
        return "numbers" if all(isinstance(each, (int, float)) for each in example) else "texts"
    kinds: Mapping[type, AnswerKind] = {int: "whole", float: "number"}
    arguments = (field.annotation, *get_args(field.annotation))
    return next((kinds[each] for each in arguments if each in kinds), "text")


def _examples(field: FieldInfo) -> tuple[str, ...]:
    return tuple(each for each in field.examples or () if isinstance(each, str))


class DomainSection(Section):
    """`[streams.domain]` of any kind. Public by declaration.

    Attributes:
        names_user: False where records say nothing of users, since they are summed up upstream; then `privacy` names
            no user and no bound either.
        outside: what becomes of events outside, as a sentence.
    """

    header: ClassVar[str] = "[streams.domain]"
    names_user: ClassVar[bool] = True
    outside: ClassVar[str] = "Events outside are refused and counted."

    kind: str

    @classmethod
    def questions(cls) -> tuple[Question | Each, ...]:
        """Return what `privstream init` asks for this section, in order."""
        return tuple(required(cls))

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """Fields of the raw event that the domain reads and that a synthetic record holds, in order."""

    @property
    def coordinates(self) -> tuple[str, str] | None:
        """Fields of a synthetic record that hold x and y of its place; None where it has none."""
        return None

    @property
    def in_degrees(self) -> bool:
        """Return whether `coordinates` are longitudes and latitudes, as far as the configuration tells."""
        return False

    @property
    def operation_field(self) -> str | None:
        """Field that holds `insert` or `delete`, or None where every event is an insert."""
        return None

    @property
    def trip_field(self) -> str | None:
        """Field whose value several records share that are ONE contribution, a trip; None where each is its own."""
        return None

    @property
    def lifetime(self) -> Length | None:
        """Time after which an insert is deleted by itself, or None."""
        return None

    @property
    def deletion_key(self) -> str | None:
        """The key by which events are deleted, `op` or `ttl`; None where they stay."""
        if self.operation_field is not None:
            return "op"
        return "ttl" if self.lifetime is not None else None

    def roles(self) -> Iterator[tuple[str, str]]:
        """Yield keys of this section, each with the field of the raw event that it names; no field may have two."""
        for name, field in type(self).model_fields.items():
            if EVENT_FIELD in (*field.metadata, *types_in(field.annotation)) and (named := getattr(self, name)):
                yield name, named


class DeletableDomainSection(DomainSection):
    """A domain whose events can be deleted, by an event of their own or by time."""

    op: FieldName | None = Field(None, examples=["action"])
    """Field that holds `insert` or `delete`; absent: every event is an insert."""
    ttl: StepLength | None = Field(None, examples=["30d"])
    """Time after which an insert is deleted by itself, in whole steps, `"30 days"` with steps of the calendar; absent:
    never."""

    @property
    def operation_field(self) -> str | None:
        return self.op

    @property
    def lifetime(self) -> Length | None:
        return self.ttl

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse two ways to delete."""
        if self.op is not None and self.ttl is not None:
            yield ConfigProblem(
                "ttl", "op and ttl would both delete the same events", "keep op or ttl, and remove the other"
            )
