"""A user's epsilon for each of the user's events: noise for one contribution where the bound lets several through.

Each event alone keeps the claim, so an audit of single events passes; what is promised something is the user. An honest
engine runs at epsilon over the number of contributions (`Stream.event_epsilon`).
"""

from __future__ import annotations

from engines.auditor.cases import Case
from tests.audit.user_events import user_case

CONTRIBUTIONS = 4
"""In as many steps."""


def _case(name: str, *, sensitivity: int) -> Case:
    private = [[10] * CONTRIBUTIONS, [11] * CONTRIBUTIONS]
    return user_case(name, "a user with an event in every step", private, sensitivity=sensitivity)


def cheat() -> Case:
    return _case("noise for one event of a user", sensitivity=1)


def honest() -> Case:
    return _case("noise for all events of a user", sensitivity=CONTRIBUTIONS)
