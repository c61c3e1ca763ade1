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

from pydantic import AfterValidator, Field, SerializeAsAny, StrictBool, ValidationError, ValidationInfo, WrapValidator

from schemas.config.domain import DomainSection
from schemas.config.engines.discovery import DOMAINS, ENGINES, measures_expiry
from schemas.config.engines.options import OptionsSection, TripOptionsSection
from schemas.config.engines.spec import INTEGER, EngineFacts, EngineSpec, RecordFields
from schemas.config.formats import InputParts, Source
from schemas.config.output import OutputSection
from schemas.config.privacy import MAX_DELTA, SURPLUS_SHARE, Privacy
from schemas.config.records import WEIGHT, RecordsSection
from schemas.config.split import SplitPart, SplitSection, split_problems
from schemas.config.timing import RecordTimes, Timing
from schemas.config.values import (
    Duration,
    PlainName,
    TopicName,
    error_details,
    format_length,
    microseconds,
    prefixed,
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
            f'set engine = "{near[0]}"' if near else "set engine to an available one",
        )
    return value


def _domain(value: Any, handler: Any, info: ValidationInfo) -> Any:
    """Validate a domain by the model of its kind, which is one of the engine's. Where it says none of them, it is read
    as the kind that has most of its keys, so that what else is wrong with them is said at once.
    """
    told = {"kind": value.kind} if isinstance(value, DomainSection) else value
    if not isinstance(told, Mapping):
        return handler(value)
    spec = ENGINES.get(info.data.get("engine", ""))
    models = DOMAINS if spec is None else spec.domains
    kind, available = told.get("kind"), ", ".join(models)
    if isinstance(kind, str) and kind in models:
        model = models[kind].__pydantic_validator__
        return value if told is not value else model.validate_python(value, context=info.context)
    known = {each: len(told.keys() & {*model.key_names()} - {"kind"}) for each, model in models.items()}
    likely = max(known, key=known.__getitem__)
    if "kind" not in told:
        reason, fix = "missing", f'add kind = "{likely}" to [streams.domain]'
        fix += f", or another of {available}" if len(models) > 1 else ""
    elif spec is not None and isinstance(kind, str) and kind in DOMAINS:
        reason = f'engine "{spec.name}" has no domain of kind "{kind}"; available: {available}'
        fix = f'set kind = "{likely}", or another available kind, or another engine'
    else:
        reason = f"this kind is not available in this version; available: {available}"
        fix = f'set kind = "{likely}", or another available kind'
    refused: list[Any] = [((), ConfigProblem("kind", reason, fix))]
    if known[likely]:
        try:
            models[likely].__pydantic_validator__.validate_python({**told, "kind": likely}, context=info.context)
        except ValidationError as error:
            refused += [(each["loc"], each["ctx"]) for each in error_details(error)]
    raise refusals(refused)


def _options(value: Any, handler: Any, info: ValidationInfo) -> Any:
    """Validate options by the model of the engine, and refuse contradictions between all readable keys of the stream.

    Options of an unknown engine are skipped. This is the last key of a stream, so that `info.data` holds all keys
    before it that could be read.
    """
    read = dict(info.data)
    refused: list[Any] = []
    if (engine := info.data.get("engine")) is not None:
        try:
            read["options"] = ENGINES[engine].options.__pydantic_validator__.validate_python(
                value, context=info.context
            )
        except ValidationError as error:
            refused += [(each["loc"], each["ctx"]) for each in error_details(error)]
    names = {field.name for field in fields(StreamParts)}
    parts = StreamParts(**{name: each for name, each in read.items() if name in names})
    refused += [((), problem) for problem in prefixed("../", parts.problems())]
    if refused:
        raise refusals(refused)
    return read.get("options")


if TYPE_CHECKING:
    Domain = DomainSection
    Options = OptionsSection  # each engine reads its own, see `OptionsSection.from_stream`
else:
    Domain = Annotated[SerializeAsAny[DomainSection], WrapValidator(_domain)]
    Options = Annotated[SerializeAsAny[OptionsSection], WrapValidator(_options)]


MIN_EVENT_EPSILON = Fraction(1, 1_000_000)
LONGEST_NAME = 100


