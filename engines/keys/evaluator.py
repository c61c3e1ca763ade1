"""Compares listed keys with how many people truly have them, for operators only: its numbers are not private."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, Literal, Protocol

import numpy as np

from engines.core.contract import Columns, Domain, ScalarKind
from schemas.arrays import KeyArray, ReasonArray
from schemas.blocks import Folded

_USER_WORDS = 2
Name = tuple[str, ...]
"""The texts of a key, one for each field."""


class NamedDomain(Domain, Protocol):
    """A domain of keys that tells their texts."""

    def names(self, keys: KeyArray) -> Sequence[Name]:
        """Return the texts of encoded keys."""
        ...


@dataclass(frozen=True, slots=True)
class PeopleDomain:
    """Keys with who has them, so that people can be counted where records are not bounded.

    Args: user: field with the id of a user. Ids that ingest takes for one user are one here.
    """

    keys: NamedDomain
    user: str

    @property
    def number_fields(self) -> tuple[str, ...]:
        return self.keys.number_fields

    @property
    def text_fields(self) -> tuple[str, ...]:
        return self.keys.text_fields

    @property
    def value_fields(self) -> Mapping[str, frozenset[ScalarKind]]:
        return {**self.keys.value_fields, self.user: frozenset(("text", "number"))}

    @property
    def words(self) -> int:
        return self.keys.words + _USER_WORDS

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """See `engines.core.contract.Domain.encode`."""
        keys, reasons = self.keys.encode(columns)
        users = b"".join(map(_digest, columns.values[self.user]))
        words = np.frombuffer(users, "<u8").astype(np.uint64).reshape(-1, _USER_WORDS)
        return np.concatenate((keys, words), axis=1), reasons


def _digest(user: object) -> bytes:
    return hashlib.blake2b(str(user).encode(errors="surrogatepass"), digest_size=8 * _USER_WORDS).digest()


@dataclass(frozen=True, slots=True)
class KeysEvaluator:
    """Implements `engines.core.contract.Evaluator`, of the keys that a step lists.

    Truth is of the period so far. A key is *findable* if as many people truly have it as one needs at the last test of
    a period. Metrics: `error`, the sum of the errors of all keys, of which those that are not listed count as 0, over
    all people; `missed`, the share of findable keys that are not listed; `count_error`, the same as `error` of listed
    keys alone; and how many keys are `listed` and `findable`.

    Args: threshold: people that a key needs at the last test; None: all keys are public, and only errors are measured.
    """

    domain: PeopleDomain
    threshold: float | None

    @property
    def metrics(self) -> tuple[str, ...]:
        if self.threshold is None:
            return ("error", "count_error")
        return ("error", "missed", "count_error", "listed", "findable")

    @property
    def scope(self) -> Literal["alive", "step"]:
        return "alive"

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self._key_fields, "step", "count")

    @property
    def _key_fields(self) -> tuple[str, ...]:
        return (*self.domain.keys.text_fields, *self.domain.keys.value_fields)

    def size(self, truth: Folded) -> int:
        """Return the number of pairs of a person and a key."""
        return len(truth.counts)

    def people(self, truth: Folded) -> dict[Name, int]:
        """Return how many people have each key."""
        keys, counts = np.unique(truth.keys[:, :-_USER_WORDS], axis=0, return_counts=True)
        return dict(zip(self.domain.keys.names(keys), counts.tolist(), strict=True))

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.measure`. NaN where no key could be found, or none is listed."""
        last = max(synthetic["step"], default=-1)
        names = zip(*(map(str, synthetic[field]) for field in self._key_fields), strict=True)
        rows = zip(names, synthetic["step"], synthetic["count"], strict=True)
        return self._compared(self.people(truth), {name: float(count) for name, step, count in rows if step == last})

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.exact`: without noise there is no threshold, and every key is listed."""
        return self._compared(self.people(truth), {name: float(count) for name, count in self.people(kept).items()})

    def _compared(self, true: Mapping[Name, int], listed: Mapping[Name, float]) -> dict[str, float]:
        findable = {name for name, count in true.items() if count >= (self.threshold or 0)}
        errors = sum(abs(count - true.get(name, 0)) for name, count in listed.items())
        people = sum(true.get(name, 0) for name in listed)
        everybody = sum(true.values())
        found = {
            "error": (errors + everybody - people) / everybody if everybody else nan,
            "missed": len(findable - listed.keys()) / len(findable) if findable else nan,
            "count_error": errors / people if people else nan,
            "listed": float(len(listed)),
            "findable": float(len(findable)),
        }
        return {name: found[name] for name in self.metrics}
