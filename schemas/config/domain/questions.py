"""What `privstream init` asks for a section, beside what every stream is asked. A model or an engine says it once.

Guarantee: a question says what of a PUBLIC file can answer it; what private records hold answers nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from schemas.config.section import Section
from schemas.config.values import EVENT_FIELD

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
        key: of the section, or, in an `EngineSpec`, below the stream, as `options.horizon`.
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
        field_key: of a table, for the field's name.
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
    """A question for each key that must be written: what a section is asked that says nothing of its own."""
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
