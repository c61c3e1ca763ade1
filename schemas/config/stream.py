"""`[[streams]]`: one private topic in, one synthetic stream out."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializeAsAny, ValidationError, ValidationInfo, WrapValidator

from schemas.config.discovery import DOMAINS, ENGINES, measures_expiry
from schemas.config.domain import DomainSection
from schemas.config.engines import EngineFacts, EngineSpec
from schemas.config.formats import InputParts, Source
from schemas.config.options import OptionsSection, TripOptionsSection
from schemas.config.privacy import LARGEST_DELTA, SURPLUS_SHARE, Privacy
from schemas.config.timing import Timing
from schemas.config.values import (
    Duration,
    Flag,
    PlainName,
    TopicName,
    below,
    errors_of,
    format_length,
    microseconds,
    refusal,
    refusals,
)
from schemas.errors import ConfigError, ConfigProblem
from schemas.steps import steps_in


def _engine(value: str) -> str:
    if value not in ENGINES:
        near = difflib.get_close_matches(value.lower(), ENGINES, n=1)
        raise refusal(
            f"this engine is not available: no installed distribution has it; available: {', '.join(ENGINES)}",
            f'set engine = "{near[0]}"' if near else "set engine to one of them",
        )
    return value


def _domain(value: Any, handler: Any, info: ValidationInfo) -> Any:
    """Read a domain by the model of its kind. Kinds without a model are refused before anybody looks at other keys."""
    if not isinstance(value, Mapping):
        return value if isinstance(value, DomainSection) else handler(value)
    kind, available, first = value.get("kind"), ", ".join(DOMAINS), next(iter(DOMAINS))
    if "kind" not in value:
        raise refusal("missing", f'add kind = "{first}" to [streams.domain], or one of {available}', at="kind")
    if not isinstance(kind, str) or kind not in DOMAINS:
        reason = f"this kind is not available in this version; available: {available}"
        raise refusal(reason, f'set kind = "{first}", or another of them', at="kind")
    return DOMAINS[kind].__pydantic_validator__.validate_python(value, context=info.context)


def _options(value: Any, handler: Any, info: ValidationInfo) -> Any:
    """Read options by the model of the engine, and refuse what all readable keys of the stream say against each other.

    Under an engine that there is not, options are passed over. This is the last key of a stream, so that `info.data`
    holds each one before it that could be read.
    """
    read = dict(info.data)
    refused: list[Any] = []
    if (engine := info.data.get("engine")) is not None:
        try:
            read["options"] = ENGINES[engine].options.__pydantic_validator__.validate_python(
                value, context=info.context
            )
        except ValidationError as error:
            refused += [(each["loc"], each["ctx"]) for each in errors_of(error)]
    names = {field.name for field in fields(StreamParts)}
    parts = StreamParts(**{name: each for name, each in read.items() if name in names})
    refused += [((), problem) for problem in below("../", parts.problems())]
    if refused:
        raise refusals(refused)
    return read.get("options")


if TYPE_CHECKING:
    Domain = DomainSection
    Options = OptionsSection  # each engine reads its own, see `OptionsSection.from_stream`
else:
    Domain = Annotated[SerializeAsAny[DomainSection], WrapValidator(_domain)]
    Options = Annotated[SerializeAsAny[OptionsSection], WrapValidator(_options)]


LEAST_EVENT_EPSILON = Fraction(1, 1_000_000)


class Stream(Source):
    """`[[streams]]`. What can change under a running stream is what `fingerprint_fields` leaves out."""

    name: PlainName = Field(examples=["taxi"])
    """Name of the stream; its topics are `<name>.synthetic`, `.measurements`, `.ledger` and `.utility`."""
    engine: Annotated[str, Field(strict=True), AfterValidator(_engine)] = Field(examples=["spatial"])
    """What kind of stream it is: one of the installed engines."""
    mode: Annotated[str, Field(strict=True)] = Field("default", examples=["default"])
    """Which of the engine's methods runs; `default` is the one to use."""
    source: TopicName = Field(examples=["raw.taxi"])
    """The private topic that is read; where users are bounded, keyed by the user."""
    audit: TopicName | None = Field(None, examples=["audit.taxi"])
    """Topic with the held-out events that the audit agent compares with; absent: no audit."""
    allow_compacted: Flag = Field(False, examples=[True])
    """Take topics with `cleanup.policy = compact` too: all but the last event of a key may be lost, uncounted."""
    partitioner: Literal["murmur2", "crc32", "any", "none"] = Field("murmur2", examples=["murmur2"])
    """How producers place a user's key: `murmur2` (Java, aiokafka; `partitioner=murmur2_random` of librdkafka), `crc32`
    (kcat, confluent-kafka and all of librdkafka by default), `any`: the job routes each record to its user's partition,
    by a copy; or `none`: not checked.
    """
    publish_delay: Duration = Field(timedelta(0), examples=["0s"])
    """Added to the public time (end of the step + grace) at which a step is published."""
    privacy: Privacy
    time: Timing
    domain: Domain
    """Public description of what an event can be; `kind` says which."""
    options: Options = Field(default_factory=dict, validate_default=True)
    """Options of `engine`; absent: all as they are by default."""

    def changed(
        self,
        *,
        mode: str | None = None,
        epsilon: Decimal | float | str | None = None,
        max_contributions: int | None = None,
    ) -> Stream:
        """Return the stream with another mode, epsilon or bound, checked as a file's is; None: as it is.

        A smaller `max_contributions` lowers `max_per_step` with it: more a step than in all says nothing.

        Raises: ConfigError; its keys are relative to the stream.
        """
        values: dict[str, Any] = {} if mode is None else {"mode": mode}
        privacy: dict[str, Any] = {} if epsilon is None else {"epsilon": epsilon}
        if max_contributions is not None:
            privacy["max_contributions"] = max_contributions
            if self.privacy.max_per_step is not None:
                privacy["max_per_step"] = min(self.privacy.max_per_step, max_contributions)
        if privacy:  # as a mapping, so that what is refused is refused by its key in the stream
            values["privacy"] = self.privacy.given | privacy
        try:
            return self.revised(**values)
        except ConfigError as error:
            said = (replace(each, reason=f'stream "{self.name}": {each.reason}') for each in error.problems)
            raise ConfigError(list(said)) from None

    @property
    def facts(self) -> EngineFacts:
        """What the engine can do."""
        return ENGINES[self.engine].facts

    @property
    def horizon(self) -> int | None:
        """Steps after which nothing more is measured; None: it has no end."""
        found: int | None = getattr(self.options, "horizon", None)
        return found

    @property
    def decay(self) -> Fraction:
        """What is left, in each step, of the precision of the step before; 1 where it does not fall."""
        found: Fraction | None = getattr(self.options, "decay_fraction", None)
        return Fraction(1) if found is None else found

    @property
    def publish_delay_us(self) -> int:
        """Publish delay in microseconds."""
        return microseconds(self.publish_delay)

    @property
    def insert_charge(self) -> int:
        """What one insert costs its user out of `max_contributions`; a delete costs 1.

        With `ttl` it is 2 in a mode that measures the expiry as a delete, since the insert then moves two releases.
        """
        return 2 if self.domain.lifetime is not None and measures_expiry(self.engine, self.mode) else 1

    @property
    def contribution(self) -> str:
        """Word for what is counted against `max_contributions`."""
        return "event" if self.domain.trip_field is None else "trip"

    @property
    def trip_life(self) -> int | None:
        """Steps in which records of a trip pass, where trips are what is bounded."""
        if self.domain.trip_field is None:
            return None
        return TripOptionsSection.from_stream(self).life_steps(self.time.shortest_us)

    @property
    def period_steps(self) -> int | None:
        """Steps of a period, after which the bound renews; None: it never does."""
        return None if self.privacy.per is None else steps_in(self.privacy.per, self.time.step)

    @property
    def ttl_steps(self) -> int | None:
        """Steps after which an insert is deleted by itself; None: it never is."""
        return None if self.domain.lifetime is None else steps_in(self.domain.lifetime, self.time.step)

    @property
    def whole_unit(self) -> bool:
        """True where the engine accounts for all changes of a unit (`EngineFacts`): wherever a delta is promised, too,
        since (epsilon, delta) of a unit is no multiple of what one of its events costs."""
        return self.facts.whole_unit or self.privacy.delta > 0

    @property
    def contributions(self) -> int:
        """How many changes of one unit divide epsilon: `changes`, or 1 where the engine accounts for the whole unit."""
        return 1 if self.whole_unit else self.changes

    @property
    def changes(self) -> int:
        """How many changes by one event a unit may make: `max_contributions` of a user, `insert_charge` of an event."""
        if self.privacy.unit == "event" or self.privacy.max_contributions is None:
            return self.insert_charge
        return self.privacy.max_contributions

    @property
    def event_epsilon(self) -> Fraction:
        """Budget at which the engine runs, exact: the unit's epsilon over the changes one unit may make.

        unit = "user": epsilon / max_contributions, of which an insert uses up `insert_charge`. unit = "event": epsilon
        / `insert_charge`. Under `op` an insert and its delete are two events.
        """
        return self.privacy.epsilon_fraction / self.contributions

    @property
    def surplus(self) -> int:
        """Events of one user beyond `max_contributions` that are counted in a period; 0: none are."""
        return (self.privacy.surplus or 0) * (self.privacy.max_contributions or 0)

    @property
    def engine_epsilon(self) -> Fraction:
        """What of `event_epsilon` is the engine's: all, or what counting the surplus leaves."""
        return self.event_epsilon * (1 - SURPLUS_SHARE) if self.surplus else self.event_epsilon

    @property
    def noise_version(self) -> int:
        """Version of the noise's law; where a later one draws what the first one drew, it is the first one."""
        privacy = self.privacy
        one_a_step = privacy.unit == "event" or privacy.max_contributions in (None, 1) or privacy.max_per_step == 1
        if self.options.draws_as_first(self.mode, one_a_step=one_a_step):
            return 1
        return self.facts.noise_versions.get(self.mode, 1)

    @property
    def routed(self) -> bool:
        """True where the job copies each record to the partition of its user, wherever its producer placed it."""
        return self.partitioner == "any"

    @property
    def placed_by(self) -> Literal["murmur2", "crc32", "none"]:
        """What ingest finds the place of a user's records by."""
        return "murmur2" if self.partitioner == "any" else self.partitioner

    @property
    def checks_partition(self) -> bool:
        """True where a record on another partition than its user's is a dead letter."""
        return self.privacy.bounds_users and self.partitioner != "none"

    def fingerprint_fields(self) -> dict[str, Any]:
        """Return everything that the guarantee and the meaning of stored states rest on, ready for canonical JSON.

        Left out, so they may change under a running stream: `audit`, `allow_compacted`, `grace`, `publish_delay`,
        `user_key_file` (`run` adds the id of the key itself). Values are integers, texts, floats and None only.
        """
        return {
            "name": self.name,
            "engine": self.engine,
            "mode": self.mode,
            "source": self.source,
            "format": self.format,
            **self.input_fields(),
            "partitioner": self.partitioner,
            "privacy": {**self.privacy.fingerprint_fields(), "insert_charge": self.insert_charge},
            "time": self.time.fingerprint_fields(),
            "domain": self.domain.fingerprint_fields(),
            "options": self.options.fingerprint_fields(),
            # Absent for a first version.
            **({"noise": self.noise_version} if self.noise_version > 1 else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamParts(InputParts):
    """As much of a stream as could be read, so that one broken section does not hide what is wrong with the others."""

    engine: str | None = None
    mode: str | None = None
    options: OptionsSection | None = None

    def problems(self) -> Iterator[ConfigProblem]:
        """Yield what the readable parts say against each other."""
        yield from self._engine()
        yield from self._unit()
        yield from self._surplus()
        yield from self._budget()
        yield from self._periods()
        yield from self._deletions()
        yield from self._roles()
        yield from self.input_problems()

    def _engine(self) -> Iterator[ConfigProblem]:
        spec = self._spec
        if spec is None:
            return
        facts = spec.facts
        if self.mode is not None and self.mode not in facts.modes:
            yield ConfigProblem(
                "mode",
                f'engine "{self.engine}" has no such mode in this version; available: {", ".join(facts.modes)}',
                'set mode = "default"',
            )
        if self.domain is not None and self.domain.kind not in spec.kinds:
            kinds = " or ".join(f'"{kind}"' for kind in spec.kinds)
            yield ConfigProblem(
                "domain.kind",
                f'engine "{self.engine}" does not work on a domain of kind "{self.domain.kind}"',
                f"describe the domain as kind = {kinds}, or choose another engine",
            )
        if self.mode not in facts.modes:
            return
        if self.options is not None:
            yield from self.options.in_stream(self.mode, self.privacy, self.time, self.domain)
        if self.privacy is None:
            return
        if self.privacy.delta != 0.0 and self.mode not in facts.uses_delta:
            yield ConfigProblem(
                "privacy.delta",
                f'engine "{self.engine}", mode "{self.mode}", is epsilon-DP and has no use for a delta',
                "set delta = 0.0, or remove the key"
                + (f"; these modes take one: {', '.join(sorted(facts.uses_delta))}" if facts.uses_delta else ""),
            )
        if self.mode in facts.uses_delta and self.privacy.delta > LARGEST_DELTA:
            yield ConfigProblem(
                "privacy.delta",
                f"is above {LARGEST_DELTA}: one user in a hundred may be unprotected altogether",
                "write a probability far below one in your users, such as 1e-6",
            )
        if self.privacy.delta == 0.0 and self.mode in facts.needs_delta:
            yield ConfigProblem(
                "privacy.delta",
                f'mode "{self.mode}" adds Gaussian noise and promises nothing without a delta',
                "set delta = 1e-6, or a probability far below one in your users",
            )

    @property
    def _spec(self) -> EngineSpec | None:
        return ENGINES.get(self.engine) if self.engine is not None else None

    @property
    def _facts(self) -> EngineFacts | None:
        return self._spec.facts if self._spec is not None else None

    def _unit(self) -> Iterator[ConfigProblem]:
        """Refuse a unit that the engine cannot protect, or that cannot be told apart and bounded."""
        if self.privacy is None:
            return
        if self._facts is not None and self.privacy.unit not in self._facts.units:
            others = [name for name, spec in ENGINES.items() if self.privacy.unit in spec.facts.units]
            able = f"needs engine {' or '.join(others)}" if others else "needs an engine that this version lacks"
            units = " or ".join(f'"{unit}"' for unit in self._facts.units)
            yield ConfigProblem("privacy.unit", f'unit = "{self.privacy.unit}" {able}', f"use unit = {units}")
        else:
            yield from below("privacy", self.privacy.bounds(names_user=self.domain is None or self.domain.names_user))

    def _surplus(self) -> Iterator[ConfigProblem]:
        privacy, facts, domain = self.privacy, self._facts, self.domain
        if privacy is None or privacy.surplus is None or facts is None or self.mode not in facts.modes:
            return
        why = fix = ""
        if self.mode not in facts.counts_surplus:
            able = [
                f'engine "{name}" in mode "{mode}"'
                for name, spec in ENGINES.items()
                for mode in sorted(spec.facts.counts_surplus)
            ]
            why = f'engine "{self.engine}", mode "{self.mode}", does not scale its release by what the bounds refuse'
            fix = f"remove surplus, or use {' or '.join(able)}"
        elif privacy.unit != "user":
            why, fix = f'unit = "{privacy.unit}" has no events that a bound drops', 'set unit = "user", or remove it'
        elif privacy.delta:
            why, fix = "is counted under pure epsilon-DP only", "remove delta, or remove surplus"
        elif domain is not None and domain.operation_field is not None:
            why = "counts inserts, and records of this stream may be deletes"
            fix = "remove surplus, or let events expire by ttl instead of deletes"
        if why:
            yield ConfigProblem("privacy.surplus", why, fix)

    def _budget(self) -> Iterator[ConfigProblem]:
        if self.privacy is not None and not (self._facts is not None and self._facts.whole_unit):
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
            "domain.ttl": self.domain.lifetime if self.domain else None,
        }
        for key, duration in durations.items():
            if duration is not None and not steps_in(duration, self.time.step):
                step = format_length(self.time.step)
                yield ConfigProblem(
                    key,
                    f"{format_length(duration)} is not a whole number of steps of {step}",
                    f'write a multiple of time.step = {step}, such as "{format_length(self.time.step * 2)}"',
                )

    def _deletions(self) -> Iterator[ConfigProblem]:
        key = self.domain.deletion_key if self.domain is not None else None
        if self.time is not None and self._facts is not None:
            own = self._facts.dates_records
            yield from below("time", self.time.dated_problems(own=own, deletion_key=key))
        if key is None or self.privacy is None:
            return
        if key == "ttl" and not measures_expiry(self.engine or "", self.mode or ""):
            return
        if self.privacy.unit == "user" and self.privacy.max_contributions == 1:
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
            for key, field in self.domain.roles():
                roles[field].append(f"domain.{key}")
        for field, keys in roles.items():
            for key in keys[1:]:
                yield ConfigProblem(
                    key, f'field "{field}" already serves as {keys[0]}', "name another field of the raw events"
                )
