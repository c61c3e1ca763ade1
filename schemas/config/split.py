"""`[streams.split]`: one stream as several, each of which has the events with some values of a field.

`Stream.parts` makes these streams when a configuration is read, so that all else sees ordinary streams: each has its
own name, topics, engine and account. Guarantee: an event is in one part at most, because the part is looked up by one
value of the event, and no value is listed twice (docs/guarantee.md, theorem R).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from schemas.config.domain import DomainSection
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import FieldName, Section, refusal
from schemas.errors import ConfigProblem

Value = str | int
Parts = Mapping[str, tuple[Value, ...]]
"""Name of a part -> values of the field."""

MOST_PARTS = 100
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
_FIX = 'write a list of values, of which each is a part, or a table of lists: {north = ["Bronx"], rest = ["Queens"]}'


def part_names(parts: Any) -> list[str]:
    """Return the names of the parts, as far as they are any."""
    if isinstance(parts, Mapping):
        return [str(name) for name in parts]
    return [str(value) for value in parts] if isinstance(parts, (list, tuple)) else []


def _parts(value: Any) -> Parts:
    """Return parts by their names. Raises: the refusal of what is no parts, or of parts that overlap."""
    if isinstance(value, (list, tuple)):
        named: Mapping[Any, Any] = {_value(each, at=f"[{index}]"): [each] for index, each in enumerate(value)}
        if len(named) < len(value):
            raise refusal("lists a value twice", "list each value once")
        named = {str(each): listed for each, listed in named.items()}
    elif isinstance(value, Mapping):
        named = value
    else:
        raise refusal("is neither a list nor a table", _FIX)
    if not 2 <= len(named) <= MOST_PARTS:
        raise refusal(
            f"has {len(named)} parts: a split has 2 or more, and {MOST_PARTS} at most",
            "remove split; to leave events out, write drop in [streams.map]" if len(named) < 2 else "group values",
        )
    found: dict[str, tuple[Value, ...]] = {}
    owners: dict[Value, str] = {}
    for name, listed in named.items():
        if not _NAME.fullmatch(name):
            raise refusal(
                f'"{name}" cannot be the name of a part, which becomes part of topic names',
                f'name it with letters, digits, _ and - only, such as {{name_of_it = ["{name}"]}}',
                at="" if named is not value else name,
            )
        if not isinstance(listed, (list, tuple)) or not listed:
            raise refusal("is no list of values", "list one value or more in square brackets", at=name)
        found[name] = tuple(_value(each, at=name) for each in listed)
        for each in found[name]:
            if each in owners:
                twice = "twice" if owners[each] == name else f"also in part {owners[each]}"
                reason = f'value "{each}" is {twice}: such an event would be in both, and cost its epsilon in each'
                raise refusal(reason, "list each value in one part", at=name)
            owners[each] = name
    if len({type(each) for each in owners}) > 1:
        raise refusal("has texts and numbers", "write all values in quotes, or none, as the events have them")
    return found


def _value(value: Any, *, at: str) -> Value:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise refusal("a value is neither a text nor a whole number", 'write "Queens", or 7', at=at)
    return value


class SplitSection(Section):
    """`[streams.split]`: the stream is written as several, `<name>-<part>`, that have no event in common."""

    header = "[streams.split]"

    field: FieldName = Field(examples=["borough"])
    """Field of the raw events by whose value an event is in a part; `[streams.map]` may compute it."""
    parts: Annotated[
        Parts,
        PlainValidator(_parts),
        WithJsonSchema({"anyOf": [{"type": "array"}, {"type": "object"}]}),
    ] = Field(examples=[{"manhattan": ["Manhattan"], "rest": ["Bronx", "Queens"]}])
    """Table of parts, each a list of values; or a list of values, each a part. No value is in two. Events with another
    value are refused, and counted by the first part."""

    @property
    def kind(self) -> Literal["text", "number"]:
        """What the values are."""
        return "text" if isinstance(next(iter(self.parts.values()))[0], str) else "number"

    def names(self, stream: str) -> list[str]:
        """Return the names of the streams that a stream of this name is."""
        return [f"{stream}-{part}" for part in self.parts]


class SplitPart(SplitSection):
    """One part of a split, as the stream that it is has it. Made by `Stream.parts` alone: no file can write it.

    Attributes:
        whole: name of the stream that is split.
        part: name of this part.
    """

    header = ""

    whole: str
    part: str

    @property
    def values(self) -> tuple[Value, ...]:
        """The values of this part."""
        return self.parts[self.part]

    @property
    def number(self) -> int:
        """Place of this part among all, from 0."""
        return list(self.parts).index(self.part)

    def fingerprint_fields(self) -> dict[str, Any]:
        """Return what decides which events are in this part. Other parts may be added and regrouped beside it."""
        return {"field": self.field, "values": sorted(self.values, key=str)}


def split_problems(
    split: SplitSection | None, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
) -> Iterator[ConfigProblem]:
    """Yield what breaks the claim of a split, or its meaning; keys are relative to the stream."""
    if split is None:
        return
    key, name = "split.field", split.field
    roles = {
        "time.field": None if time is None else time.field,
        "privacy.user": None if privacy is None else privacy.user,
    }
    if domain is not None:
        roles |= {"domain.op": domain.operation_field}
    for role, field in roles.items():
        if field == name:
            reason = f'field "{name}" already serves as {role}'
            yield ConfigProblem(key, reason, "name a field with few public values, such as a region")
    if privacy is not None and privacy.unit == "replace":
        yield ConfigProblem(
            "split",
            'with unit = "replace" each member of a fixed population is in the stream in every step, and a part would '
            "lack those who are elsewhere",
            "remove split; states of several groups are streams of several topics, each with its own population",
        )
    if domain is None:
        return
    if domain.trip_field is not None:
        yield ConfigProblem(
            "split",
            "records of one trip may have different values of the field, and each part would have a piece of the trip",
            "remove split, and write trips of each kind to a topic and a stream of their own",
        )
    if domain.operation_field is not None and name not in domain.fields:
        yield ConfigProblem(
            key,
            "with op a delete goes to the part that its own value names, and [streams.domain] does not read this "
            "field: a delete that names another one, or none, would leave its insert where it is and be one more "
            "event of another part",
            "split by a field that [streams.domain] reads, which a delete repeats; or use ttl in place of op",
        )
