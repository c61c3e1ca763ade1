"""What a built engine costs the configured unit, worked out anew from the configuration: more than promised is refused.

An engine splits a budget, and states what its mechanisms cost. Here nothing is taken from that split. A mechanism's
noise, and how far one event moves what it hides, give what one event costs; `[streams.privacy]` alone says how many
events a unit has, and how many of them may meet the same draws.
Guarantee: none is given; a split that is forgotten, made twice or made for another unit is found before anything is
    computed. For Gaussian and binomial noise the cost is a lower bound: of arrangements of a unit's events the one in
    which each step (or window of trips) is full, and of a schedule the noise that is stated. That draws are as stated
    is for coupled runs to show.
Source: [dwork2014] (groups and composition); [dong2019] (mu^2 adds up).
Units: epsilon in nats, of the unit; scales as in `schemas.guarantee.Mechanism`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from engines.core.accounting.accountant import Accountant
from engines.core.accounting.streams import StreamCost
from schemas.config import Stream
from schemas.config.engines.discovery import measures_expiry
from schemas.errors import BudgetError
from schemas.guarantee import Guarantee, Mechanism

SURPLUS = "surplus"
"""Account of what counts events beyond the bound (`engines.core.surplus`)."""
PURE: Mapping[str, int] = {"discrete Laplace": 1, "Laplace (one bit)": 1, "exponential mechanism": 2}
"""Epsilon of noise of scale 1 that hides a move of 1."""
GAUSSIAN = frozenset({"discrete Gaussian", "binomial"})
"""Of these, mu^2 adds up; of binomial noise as that of Gaussian noise of its variance, which is less than it costs."""
ROUNDED = Fraction(1, 1000)
"""Relative: scales of Gaussian noise are stated as short fractions."""


@dataclass(frozen=True, slots=True)
class UnitEvents:
    """Changes by one event that the configured unit may make, and how many of these may meet the same draws.

    Attributes:
        decay: of Gaussian noise, the precision of one measurement over that of the one before.
    """

    most: int
    together: int
    decay: Fraction = Fraction(1)

    @staticmethod
    def from_stream(stream: Stream) -> UnitEvents:
        """Return the events of a unit, by the configuration alone."""
        privacy, expires = stream.privacy, stream.domain.lifetime is not None
        if privacy.unit == "event":
            changes = 2 if expires and measures_expiry(stream.engine, stream.mode) else 1
            return UnitEvents(changes, changes)
        # Where records name nobody a unit is in every step, once.
        most: int | None = privacy.max_contributions
        in_step: int | None = 1 if most is None else privacy.max_per_step
        together: int | None = None
        if stream.trip_life is not None:
            steps = stream.trip_life if stream.period_steps is None else min(stream.trip_life, stream.period_steps)
            together = None if in_step is None else in_step * steps
        elif stream.facts.whole_unit or stream.counts_pairs:
            together, steps = in_step, stream.period_steps or stream.horizon or 0
            if steps and in_step is not None:
                most = steps * in_step if most is None else min(most, steps * in_step)
            if stream.counts_pairs:
                # Each pair of a unit is of a key of its own, which has counts of its own.
                together, most = stream.pair_events, (most or 1) * stream.pair_events
        return UnitEvents(most or 1, min(together or most or 1, most or 1), stream.decay)

    @property
    def squared(self) -> Fraction:
        """Largest sum of squares of events that are measured together, by the first measurement's precision."""
        full, rest = divmod(self.most, self.together)
        weight = Fraction(float(self.decay) ** full)  # an exact power of so many would have millions of digits
        first = full if weight == 1 else (1 - weight) / (1 - self.decay)
        return first * self.together**2 + weight * rest**2


def check_promise(stream: Stream, guarantee: Guarantee, accountants: Mapping[str, Accountant]) -> None:
    """Refuse an engine that costs the unit of its stream more than `[streams.privacy]` says.

    Args: accountants: of the engine before its first step, by the names of their arrays.
    Raises: BudgetError, with all that is wrong.
    """
    problems = list(_problems(stream, guarantee, accountants))
    if problems:
        raise BudgetError("; ".join(problems))


