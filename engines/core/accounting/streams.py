"""What the streams of a job cost together, for each kind of user that they know.

Streams that name the same user field speak of the same people, whichever topics they read: their budgets add up. So do
a stream and itself restarted with another configuration, because both sets of releases are out. Streams that protect
single events add up over one source topic; the parts of a split stream have no event in common, so for single events
they count once.
Guarantee: each total bounds what all releases together cost one user: by basic composition, and where noise is Gaussian
    by Gaussian DP too, exactly (docs/guarantee.md, theorems P, Q and R).
    NOT covered: a person with several ids or under differently named fields, other jobs, and state that was deleted to
    start the same configuration anew.
Source: [dong2019]; [balle2018].
Units: epsilon in nats; windows in microseconds of the steps that events join, which is later where events come late.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import lru_cache

from engines.core.accounting.arguments import check_whole
from schemas.config import Config, Stream
from schemas.errors import BudgetError
from schemas.guarantee import Unit
from schemas.steps import CalendarLength


@dataclass(frozen=True, slots=True)
class Part:
    """What one stream adds to a price by Gaussian composition. Sums over streams, but for `mu_squared` plain ones.

    Attributes:
        name: of the stream. periods: of it, that are paid for.
        mu_squared: of its Gaussian noise; None where it has none.
        thresholds: delta of its thresholds, which is no noise's.
        epsilon, delta: of noise that is not Gaussian; 0 where all of it is.
    """

    name: str
    periods: int
    mu_squared: Fraction | None
    thresholds: float
    epsilon: Fraction
    delta: float


@dataclass(frozen=True, slots=True)
class Price:
    """What somebody pays: (epsilon, delta), and where noise is Gaussian what its own composition gives.

    Both are upper bounds of the same releases, at deltas that may differ; the one of Gaussian noise is rounded up.

    Attributes:
        epsilon, delta: by adding up periods and streams.
        gaussian: (epsilon, delta) by adding up mu squared, at the largest delta that is configured for one period, of
            which that of thresholds adds up; None where there is no Gaussian noise, or one period of one stream of it.
        noise_delta: at which Gaussian noise is stated in it; 0 where it is None.
        parts: what each stream adds to it.
    """

    epsilon: Fraction
    delta: float
    gaussian: tuple[float, float] | None = None
    noise_delta: float = field(default=0.0, compare=False)
    parts: tuple[Part, ...] = field(default=(), compare=False)

    @property
    def stated(self) -> tuple[float, float]:
        """The figure at the delta of one period where there is one, and the sums elsewhere."""
        return self.gaussian or (float(self.epsilon), self.delta)


@dataclass(frozen=True, slots=True)
class StreamCost:
    """What one stream promises to one protected unit.

    Attributes:
        per_us: the bound renews after this long, in periods that begin with the stream's start; None: it never does.
            Where periods are of the calendar: what the shortest has.
        start_us: of the stream, microseconds since 1970; None: when it was first started.
        calendar: units and zone of periods of the calendar, which may differ where the first ones coincide.
        gaussian, apart, thresholds: see `gaussian`, `periods_apart` and `thresholds` of
            `schemas.config.engines.spec.EngineFacts`.
    """

    name: str
    source: str
    epsilon: Fraction
    delta: Fraction
    per_us: int | None
    start_us: int | None
    calendar: tuple[str, str] | None = None
    gaussian: bool = False
    apart: bool = False
    thresholds: Fraction = Fraction(0)

    @staticmethod
    def from_stream(stream: Stream) -> StreamCost:
        privacy, facts = stream.privacy, stream.facts
        return StreamCost(
            stream.name,
            stream.source,
            privacy.epsilon_fraction,
            Fraction(privacy.delta),
            privacy.per_us,
            stream.time.start_us,
            (str(privacy.per), stream.time.timezone) if isinstance(privacy.per, CalendarLength) else None,
            gaussian=bool(privacy.delta) and stream.mode in facts.gaussian,
            apart=stream.mode in facts.periods_apart,
            thresholds=facts.threshold_share(stream.mode, stream.domain),
        )

    def periods_within(self, window_us: int) -> int:
        """Return how many periods a window of this length touches at most, if it begins just before one ends."""
        return 1 if self.per_us is None else (window_us - 2) // self.per_us + 2

    @property
    def noise_delta(self) -> float:
        """The delta of the noise alone, without that of thresholds."""
        return float(self.delta * (1 - self.thresholds))

    def threshold_delta(self, periods: int) -> float:
        """Return the probability that a threshold fails the unit in one of so many periods: it adds up."""
        return float(periods * self.delta * self.thresholds)

    def mu_squared(self, periods: int) -> Fraction:
        """Return what so many periods cost by Gaussian DP (theorem P): draws apart are at right angles, and in one draw
        all that the unit does adds up.
        """
        from engines.core.accounting.gaussian import mu_squared_for  # here: what is pure need not load scipy

        return mu_squared_for(self.epsilon, self.noise_delta) * (periods if self.apart else periods**2)

    def part(self, periods: int) -> Part:
        """Return what so many periods add to a price by Gaussian composition."""
        if self.gaussian:
            failing = self.threshold_delta(periods)
            return Part(self.name, periods, self.mu_squared(periods), failing, Fraction(0), 0.0)
        return Part(self.name, periods, None, 0.0, *self.added(periods))

    def added(self, periods: int) -> tuple[Fraction, float]:
        """Return (periods * epsilon, delta) of so many periods, by adding them up."""
        epsilon = periods * self.epsilon
        if self.apart or periods == 1 or not self.delta:
            return epsilon, float(periods * self.delta)
        if not self.gaussian:
            raise BudgetError(f"stream {self.name}: nothing is known of what several periods cost together")
        from engines.core.accounting import gaussian

        noise = gaussian.delta(epsilon, math.sqrt(self.mu_squared(periods)))
        return epsilon, noise + self.threshold_delta(periods)


def price_of(costs: Iterable[tuple[StreamCost, int]]) -> Price:
    """Return what somebody pays who is in each of these streams, in so many of its periods (theorems P and Q).

    Raises: BudgetError for a stream whose periods have a delta that cannot be added up.
    """
    costs = list(costs)
    added = [cost.added(periods) for cost, periods in costs]
    epsilon, delta = sum((each for each, _ in added), Fraction(0)), min(sum(each for _, each in added), 1.0)
    parts = tuple(cost.part(periods) for cost, periods in costs)
    noisy = [part.mu_squared for part in parts if part.mu_squared is not None]
    if not noisy or (len(noisy) == 1 and all(part.periods == 1 for part in parts if part.mu_squared is not None)):
        return Price(epsilon, delta, parts=parts)
    from engines.core.accounting import gaussian

    at = max(cost.noise_delta for cost, _ in costs if cost.gaussian)
    composed = gaussian.epsilon(at, math.sqrt(sum(noisy))) + float(sum(part.epsilon for part in parts))
    beside = math.fsum(each for part in parts for each in (part.thresholds, part.delta))
    return Price(epsilon, delta, (rounded_up(composed), min(at + beside, 1.0)), at, parts)


@lru_cache(maxsize=256)
def price_of_periods(cost: StreamCost, periods: int) -> Price:
    """Return what somebody pays who is in so many periods of one stream. Raises: as `price_of`."""
    return price_of([(cost, periods)])


def rounded_up(value: float) -> float:
    """Return six digits that are not below a number, so that another machine's last digit changes nothing.

    >>> rounded_up(3.9041251), rounded_up(2.0)
    (3.90413, 2.0)
    """
    number = Decimal(value)
    return float(number.quantize(Decimal((0, (1,), number.adjusted() - 5)), rounding=ROUND_CEILING))


@dataclass(frozen=True, slots=True)
class Total:
    """Everything that one kind of user (or event) pays.

    Attributes:
        unit: what is protected.
        who: the user field, or the source topic where no record names a user or single events are protected.
        named: whether `who` is a user field.
        streams: those that add up, restarted ones once for each configuration. Parts that are disjoint for the unit are
            one, under the name of their split.
    """

    unit: Unit
    who: str
    named: bool
    streams: tuple[StreamCost, ...]

    @property
    def lifetime(self) -> Price | None:
        """The price for ever; None where a bound renews: then nothing holds over a lifetime."""
        if any(stream.per_us is not None for stream in self.streams):
            return None
        return price_of((stream, 1) for stream in self.streams)

    @property
    def aligned(self) -> Price | None:
        """The price of one period; None where nothing renews, or where periods of streams do not coincide."""
        renewing = [stream for stream in self.streams if stream.per_us is not None]
        begins = {(stream.per_us, stream.start_us, stream.calendar) for stream in renewing}
        coincide = len(renewing) == 1 or (len(begins) == 1 and renewing[0].start_us is not None)
        return price_of((stream, 1) for stream in self.streams) if coincide else None

    def within(self, window_us: int) -> Price:
        """Return the price of any window of this length, wherever it begins: two periods for a period's length.

        Raises: EngineInputError if the window is below one microsecond.
        """
        check_whole(window_us=window_us)
        return price_of((stream, stream.periods_within(window_us)) for stream in self.streams)


def totals(config: Config, earlier: Iterable[Config] = ()) -> tuple[Total, ...]:
    """Return what each kind of user pays over all streams of the job.

    Args:
        config: the present one.
        earlier: configurations with which streams of this job released before. A stream that is the same in all that
            its guarantee rests on went on, and counts once; any other one counts beside the present ones.
    Returns: one total for each user field, then one for each source whose single events are protected; in order of
        appearance.
    """
    groups: dict[tuple[Unit, str, bool], list[StreamCost]] = defaultdict(list)
    seen = []
    for each in (config, *earlier):
        splits: set[str] = set()
        for stream in each.streams:
            fields = stream.fingerprint_fields()
            if fields in seen:
                continue
            seen.append(fields)
            privacy = stream.privacy
            # Replacing a user's records is no less than taking them away: both add up under the user's field.
            named = privacy.bounds_users
            unit: Unit = "user" if named else privacy.unit
            cost = StreamCost.from_stream(stream)
            if stream.part is not None and unit == "event":
                # An event is in one part at most, and all parts cost the same: any of them is the largest.
                if stream.whole in splits:
                    continue
                splits.add(stream.whole)
                cost = replace(cost, name=stream.whole)
            groups[unit, str(privacy.user) if named else stream.source, named].append(cost)
    found = [Total(unit, who, named, tuple(streams)) for (unit, who, named), streams in groups.items()]
    return tuple(sorted(found, key=lambda total: total.unit != "user"))
