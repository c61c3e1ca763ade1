"""A contribution bound that remembers users in a Bloom filter: somebody's presence drops somebody else's events.

A filter never forgets whom it has seen, but takes some for seen who were not: whose every bit others have set. So one
user more, who sets bits, makes it drop events of people who sent nothing but their due. Each user is bounded, and the
sensitivity is not: all that the bound lets through is m events of the user, and the number of others whose events go
with them is limited by the size of the crowd alone. A table of exact names moves nobody else's events (lemma U of
docs/guarantee.md).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agents.protocol.ingest.bounds import Bounds, BoundSpec
from engines.auditor.cases import Case
from tests.audit.user_events import AUDITED, UserEvents, user_case

STEPS = 3
"""In each of them everybody sends one event, so a user has as many contributions."""
BITS = 64
CROWD = 24
Accept = Callable[[UserEvents], np.ndarray]


def exact(events: UserEvents) -> np.ndarray:
    """The job's own table: one event of a user in each step."""
    accepted, _, _ = Bounds(BoundSpec(max_contributions=STEPS, max_per_step=1)).accept(events.hashes, events.steps)
    return accepted


def filtered(events: UserEvents) -> np.ndarray:
    """A Bloom filter of two bits for each user, a new one in each step."""
    accepted = np.zeros(len(events.users), np.bool_)
    seen: dict[int, set[int]] = {}
    for row, (hashes, step) in enumerate(zip(events.hashes.tolist(), events.steps.tolist(), strict=True)):
        bits, known = {each % BITS for each in hashes}, seen.setdefault(step, set())
        accepted[row] = not bits <= known
        known |= bits
    return accepted


def _case(name: str, accept: Accept) -> Case:
    """How many events of the crowd were counted in each step: the audited user is in none of these counts."""
    others = [(f"other-{index}", step) for step in range(STEPS) for index in range(CROWD)]
    private = []
    for audited in ([], [(AUDITED, step) for step in range(STEPS)]):
        events = UserEvents.of([*others, *audited])
        counted = accept(events) & ~events.audited
        private.append([*np.bincount(events.steps[counted], minlength=STEPS).tolist(), len(audited)])
    return user_case(name, "a user with an event in every step", private, sensitivity=STEPS)


def cheat() -> Case:
    return _case("bounds by a Bloom filter", filtered)


def honest() -> Case:
    return _case("bounds by exact names", exact)
