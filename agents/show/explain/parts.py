"""An explanation as data. Everything is public: a configuration and what engines say of themselves, no data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from typing import Any, ClassVar, Literal

import msgspec

from agents.protocol.partitioner import home_partition
from agents.show.noise import RELEASES, ErrorModel, NoiseFacts, noise_facts
from agents.show.view import expected_error
from engines.core.accounting.streams import Price, StreamCost, Total, price_of, price_of_periods
from schemas.config import Stream, format_duration, format_length
from schemas.errors import BudgetError, EngineInputError
from schemas.guarantee import Guarantee, Mechanism
from schemas.steps import Length


def decimal(value: float) -> str:
    """Return four digits that matter, without an exponent where that can be read: 0.001234, 12.35, 1,235."""
    if value == 0 or 1e-4 <= abs(value) < 1e15:
        digits = 0 if abs(value) >= 1000 or value == 0 else 3 - math.floor(math.log10(abs(value)))
        text = f"{value:,.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.3e}"


def exact(value: Fraction) -> str:
    """Return a fraction as it is, and as a decimal number where that says more: `1/40 = 0.025`.

    >>> exact(Fraction(1, 40)), exact(Fraction(2)), exact(Fraction(1, 3))
    ('1/40 = 0.025', '2', '1/3 ≈ 0.3333')
    """
    if value.denominator == 1:
        return f"{value.numerator:,}"
    text = decimal(float(value))
    return f"{value} {'=' if Fraction(text.replace(',', '')) == value else '≈'} {text}"


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to know, with a title to find it by. `loud`: it must not be overlooked."""

    title: str
    text: str
    loud: bool = False
    kind: ClassVar[str] = "point"


@dataclass(frozen=True, slots=True)
class Share:
    """What one mechanism gets of the budget.

    Attributes:
        event_epsilon: of one event, all its uses together. unit_epsilon: of the protected unit, all its events.
        part: of the configured epsilon; where mu^2 adds up, of that.
    """

    mechanism: Mechanism
    noise: NoiseFacts
    event_epsilon: Fraction
    unit_epsilon: Fraction
    part: Fraction


@dataclass(frozen=True, slots=True)
class Budget:
    """The configured epsilon, split down to each mechanism; exact.

    Attributes:
        unit_epsilon: as configured, of one protected unit (over the stream, or over one period).
        contributions: changes that one unit may make. event_epsilon: what is left for each of them.
        terms: how the mechanisms add up to that, as text. mu_squared: of the unit, where they add up to that instead.
        thresholds: the part of delta that is no noise's, but the probability that a threshold fails.
        contribution: what one of them is called: event, trip.
    """

    unit_epsilon: Fraction
    delta: float
    contributions: int
    event_epsilon: Fraction
    shares: tuple[Share, ...]
    terms: str
    contribution: str = "event"
    mu_squared: Fraction | None = None
    thresholds: float = 0.0

    @property
    def noise_delta(self) -> float:
        """The part of delta that is for the noise."""
        return self.delta - self.thresholds

    @property
    def split(self) -> str:
        """Which part of delta is for what; empty where all of it is for the noise."""
        if not self.thresholds:
            return ""
        return f"{self.noise_delta:.3g} for the noise, {self.thresholds:.3g} for what thresholds let through"

    @property
    def sum(self) -> str:
        """How the mechanisms add up to what is configured."""
        if self.mu_squared is not None:
            total = decimal(float(self.mu_squared))
            told = f"mu^2 of the unit: {self.terms if len(self.shares) > 1 else total}"
            told += f" = {total}" if len(self.shares) > 1 else ""
            told += f", which is epsilon {self.unit_epsilon} at delta {self.noise_delta:.6g}, exactly"
            if self.thresholds:
                told += f"; with {self.thresholds:.3g} for what thresholds let through delta is {self.delta:g}"
            return told + ("; epsilons of single mechanisms do not add up" if len(self.shares) > 1 else "")
        each = f"{self.terms} = {self.event_epsilon} {self.one}"
        return f"{each}; x {self.contributions} = {self.unit_epsilon}, exactly"

    @property
    def one(self) -> str:
        """One contribution, with its article."""
        return f"{'an' if self.contribution[0] in 'aeiou' else 'a'} {self.contribution}"

    @staticmethod
    def of(stream: Stream, guarantee: Guarantee) -> Budget:
        """Return the split. Raises: BudgetError if the mechanisms do not add up to what is configured, exactly."""
        unit, contributions = stream.privacy.epsilon_fraction, stream.contributions
        event = unit / contributions
        shares = []
        for mechanism in guarantee:
            spent = mechanism.epsilon * mechanism.uses
            part = spent / event
            if mechanism.mu_squared is not None and guarantee.mu_squared is not None:
                part = mechanism.mu_squared / guarantee.mu_squared
            shares.append(Share(mechanism, noise_facts(mechanism), spent, spent * contributions, part))
        total = guarantee.spent
        # A Gaussian guarantee is not the sum of its mechanisms': its engine accounts for them together, exactly.
        adds_up = (
            total + guarantee.kept_back == event if guarantee.delta == 0 else guarantee.delta <= stream.privacy.delta
        )
        if guarantee.epsilon != event or not adds_up:
            raise BudgetError(
                f"stream {stream.name}: {event} is configured for an event, the engine promises {guarantee.epsilon} "
                f"and its mechanisms spend {total}. Fix: this is a defect of privstream; do not run the stream."
            )
        terms = [
            str(mechanism.epsilon * mechanism.uses)
            if guarantee.mu_squared is None
            else decimal(float(mechanism.mu_squared or 0))
            for mechanism in guarantee
        ]
        if guarantee.kept_back:
            terms.append(f"{guarantee.kept_back} kept back")
        return Budget(
            unit,
            stream.privacy.delta,
            contributions,
            event,
            tuple(shares),
            " + ".join(terms),
            stream.contribution,
            guarantee.mu_squared,
            StreamCost.from_stream(stream).threshold_delta(1),
        )


