"""What the options of every engine have, and checks that several share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, ClassVar, Protocol, Self

from schemas.config.domain import DomainSection
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import ExactDecimal, Section, must
from schemas.errors import ConfigProblem


class Optioned(Protocol):
    """A configured stream, of which the options are asked."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> OptionsSection: ...


class OptionsSection(Section):
    """`[streams.options]` of any engine."""

    header: ClassVar[str] = "[streams.options]"

    @classmethod
    def from_stream(cls, stream: Optioned) -> Self:
        """Return the options of a stream of this engine."""
        options = stream.options
        assert isinstance(options, cls), f"stream {stream.name} has the options of another engine"
        return options

    def in_stream(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Yield what these options say against the mode and the other sections, of which None could not be read.

        Keys are relative to the stream.
        """
        return iter(())

    def draws_as_first(self, mode: str, *, one_a_step: bool) -> bool:
        """Return whether a mode with a later version of its noise's law draws, so configured, what the first one drew.

        Args: one_a_step: a unit has one contribution in a step at most.
        """
        return False


class TripOptionsSection(OptionsSection):
    """Options of an engine with a domain of trips, of which all records together are one contribution."""

    @abstractmethod
    def life_steps(self, shortest_us: int) -> int:
        """Return in how many steps records of one trip pass, the first one included.

        Args: shortest_us: what a step has at least, in microseconds.
        """


Share = Annotated[
    ExactDecimal,
    must(
        lambda value: 0 < value < 1,
        "must lie between 0 and 1, both excluded",
        "write 0.5 to give either half of the budget",
    ),
]
"""A part of a budget, exact, between 0 and 1."""
