"""What a stream promises, as one sentence that a person can read out. From the configuration alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from engines.core.accounting.group import group_delta
from schemas.config import format_length
from schemas.steps.lengths import CalendarLength

if TYPE_CHECKING:
    from schemas.config import Privacy, Stream


def promise(stream: Stream) -> str:
    """Who is protected, against what, at what price.

    Epsilon and delta of a sliding window are twice those of an aligned period, because it can touch two of them.
    """
    privacy = stream.privacy
    price = f"epsilon = {_plain(privacy.epsilon)}" + (f", delta = {privacy.delta:g}" if privacy.delta else "")
    if privacy.unit == "event":
        return (
            f"Single events are protected, NOT people: whether any one event was there is hidden with {price} over the "
            f"whole stream; somebody with k events is hidden with {several(privacy)}."
        )
    if privacy.bounds_users:
        events = f"at most {privacy.max_contributions} {stream.contribution}s"
        if privacy.max_per_step:
            events += f", {privacy.max_per_step} a step"
        who = f"Everything that one user (field {privacy.user}) contributes, {events}"
    else:
        who = "Everything that one user contributes to readings that somebody else aggregated, in every step"
    if privacy.per is None:
        return f"{who} in the whole life of the stream, is hidden with {price}."
    period = format_length(privacy.per)
    twice = _plain(2 * privacy.epsilon) + (f" and {2 * privacy.delta:g}" if privacy.delta else "")
    return (
        f"{who} in each aligned period of {period}, is hidden with {price} a period: {twice} over any {period} in a "
        f"row, and adding up from period to period."
    )


def several(privacy: Privacy) -> str:
    """What k changes together are promised, where a unit is one. Deltas of a group grow faster than its size."""
    if not privacy.delta:
        return "k times epsilon"
    two = group_delta(float(privacy.epsilon), privacy.delta, 2)
    return (
        f"k times epsilon and more than k times delta (up to {two:.2g} for k = 2, and e^epsilon times as much for each "
        "one more)"
    )


def record_time(stream: Stream) -> str:
    """What the time of a synthetic record says, and whether records may be counted by it."""
    field = stream.time.field
    if stream.facts.dates_records:
        return f"The {field} of a synthetic record is the begin of the step that it stands for."
    if stream.time.records == "dated":
        return (
            f"The {field} of a synthetic record is the begin of the step whose events it stands for, as far as that "
            "was measured: records may be counted by it, for a trend."
        )
    other = "the ledger or the measurements show it" if stream.domain.deletion_key else 'set records = "dated"'
    return (
        f"The {field} of a synthetic record is the begin of the step that released it, NOT when its events were: do "
        f"not count records by it. For a trend, {other} (docs/time.md)."
    )


def step_warning(stream: Stream) -> str | None:
    """A sentence where steps of whole days of 24 hours do not stay at their place in the day; None elsewhere."""
    time = stream.time
    if not isinstance(time.step, timedelta) or time.step % timedelta(days=1):
        return None
    start = datetime(2025, 1, 1) if time.start == "now" else datetime.fromisoformat(time.start)
    begin = start.replace(tzinfo=time.zone).astimezone(UTC)
    unit, number = ("week", 7) if time.step % timedelta(days=7) == timedelta(0) else ("day", 1)
    for step in range(1, 1 + timedelta(days=400) // time.step):
        at = (begin + step * time.step).astimezone(time.zone)
        if at.time() != start.time():
            calendar = CalendarLength(time.step // timedelta(days=number), "week" if unit == "week" else "day")
            when = "when clocks have changed" if time.start == "now" else f"on {at:%Y-%m-%d}, when clocks have changed,"
            return (
                f"step = {format_length(time.step)} is a duration: {when} a step begins at {at:%H:%M} {time.timezone}. "
                f'In a new stream, step = "{calendar}" goes by the calendar; this one stays as it is.'
            )
    return None


def _plain(number: Decimal) -> str:
    """A decimal without an exponent and without zeros at its end."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
