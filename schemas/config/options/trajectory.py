"""`[streams.options]` of engine `trajectory`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal

from pydantic import Field

from schemas.config.domain.common import DomainSection
from schemas.config.domain.trips import TripsDomainSection
from schemas.config.options.common import TripOptionsSection
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import Flag, PositiveDuration, Whole, microseconds
from schemas.errors import ConfigProblem

MOST_STEPS = 10_000


class TrajectoryOptions(TripOptionsSection):
    """`[streams.options]` of engine `trajectory`."""

    idle: PositiveDuration = Field(timedelta(minutes=10), examples=["10m"])
    """A trip without a record for so long is over; counted in whole steps, rounded up."""
    longest: PositiveDuration = Field(timedelta(days=1), examples=["6h"])
    """A trip is cut after so long; what comes later under its name is another trip, and charged anew."""
    max_points: Whole = Field(1024, ge=2, le=100_000, examples=[1024])
    """Points of a trip that count, the first by time."""
    max_moves: Whole = Field(250, ge=1, le=10_000, examples=[250])
    """Moves between cells of a trip that count, and of a synthetic one."""
    side: Whole = Field(40, ge=4, le=48, examples=[40])
    """Mode `default`: cells along each side of the finest grid, a multiple of 4; few trips get a coarser one."""
    spread: Literal["uniform", "exponential"] = Field("uniform", examples=["uniform"])
    """Mode `paper`: how a trip's weight is spread over its transitions; `exponential` favours its ends."""
    records: Flag = True
    """False: only measurements are published, no synthetic trips."""

    def life_steps(self, shortest_us: int) -> int:
        """Steps in which records of a trip pass, the first one's included: enough for a trip of `longest`."""
        return -(-microseconds(self.longest) // shortest_us) + 1

    def idle_steps(self, shortest_us: int) -> int:
        """`idle` in whole steps, rounded up; of the shortest step where they differ, so that no trip ends too soon."""
        return -(-microseconds(self.idle) // shortest_us)

    def problems(self) -> Iterator[ConfigProblem]:
        """What the options say against each other."""
        if self.side % 4:
            yield ConfigProblem("side", "is no multiple of 4", "set side = 40")

    def in_mode(self, mode: str) -> Iterator[ConfigProblem]:
        """Options of other modes."""
        if self.spread != "uniform" and mode != "paper":
            yield ConfigProblem("spread", f'mode "{mode}" has no spread', 'remove the key, or set mode = "paper"')

    def in_stream(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Trips that live for too many steps, a map in a mode that keeps to none."""
        if mode != "default" and isinstance(domain, TripsDomainSection) and domain.file is not None:
            yield ConfigProblem(
                "domain.file", f'mode "{mode}" keeps to no map', 'remove the key, or set mode = "default"'
            )
        if time is not None and self.life_steps(time.shortest_us) > MOST_STEPS:
            yield ConfigProblem(
                "options.longest", f"is more than {MOST_STEPS} steps", "lower it, or make time.step longer"
            )

    def fingerprint_fields(self) -> dict[str, Any]:
        return {
            "idle_us": microseconds(self.idle),
            "longest_us": microseconds(self.longest),
            "max_points": self.max_points,
            "max_moves": self.max_moves,
            "side": self.side,
            "spread": self.spread,
            "records": int(self.records),
        }
