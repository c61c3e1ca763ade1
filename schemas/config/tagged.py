"""Sections of which there is one model for each kind: the domain's by its `kind`, the options' by the stream's engine.

pydantic puts the tag of the chosen model into an error's location; `translate` takes it out again, since no key of the
file is called so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union

from pydantic import Discriminator, Tag
from pydantic.fields import FieldInfo

from schemas.config.section import Section


def tagged(models: Mapping[str, type[Section]], tag_of: Callable[[Any], str | None]) -> Any:
    """The union of some sections as a type; `tag_of` says of a raw value, or of a section, which it is."""
    members = tuple(Annotated[model, Tag(tag)] for tag, model in models.items())
    return Annotated[Union[members], Discriminator(tag_of)]  # noqa: UP007 - the members are computed


def members_of(field: FieldInfo) -> Mapping[str, type[Section]]:
    """Tag and model of each member where a field is such a union; empty where it is not."""
    if not any(isinstance(each, Discriminator) for each in field.metadata):
        return {}
    annotation: Any = field.annotation
    if isinstance(annotation, type):  # a union of one is that one
        return {next(each.tag for each in field.metadata if isinstance(each, Tag)): annotation}
    found = {}
    for member in annotation.__args__:
        tag = next(each.tag for each in member.__metadata__ if isinstance(each, Tag))
        found[tag] = member.__origin__
    return found
