"""Compares listed keys with how many people truly have them and what they bring, for operators only: its numbers are
not private.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from engines.core.contract import Columns, Domain, ScalarKind
from engines.keys.domain import Name, name_of
from engines.keys.table import LEVELS
from engines.keys.values import BoundedValue
from schemas.arrays import KeyArray, ReasonArray
from schemas.blocks import Folded

_USER_WORDS = 2


class NamedDomain(Domain, Protocol):
    """A domain of keys that tells their values."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of a key, as records of a release have them."""
        ...

    def pairs(self, keys: KeyArray) -> KeyArray:
        """Return the words of encoded events that say which key it is; those of its value are behind them."""
        ...

    def decode(self, keys: KeyArray) -> Sequence[Sequence[object]]:
        """Return the values of the fields of encoded keys."""
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
    keys alone; with values `sum_error`, the sum of the errors of their sums over these; and how many keys are `listed`
    and `findable`.

    Args:
        threshold: people that a key needs at the last test; None: all keys are public, and only errors are measured.
        events: whether events are counted, and not people.
        value: what events bring. Of several by one person, where people are counted, their mean is the truth.
    """

    scope: ClassVar[Literal["alive", "step"]] = "alive"

    domain: PeopleDomain
    threshold: float | None
    events: bool = False
    value: BoundedValue | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        values = () if self.value is None else ("sum_error",)
        if self.threshold is None:
            return ("error", "count_error", *values)
        return ("error", "missed", "count_error", *values, "listed", "findable")

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self.domain.keys.fields, "step", "count", *(() if self.value is None else ("sum",)))

    def size(self, truth: Folded) -> int:
        """Return the number of pairs of a person and a key."""
        return len(truth.counts)

    def people(self, truth: Folded) -> dict[Name, int]:
        """Return how many people have each key, or how many events there are of each."""
        had = self._had(truth)
        counts = had.counts if self.events else np.ones_like(had.counts)
        keys = Folded.from_keys(had.keys[:, :-_USER_WORDS], counts)
        return dict(zip(map(name_of, self.domain.keys.decode(keys.keys)), keys.counts.tolist(), strict=True))

    def sums(self, truth: Folded) -> dict[Name, float]:
        """Return what the people of each key bring together, in the unit of their values."""
        assert self.value is not None
        keys, had = self.domain.keys, self._had(truth)
        of_key = keys.pairs(truth.keys[:, :-_USER_WORDS])
        levels = truth.keys[:, of_key.shape[1]].astype(np.float64) - LEVELS
        names = map(name_of, keys.decode(of_key))
        pairs = map(tuple, np.concatenate((of_key, truth.keys[:, -_USER_WORDS:]), axis=1).tolist())
        events = dict(zip(map(tuple, had.keys.tolist()), had.counts.tolist(), strict=True))
        found: dict[Name, float] = {}
        values = self.value.middle + self.value.half * levels / LEVELS
        for name, pair, value, count in zip(names, pairs, values.tolist(), truth.counts.tolist(), strict=True):
            weight = count if self.events else count / events[pair]
            found[name] = found.get(name, 0.0) + weight * value
        return found

    def _had(self, truth: Folded) -> Folded:
        """Return the pairs of key and user, with how many events each has."""
        keys = self.domain.keys.pairs(truth.keys[:, :-_USER_WORDS])
        return Folded.from_keys(np.concatenate((keys, truth.keys[:, -_USER_WORDS:]), axis=1), truth.counts)

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.measure`. NaN where no key could be found, or none is listed."""
        last = max(synthetic["step"], default=-1)
        names = list(map(name_of, zip(*(synthetic[field] for field in self.domain.keys.fields), strict=True)))

        def newest(field: str) -> dict[Name, float]:
            rows = zip(names, synthetic["step"], synthetic[field], strict=True)
            return {name: float(number) for name, step, number in rows if step == last}

        found = self._compared(self.people(truth), newest("count"))
        return found if self.value is None else {**found, "sum_error": self._off(truth, newest("sum"))}

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.exact`: without noise there is no threshold, and every key is listed."""
        found = self._compared(self.people(truth), {name: float(count) for name, count in self.people(kept).items()})
        return found if self.value is None else {**found, "sum_error": self._off(truth, self.sums(kept))}

    def _off(self, truth: Folded, sums: Mapping[Name, float]) -> float:
        true = self.sums(truth)
        whole = sum(abs(true.get(name, 0.0)) for name in sums)
        return sum(abs(each - true.get(name, 0.0)) for name, each in sums.items()) / whole if whole else nan

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
        return {name: found[name] for name in self.metrics if name in found}
