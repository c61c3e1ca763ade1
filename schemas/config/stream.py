"""`[[streams]]`: one private topic in, one synthetic stream out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from schemas.config.domain import BoxDomain, Domain, expires
from schemas.config.options import (
    ENGINE_MODES,
    ENGINE_NAMES,
    MEASURED_EXPIRY,
    PLANNED_ENGINES,
    PURE_ENGINES,
    Options,
)
from schemas.config.privacy import Privacy, is_multiple
from schemas.config.section import Section, refusal
from schemas.config.timing import Timing
from schemas.config.values import Duration, PlainName, TopicName, format_duration, microseconds
from schemas.errors import ConfigProblem
from schemas.topics import Topics


def _engine(value: str) -> str:
    if value not in ENGINE_NAMES:
        name = f'engine "{value}"' if value in PLANNED_ENGINES else "this engine"
        available = ", ".join(ENGINE_NAMES)
        raise refusal(
            f"{name} is not available in this version; available: {available}", f'set engine = "{ENGINE_NAMES[0]}"'
        )
    return value


LEAST_EVENT_EPSILON = Fraction(1, 1_000_000)


class Stream(Section):
    """`[[streams]]`. What can change under a running stream is what `fingerprint_fields` leaves out."""

    name: PlainName = Field(examples=["taxi"])
    engine: Annotated[str, Field(strict=True), AfterValidator(_engine)] = Field(examples=["spatial"])
    mode: Annotated[str, Field(strict=True)] = Field("default", examples=["default"])
    source: TopicName = Field(examples=["raw.taxi"])
    audit: TopicName | None = Field(None, examples=["audit.taxi"])
    """Topic with the held-out events that the audit agent compares with; absent: no audit."""
    format: Literal["json"] = Field("json", examples=["json"])
    partitioner: Literal["murmur2", "crc32", "none"] = Field("murmur2", examples=["murmur2"])
    """How producers place a user's key: `murmur2` (Java, aiokafka), `crc32` (librdkafka), or `none`: not checked."""
    publish_delay: Duration = Field(timedelta(0), examples=["0s"])
    """Added to the public time (end of the step + grace) at which a step is published."""
    privacy: Privacy
    time: Timing
    domain: Domain
    options: Options = Options()

    @property
    def publish_delay_us(self) -> int:
        """Publish delay in microseconds."""
        return microseconds(self.publish_delay)

    @property
    def output_topics(self) -> tuple[str, ...]:
        """The four topics that this stream writes for readers and operators."""
        return output_topics(self.name)

    @property
    def insert_charge(self) -> int:
        """What one insert costs its user out of `max_contributions`; a delete costs 1.

        With `ttl` it is 2 in a mode that measures the expiry as a delete, since the insert then moves two releases.
        """
        return 2 if self.domain.ttl is not None and (self.engine, self.mode) in MEASURED_EXPIRY else 1

    @property
    def contributions(self) -> int:
        """How many changes one protected unit may make: `max_contributions` of a user, `insert_charge` of an event."""
        if self.privacy.unit == "event" or self.privacy.max_contributions is None:
            return self.insert_charge
        return self.privacy.max_contributions

    @property
    def event_epsilon(self) -> Fraction:
        """Budget at which the engine runs, exact: the unit's epsilon over the changes one unit may make.

        unit = "user": epsilon / max_contributions, where an insert uses up `insert_charge`. unit = "event": epsilon /
        `insert_charge`, as one event makes so many changes. Under `op` an insert and its delete are two events.
        """
        return self.privacy.epsilon_fraction / self.contributions

    @property
    def checks_partition(self) -> bool:
        """True where a record on another partition than its user's is a dead letter."""
        return self.privacy.unit == "user" and self.partitioner != "none"

    def fingerprint_fields(self) -> dict[str, Any]:
        """Everything that the guarantee and the meaning of stored states rest on, ready for canonical JSON.

        Left out, so they may change under a running stream: `audit`, `grace`, `publish_delay`, `user_key_file`
        (`run` adds the id of the key itself). Values are integers, texts, floats and None only.
        """
        privacy, time, domain, options = self.privacy, self.time, self.domain, self.options
        return {
            "name": self.name,
            "engine": self.engine,
            "mode": self.mode,
            "source": self.source,
            "format": self.format,
            "partitioner": self.partitioner,
            "privacy": {
                "epsilon": str(privacy.epsilon_fraction),
                "delta": privacy.delta,
                "unit": privacy.unit,
                "user": privacy.user,
                "max_contributions": privacy.max_contributions,
                "max_per_step": privacy.max_per_step,
                "per_us": privacy.per_us,
                "insert_charge": self.insert_charge,
            },
            "time": {
                "field": time.field,
                "format": time.format,
                "timezone": time.timezone,
                "start": time.start,
                "step_us": time.step_us,
                "clock": time.clock,
                "max_ahead": time.max_ahead,
            },
            "domain": {
                "kind": domain.kind,
                "x": domain.x,
                "y": domain.y,
                "bounds": list(domain.bounds),
                "op": domain.op,
                "ttl_us": domain.ttl_us,
            },
            "options": {
                "depth": options.depth,
                "initial_steps": options.initial_steps,
                "split": str(options.split_fraction),
                "threshold": options.threshold,
                "max_leaves": options.max_leaves,
            },
        }

    def problems(self) -> Iterator[ConfigProblem]:
        """What the sections of this stream say against each other."""
        return StreamParts(self.engine, self.mode, self.privacy, self.time, self.domain).problems()