@dataclass(frozen=True, slots=True)
class Notch:
    """What another epsilon would do. `factor` is times the configured one; errors after ONE release."""

    factor: Fraction
    budget: Budget
    errors: ErrorModel

    @property
    def epsilon(self) -> float:
        return float(self.budget.unit_epsilon)


YEAR_US = 365 * 86_400_000_000
SUGGESTED_DELTA = 1e-6
"""What the road with a delta is shown at, where the stream has none."""
Road = Literal["pure", "gaussian"]


@dataclass(frozen=True, slots=True)
class Roads:
    """Two roads to one promise: the noise under pure epsilon, and under epsilon with a delta.

    Attributes:
        configured: the one that the stream takes. delta: of the other one, or of it.
        answers: kind of answer -> standard deviation of its noise after one release, by either road.
        unit: of the deviations.
    """

    configured: Road
    delta: float
    answers: Mapping[str, Mapping[Road, float]]
    unit: str

    @staticmethod
    def of(stream: Stream) -> Roads | None:
        """Return both roads; None where there is one only."""
        facts, privacy = stream.facts, stream.privacy
        if stream.mode not in facts.uses_delta or stream.needs_delta or stream.surplus:
            return None
        delta = privacy.delta or SUGGESTED_DELTA
        others = [privacy.model_copy(update={"delta": each}) for each in (0.0, delta)]
        try:
            pure, gaussian = (expected_error(stream.model_copy(update={"privacy": other})) for other in others)
        except EngineInputError:
            # One of them would need more noise than can be drawn.
            return None
        first = {answer.name: answer.deviations[0] for answer in gaussian.answers}
        answers: dict[str, dict[Road, float]] = {
            answer.name: {"pure": answer.deviations[0], "gaussian": first[answer.name]}
            for answer in pure.answers
            if answer.name in first
        }
        return Roads("gaussian" if privacy.delta else "pure", delta, answers, pure.unit)

    def less(self, name: str) -> Road:
        """Return the road on which an answer has less noise."""
        return "gaussian" if self.answers[name]["gaussian"] < self.answers[name]["pure"] else "pure"

    def sentences(self) -> Iterator[str]:
        """Say the noise of both roads, for a person who chooses."""
        less = {"pure": "without a delta", "gaussian": "with delta"}
        compared = "; ".join(
            f"{name} {noise['pure']:.4g} and {noise['gaussian']:.4g}, less {less[self.less(name)]}"
            for name, noise in self.answers.items()
        )
        taken = "pure" if self.configured == "pure" else "configured with the delta"
        yield (
            f"Noise by the two roads to this epsilon, pure and with delta = {self.delta:g} (standard deviation after "
            f"one release, in {self.unit}): {compared}. This stream is {taken}."
        )
        if self.configured == "pure" and all(self.less(name) == "gaussian" for name in self.answers):
            yield (
                f"privacy.delta = {self.delta:g} would give less noise everywhere, for a promise that is weaker: "
                "choose a delta far below one in your users."
            )


