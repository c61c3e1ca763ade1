"""Who sends what in the audit of a stream: the units whose presence an adversary has to guess.

Together: a unit in each step of a run, each a user of its own, or an event. Where the bound renews, the user of a
period's last step sends as much again in the first step of the next: two units, since each period has its promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agents.presentation.contract import Fields
from schemas.config import Stream

AUDITED = "audited-user"
"""Begin of the names of users that are or are not there."""
EVERYWHERE = "one user in every reading"
OVER = 1
"""Events beyond the bound that a user sends all the same."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One raw event: its step, user and operation; `fields` are all its others."""

    step: int
    user: str
    fields: Fields
    operation: str = "insert"


@dataclass(frozen=True, slots=True)
class Unit:
    """Attributes:

    kind: a row of the audit. step: the first one in which it sends. place: where. sent: what.
    facts: what of `cases.COVERED` it stands for.
    """

    kind: str
    step: int
    place: str
    sent: tuple[Sent, ...]
    facts: tuple[str, ...] = ()


def events_sent(stream: Stream) -> int:
    """By a unit, some of them in vain."""
    return (stream.privacy.max_contributions or 1) + OVER if stream.privacy.bounds_users else 1


def alone(stream: Stream, places: Mapping[str, Fields], *, early: int, late: int) -> Iterator[tuple[str, list[Sent]]]:
    """What one unit may send, by name: early, late or both, everywhere, inserts or deletes."""
    count = events_sent(stream)
    operations = ["insert", "delete"] if stream.domain.operation_field is not None else ["insert"]
    moments = {"early step": [early], "late step": [late]}
    if stream.privacy.bounds_users and count - OVER > 1:
        moments["spread over steps"] = [early, late, late + 1][: None if early == 0 else 2]
    for place, fields in places.items():
        for moment, steps in moments.items():
            for operation in operations:
                sent = [Sent(steps[i % len(steps)], AUDITED, fields, operation) for i in range(count)]
                yield f"{operation}, {moment}, {place}", sorted(sent, key=lambda each: each.step)


def together(
    stream: Stream, places: Mapping[str, Fields], *, steps: range, period: int | None, gathered: int
) -> list[Unit]:
    """A unit in each of `steps`, of all kinds in turns.

    Args:
        period: steps after which the bound renews, if it does. gathered: step of the first release.
    """
    kinds = [("insert", place, False) for place in places]
    if stream.domain.operation_field is not None:
        # A delete takes away what others have inserted in the steps before.
        kinds.append(("delete", next(iter(places)), False))
    if events_sent(stream) - OVER > 1:
        kinds.append(("insert", next(iter(places)), True))
    units = []
    for index, step in enumerate(steps):
        operation, place, spread = kinds[index % len(kinds)]
        last = step if period is None else (step // period + 1) * period - 1
        user, facts = f"{AUDITED}-{step}", []
        if period is not None and 1 < period <= len(steps):
            renews = step % period in (period - 1, 0)
            user = f"{AUDITED}-renewed-{(step + 1) // period}" if renews else user
            facts += ["period's end"] if step == last and step + 1 in steps else []
        facts += [operation] if operation == "delete" else []
        facts += ["first release"] if step <= gathered else []
        facts += ["ttl"] if stream.ttl_steps is not None else []
        count = events_sent(stream)
        at = [min(step + (i % 2 if spread else 0), last) for i in range(count)]
        sent = tuple(Sent(when, user, places[place], operation) for when in sorted(at))
        kind = f"{operation}, {place}" + (", spread over steps" if spread else "")
        units.append(Unit(kind, step, place, sent, tuple(facts)))
    return units
