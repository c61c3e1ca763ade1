"""What the streams of a job cost together, for each kind of user that they know.

Streams that name the same user field speak of the same people, whichever topics they read: their budgets add up. So do
a stream and itself restarted with another configuration, because both sets of releases are out. Streams that protect
single events add up over one source topic.
Guarantee: each total bounds what all releases together cost one user; basic composition, epsilons and deltas apart.
    NOT covered: a person with several ids or under differently named fields, other jobs, and state that was deleted to
    start the same configuration anew.
Units: epsilon in nats; windows in microseconds of event time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from engines.core.accounting.arguments import check_whole
from schemas.config import Config, Stream
from schemas.guarantee import Unit
from schemas.steps import CalendarLength


@dataclass(frozen=True, slots=True)
class StreamCost:
    """What one stream promises to one protected unit.

    Attributes:
        per_us: the bound renews after this long, in periods that begin with the stream's start; None: it never does.
            Where periods are of the calendar: what the shortest has.
        start_us: of the stream, microseconds since 1970; None: when it was first started.
        calendar: units and zone of periods of the calendar, which may differ where the first ones coincide.
    """

    name: str
    source: str
    epsilon: Fraction
    delta: Fraction
    per_us: int | None
    start_us: int | None
    calendar: tuple[str, str] | None = None

    @staticmethod
    def from_stream(stream: Stream) -> StreamCost:
        privacy = stream.privacy
        return StreamCost(
            stream.name,
            stream.source,
            privacy.epsilon_fraction,
            Fraction(privacy.delta),
            privacy.per_us,
            stream.time.start_us,
            (str(privacy.per), stream.time.timezone) if isinstance(privacy.per, CalendarLength) else None,
        )


@dataclass(frozen=True, slots=True)
class Total:
    """Everything that one kind of user (or event) pays.

    Attributes:
        unit: what is protected.
        who: the user field, or the source topic where no record names a user or single events are protected.
        named: whether `who` is a user field.
        streams: those that add up, restarted ones once for each configuration.
    """

    unit: Unit
    who: str
    named: bool
    streams: tuple[StreamCost, ...]

    @property
    def lifetime(self) -> tuple[Fraction, Fraction] | None:
        """(epsilon, delta) for ever; None where a bound renews: then nothing holds over a lifetime."""
        if any(stream.per_us is not None for stream in self.streams):
            return None
        return self._times(lambda stream: 1)

    @property
    def aligned(self) -> tuple[Fraction, Fraction] | None:
        """(epsilon, delta) in one period; None where nothing renews, or where periods of streams do not coincide."""
        renewing = [stream for stream in self.streams if stream.per_us is not None]
        begins = {(stream.per_us, stream.start_us, stream.calendar) for stream in renewing}
        coincide = len(renewing) == 1 or (len(begins) == 1 and renewing[0].start_us is not None)
        return self._times(lambda stream: 1) if coincide else None

    def within(self, window_us: int) -> tuple[Fraction, Fraction]:
        """Return (epsilon, delta) in any window of this length, wherever it begins: two periods for a period's length.

        Raises: EngineInputError if the window is below one microsecond.
        """
        check_whole(window_us=window_us)
        # At worst the window begins with the last microsecond of a period.
        return self._times(lambda stream: 1 if stream.per_us is None else (window_us - 2) // stream.per_us + 2)

    def _times(self, uses: Callable[[StreamCost], int]) -> tuple[Fraction, Fraction]:
        epsilon = sum((uses(stream) * stream.epsilon for stream in self.streams), Fraction(0))
        delta = sum((uses(stream) * stream.delta for stream in self.streams), Fraction(0))
        return epsilon, min(delta, Fraction(1))


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
        for stream in each.streams:
            fields = stream.fingerprint_fields()
            if fields in seen:
                continue
            seen.append(fields)
            privacy = stream.privacy
            # Replacing a user's records is no less than taking them away: both add up under the user's field.
            named = privacy.bounds_users
            unit: Unit = "user" if named else privacy.unit
            groups[unit, str(privacy.user) if named else stream.source, named].append(StreamCost.from_stream(stream))
    found = [Total(unit, who, named, tuple(streams)) for (unit, who, named), streams in groups.items()]
    return tuple(sorted(found, key=lambda total: total.unit != "user"))
