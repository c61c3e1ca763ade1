"""Events with users, small enough to be bounded, counted and made noisy thousands of times in one array operation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256

import numpy as np

from engines.auditor.cases import Case, Claim, Neighbours
from engines.auditor.observations import FOCUS, Observations
from engines.noise import NoiseSource, laplace_mechanism
from schemas.arrays import IntArray

AUDITED = "audited"
"""Comes before everybody else, so that what it changes for others is seen."""
EPSILON = Fraction(1)


@dataclass(frozen=True, slots=True, eq=False)
class UserEvents:
    """Attributes:

    users: `(events,)` names. hashes: `(events, 2)` of them, as ingest has them. steps: `(events,)`, ascending.
    """

    users: Sequence[str]
    hashes: np.ndarray
    steps: IntArray

    @staticmethod
    def of(events: Iterable[tuple[str, int]]) -> UserEvents:
        """From names and steps; who is audited is first in each step."""
        ordered = sorted(events, key=lambda event: (event[1], event[0] != AUDITED))
        users = [user for user, _ in ordered]
        return UserEvents(users, hashes_of(users), np.array([step for _, step in ordered], np.int64))

    @property
    def audited(self) -> np.ndarray:
        """`(events,)` which are the audited user's."""
        return np.array([user == AUDITED for user in self.users], np.bool_)


def hashes_of(users: Sequence[str]) -> np.ndarray:
    """`(users, 2)` uint64, by a hash that everybody knows."""
    digests = b"".join(sha256(user.encode()).digest()[:16] for user in users)
    return np.frombuffer(digests, "<u8").reshape(-1, 2)


def user_case(name: str, what: str, private: Sequence[Sequence[int]], *, sensitivity: int) -> Case:
    """One user with all of their events, there or not, under noise for `sensitivity` in all.

    Args:
        what: differs. private: without the user and with: whole numbers that are released, each with noise of its own.
        sensitivity: that is claimed: what the bound lets one user move these numbers by, in L1 norm.
    """

    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        numbers = np.tile(np.array(private[side], np.int64), runs)
        noisy = laplace_mechanism(numbers, sensitivity / EPSILON, source).reshape(runs, -1)
        # The sum weighs each number by how much the user moves it.
        moved = np.sign(np.array(private[1]) - np.array(private[0]))
        columns = {f"number {index}": noisy[:, index] for index in range(noisy.shape[1])}
        return Observations.of_arrays(**columns, **{f"{FOCUS}moved": noisy @ moved})

    return Case(name, "mechanism", Claim(EPSILON), neighbours=(Neighbours(what, run, times=20),))
