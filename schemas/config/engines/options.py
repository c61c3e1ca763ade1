"""The base of the options of all engines, and types that several engines share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
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


class OnlyIn:
    """A mark in the type of an option that has an effect in these modes alone. In others the option is refused."""

    def __init__(self, *modes: str) -> None:
        self.modes = modes


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

    @classmethod
    def only_in(cls) -> Mapping[str, tuple[str, ...]]:
        """Return the modes in which an option has an effect, of those that have none in others."""
        return {
            name: each.modes
            for name, field in cls.model_fields.items()
            for each in field.metadata
            if isinstance(each, OnlyIn)
        }

    @classmethod
    def without_effect(cls, mode: str) -> frozenset[str]:
        """Return names of options that have no effect in a mode."""
        return frozenset(name for name, modes in cls.only_in().items() if mode not in modes)

    def mode_problems(self, mode: str) -> Iterator[ConfigProblem]:
        """Refuse options that are set and have no effect in a mode. Keys are relative to the stream."""
        for name, modes in sorted(self.only_in().items()):
            field = type(self).model_fields[name]
            if mode not in modes and getattr(self, name) != field.default:
                yield ConfigProblem(
                    f"options.{field.alias or name}",
                    f'has no effect in mode "{mode}"',
                    "remove the key, or set mode = " + " or ".join(f'"{each}"' for each in modes),
                )

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