@dataclass(frozen=True, slots=True)
class StreamExplanation:
    """All that is to be known of one stream. `unit` is what is protected, in words.

    Of a split stream it is that of each part; `split` says what they are together.
    """

    name: str
    engine: str
    mode: str
    source: str
    step: Length
    unit: str
    neighbouring: str
    promise: str
    plain: tuple[str, ...]
    symbols: tuple[str, ...]
    alerts: tuple[str, ...]
    budget: Budget
    public: tuple[Point, ...]
    unprotected: tuple[Point, ...]
    errors: ErrorModel
    notches: tuple[Notch, ...]
    roads: Roads | None
    renewal: Renewal | None
    split: Split | None

    def duration(self, releases: int) -> str:
        """Return how long so many releases take."""
        return format_length(self.step * releases)


@dataclass(frozen=True, slots=True)
class Renewal:
    """What periods of a bound that renews cost together, in three cases: (what, how many periods, price)."""

    cases: tuple[tuple[str, int, Price], ...]

    @staticmethod
    def from_stream(stream: Stream) -> Renewal | None:
        """Return it; None where the bound never renews."""
        if stream.privacy.per is None:
            return None
        cost = StreamCost.from_stream(stream)
        assert cost.per_us is not None
        year = cost.periods_within(YEAR_US)
        cases = {
            f"any {format_length(stream.privacy.per)} in a row": 2,
            "12 periods": 12,
            "any 365 days in a row": year,
        }
        return Renewal(tuple((what, periods, price_of_periods(cost, periods)) for what, periods in cases.items()))

    def sentence(self) -> str:
        return "Together: " + "; ".join(f"{what}, {price_words(price)}" for what, _, price in self.cases) + "."


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """Streams whose budgets add up for the same people, or the same events: for how long, and what all cost."""

    total: Total
    cases: tuple[tuple[str, Price], ...]
    sentence: str

    @staticmethod
    def of(total: Total) -> SharedBudget:
        *others, last = (stream.name for stream in total.streams)
        whom = f"one user (field {total.who})" if total.named else f"one {total.unit} of {total.who}"
        said = f"Streams {' and '.join(filter(None, (', '.join(others), last)))} add up for {whom}"
        if total.lifetime is not None:
            price = price_words(total.lifetime)
            return SharedBudget(total, (("for ever", total.lifetime),), f"{said}: {price} together, for ever.")
        longest = max(stream.per_us for stream in total.streams if stream.per_us is not None)
        windows = {format_duration(timedelta(microseconds=longest)): longest}
        if longest < YEAR_US:
            windows["365 days"] = YEAR_US
        aligned = [("in one aligned period", total.aligned)] if total.aligned is not None else []
        cases = (*aligned, *((f"in any {what} in a row", total.within(window)) for what, window in windows.items()))
        told = ", ".join(f"{price_words(price)} {what}" for what, price in cases)
        return SharedBudget(total, cases, f"{said}: {told}, and no bound over a lifetime.")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(stream.name for stream in self.total.streams)

    def tables(self) -> Iterator[tuple[str, list[list[str]]]]:
        """Yield, where Gaussian noise adds up, a sentence for each case, and what each stream adds by `PARTS`."""
        for what, price in self.cases:
            if price.gaussian is None:
                continue
            parts, (epsilon, _) = price.parts, price.gaussian
            squared = sum((part.mu_squared or Fraction(0) for part in parts), Fraction(0))
            failing, others = (math.fsum(getattr(part, name) for part in parts) for name in ("thresholds", "delta"))
            pure = sum((part.epsilon for part in parts), Fraction(0))
            told = f"mu^2 = {decimal(float(squared))} is epsilon = {decimal(epsilon - float(pure))} at delta = "
            told += f"{price.noise_delta:g}"
            told += f"; other noise adds epsilon = {decimal(float(pure))}" if pure else ""
            told += f"; thresholds add delta = {failing:.3g}" if failing else ""
            rows = [
                [part.name, f"{part.periods:,}", *_cells(part.mu_squared, part.thresholds, part.epsilon, part.delta)]
                for part in parts
            ]
            yield f"Of that, {what}: {told}.", [*rows, ["together", "", *_cells(squared, failing, pure, others)]]


