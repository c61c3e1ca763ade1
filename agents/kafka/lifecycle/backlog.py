"""How many steps are over before a stream begins: each is published, the empty ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.protocol.clock import StepClock

if TYPE_CHECKING:
    from schemas.config import Stream

MANY_STEPS = 10_000
STEPS_PER_S = 100  # about what one worker publishes of empty steps on a busy machine, see benchmarks/backlog.py


def steps_over(stream: Stream, now_us: int) -> int:
    """Steps that are over and that a new stream would publish first; 0 where it starts now, or a replay says when."""
    if stream.time.clock == "replay" or stream.time.start_us is None:
        return 0
    return max(0, StepClock.of(stream).last_over(now_us, grace_us=stream.time.grace_us) + 1)


def time_for(steps: int) -> str:
    """What publishing so many steps takes.

    >>> time_for(300), time_for(60_000), time_for(21_600_000)
    ('3 seconds', '10 minutes', '60 hours')
    """
    seconds = steps / STEPS_PER_S
    if seconds < 120:
        return f"{seconds:,.0f} seconds"
    return f"{seconds / 3600:,.0f} hours" if seconds >= 7200 else f"{seconds / 60:,.0f} minutes"


def backlog_sentence(steps: int) -> str:
    """What publishing so many steps takes, and what to do.

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
    """What an operator should know of a stream that has not run yet; None where it is nothing."""
    steps = steps_over(stream, now_us)
    return f"if the stream is new, {backlog_sentence(steps)}" if steps > MANY_STEPS else None
