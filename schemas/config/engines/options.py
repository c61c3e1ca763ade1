"""The base of the options of all engines, and types that several engines share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, ClassVar, Protocol, Self

from schemas.config.domain import DomainSection
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import ExactDecimal, Section, must
from schemas.errors import ConfigProblem


class HasOptions(Protocol):
    """A configured stream, as far as its options are concerned."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> OptionsSection: ...


class OptionsSection(Section):
    """`[streams.options]` of any engine."""

    header: ClassVar[str] = "[streams.options]"

    @classmethod
    def from_stream(cls, stream: HasOptions) -> Self:
        """Return the options of a stream, with the type of this class."""
        options = stream.options
        assert isinstance(options, cls), f"stream {stream.name} has the options of another engine"
        return options

    @property
    def pair_events(self) -> int:
        """Events of a user with one key that count in a period, where a contribution is a pair of both."""
        return 1

    def stream_problems(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Yield contradictions between these options and the mode or the other sections.

        Keys are relative to the stream. A section that could not be read is None.
        """
        return iter(())

    def without_effect(self, mode: str) -> frozenset[str]:
        """Return names of options that have no effect in a mode."""
        return frozenset()

    def draws_first_version(self, mode: str, *, one_a_step: bool) -> bool:
        """Return whether these options make a later version of the noise equal to the first version.

        Args:
            one_a_step: whether a unit has at most one contribution in a step.
        """
        return False


class TripOptionsSection(OptionsSection):
    """Options of an engine with a domain of trips. All records of a trip together are one contribution."""

    @abstractmethod
    def life_steps(self, shortest_us: int) -> int:
        """Return the largest number of steps, the first one included, that records of one trip can be in.

        Args:
            shortest_us: shortest length of a step, in microseconds.
        """


Share = Annotated[
    ExactDecimal,
    must(
        lambda value: 0 < value < 1,
        "must lie between 0 and 1, both excluded",
        "write 0.5 for half of the budget",
    ),
]
"""Share of a budget between 0 and 1, as an exact decimal."""
