"""The engine of keys: in each step, the keys that enough people have had in its period so far, and how many.

Each step is a test of every key, number j of its period. Its events are pairs of user and key that are new in the
period (`EngineFacts.contribution`), so the events of a key are the people who came to it. They are added to a private
table, which is tested as a whole (`engines.core.noise.listing`), and with a new period everything begins anew. Keys of
a public list are all in the table from the start, and each is let out at every test, with no threshold.
Where events bring values, the sum of those of a key is released beside its count, with noise of its own; where a user
may have several events of a key, all of them are counted.
Guarantee: (epsilon, delta)-DP for a user of so many keys over a period, or over the horizon where no bound renews:
    theorem K of docs/guarantee.md. Several periods: theorem P.
Source: ours, on the counters of [henzinger2025]; `engines.keys.selection`.
Units: counts are people.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt, sqrt
from typing import Any

import numpy as np

from engines.core.accounting import gaussian
from engines.core.accounting.budgets import Budgets
from engines.core.contract import Batch, Release, State
from engines.core.many_records import ManyRecords, RecordColumns
from engines.core.noise import NoiseSource
from engines.core.noise.listing import Listed, listing_mechanism
from engines.core.state import check_step, head, identity_of, numbers_of, written
from engines.keys.domain import KeysDomain
from engines.keys.hashes import KeyHash
from engines.keys.selection import RESOLUTION, KeySelection, shown
from engines.keys.table import LEVELS, PeriodTable
from engines.keys.values import BoundedValue
from schemas.arrays import IntArray
from schemas.guarantee import Guarantee, Mechanism

STATE_FORMAT = 1
ACCOUNT = "keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysConfig:
    """The configuration of the engine. All of it is public.

    Args:
        name: of the stream.
        selection: of one period; its tests are the steps of one.
        renews: whether a period follows a period; else nothing is released after the first one.
        most: keys of a period at most, where they are not public.
    """

    name: str
    domain: KeysDomain
    selection: KeySelection
    renews: bool
    most: int = 1_000_000

    @property
    def identity(self) -> np.ndarray:
        return identity_of(written(("keys", self.name, self.domain, self.selection, int(self.renews))))

    def first_table(self, hashed: KeyHash) -> PeriodTable:
        """Return the table at a period's first test: without keys, or with all those of the public list."""
        return PeriodTable.of_public(hashed, self.domain.public, len(self.selection.sums))

    def no_table(self) -> PeriodTable:
        """Return the table of no period."""
        return PeriodTable.empty(KeyHash.none(self.domain.key_words), len(self.selection.sums))

    def test_of(self, step: int) -> int | None:
        """Return the number of a step's test in its period, from 1; None where nothing is tested any more."""
        period, at = divmod(step, self.selection.tests)
        return None if period and not self.renews else at + 1


@dataclass(frozen=True, slots=True, eq=False)
class KeyRecords(ManyRecords):
    """The listed keys of a step: their fields, how many people have them, the standard error, and the step in which
    each was first listed in its period; with values their sum and mean, and the errors of both.

    Attributes: error, sum_error: standard errors of a count, and of a sum of values in largest ones.
    """

    step: int
    domain: KeysDomain
    listed: Listed
    error: float
    sum_error: float

    def __len__(self) -> int:
        return len(self.listed.found)

    def part(self, rows: range) -> RecordColumns:
        at = slice(rows.start, rows.stop)
        values = self.domain.decode(self.listed.keys[at])
        columns: dict[str, list[Any]] = {
            name: list(v) for name, v in zip(self.domain.fields, zip(*values, strict=True), strict=True)
        }
        columns["step"] = [self.step] * len(values)
        columns["count"] = people(self.listed.counts[at]).tolist()
        columns["error"] = [self.error] * len(values)
        if self.domain.value is not None:
            columns |= self._of_values(self.domain.value, at)
        columns["found"] = self.listed.found[at].tolist()
        ids = [f"{self.step}.{row}" for row in rows]
        return RecordColumns(ids, columns, [self.step] * len(values))

    def _of_values(self, value: BoundedValue, at: slice) -> dict[str, list[float]]:
        counted, levels = self.listed.totals[:, at] / RESOLUTION
        sums, means = value.sums(counted, levels)
        of_sum, of_mean = value.errors(counted, means, self.error, self.sum_error)
        found = {"sum": sums, "sum_error": of_sum, "mean": means, "mean_error": of_mean}
        return {name: list(map(shown, each.tolist())) for name, each in found.items()}


