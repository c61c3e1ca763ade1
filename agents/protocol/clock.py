"""Public steps of time: which of them an event joins, and how many are over.

Which times a step covers is said by `schemas.steps`. All times are int64 microseconds since 1970 UTC.
The step of an event is a pure function of the event and of the ticks before it in its partition, see
`StepClock.assign`: never of batch boundaries or other people's records, or one person's events could move another's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schemas.arrays import IntArray, ReasonArray
from schemas.config import Stream
from schemas.errors import ConfigError, RecordError
from schemas.events import Reason, Tick, read_tick
from schemas.releases import STEP_LIMIT
from schemas.steps import Steps


def usable_tick(value: bytes | None) -> Tick | None:
    """Return what a tick says; None where nobody could mean it."""
    try:
        tick = read_tick(value or b"")
    except RecordError:
        return None
    return tick if tick.step < STEP_LIMIT else None


@dataclass(frozen=True, slots=True)
class StepClock:
    """Assigns events to public steps; its settings are public constants.

    Attributes:
        steps: where each begins and ends.
        max_ahead: whole steps that an event may lie beyond the open step.
    """

    steps: Steps
    max_ahead: int

    @classmethod
    def from_stream(cls, stream: Stream) -> StepClock:
        """Return the clock of a configured stream. Raises: ConfigError while it starts "now": `run` resolves that."""
        steps = stream.time.steps
        if steps is None:
            key = f"streams.{stream.name}.time.start"
            raise ConfigError.of(key, 'is "now", and nothing has set it yet', "write the local time of step 0")
        return cls(steps, stream.time.max_ahead)

    def step_of(self, times_us: IntArray) -> IntArray:
        """Return the step that covers each time; negative before the start."""
        return self.steps.indices(times_us)

    def start_of(self, step: int) -> int:
        return self.steps.begin(step)

    def end_of(self, step: int) -> int:
        """Return the first microsecond after the step."""
        return self.start_of(step + 1)

    def last_over(self, now_us: int, *, grace_us: int) -> int:
        """Return the last step whose end plus grace is reached, of all that there can be; -1 or less before any.

        >>> from schemas.steps import FixedSteps
        >>> StepClock(FixedSteps(start_us=100, step_us=10), max_ahead=1).last_over(125, grace_us=5)
        1
        """
        return min(self.steps.index(now_us - grace_us), STEP_LIMIT) - 1

    def assign(
        self, times_us: IntArray, *, ticked: IntArray | int, arrivals_us: IntArray | None = None
    ) -> tuple[IntArray, ReasonArray]:
        """Return the step that each event joins: its own, or the open one where its own is already closed.

        Args:
            ticked: last closed step before each event in its partition, -1 before any.
            arrivals_us: the records' own Kafka timestamps, below 0 where there is none: after an outage, and while
                history is replayed, the open step lags, and events that arrived in their own step are not "ahead".
        Returns: steps, and reasons (0 where the step means something).

        | event                                     | step or reason  |
        |-------------------------------------------|-----------------|
        | before the start                          | BEFORE_START    |
        | in a closed step                          | the open step   |
        | in the open step, or up to max_ahead later | its own step    |
        | later, or none of the first `STEP_LIMIT`  | TOO_FAR_AHEAD   |
        """
        own = self.step_of(times_us)
        open_step = np.asarray(ticked, np.int64) + 1
        reasons = np.zeros(len(own), np.uint8)
        present = open_step
        if arrivals_us is not None:
            present = np.maximum(open_step, np.where(arrivals_us < 0, -1, self.step_of(arrivals_us)))
        joined = np.maximum(own, open_step)
        # Bounds, blocks and public records have no room for more steps.
        reasons[(own > present + self.max_ahead) | (joined >= STEP_LIMIT)] = Reason.TOO_FAR_AHEAD
        reasons[own < 0] = Reason.BEFORE_START
        return joined, reasons


MANY_STEPS = 10_000
STEPS_PER_S = 100  # about what one worker publishes of empty steps on a busy machine, see benchmarks/backlog.py


def steps_over(stream: Stream, now_us: int) -> int:
    """Return how many steps are over that a new stream would publish first; 0 where it starts now, or is a replay."""
    if stream.time.clock == "replay" or stream.time.start_us is None:
        return 0
    return max(0, StepClock.from_stream(stream).last_over(now_us, grace_us=stream.time.grace_us) + 1)


def time_for(steps: int) -> str:
    """Return what publishing so many steps takes.

    >>> time_for(300), time_for(60_000), time_for(21_600_000)
    ('3 seconds', '10 minutes', '60 hours')
    """
    seconds = steps / STEPS_PER_S
    if seconds < 120:
        return f"{seconds:,.0f} seconds"
    return f"{seconds / 3600:,.0f} hours" if seconds >= 7200 else f"{seconds / 60:,.0f} minutes"


def backlog_sentence(steps: int) -> str:
    """Return what publishing so many steps takes, and what to do.

    >>> backlog_sentence(21_600_000).partition(".")[0]
    '21,600,000 steps are over and not published; they come first, empty or not, which takes about 60 hours'
    """
    return (
        f"{steps:,} steps are over and not published; they come first, empty or not, which takes about "
        f"{time_for(steps)}. Where "
        'that is not meant: a new stream under another name with a later [streams.time] start, or start = "now" '
        '(docs/operations.md, "Many steps are over")'
    )


def backlog_remark(stream: Stream, now_us: int) -> str | None:
    """Return what an operator should know of a stream that has not run yet; None where it is nothing."""
    steps = steps_over(stream, now_us)
    return f"if the stream is new, {backlog_sentence(steps)}" if steps > MANY_STEPS else None
