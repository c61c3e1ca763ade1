"""The largest loss of a coupled pair of runs: the guarantee of the stream for one unit, by the type of its noise."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

from engines.checks.coupling import CouplingBroken, Recorder
from engines.checks.coupling.listing import failing
from engines.checks.coupling.loss import Losses, composed_epsilon
from engines.core.accounting import gaussian
from engines.core.accounting.promise import UnitEvents
from engines.core.accounting.streams import StreamCost
from engines.core.noise.witness import ExceedsLaw, ExponentialLaw, ListedLaw
from schemas.config import Stream
from schemas.guarantee import Guarantee
from schemas.ledger import LedgerEntry, LedgerRenewal

ROUNDING = 1e-9
"""Relative error of sums of logarithms in floating point; rational losses have none."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The guarantee for one unit, or for all that it does within a window: `epsilon` of pure DP, or mu squared of
    Gaussian DP, or (epsilon, delta).

    Attributes: failing: part of delta that is no noise's: the probability that a threshold fails.
    """

    epsilon: Fraction
    delta: float = 0.0
    failing: float = 0.0

    @staticmethod
    def from_stream(stream: Stream) -> Claim:
        """Return the claim of a configured stream."""
        failing = StreamCost.from_stream(stream).threshold_delta(1)
        return Claim(stream.privacy.epsilon_fraction, float(stream.privacy.delta), failing)

    @staticmethod
    def of_window(entry: LedgerEntry, stream: Stream) -> Claim:
        """Return the claim of a ledger for any time as long as a period of a bound that renews: it meets two."""
        assert isinstance(entry.renewal, LedgerRenewal)
        failing = StreamCost.from_stream(stream).threshold_delta(2)
        return Claim(Fraction(entry.renewal.window_epsilon), entry.renewal.window_delta, failing)

    @property
    def noise_delta(self) -> float:
        """Part of delta for noise."""
        return self.delta - self.failing

    def share(self, losses: Losses) -> float:
        """Return the share of the claim that these losses use; it is at most 1 if the claim holds."""
        shares = [losses.pure / float(self.epsilon)]
        if losses.mu_squared:
            shares.append(float(losses.mu_squared / Fraction(gaussian.mu_for(self.epsilon, self.noise_delta)) ** 2))
        if losses.coins:
            shares.append(composed_epsilon(losses.coins, self.delta) / float(self.epsilon))
        return sum(shares)

    def covers(self, losses: Losses, spent: float) -> bool:
        """Return whether these losses are within `spent`, the part of epsilon that the ledger states."""
        noisy = bool(losses.mu_squared or losses.coins)
        return losses.pure <= spent * (1 + ROUNDING) and not (noisy and not spent)

    def holds(self, losses: Losses) -> bool:
        return self.share(losses) <= 1 + ROUNDING


def check_thresholds(stream: Stream, recorder: Recorder) -> None:
    """Compare thresholds of keys that nobody listed with the part of delta that the stream has for them.

    Of each period all tests of all keys of a unit count: that one of them lists a key which the unit alone decides on.
    A stream with nothing of delta for them must have public keys, all of them in every release: equal releases show it.

    Raises: CouplingBroken.
    """
    allowed = StreamCost.from_stream(stream).threshold_delta(1)
    periods: dict[int, list[ListedLaw]] = defaultdict(list)
    for used in recorder.used.values():
        if isinstance(used.law, ListedLaw) and (allowed or used.law.threshold is not None):
            periods[used.law.begin(used.step)].append(used.law)
    events = UnitEvents.from_stream(stream).most
    # Of a key a unit has so many events where pairs are counted, and elsewhere any part of all of its events.
    parts = (stream.pair_events,) if stream.counts_pairs else range(1, events + 1)
    worst = max((events / part * failing(laws, part) for laws in periods.values() for part in parts), default=0.0)
    if worst > allowed:
        raise CouplingBroken(f"thresholds fail a unit with probability {worst:.3g}, of which {allowed:.3g} is claimed")


LAPLACE, BITS, EXPONENTIAL = "discrete Laplace", "Laplace (one bit)", "exponential mechanism"


def check_declared(guarantee: Guarantee, recorder: Recorder) -> None:
    """Compare the noise of a run with the stated mechanisms.

    Sums of losses do not see less noise in a mechanism whose worst case the data never met: these have one law each,
    and it must be the stated one. Stated Laplace scales must buy the epsilon that stands beside them.

    Raises: CouplingBroken, naming the mechanism.
    """
    for mechanism in guarantee:
        if (
            mechanism.distribution == LAPLACE
            and Fraction(mechanism.l1_sensitivity) / mechanism.scale > mechanism.epsilon
        ):
            raise CouplingBroken(f"{mechanism.name}: its scale does not buy the epsilon that is stated")
    stated = {kind: [m for m in guarantee if m.distribution == kind] for kind in (BITS, EXPONENTIAL)}
    for used in recorder.used.values():
        match used.law:
            case ExceedsLaw(_, scale) if not any(m.scale == scale for m in stated[BITS]):
                raise CouplingBroken(f"{used.place}: bits of scale {scale} are not in the guarantee")
            case ExponentialLaw(_, _, epsilon) if not any(m.epsilon == epsilon for m in stated[EXPONENTIAL]):
                raise CouplingBroken(f"{used.place}: a choice of epsilon {epsilon} is not in the guarantee")
