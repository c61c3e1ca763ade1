"""A bound that forgets at the end of a period though one release depends on several periods.

The first release counts all that was gathered, and the bound renewed in between: a user of m contributions moves it by
m for each period that it covers, under noise for m. A renewing bound promises epsilon for what joins ONE period
(section 5 of docs/guarantee.md); who claims it for a release, or for all of a user's events, must bound them over as
much. Unlike `forgetful_bound`, where a worker that takes over forgets, nothing is lost here: the table does as it was
told.
"""

from __future__ import annotations

from agents.protocol.ingest.bounds import Bounds, BoundSpec
from engines.auditor.cases import Case
from tests.audit.user_events import AUDITED, UserEvents, user_case

CONTRIBUTIONS = 2
GATHERED = 6
"""Steps before the first release."""
PERIOD = 2


def counted(events: UserEvents, *, period_steps: int | None) -> int:
    """Events that the job's own table lets into the first release, step by step, as ingest asks it."""
    bounds = Bounds(BoundSpec(max_contributions=CONTRIBUTIONS, period_steps=period_steps))
    total = 0
    for step in range(GATHERED):
        here = events.steps == step
        accepted, _, _ = bounds.accept(events.hashes[here], events.steps[here])
        total += int(accepted.sum())
        bounds.expire(step + 1)
    return total


def _case(name: str, *, period_steps: int | None) -> Case:
    others = [(f"other-{index}", index % GATHERED) for index in range(40)]
    insistent = [(AUDITED, step) for step in range(GATHERED) for _ in range(CONTRIBUTIONS)]
    both = [UserEvents.of(others), UserEvents.of(others + insistent)]
    private = [[counted(events, period_steps=period_steps)] for events in both]
    return user_case(name, "a user who sends in every step", private, sensitivity=CONTRIBUTIONS)


def cheat() -> Case:
    return _case("a bound that renews within a release", period_steps=PERIOD)


def honest() -> Case:
    return _case("a bound over the whole release", period_steps=GATHERED)
