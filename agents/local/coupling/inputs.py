"""Neighbouring inputs: raw records of many people over many steps, with and without those of one protected unit.

Events come late, ahead of time, in bursts and not at all; those of the unit are spread over the steps, in few steps, or
more than the bound accepts. A removed record leaves a hole: all others keep their offsets.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.local.coupling.written import written
from agents.protocol.clock import StepClock
from agents.protocol.ingest.events import RawRecord
from agents.protocol.partitioner import Partitioner, partitions_of
from agents.protocol.release.public_records import raw_time
from agents.protocol.userhash import IdBytes
from engines.checks.contract_case import contract_case
from schemas.config import Stream
from schemas.config.split import SplitPart
from schemas.events import TICK_HEADER, encode_tick

Fields = dict[str, Any]


def event(stream: Stream, chance: random.Random, *, hot: bool, place: int = 0) -> Fields:
    """Draw the fields of one event. `hot`: all such events of one `place` are alike."""
    return contract_case(stream.engine).event(stream.domain, random.Random(7 + place) if hot else chance)


def other(stream: Stream, chance: random.Random, fields: Fields) -> Fields | None:
    """Draw a replacement for the fields of an event: another event, or a reading within the declared sensitivity.

    Returns: None where there is no other event, as of a stream with one state, whose records nothing can replace.
    """
    domain: Any = stream.domain
    if getattr(domain, "readings", False):
        return {
            field.name: fields[field.name]
            + chance.choice([-1, 1]) * chance.choice([1.0, chance.random()]) * field.sensitivity
            for field in domain.series
        }
    drawn = (event(stream, chance, hot=False) for _ in range(DRAWN))
    return next((found for found in drawn if found != fields), None)


DRAWN = 100
"""Events, one of which is another one than a given one, unless there is none."""
UNIT = "ann"
QUIET = 4
"""First steps in which, in one arrangement of four, there are few other events beside those of the unit."""
COPY = "copy"
"""Field of a record of which `[streams.map]` computes something: all other fields once more."""
SPREAD = 10_000
"""From so many events in a burst on, they are anywhere, and records have Kafka timestamps, which go back and forth."""


@dataclass(frozen=True, slots=True)
class Sent:
    """An event: sent while step `sent` is open, about step `about`; `instead` is what replaces its fields, if anything:
    else one of the unit is left out.

    Attributes:
        unit: whether it is one of those in which the inputs differ.
        dearest: whether it counts for certain.
    """

    sent: int
    about: int
    user: str
    fields: dict[str, Any]
    delete: bool = False
    unit: bool = False
    instead: dict[str, Any] | None = None
    dearest: bool = False


@dataclass(frozen=True, slots=True)
class Inputs:
    """Records of each source partition, of the first input and of its neighbour."""

    first: list[list[RawRecord]]
    second: list[list[RawRecord]]
    arrangement: str


Unit = Callable[[Stream, random.Random, int], list[Sent]]
"""Function that draws all events of one unit, given a stream, a source of chance and a number of steps."""


def inputs(stream: Stream, chance: random.Random, *, steps: int, crowd: int, unit: Unit | None = None) -> Inputs:
    """Draw neighbouring inputs of a stream whose source has one partition or two.

    Args:
        steps: number of steps.
        crowd: number of events of a burst; there are a few bursts.
        unit: draws the events in which the inputs differ; None for `_unit`.
    """
    clock = StepClock.from_stream(stream)
    arrangement = chance.choice(["spread", "bunched", "early", "many"])
    quiet = QUIET if arrangement == "early" else 0

    def own() -> list[Sent]:
        return _unit(stream, chance, arrangement, steps=steps) if unit is None else unit(stream, chance, steps)

    if crowd >= SPREAD:
        # Where the unit is, there are many: only then do they show what is done to them because of it.
        events = own()
        events += _others(stream, chance, range(steps), bursts={chance.choice(events).sent: crowd})
    else:
        readings = getattr(stream.domain, "readings", False)
        busy = [] if readings else chance.sample(range(quiet, steps), k=max(1, (steps - quiet) // 12))
        bursts = {step: chance.choice([crowd // 4, crowd]) for step in busy}
        events = [
            *_others(stream, chance, range(quiet, steps), bursts=bursts),
            *_neighbours_of_unit(stream, chance, range(quiet)),
            *own(),
        ]
    chance.shuffle(events)
    events.sort(key=lambda sent: sent.sent)
    partitions = chance.choice([1, 2]) if stream.placed_by != "none" and stream.privacy.bounds_users else 1
    first: list[list[RawRecord]] = [[] for _ in range(partitions)]
    second: list[list[RawRecord]] = [[] for _ in range(partitions)]
    offsets = [0] * partitions
    at = 0
    for step in range(steps):
        while at < len(events) and events[at].sent == step:
            sent = events[at]
            home = _home(stream.placed_by, sent.user, partitions)
            stamped = _within(clock, step, chance) // 1000 if crowd >= SPREAD else -1
            at_us = _moment(clock, sent.about, offsets[home])
            record = _record(stream, sent, offsets[home], sent.fields, at_us, stamped)
            first[home].append(record)
            if sent.instead is not None:
                second[home].append(_record(stream, sent, offsets[home], sent.instead, at_us, stamped))
            elif not sent.unit:
                second[home].append(record)
            offsets[home] += 1
            at += 1
        for home in range(partitions):
            tick = RawRecord(offsets[home], -1, None, b"", ((TICK_HEADER, encode_tick(step, row=0, source="couple")),))
            first[home].append(tick)
            second[home].append(tick)
            offsets[home] += 1
    return Inputs(first, second, arrangement)


def _neighbours_of_unit(stream: Stream, chance: random.Random, steps: range) -> list[Sent]:
    """Draw a few events, and deletes, at the place of the unit's events, so that counts come close to thresholds."""
    if getattr(stream.domain, "readings", False):
        return []
    made = []
    for step in steps:
        for index in range(chance.randint(0, 30)):
            place = chance.choice([0, 0, 1, 2]) if stream.domain.operation_field is not None and step else 0
            fields = event(stream, chance, hot=True, place=place)
            made.append(Sent(step, step, f"near {step}.{index}", fields, delete=place > 0))
    return made


