"""What a partition gathers for its next block."""

from __future__ import annotations

import numpy as np

from agents.protocol.dead_letters import DeadLetter
from agents.protocol.ingest_arrays import distinct
from schemas.blocks import Folded, IntArray, KeyArray
from schemas.events import Reason

Drained = tuple[dict[int, Folded], KeyArray, IntArray, dict[str, int], list[DeadLetter]]


class PendingBlock:
    """Accepted events, charges, counts and dead letters since the last seal."""

    def __init__(self, words: int) -> None:
        self._words = words
        self._reset()

    def _reset(self) -> None:
        self.records = 0
        self._keys: list[KeyArray] = []
        self._steps: list[IntArray] = []
        self._users: list[KeyArray] = []
        self._charges: list[IntArray] = []
        self._counts = np.zeros(len(Reason), np.int64)
        self._letters: list[DeadLetter] = []

    def add(self, keys: KeyArray, steps: IntArray) -> None:
        """Accepted events and the steps that they join."""
        self._keys.append(keys)
        self._steps.append(steps)

    def charge(self, users: KeyArray, charges: IntArray) -> None:
        self._users.append(users)
        self._charges.append(charges)

    def clipped(self, events: int) -> None:
        """Accepted events whose value was moved to a limit."""
        self._counts[Reason.CLIPPED] += events

    def account(self, records: int, counts: IntArray, letters: list[DeadLetter]) -> None:
        """`counts` is by reason."""
        self.records += records
        self._counts += counts
        self._letters += letters

    @property
    def letters(self) -> int:
        return len(self._letters)

    def drain(self) -> Drained:
        """Steps with their folded events, charged rows, charges, counts by reason, dead letters; then it is empty."""
        steps = self._folded()
        users = np.concatenate(self._users) if self._users else np.zeros((0, 3), np.uint64)
        charges = np.concatenate(self._charges) if self._charges else np.zeros(0, np.int64)
        counts = {reason.name: int(self._counts[reason]) for reason in Reason if self._counts[reason]}
        letters = self._letters
        self._reset()
        return steps, users, charges, counts, letters

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