def people(counts: IntArray) -> IntArray:
    """Return noisy counts in whole people, at least 0."""
    return np.maximum((counts + RESOLUTION // 2) // RESOLUTION, 0)


class Keys:
    """See the module; implements `engines.core.contract.Engine`.

    | case | what happens |
    |---|---|
    | a step without events | a test like any other: listed keys get their sums |
    | a key of fewer people than `least_count` | it draws no noise, and is never listed |
    | a listed key | it stays listed to the period's end, whatever its counts are then; below 0 they are 0 |
    | a count of less than one | its mean is as of one; a mean beyond the limits is at the limit |
    | more than `most` keys in a period | the stream stops before the step; nothing of it is lost or released |
    | beyond the horizon | empty releases with a note, no noise |
    """

    def __init__(self, config: KeysConfig) -> None:
        self.config = config
        self._next = self._total = 0
        self._table = config.no_table()
        self._budgets = Budgets.from_guarantee(self.guarantee())

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        config = self.config
        check_step(batch, self._next)
        test = config.test_of(batch.step)
        if test is None:
            return self._over(batch.step)
        table = self._table
        if test == 1:
            table = config.first_table(KeyHash.drawn(config.domain.key_words, noise.child("hash")))
        # Nothing but keys of a public list comes to one.
        most = len(config.domain.listed) or config.most
        table = table.added(batch.events, least=config.selection.least_count, most=most)
        # A period is charged once, at its first test: periods do not add up (theorem P says what several cost).
        budgets = self._budgets
        if test == 1:
            budgets = budgets.charged(self.guarantee(), ACCOUNT, step=batch.step // config.selection.tests)
        listed, table = listing_mechanism(table, config.selection.law(test), noise.child("test"))
        self._budgets, self._table = budgets, table
        begin = batch.step - test
        dated = Listed(listed.keys, listed.totals, listed.found + begin)
        added = KeyRecords(batch.step, config.domain, dated, self._error(test), self._sum_error(test))
        self._next, self._total = batch.step + 1, self._total + len(added)
        return Release(
            step=batch.step,
            added=added,
            removed=(),
            measurements=[self._measurement(batch.step, test, listed)],
            total=self._total,
            notes={"listed": len(added), "test": test},
        )

    def _over(self, step: int) -> Release:
        self._next, self._table = step + 1, self.config.no_table()
        note = "the horizon is reached and the budget used up: nothing is released any more"
        return Release(step=step, added=(), removed=(), measurements=(), total=self._total, notes={"over": note})

    def _error(self, test: int) -> float:
        return shown(self.config.selection.deviation(test))

    def _sum_error(self, test: int) -> float:
        return shown(self.config.selection.value_deviation(test)) if self.config.domain.value is not None else 0.0

    def _measurement(self, step: int, test: int, listed: Listed) -> dict[str, Any]:
        """Return the public figures of a test, with the sum of all listed counts; nothing of other keys."""
        selection = self.config.selection
        return {
            "of_step": step,
            "test": test,
            "listed": len(listed.found),
            "people": int(people(listed.counts).sum()),
            **({} if selection.public else {"threshold": shown(selection.threshold(test))}),
            "error": self._error(test),
            "variance": shown(selection.counter.variance(test)),
        }

    def state(self) -> State:
        """See `engines.core.contract.Engine.state`, and `engines.keys.table` for what of it is new in a step."""
        return {
            **head(STATE_FORMAT, self.config.identity, self._next, self._total),
            **self._table.arrays(),
            **self._budgets.arrays(),
        }

    def restore(self, state: State) -> None:
        config = self.config
        step, total = numbers_of(state, STATE_FORMAT, config.identity, count=2)
        tests = (config.test_of(step - 1) or 0) if step > 0 else 0
        selection = config.selection
        table = PeriodTable.of(
            state,
            words=config.domain.key_words,
            tests=tests,
            least=selection.least_count,
            sums=len(selection.sums),
        )
        budgets = self._budgets.restored(state)
        self._next, self._total, self._table, self._budgets = step, total, table, budgets

    def guarantee(self) -> Guarantee:
        """See `engines.core.contract.Engine.guarantee`: of a user over a period."""
        selection = self.config.selection
        return Guarantee(
            epsilon=selection.epsilon,
            delta=selection.delta,
            mechanisms=tuple(self._mechanisms()),
            note=f"A contribution is the first event of a user with a key in a period, of which "
            f"{selection.contributions} count{self._with_more()}. Each key has a counter of its own over the "
            f"{selection.tests} tests of a period. Gaussian noise: what adds up is mu^2{self._of_values()}. "
            f"{self._of_delta()}",
        )

    def _of_values(self) -> str:
        share = self.config.selection.value_share
        return f", of which {share} is for the sums of values, and the rest for counts" if share else ""

    def _with_more(self) -> str:
        together = self.config.selection.together
        return "" if together == 1 else f", with up to {together} events of that key in all"

    def _of_delta(self) -> str:
        selection = self.config.selection
        if selection.public:
            return "Keys are public: each is released at every test, and all of delta is for the noise."
        return (
            f"Of delta, {selection.listing_delta:.3g} is for keys that are listed though one user alone decides "
            "whether enough people have them, over all tests and keys."
        )

    def _mechanisms(self) -> Iterator[Mechanism]:
        selection = self.config.selection
        counted = "people" if selection.together == 1 else "events"
        moved = [(f"{counted} of each key", selection.counter, 1)]
        moved += [
            (f"sum of the values of each key, {LEVELS:,} being half the distance of the limits", counter, LEVELS)
            for counter in selection.sums
        ]
        for name, counter, most in moved:
            whole = counter.mu_squared * most**2 * selection.squares
            epsilon = Fraction(gaussian.epsilon(selection.noise_delta, sqrt(whole))).limit_denominator(2**20)
            yield Mechanism(
                name=name,
                distribution="discrete Gaussian",
                l1_sensitivity=most * selection.together,
                shift=Fraction(most**2),
                scale=_root(1 / counter.mu_squared),
                epsilon=min(epsilon, selection.epsilon),
                account=ACCOUNT,
                mu_squared=whole,
            )


def _root(value: Fraction) -> Fraction:
    """Return the square root as a short fraction, above it by one part in 2000 at most: far less for small values."""
    scale = 4 ** max(0, 24 - value.numerator.bit_length() + value.denominator.bit_length())
    return Fraction(isqrt(value.numerator * scale // value.denominator) + 1, isqrt(scale))
