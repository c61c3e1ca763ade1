"""An engine whose release is scaled up by what the bounds on its users' contributions drop.

A bound on contributions keeps noise small but drops events, so released counts are biased downwards: by more than half
if a few users make most events. Ingest counts the events that it drops, up to a second bound for each user: the
*surplus*. This module measures the surplus with noise of its own, and passes the estimate to the engine.
Guarantee: what the engine promises at its share of the budget, and epsilon/10 for the surplus: in a period a user makes
    `max_contributions` charges and `reach` times as many events are counted, each in one measurement. Noise of scale
    `reach / (epsilon of one contribution / 10)` makes that a tenth of the unit's epsilon, so each contribution pays for
    itself in the engine and for `reach` events beyond. When the surplus is measured follows from the step alone; what
    is made of it is post-processing.
Source: ours; docs/notes/0070-what-a-bound-drops.md. Shrinkage: James and Stein's, of one number.
Units: events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import fsum, sqrt

import numpy as np

from engines.core.accounting.budgets import Budgets
from engines.core.accounting.promise import SURPLUS
from engines.core.contract import Batch, Engine, Release, State
from engines.core.noise import DiscreteLaplace, NoiseSource, laplace_mechanism, private_like, scale_for
from engines.core.state import check_step, head, numbers_of, reading
from schemas.arrays import IntArray, below, under
from schemas.config.privacy import SURPLUS_SHARE
from schemas.guarantee import Guarantee, Mechanism

STATE_FORMAT = 1
ACCOUNT = SURPLUS
_PREFIX = "surplus/"
PARTS = 4
"""A measurement covers 1 / PARTS of the steps so far, or of `ttl` if that is shorter."""
NORMAL_90 = 1.645


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Noisy surplus by window of steps, in order. Public. `(windows,)` int64 each.

    Attributes:
        begins, ends: steps `begins + 1` to `ends`. values: their surplus, with the noise of `parts` measurements.
    """

    begins: IntArray
    ends: IntArray
    values: IntArray
    parts: IntArray

    @staticmethod
    def empty() -> Measured:
        return Measured(*(np.zeros(0, np.int64) for _ in range(4)))

    def with_window(self, begin: int, end: int, value: int, *, ttl: int | None) -> Measured:
        """Add a window. Without a ttl all windows are merged; with one, expired windows are dropped."""
        if ttl is None:
            total, parts = int(self.values.sum()) + value, int(self.parts.sum()) + 1
            return Measured(*(np.array([number]) for number in (-1, end, total, parts)))
        alive = self.ends > end - ttl
        columns = zip((self.begins, self.ends, self.values, self.parts), (begin, end, value, 1), strict=True)
        return Measured(*(np.append(column[alive], number) for column, number in columns))

    def alive(self, now: int, *, ttl: int | None, variance: float) -> tuple[float, float]:
        """Return the surplus that is alive after step `now`, and the standard deviation of its noise.

        Steps that are not measured yet are assumed to have the average surplus.
        """
        if not len(self.ends):
            return 0.0, 0.0
        last = int(self.ends[-1])
        if ttl is None:
            weights, span = np.ones(len(self.ends)), last + 1
        else:
            first = np.maximum(self.begins, now - ttl)
            weights = np.clip((self.ends - first) / (self.ends - self.begins), 0.0, 1.0)
            span = max(last - max(now - ttl, -1), 1)
        onward = 1 + (now - last) / span
        # Sums that are exact, and no powers: every machine gets the same bits.
        value = fsum((weights * self.values).tolist()) * onward
        return value, sqrt(fsum((weights * weights * self.parts).tolist()) * variance) * onward


