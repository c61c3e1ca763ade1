"""What a partition gathers for its next block."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from agents.protocol.arrays import distinct
from agents.protocol.ingest.dead_letters import DeadLetter
from schemas.arrays import IntArray, KeyArray
from schemas.blocks import Folded
from schemas.events import Reason

Refused = Counter[tuple[str, str]]
"""(`Reason` name, field) -> records."""


def nested(refused: Refused) -> dict[str, dict[str, int]]:
    """
    >>> nested(Counter({("BAD_TIME", "at"): 2}))
    {'BAD_TIME': {'at': 2}}
    """
    by_reason: dict[str, dict[str, int]] = {}
    for (reason, field), records in refused.items():
        by_reason.setdefault(reason, {})[field] = records
    return by_reason


class Drained(NamedTuple):
    """Steps with their folded events, steps with their surplus (`surplus_bounds`), charged rows, their charges, counts
    by reason, and what was refused.
    """

    steps: dict[int, Folded]
    surplus: dict[int, int]
    users: KeyArray
    increments: IntArray
    counts: dict[str, int]
    refused: Refused
    letters: list[DeadLetter]


class PendingBlock:
    """Accepted events, charges, counts and dead letters since the last seal."""

    def __init__(self, words: int) -> None:
        self._words = words
        self._reset()

    def _reset(self) -> None:
        self.records = 0
        self._keys: list[KeyArray] = []
        self._steps: list[IntArray] = []
        self._surplus: Counter[int] = Counter()
        self._users: list[KeyArray] = []
        self._charges: list[IntArray] = []
        self._counts = np.zeros(len(Reason), np.int64)
        self._letters: list[DeadLetter] = []
        self._refused: Refused = Counter()

    def add(self, keys: KeyArray, steps: IntArray) -> None:
        """Accepted events and the steps that they join."""
        self._keys.append(keys)
        self._steps.append(steps)

    def charge(self, users: KeyArray, charges: IntArray) -> None:
        self._users.append(users)
        self._charges.append(charges)

    def count_surplus(self, steps: IntArray) -> None:
        """Refused events that count as surplus, by the steps that they would have joined."""
        numbers, counts = np.unique(steps, return_counts=True)
        self._surplus.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))

    def clipped(self, events: int) -> None:
        """Accepted events whose value was moved to a limit."""
        self._counts[Reason.CLIPPED] += events

    def account(self, records: int, counts: IntArray, refused: Refused, letters: list[DeadLetter]) -> None:
        """`counts` is by reason."""
        self.records += records
        self._counts += counts
        self._refused += refused
        self._letters += letters

    def lost(self, offsets: int) -> None:
        """What was deleted before it was read."""
        self._counts[Reason.LOST] += offsets

    @property
    def letters(self) -> int:
        return len(self._letters)

    def drain(self) -> Drained:
        """All of it; then it is empty."""
        steps = self._folded()
        users = np.concatenate(self._users) if self._users else np.zeros((0, 3), np.uint64)
        charges = np.concatenate(self._charges) if self._charges else np.zeros(0, np.int64)
        counts = {reason.name: int(self._counts[reason]) for reason in Reason if self._counts[reason]}
        drained = Drained(steps, dict(self._surplus), users, charges, counts, self._refused, self._letters)
        self._reset()
        return drained

    def _folded(self) -> dict[int, Folded]:
        if not self._keys:
            return {}
        keys, steps = np.concatenate(self._keys), np.concatenate(self._steps)
        if len(steps) == 0:
            return {}
        if (steps == steps[0]).all():
            return {int(steps[0]): fold(keys)}
        return {step: fold(keys[steps == step]) for step in distinct(steps)}


def fold(keys: KeyArray) -> Folded:
    """`Folded.of(keys)`, several times faster where a key is one word: values are sorted, no permutation is."""
    if keys.shape[1] != 1 or len(keys) == 0:
        return Folded.of(keys)
    ordered = np.sort(keys[:, 0])
    new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    begins = np.flatnonzero(new)
    return Folded(ordered[begins].reshape(-1, 1), np.diff(np.append(begins, len(ordered))))
