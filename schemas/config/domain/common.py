"""What every domain model has, whatever its kind."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import Field

from schemas.config.domain.questions import Each, Question, required
from schemas.config.section import Section
from schemas.config.values import FieldName, StepLength
from schemas.errors import ConfigProblem
from schemas.steps.lengths import Length, length_fields


class DomainSection(Section):
    """`[streams.domain]` of any kind. Public by declaration.

    Attributes:
        names_user: False where records say nothing of users, since they are summed up upstream; then `privacy` names
            no user and no bound either.
        outside: what becomes of events outside, as a sentence.
    """

    names_user: ClassVar[bool] = True
    outside: ClassVar[str] = "Events outside are refused and counted."

    kind: str

    @classmethod
    def questions(cls) -> tuple[Question | Each, ...]:
        """What `privstream init` asks for this section, in order."""
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
        """Whether `coordinates` are longitudes and latitudes, as far as the configuration tells."""
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
    def ttl_fields(self) -> dict[str, Any]:
        """`lifetime` among `fingerprint_fields`."""
        return length_fields("ttl", self.lifetime)

    @property
    def deletion_key(self) -> str | None:
        """The key by which events are deleted, `op` or `ttl`; None where they stay."""
        if self.operation_field is not None:
            return "op"
        return "ttl" if self.lifetime is not None else None

    def roles(self) -> Iterator[tuple[str, str]]:
        """(key of this section, field of the raw event that it names), each field once: none may have two roles."""
        yield from ()

    @abstractmethod
    def fingerprint_fields(self) -> dict[str, Any]:
        """Everything here that the guarantee and the meaning of stored states rest on: ints, texts, floats, None."""


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

    def roles(self) -> Iterator[tuple[str, str]]:
        if self.op is not None:
            yield "op", self.op

    def problems(self) -> Iterator[ConfigProblem]:
        """Two ways to delete."""
        if self.op is not None and self.ttl is not None:
            yield ConfigProblem(
                "ttl", "op and ttl would both delete the same events", "keep op or ttl, and remove the other"
            )
