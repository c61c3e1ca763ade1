"""Sections of which there is one model for each kind: the domain's by its `kind`, the options' by the stream's engine.

Which ones there are is said by the engines that are installed (`discovery`). pydantic puts the tag of the chosen model
into an error's location; `translate` takes it out again, since no key of the file is called so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import BeforeValidator, Discriminator, Tag
from pydantic.fields import FieldInfo

from schemas.config.discovery import DOMAINS, ENGINES
from schemas.config.domain.common import DomainSection
from schemas.config.options.common import OptionsSection
from schemas.config.values import Section, refusal


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


def _choose(value: object) -> object:
    """Refuse kinds without a model before pydantic complains about each of their keys."""
    if isinstance(value, dict):
        kind = value.get("kind")
        available = ", ".join(DOMAINS)
        if "kind" not in value:
            first = next(iter(DOMAINS))
            raise refusal("missing", f'add kind = "{first}" to [streams.domain], or one of {available}', at="kind")
        if not isinstance(kind, str) or kind not in DOMAINS:
            raise refusal(
                f"this kind is not available in this version; available: {available}",
                f'set kind = "{next(iter(DOMAINS))}", or another of them',
                at="kind",
            )
    return value


def _kind(value: Any) -> str | None:
    # Of what is no table at all, any model says so.
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", next(iter(DOMAINS)))
    return kind if isinstance(kind, str) else None


class OfEngine(dict[str, Any]):
    """The raw table of a stream's options, with the engine that says which model reads it."""

    def __init__(self, engine: str, table: Mapping[str, Any]) -> None:
        super().__init__(table)
        self.engine = engine


def _engine(value: Any) -> str | None:
    if isinstance(value, OfEngine):
        return value.engine
    # Of what is no table at all, any model says so.
    return next((name for name, spec in ENGINES.items() if isinstance(value, spec.options)), next(iter(ENGINES)))


if TYPE_CHECKING:
    Domain = DomainSection
    Options = OptionsSection  # each engine reads its own, see `OptionsSection.of`
else:
    Domain = Annotated[tagged(DOMAINS, _kind), BeforeValidator(_choose)]
    Options = tagged({name: spec.options for name, spec in ENGINES.items()}, _engine)
