"""The clip after the sum: everybody's events are added up first, and the total is clipped to what is plausible.

The noise is for a user's clip C, as if each user moved the sum by C at most. But no user was clipped: one with m events
of v each moves the total by m v, wherever it lies inside of the clip, which is where totals lie. The clip of the total
limits how far it can move at all, C times the number of users. A sum's sensitivity to a user is what bounds that user's
own part of it, before it is added to others'.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter

from engines.auditor.cases import Case
from tests.audit.user_events import AUDITED, user_case

CLIP = 4
OTHERS = 50
SENT = (3, 4, 4)
"""Values of the audited user's events: each within the clip of a user, all together not."""
Summed = Callable[[list[tuple[str, int]]], int]


def each_user(events: list[tuple[str, int]]) -> int:
    """Each user's part is clipped, then added."""
    users = groupby(sorted(events), key=itemgetter(0))
    return sum(min(sum(value for _, value in own), CLIP) for _, own in users)


def the_total(events: list[tuple[str, int]]) -> int:
    """All is added, then clipped."""
    return min(sum(value for _, value in events), CLIP * (OTHERS + 1))


def _case(name: str, summed: Summed) -> Case:
    others = [(f"other-{index}", 2) for index in range(OTHERS)]
    with_user = others + [(AUDITED, value) for value in SENT]
    private = [[summed(others)], [summed(with_user)]]
    return user_case(name, "a user with several values", private, sensitivity=CLIP)


def cheat() -> Case:
    return _case("clip after the sum", the_total)


def honest() -> Case:
    return _case("clip before the sum", each_user)