def _problems(stream: Stream, guarantee: Guarantee, accountants: Mapping[str, Accountant]) -> Iterator[str]:
    privacy, unit = stream.privacy, UnitEvents.from_stream(stream)
    epsilon, delta = privacy.epsilon_fraction, float(privacy.delta)
    # Of an engine that accounts for all events of a unit; what others state is of one event.
    times = 1 if stream.facts.whole_unit or delta else unit.most
    if guarantee.epsilon * times > epsilon:
        yield f"it promises epsilon {float(guarantee.epsilon * times):g} where {float(epsilon):g} is configured"
    if guarantee.delta != delta:
        yield f"it promises delta {guarantee.delta:g} where {delta:g} is configured"
    if not guarantee.private:
        yield "it says of itself that it is not private"
    counts = [mechanism for mechanism in guarantee if mechanism.account == SURPLUS]
    if len(counts) != (privacy.surplus is not None):
        yield "events beyond the bound are counted in another number of mechanisms than the configuration asks for"
    noise_delta = StreamCost.from_stream(stream).noise_delta
    yield from _overspent(guarantee, unit, privacy.surplus or 0, times, epsilon, noise_delta)
    yield from _held(guarantee, accountants, times, epsilon, delta)


def _overspent(
    guarantee: Guarantee, unit: UnitEvents, surplus: int, times: int, epsilon: Fraction, delta: float
) -> Iterator[str]:
    """Yield mechanisms whose noise does not buy what stands beside it, and sums of them that are too large.

    Args: delta: of noise alone.
    """
    pure: list[tuple[Mechanism, Fraction]] = []
    squares: list[tuple[Fraction, Fraction]] = []
    for mechanism in guarantee:
        if mechanism.distribution in PURE:
            moved = Fraction(surplus) if mechanism.account == SURPLUS else mechanism.total_shift
            cost = PURE[mechanism.distribution] * moved / mechanism.scale * unit.most
            pure.append((mechanism, cost))
            if cost > mechanism.epsilon * mechanism.uses * times:
                yield f'"{mechanism.name}" costs epsilon {float(cost):g} of a unit, by its scale, which is not stated'
        elif mechanism.distribution in GAUSSIAN and delta:
            square = mechanism.total_shift / mechanism.scale**2 * unit.squared / (1 + ROUNDED)
            stated = square if mechanism.mu_squared is None else mechanism.mu_squared
            squares.append((square, stated))
            if square > stated:
                yield f'"{mechanism.name}" costs mu^2 {float(square):g} of a unit, by its scale, which is not stated'
        else:
            yield f'"{mechanism.name}" has noise, {mechanism.distribution}, that cannot be accounted for'
    stated_sum = sum((mechanism.epsilon * mechanism.uses * times for mechanism, _ in pure), Fraction(0))
    spent = max(sum((cost for _, cost in pure), Fraction(0)), stated_sum)
    if spent > epsilon:
        yield f"its mechanisms cost a unit epsilon {float(spent):g} where {float(epsilon):g} is configured"
    if squares:
        from engines.core.accounting.gaussian import mu_squared_for  # here: what is pure need not load scipy

        allowed = mu_squared_for(epsilon, delta)
        squared = max(sum(column, Fraction(0)) for column in zip(*squares, strict=True))
        if pure or squared > allowed:
            yield f"its noise costs a unit mu^2 {float(squared):g} where {float(allowed):g} is what was promised"


def _held(
    guarantee: Guarantee, accountants: Mapping[str, Accountant], times: int, epsilon: Fraction, delta: float
) -> Iterator[str]:
    """Yield accounts that nobody keeps, and accountants that would let more be spent."""
    for account in guarantee.accounts:
        kept = any(f"budget/{account}/" in name for name in accountants) if account else bool(accountants)
        if not kept:
            yield f'no accountant in its state is charged for "{account or "its mechanisms"}"'
    if {each.delta for each in accountants.values()} - {delta}:
        yield f"its accountants hold another delta than {delta:g}"
    held = [each.epsilon for each in accountants.values()]
    if (max(held, default=epsilon) if delta else sum(held) * times) > epsilon:
        yield f"its accountants would let more be spent than {float(epsilon):g}"
