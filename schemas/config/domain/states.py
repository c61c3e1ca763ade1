"""`kind = "states"`: in each step every user is in one of several public states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from schemas.config.domain.common import DomainSection
from schemas.config.domain.questions import TEXTS, Each, Question
from schemas.config.domain.transition import Entries, entries
from schemas.config.files import PublicFileAt
from schemas.config.section import refusal
from schemas.config.values import FieldName, Whole
from schemas.errors import ConfigProblem


def _values(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) < len(values):
        raise refusal("name one state twice", "write every state once")
    if not all(values):
        raise refusal("hold an empty text", "name every state; leave out events without one")
    return values


class StatesDomainSection(DomainSection):
    """`kind = "states"`. A record says that its user is in a state in the step of its time."""

    kind: Literal["states"] = "states"
    field: FieldName = Field(examples=["zone"])
    """Field of the raw event that holds the state, a text."""
    values: Annotated[
        tuple[Annotated[str, Field(strict=True)], ...], Field(min_length=1, max_length=100_000), AfterValidator(_values)
    ] = Field(examples=[["north", "south"]])
    """All states, in order."""
    population: Whole = Field(ge=1, le=2**40, examples=[5000])
    """Users in all; declared, never counted. Privacy does not rest on its being true, the estimates do."""
    transition: PublicFileAt | None = Field(None, examples=["matrix.csv"])
    """CSV file with the probabilities of moving from one state to another; absent: learnt from released counts."""
    unseen: Annotated[bool, Field(strict=True)] = Field(False, examples=[False])
    """Whether users may be in no state in a step; the matrix then has one more row and column, the last, for them."""

    @classmethod
    def questions(cls) -> tuple[Question | Each, ...]:
        return (
            Question(
                key="field",
                kind="field",
                text="Which field holds the state that a user is in?",
                of=TEXTS,
                hints=("state", "zone", "status", "place"),
            ),
            Question(
                key="values",
                kind="texts",
                text="Which states are there? All of them",
                public="values",
                about=("field",),
            ),
            Question(key="population", kind="whole", text="How many users are there in all? Declared, never counted"),
        )

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)

    @property
    def matrix(self) -> Entries | None:
        """The transition matrix, checked by `problems`; None where it is to be learnt."""
        return None if self.transition is None else entries(self.transition.content, self.values, unseen=self.unseen)

    def roles(self) -> Iterator[tuple[str, str]]:
        yield "field", self.field

    def problems(self) -> Iterator[ConfigProblem]:
        """A file that is no transition matrix of these states."""
        if (matrix := self.matrix) is not None and matrix.problem is not None:
            yield ConfigProblem("transition", *matrix.problem)

    def fingerprint_fields(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "field": self.field,
            "values": list(self.values),
            "population": self.population,
            "transition": None if self.transition is None else self.transition.sha256,
            "unseen": int(self.unseen),
        }