class Stream(Source):
    """`[[streams]]`. The keys that `fingerprint_fields` leaves out may change under a running stream."""

    name: PlainName = Field(examples=["taxi"])
    """Name of the stream; its topics are `<name>.synthetic`, `.measurements`, `.ledger` and `.utility`."""
    engine: Annotated[str, Field(strict=True), AfterValidator(_engine)] = Field(examples=["spatial"])
    """Name of an installed engine, which determines the kind of stream."""
    mode: Annotated[str, Field(strict=True)] = Field("default", examples=["default"])
    """Method of the engine; use `default` unless you compare methods."""
    source: TopicName = Field(examples=["raw.taxi"])
    """Private topic that is read; if users are bounded, its records are keyed by user."""
    audit: TopicName | None = Field(None, examples=["audit.taxi"])
    """Topic with held-out events, with which releases are compared; absent: no audit."""
    allow_compacted: StrictBool = Field(False, examples=[True])
    """Accept topics with `cleanup.policy = compact`: all but the last event of a key may be lost, uncounted."""
    partitioner: Literal["murmur2", "crc32", "any", "none"] = Field("murmur2", examples=["murmur2"])
    """Partitioner of the producers: `murmur2` (Java, aiokafka; `partitioner=murmur2_random` of librdkafka), `crc32`
    (kcat, confluent-kafka and all of librdkafka by default), `any`: the job copies each record to the partition of its
    user; or `none`: partitions are not checked.
    """
    publish_delay: Duration = Field(timedelta(0), examples=["0s"])
    """Delay of the publication of a step after its end and grace."""
    split: SplitSection | None = None
    """Several streams in place of one, of disjoint events, each with an engine of its own; absent: one stream."""
    output: OutputSection = Field(default_factory=OutputSection)
    """Format of the synthetic records; absent: plain JSON."""
    records: RecordsSection = Field(default_factory=RecordsSection)
    """What a synthetic record stands for; absent: one event."""
    privacy: Privacy
    time: Timing
    domain: Domain
    """Public description of possible events; `kind` selects its model."""
    options: Options = Field(default_factory=dict, validate_default=True)
    """Options of `engine`; absent: all have their defaults."""

    def problems(self) -> Iterator[ConfigProblem]:
        """Yield what synthetic records, and the schema of the output, cannot say."""
        fields = self.record_fields
        if self.weighted and WEIGHT in ENGINES[self.engine].records(self.domain):
            yield ConfigProblem(
                "records.form",
                f'field "{WEIGHT}" of synthetic records would be their weight and a value of the engine',
                "name another field, such as one that [streams.map] computes",
            )
        if self.time.field in fields:
            yield ConfigProblem(
                "time.field",
                f'field "{self.time.field}" of synthetic records would be their time and a value of the engine',
                "name another field, such as one that [streams.map] computes",
            )
        yield from self.output.field_problems(self.time.field, fields)
        if self.split is not None and self.part is None and max(map(len, self.split.names(self.name))) > LONGEST_NAME:
            yield ConfigProblem(
                "name",
                f"with the name of a part it is longer than {LONGEST_NAME} characters",
                "shorten it, or the names of parts",
            )

    def parts(self) -> Iterator[Stream]:
        """Yield the streams that this one is: those of its parts where it is split, and else itself."""
        if self.split is None or self.part is not None:
            yield self
            return
        for part, name in zip(self.split.parts, self.split.names(self.name), strict=True):
            of_part = SplitPart(field=self.split.field, parts=self.split.parts, whole=self.name, part=part)
            yield self.model_copy(update={"name": name, "split": of_part})

    @property
    def part(self) -> SplitPart | None:
        """The part of a split that this stream is; None where it is a stream by itself."""
        return self.split if isinstance(self.split, SplitPart) else None

    @property
    def whole(self) -> str:
        """Name of the stream as it is configured: that of the one which is split, where this is a part."""
        return self.name if self.part is None else self.part.whole

    def with_overrides(
        self,
        *,
        mode: str | None = None,
        epsilon: Decimal | float | str | None = None,
        max_contributions: int | None = None,
    ) -> Stream:
        """Return the stream with another mode, epsilon or bound, validated like a file; None keeps a value.

        A smaller `max_contributions` also lowers `max_per_step`, which may not exceed it, and options that have no
        effect in the other mode are left out.

        Raises: ConfigError; its keys are relative to the stream.
        """
        values: dict[str, Any] = {}
        if mode is not None:
            unused = self.options.without_effect(mode)
            options = {name: value for name, value in self.options.explicit.items() if name not in unused}
            values = {"mode": mode, "options": options}
        privacy: dict[str, Any] = {} if epsilon is None else {"epsilon": epsilon}
        if max_contributions is not None:
            privacy["max_contributions"] = max_contributions
            if self.privacy.max_per_step is not None:
                privacy["max_per_step"] = min(self.privacy.max_per_step, max_contributions)
        if privacy:  # a mapping, so that keys of problems are relative to the stream
            values["privacy"] = self.privacy.explicit | privacy
        try:
            return self.revised(**values)
        except ConfigError as error:
            problems = [replace(each, reason=f'stream "{self.name}": {each.reason}') for each in error.problems]
            raise ConfigError(problems) from None

    @property
    def facts(self) -> EngineFacts:
        """The facts of the engine."""
        return ENGINES[self.engine].facts

    @property
    def needs_delta(self) -> bool:
        """Whether the stream has no guarantee without a delta."""
        return self.facts.requires_delta(self.mode, self.domain)

    @property
    def horizon(self) -> int | None:
        """Number of steps after which nothing more is measured; None if there is no end."""
        horizon: int | None = getattr(self.options, "horizon", None)
        return horizon

    @property
    def record_fields(self) -> RecordFields:
        """All fields of synthetic records but their time, in order, each with the kinds of its values."""
        own = ENGINES[self.engine].records(self.domain)
        return {**own, WEIGHT: INTEGER} if self.weighted else own

    @property
    def weighted(self) -> bool:
        """Whether a synthetic record stands for as many events as its weight says."""
        return self.records.weighted

    @property
    def decay(self) -> Fraction:
        """Factor by which precision decreases from step to step; 1 if it does not."""
        decay: Fraction | None = getattr(self.options, "decay_fraction", None)
        return Fraction(1) if decay is None else decay

    @property
    def record_times(self) -> RecordTimes | None:
        """What the time of a synthetic record says; None if the engine dates its records."""
        if self.facts.dates_records:
            return None
        datable = self.domain.deletion_key is None and not self.weighted
        return self.time.records or ("dated" if datable else "released")

    @property
    def publish_delay_us(self) -> int:
        """`publish_delay` in microseconds."""
        return microseconds(self.publish_delay)

    @property
    def insert_charge(self) -> int:
        """Number of contributions that one insert costs its user; a delete costs 1.

        With `ttl` it is 2 in a mode that measures the expiry as a delete, because the insert then moves two releases.
        """
        return 2 if self.domain.lifetime is not None and measures_expiry(self.engine, self.mode) else 1

    @property
    def contribution(self) -> str:
        """Word for one contribution: `event`, `trip`, or `key` where it is the first event of a user with a key."""
        if self.counts_pairs:
            return "key"
        return "event" if self.domain.trip_field is None else "trip"

    @property
    def counts_pairs(self) -> bool:
        """Whether a contribution is a pair of user and key; see `EngineFacts.contribution`."""
        return self.facts.contribution == "pair"

    @property
    def pair_events(self) -> int:
        """Events of a user with one key that count in a period, where a contribution is a pair of both; else 0."""
        return self.options.pair_events if self.counts_pairs else 0

    @property
    def trip_life(self) -> int | None:
        """Largest number of steps that records of one trip can be in; None if contributions are not trips."""
        if self.domain.trip_field is None:
            return None
        return TripOptionsSection.from_stream(self).life_steps(self.time.shortest_us)

    @property
    def period_steps(self) -> int | None:
        """Number of steps after which the bound renews; None if it never does."""
        return None if self.privacy.per is None else steps_in(self.privacy.per, self.time.step)

    @property
    def ttl_steps(self) -> int | None:
        """Number of steps after which an insert expires; None if it never does."""
        return None if self.domain.lifetime is None else steps_in(self.domain.lifetime, self.time.step)

    @property
    def whole_unit(self) -> bool:
        """Whether the engine accounts for all changes of a unit; see `EngineFacts`.

        It always does with a delta, because (epsilon, delta) of a unit is not a multiple of that of one event.
        """
        return self.facts.whole_unit or self.privacy.delta > 0

    @property
    def contributions(self) -> int:
        """Number by which epsilon is divided: `changes`, or 1 if the engine accounts for the whole unit."""
        return 1 if self.whole_unit else self.changes

    @property
    def changes(self) -> int:
        """Largest number of changes of a unit: `max_contributions` for a user, `insert_charge` for an event."""
        if self.privacy.unit == "event" or self.privacy.max_contributions is None:
            return self.insert_charge
        return self.privacy.max_contributions

    @property
    def event_epsilon(self) -> Fraction:
        """Epsilon for one event, exact: the epsilon of the unit divided by `contributions`.

        With unit = "user" it is epsilon / max_contributions, and an insert takes `insert_charge` contributions; with
        unit = "event" it is epsilon / `insert_charge`. With `op`, an insert and its delete are two events.
        """
        return self.privacy.epsilon_fraction / self.contributions

    @property
    def surplus(self) -> int:
        """Number of events of one user beyond `max_contributions` that are counted in a period."""
        return (self.privacy.surplus or 0) * (self.privacy.max_contributions or 0)

    @property
    def engine_epsilon(self) -> Fraction:
        """Part of `event_epsilon` for the engine: everything that counting the surplus does not take."""
        return self.event_epsilon * (1 - SURPLUS_SHARE) if self.surplus else self.event_epsilon

    @property
    def noise_version(self) -> int:
        """Version of the noise distribution; 1 if a later version is equal to the first for these options."""
        privacy = self.privacy
        one_a_step = privacy.unit == "event" or privacy.max_contributions in (None, 1) or privacy.max_per_step == 1
        if self.options.draws_first_version(self.mode, one_a_step=one_a_step):
            return 1
        return self.facts.noise_versions.get(self.mode, 1)

    @property
    def routed(self) -> bool:
        """Whether the job copies each record to the partition of its user."""
        return self.partitioner == "any"

    @property
    def placed_by(self) -> Literal["murmur2", "crc32", "none"]:
        """Partitioner by which ingest expects the records of a user."""
        return "murmur2" if self.partitioner == "any" else self.partitioner

    @property
    def checks_partition(self) -> bool:
        """Whether records that are not on the partition of their user are refused."""
        return self.privacy.bounds_users and self.partitioner != "none"

    def fingerprint_from(self, start: str) -> dict[str, Any]:
        """Return `fingerprint_fields` of a stream whose step 0 begins at a local time."""
        fields = self.fingerprint_fields()
        return {**fields, "time": {**fields["time"], **self.time.begins_from(start)}}

    def fingerprint_fields(self) -> dict[str, Any]:
        """Return everything on which the guarantee and the meaning of stored states depend, for canonical JSON.

        `audit`, `allow_compacted`, `grace`, `publish_delay` and `user_key_file` are left out, so that they may change
        under a running stream; `run` adds the id of the user key itself. Values are integers, texts, floats and None.
        """
        return {
            "name": self.name,
            "engine": self.engine,
            "mode": self.mode,
            "source": self.source,
            "format": self.format,
            **self.input_fields(),
            "partitioner": self.partitioner,
            **({} if self.split is None else {"split": self.split.fingerprint_fields()}),
            "privacy": {**self.privacy.fingerprint_fields(), "insert_charge": self.insert_charge},
            "time": {
                **self.time.fingerprint_fields(),
                **({} if self.record_times is None else {"records": self.record_times}),
            },
            "domain": self.domain.fingerprint_fields(),
            "options": self.options.fingerprint_fields(),
            **({"output": {"format": self.output.format}} if self.output.typed else {}),
            **({"records": {"form": self.records.form}} if self.weighted else {}),
            # It is absent for the first version.
            **({"noise": self.noise_version} if self.noise_version > 1 else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamParts(InputParts):
    """The readable parts of a stream, so that one broken section does not hide the problems of the others."""

    engine: str | None = None
    mode: str | None = None
    options: OptionsSection | None = None
    records: RecordsSection | None = None

    def problems(self) -> Iterator[ConfigProblem]:
        """Yield contradictions between the readable parts."""
        yield from self._engine()
        yield from self._unit()
        yield from self._surplus()
        yield from self._budget()
        yield from self._periods()
        yield from self._deletions()
        yield from self._records()
        yield from self._roles()
        yield from split_problems(self.split, self.privacy, self.time, self.domain)
        yield from self.input_problems()

    def _engine(self) -> Iterator[ConfigProblem]:
        spec = self._spec
        if spec is None:
            return
        facts = spec.facts
        if self.mode is not None and self.mode not in facts.modes:
            yield ConfigProblem(
                "mode",
                f'engine "{self.engine}" has no such mode; available: {", ".join(facts.modes)}',
                'set mode = "default"',
            )
        if self.mode not in facts.modes:
            return
        if self.options is not None:
            yield from self.options.mode_problems(self.mode)
            yield from self.options.stream_problems(self.mode, self.privacy, self.time, self.domain)
        if self.privacy is None:
            return
        if self.privacy.delta != 0.0 and self.mode not in facts.uses_delta:
            yield ConfigProblem(
                "privacy.delta",
                f'engine "{self.engine}", mode "{self.mode}", is epsilon-DP and uses no delta',
                "set delta = 0.0, or remove the key"
                + (f"; modes with a delta: {', '.join(sorted(facts.uses_delta))}" if facts.uses_delta else ""),
            )
        if self.mode in facts.uses_delta and self.privacy.delta > MAX_DELTA:
            yield ConfigProblem(
                "privacy.delta",
                f"is above {MAX_DELTA}: one user in a hundred may be entirely unprotected",
                "write a number far below one divided by the number of your users, such as 1e-6",
            )
        if self.privacy.delta == 0.0 and self.domain is not None and facts.requires_delta(self.mode, self.domain):
            yield ConfigProblem(
                "privacy.delta",
                f'mode "{self.mode}" adds Gaussian noise, which has no guarantee without a delta',
                "set delta = 1e-6, or a number far below one divided by the number of your users",
            )

    @property
    def _spec(self) -> EngineSpec | None:
        return ENGINES.get(self.engine) if self.engine is not None else None

    @property
    def _facts(self) -> EngineFacts | None:
        return self._spec.facts if self._spec is not None else None

    def _unit(self) -> Iterator[ConfigProblem]:
        """Refuse a unit that the engine cannot protect, or that cannot be identified and bounded."""
        if self.privacy is None:
            return
        if self._facts is not None and self.privacy.unit not in self._facts.units:
            others = [name for name, spec in ENGINES.items() if self.privacy.unit in spec.facts.units]
            able = f"needs engine {' or '.join(others)}" if others else "needs an engine that this version lacks"
            units = " or ".join(f'"{unit}"' for unit in self._facts.units)
            yield ConfigProblem("privacy.unit", f'unit = "{self.privacy.unit}" {able}', f"use unit = {units}")
        else:
            names_user = self.domain is None or self.domain.names_user
            yield from prefixed("privacy", self.privacy.bound_problems(names_user=names_user))

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
            why = f'with unit = "{privacy.unit}" no bound drops events'
            fix = 'set unit = "user", or remove surplus'
        elif privacy.delta:
            why, fix = "is counted only under pure epsilon-DP", "remove delta, or remove surplus"
        elif domain is not None and domain.operation_field is not None:
            why = "counts inserts, but records of this stream may be deletes"
            fix = "remove surplus, or let events expire by ttl instead of deletes"
        if why:
            yield ConfigProblem("privacy.surplus", why, fix)

    def _budget(self) -> Iterator[ConfigProblem]:
        if self.privacy is not None and not (self._facts is not None and self._facts.whole_unit):
            epsilon = self.privacy.epsilon_fraction / (self.privacy.max_contributions or 1)
            if epsilon < MIN_EVENT_EPSILON:
                yield ConfigProblem(
                    "privacy.epsilon",
                    "leaves less than a millionth to each event, so that the noise would be millions of events",
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

    def _records(self) -> Iterator[ConfigProblem]:
        """Refuse a form that records of the engine cannot have, and dates that they cannot have."""
        if (facts := self._facts) is None:
            return
        weighted = self.records is not None and self.records.weighted
        if self.records is not None:
            others = " or ".join(f'"{name}"' for name, spec in ENGINES.items() if spec.facts.weighs_records)
            able = facts.weighs_records
            yield from prefixed("records", self.records.engine_problems(self.engine or "", able=able, others=others))
        if self.time is not None:
            key = self.domain.deletion_key if self.domain is not None else None
            own = facts.dates_records
            yield from prefixed("time", self.time.records_problems(own=own, deletion_key=key, weighted=weighted))

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