def _others(stream: Stream, chance: random.Random, steps: range, *, bursts: Mapping[int, int]) -> list[Sent]:
    if getattr(stream.domain, "readings", False):
        return []
    deletes = stream.domain.operation_field is not None
    made = []
    for step in steps:
        for index in range(chance.choice([0, 2, 8, 20])):
            about = max(0, step + chance.choice([0] * 8 + [-1, -2, 1, min(2, stream.time.max_ahead)]))
            fields = event(stream, chance, hot=False)
            user = chance.choice([f"user {step}.{index}", f"user {index}"])
            made.append(Sent(step, about, user, fields, delete=deletes and chance.random() < 0.25))
        for index in range(bursts.get(step, 0)):
            hot = bursts[step] < SPREAD or index % 4 == 0
            fields = event(stream, chance, hot=hot, place=index % 3 if deletes else 0)
            if stream.domain.trip_field is not None:
                fields |= {stream.domain.trip_field: "t"}
            made.append(Sent(step, step, f"crowd {step}.{index}", fields, delete=deletes and index % 3 == 2))
    return made


def _unit(stream: Stream, chance: random.Random, arrangement: str, *, steps: int) -> list[Sent]:
    """Draw the unit's events, within one aligned period where the bound renews."""
    privacy, domain = stream.privacy, stream.domain
    most = privacy.max_contributions or 1
    span = span_of(stream, chance, steps)
    if getattr(domain, "readings", False):
        return _readings(stream, chance, span, steps=steps)
    if privacy.unit == "event":
        places = [chance.choice(span[: QUIET if arrangement == "early" else None])]
    elif arrangement == "spread":
        places = [span[index * len(span) // most % len(span)] for index in range(most)]
    elif arrangement == "bunched":
        begin = chance.randrange(len(span))
        per_step = privacy.max_per_step or chance.choice([1, most])
        places = [span[min(begin + index // per_step, len(span) - 1)] for index in range(most)]
    elif arrangement == "early":
        places = [span[min(index, len(span) - 1)] for index in range(most)]
    else:
        places = [chance.choice(span) for _ in range(2 * most + 2)]
    deletes = domain.operation_field is not None
    made = []
    for step in places:
        fields = event(stream, chance, hot=arrangement == "early" or chance.random() < 0.5)
        instead = other(stream, chance, fields) if privacy.unit == "replace" else None
        delete = deletes and chance.random() < 0.4
        made.append(Sent(step, step, UNIT, fields, delete=delete, unit=True, instead=instead))
        if domain.trip_field is not None:
            # Several points of a trip, in this step and in the next ones.
            trip = {domain.trip_field: fields[domain.trip_field]}
            for later in range(chance.choice([0, 2, 6])):
                at = min(step + later // 2, steps - 1)
                if at in span:
                    made.append(Sent(at, at, UNIT, event(stream, chance, hot=False) | trip, unit=True))
    return made


def _readings(stream: Stream, chance: random.Random, span: list[int], *, steps: int) -> list[Sent]:
    """Draw a reading in nearly every step; within the span each may differ by its sensitivity."""
    made = []
    for step in range(steps):
        if chance.random() < 0.1:
            continue
        fields = event(stream, chance, hot=False)
        unit = step in span
        made.append(Sent(step, step, "", fields, unit=unit, instead=other(stream, chance, fields) if unit else None))
    return made


def span_of(stream: Stream, chance: random.Random, steps: int) -> list[int]:
    """Draw the steps in which a unit may differ: one aligned period, or all, or all but the last ones, or late ones."""
    # Beyond a horizon nothing is measured.
    steps = min(steps, getattr(stream.options, "horizon", None) or steps)
    period = stream.period_steps
    if period is None:
        return list(range(steps))[chance.choice([slice(None), slice(max(1, steps - 14)), slice(steps // 2, None)])]
    begin = period * chance.randrange(max(1, steps // period))
    return list(range(begin, min(begin + period, steps)))


@functools.cache  # the same people come in each input
def _home(partitioner: Partitioner, user: str, partitions: int) -> int:
    if partitions == 1:
        return 0
    return int(partitions_of(IdBytes.from_ids([user]), partitioner=partitioner, partitions=partitions)[0])


def _moment(clock: StepClock, step: int, offset: int) -> int:
    """Return microseconds since 1970 of a record: another second of its step for each offset."""
    begin = clock.start_of(step)
    return begin + offset * 1_000_000 % (clock.end_of(step) - begin)


def _within(clock: StepClock, step: int, chance: random.Random) -> int:
    """Draw a second of a step, in microseconds since 1970."""
    begin = clock.start_of(step)
    return begin + chance.randrange(max(1, (clock.end_of(step) - begin) // 1_000_000)) * 1_000_000


def _record(stream: Stream, sent: Sent, offset: int, fields: dict[str, Any], at_us: int, stamped: int) -> RawRecord:
    time = stream.time
    words = {time.field: raw_time(at_us, time_format=time.format, timezone=time.timezone), **fields}
    if stream.part is not None:  # of the part that is run, where the domain does not say more of the field
        words.setdefault(stream.part.field, _part(stream.part, sent, offset))
    if stream.privacy.user is not None:
        words[stream.privacy.user] = sent.user
    if stream.domain.operation_field is not None:
        words[stream.domain.operation_field] = "delete" if sent.delete else "insert"
    if stream.map is not None:
        words[COPY] = {**words}
        if offset % 5 == 0:  # what is computed is found in the copy, if anywhere
            words = {name: value for name, value in words.items() if name not in stream.map.fields}
    # Two events of one record are for units whose events are many; the dearest one is to count as it is.
    key, value, headers = written(stream, words, 1 if sent.dearest else offset)
    return RawRecord(offset, stamped, key or sent.user.encode(), value, tuple(headers))


def _part(part: SplitPart, sent: Sent, offset: int) -> str | int:
    """Return the value by which an event is in a part: now and then in another one, or in none."""
    other_parts = [value for values in part.parts.values() for value in values if value not in part.values]
    values = [*part.values * 4, *other_parts, "in no part"]
    return part.values[0] if sent.dearest else values[offset % len(values)]