def output_topics(name: str) -> tuple[str, ...]:
    """The topics that a stream of this name writes for readers and operators."""
    return (Topics.synthetic(name), Topics.measurements(name), Topics.ledger(name), Topics.utility(name))


@dataclass(frozen=True, slots=True)
class StreamParts:
    """As much of a stream as could be read, so that one broken section does not hide what is wrong with the others."""

    engine: str | None
    mode: str | None
    privacy: Privacy | None
    time: Timing | None
    domain: BoxDomain | None

    def problems(self) -> Iterator[ConfigProblem]:
        """What the readable parts say against each other."""
        yield from self._engine()
        yield from self._budget()
        yield from self._periods()
        yield from self._deletions()
        yield from self._roles()

    def _engine(self) -> Iterator[ConfigProblem]:
        modes = ENGINE_MODES.get(self.engine) if self.engine is not None else None
        if modes is not None and self.mode is not None and self.mode not in modes:
            yield ConfigProblem(
                "mode",
                f'engine "{self.engine}" has no such mode in this version; available: {", ".join(modes)}',
                'set mode = "default"',
            )
        if self.privacy is not None and self.engine in PURE_ENGINES and self.privacy.delta != 0.0:
            yield ConfigProblem(
                "privacy.delta",
                f'engine "{self.engine}" is epsilon-DP and has no use for a delta',
                "set delta = 0.0, or remove the key",
            )

    def _budget(self) -> Iterator[ConfigProblem]:
        if self.privacy is not None:
            epsilon = self.privacy.epsilon_fraction / (self.privacy.max_contributions or 1)
            if epsilon < LEAST_EVENT_EPSILON:
                yield ConfigProblem(
                    "privacy.epsilon",
                    "leaves less than a millionth to each event, so its noise would be millions of events",
                    "raise epsilon, or lower max_contributions",
                )

    def _periods(self) -> Iterator[ConfigProblem]:
        if self.time is None:
            return
        durations = {
            "privacy.per": self.privacy.per if self.privacy else None,
            "domain.ttl": self.domain.ttl if self.domain else None,
        }
        for key, duration in durations.items():
            if duration is not None and not is_multiple(duration, self.time.step):
                step = format_duration(self.time.step)
                yield ConfigProblem(
                    key,
                    f"{format_duration(duration)} is not a whole number of steps of {step}",
                    f"write a multiple of time.step = {step}",
                )

    def _deletions(self) -> Iterator[ConfigProblem]:
        if self.domain is None or self.privacy is None or not expires(self.domain):
            return
        if self.domain.op is None and (self.engine, self.mode) not in MEASURED_EXPIRY:
            return
        if self.privacy.unit == "user" and self.privacy.max_contributions == 1:
            key = "op" if self.domain.op is not None else "ttl"
            yield ConfigProblem(
                "privacy.max_contributions",
                f"is 1, but with {key} an insert and its delete are two contributions",
                "set max_contributions = 2 or more",
            )

    def _roles(self) -> Iterator[ConfigProblem]:
        roles: dict[str, list[str]] = defaultdict(list)
        if self.time is not None:
            roles[self.time.field].append("time.field")
        if self.privacy is not None and self.privacy.user is not None:
            roles[self.privacy.user].append("privacy.user")
        if self.domain is not None:
            for key in dict.fromkeys((self.domain.x, self.domain.y)):  # x == y is the domain's own refusal
                roles[key].append("domain.x" if key == self.domain.x else "domain.y")
            if self.domain.op is not None:
                roles[self.domain.op].append("domain.op")
        for field, keys in roles.items():
            for key in keys[1:]:
                yield ConfigProblem(
                    key, f'field "{field}" already serves as {keys[0]}', "name another field of the raw events"
                )