class CorrectedEngine:
    """An `engines.core.contract.Engine` that measures the surplus and passes it to another engine.

    Args:
        engine: runs at nine tenths of the epsilon of a contribution, and takes `Batch.beyond`.
        epsilon: of one contribution, the surplus' part included.
        reach: events of a user that are counted beyond the bound, as a multiple of `max_contributions`.
        ttl_steps: steps after which an event expires; None: never.
    """

    def __init__(self, engine: Engine, *, epsilon: Fraction, reach: int, ttl_steps: int | None = None) -> None:
        self.engine = engine
        self._reach, self._ttl = reach, ttl_steps
        self._epsilon = epsilon * SURPLUS_SHARE
        self._scale = scale_for(reach, self._epsilon)
        self._variance = DiscreteLaplace(self._scale).variance
        self._budgets = Budgets.from_guarantee(self._own())
        self._next, self._last = 0, -1
        self._pending: IntArray = np.zeros(1, np.int64)
        self._measured = Measured.empty()

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        now = batch.step
        check_step(batch, self._next)
        pending = private_like(self._pending.copy(), batch.surplus)
        pending[0] += batch.surplus
        due = now - self._last >= max(1, min(now + 1, self._ttl or now + 1) // PARTS)
        measured, budgets, last, found = self._measured, self._budgets, self._last, {}
        if due:
            budgets = budgets.charged(self._own(), ACCOUNT, step=now)
            value = int(laplace_mechanism(pending, self._scale, noise.child(ACCOUNT))[0])
            measured = measured.with_window(last, now, value, ttl=self._ttl)
            found = {ACCOUNT: {"increment": value, "since": last, "variance": self._variance}}
            pending, last = np.zeros(1, np.int64), now
        noisy, deviation = measured.alive(now, ttl=self._ttl, variance=self._variance)
        beyond = _shrunk(noisy, deviation)
        release = self.engine.step(replace(batch, surplus=0, beyond=beyond), noise)
        self._pending, self._measured, self._budgets = pending, measured, budgets
        self._next, self._last = now + 1, last
        if release.gathered:
            return replace(release, notes={**release.notes, **found})
        return replace(release, notes={**release.notes, **found, **_notes(release.events, beyond, noisy, deviation)})

    def _own(self) -> Guarantee:
        """Return the guarantee of the surplus only."""
        mechanism = Mechanism(
            name="events beyond the bound, how many",
            distribution="discrete Laplace",
            l1_sensitivity=self._reach,
            scale=self._scale,
            epsilon=self._epsilon,
            account=ACCOUNT,
        )
        return Guarantee(epsilon=self._epsilon, mechanisms=(mechanism,))

    def guarantee(self) -> Guarantee:
        """See `engines.core.contract.Engine.guarantee`. The surplus stands last."""
        inner, own = self.engine.guarantee(), self._own()
        note = (
            f"Each contribution also pays for {self._reach} of its user's events beyond the bound, which are counted."
        )
        return replace(
            inner,
            epsilon=inner.epsilon + own.epsilon,
            mechanisms=(*inner.mechanisms, *own.mechanisms),
            note=f"{inner.note} {note}".strip(),
        )

    def state(self) -> State:
        measured = self._measured
        own = {
            **head(STATE_FORMAT, np.array([self._reach, self._ttl or 0], np.int64), self._next, self._last),
            "pending": self._pending.copy(),
            "windows": np.stack((measured.begins, measured.ends, measured.values, measured.parts), axis=1),
            **self._budgets.arrays(),
        }
        return {**self.engine.state(), **under(_PREFIX, own)}

    def restore(self, state: State) -> None:
        own = below(_PREFIX, state)
        with reading():
            step, last = numbers_of(own, STATE_FORMAT, np.array([self._reach, self._ttl or 0], np.int64), count=2)
            pending, windows = own["pending"].copy(), own["windows"]
        budgets = self._budgets.restored(own)
        self.engine.restore({name: array for name, array in state.items() if not name.startswith(_PREFIX)})
        self._next, self._last, self._pending, self._budgets = step, last, pending, budgets
        self._measured = Measured(*(windows[:, column].copy() for column in range(4)))


def _shrunk(value: float, deviation: float) -> float:
    """Shrink an estimate towards 0: to 0 if it is within one standard deviation of its noise."""
    if value <= deviation:
        return 0.0
    noise = deviation / value
    return value * (1 - noise * noise)


def _notes(total: int, beyond: float, noisy: float, deviation: float) -> dict[str, object]:
    """Return the ledger's notes: events beyond the bound, and the share of events within it, with 90 % intervals."""
    within = max(total - beyond, 0.0)
    ends = [max(noisy + sign * NORMAL_90 * deviation, 0.0) for sign in (-1, 1)]
    shares = [round(within / (within + end), 4) if within + end > 0 else 1.0 for end in reversed(ends)]
    return {
        "beyond_bound": round(beyond),
        "beyond_bound_90": [round(end) for end in ends],
        "counted_share_90": shares,
    }