def _cells(squared: Fraction | None, thresholds: float, epsilon: Fraction, delta: float) -> Sequence[str]:
    """Return the last columns of `PARTS`, empty where there is nothing of it."""
    return (
        "" if squared is None else decimal(float(squared)),
        f"{thresholds:.3g}" if thresholds else "",
        decimal(float(epsilon)) if epsilon else "",
        f"{delta:.3g}" if delta else "",
    )


PARTS = ("stream", "periods", "mu^2", "delta of thresholds", "other epsilon", "other delta")
"""Heads of `SharedBudget.tables`."""


def price_words(price: Price) -> str:
    """Return both figures of a price, as far as there are two. Both hold."""
    added = f"epsilon = {exact(price.epsilon)}" + (f", delta = {price.delta:.3g}" if price.delta else "")
    if price.gaussian is None:
        return added
    epsilon, delta = price.gaussian
    return f"epsilon = {epsilon:.6g}, delta = {delta:g} (or {added})"


SPLIT_HEADS = ("stream", "values", "home partition")
"""Heads of `Split.rows`."""


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of a split stream, and what all of them cost one unit together (docs/guarantee.md, theorem R).

    Attributes:
        parts: name of the stream of each part -> its values of `field`.
        homes: and its partition of the private topics; none where no cluster is configured.
        disjoint: whether one unit is in one part at most.
    """

    field: str
    parts: Mapping[str, tuple[str | int, ...]]
    homes: Mapping[str, int]
    disjoint: bool
    together: SharedBudget

    @staticmethod
    def of(stream: Stream, *, partitions: int | None) -> Split | None:
        """Return the parts of the split that a stream is a part of; None where it is none."""
        if (part := stream.part) is None:
            return None
        names, privacy, cost = part.names(part.whole), stream.privacy, StreamCost.from_stream(stream)
        disjoint, named = privacy.unit == "event", privacy.bounds_users
        costs = tuple(replace(cost, name=name) for name in ([part.whole] if disjoint else names))
        total = Total(privacy.unit, str(privacy.user) if named else stream.source, named, costs)
        homes = {} if partitions is None else {name: home_partition(name, partitions) for name in names}
        values = dict(zip(names, part.parts.values(), strict=True))
        return Split(part.field, values, homes, disjoint, SharedBudget.of(total))

    @property
    def price(self) -> Price:
        """What one unit pays over all parts, in one period where the bound renews."""
        return price_of((cost, 1) for cost in self.together.total.streams)

    def sentence(self) -> str:
        """Say what the parts are, and what they cost together."""
        first, count = next(iter(self.parts)), len(self.parts)
        told = ", ".join(f"{price_words(price)} {what}" for what, price in self.together.cases)
        said = (
            f"Split by {self.field} into {count} streams that have no event in common; what is said here is of each, "
            f"and named after {first}, which also counts and refuses events of no part."
        )
        if self.disjoint:
            return f"{said} An event is in one part at most: all parts together cost one event {told}."
        return (
            f"{said} Each part bounds users by itself, and one user may be in all {count}: together they cost one user "
            f"{told}."
        )

    def crowded(self) -> str | None:
        """Say which parts do not have a partition, and so a core, of their own; None where all do."""
        shared = Counter(self.homes.values())
        names = [name for name, home in self.homes.items() if shared[home] > 1]
        if not names:
            return None
        return (
            f"{', '.join(names)} share partitions of the private topics, and with them a worker's core. To spread "
            "them, name parts otherwise, or raise kafka.partitions before the job first starts."
        )

    def rows(self) -> list[list[str]]:
        """Return a row for each part: its stream, its values, its partition."""
        return [
            [name, ", ".join(map(str, values)), str(self.homes.get(name, ""))] for name, values in self.parts.items()
        ]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A whole configuration."""

    job: str
    streams: tuple[StreamExplanation, ...]
    shared: tuple[SharedBudget, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON, with the releases after which errors are told."""
        return {"ok": True, "releases": RELEASES, **plain(self)}


def plain(value: object) -> dict[str, Any]:
    """Return data of a dataclass as JSON has it, with its attributes; an exact number is a float and a text."""
    found: dict[str, Any] = msgspec.to_builtins(value, enc_hook=_exact)
    return found


def _exact(value: object) -> dict[str, Any]:
    if isinstance(value, Fraction):
        return {"value": float(value), "exact": str(value)}
    raise TypeError(type(value).__name__)
