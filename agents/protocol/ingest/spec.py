"""What one stream's ingest does with a source partition, as public constants made from the configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any, Literal
from zoneinfo import ZoneInfo

from agents.protocol.clock import StepClock
from agents.protocol.formats.build import JSON, ROWS, InputFormat
from agents.protocol.formats.contract import SchemaBook
from agents.protocol.formats.mapping import FieldMap
from agents.protocol.formats.reader import RecordReader, paths_of
from agents.protocol.ingest.bounds import BoundSpec
from agents.protocol.ingest.decode import MAX_VALUE_BYTES, EventDecoder, EventFields, FormatDecoder
from agents.protocol.ingest.parts import PartDecoder, SplitReading
from agents.protocol.ingest.times import TimeParser
from agents.protocol.partitioner import Partitioner
from agents.protocol.userhash import id_bytes
from engines.core.contract import Domain, FilledDomain, FilledWords
from schemas.config import Stream
from schemas.config.split import SplitPart
from schemas.errors import ConfigError
from schemas.steps import Steps

Role = Literal["blocks", "held_out", "route"]
Readings = dict[tuple[str, str], SplitReading]
"""Role and name of a split stream -> what its parts share."""
_BLOCK_RAW_BYTES = 7 << 19  # 3.5 MiB: an encoded block stays below 4 MiB even where nothing compresses
_BLOCK_RECORDS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SourceSpec:
    """Recipe of a `PartitionIngest`. Holds a key: never print or log it.

    Attributes:
        role: `blocks` feed the engine; `held_out` is the audit topic, unbounded and without dead letters; `route`
            copies records to the topic that the stream's `blocks` are made of.
        partitions: of the topic on which users have their places: the source, or the routed one.
        routed_from: the source, where `topic` has copies of its records.
        sources: partitions of that source, where they are replayed: each closes steps by itself. 0: none is.
        key: of the user hash; None exactly where there are no bounds.
        mapping: computes the fields that are not read as they are named.
        part: of a split stream, whose records alone are events; None where the stream is not split.
        replay: ticks come as records until the partition goes live; otherwise the task makes them by the wall clock.
    """

    stream: str
    topic: str
    role: Role
    partitions: int
    domain: Domain
    clock: StepClock
    format: str
    zone: ZoneInfo
    fields: EventFields
    replay: bool
    key: bytes | None
    partitioner: Partitioner | None
    bounds: BoundSpec | None
    max_value_bytes: int = MAX_VALUE_BYTES
    input: InputFormat = JSON
    routed_from: str | None = None
    sources: int = 0
    mapping: FieldMap | None = None
    part: SplitPart | None = None
    schemas: SchemaBook = dataclass_field(default_factory=SchemaBook)

    @staticmethod
    def from_stream(
        stream: Stream,
        domain: Domain,
        *,
        key: bytes | None,
        partitions: int,
        steps: Steps | None = None,
        rows: bool = False,
        schemas: SchemaBook | None = None,
        bounded: bool = True,
    ) -> SourceSpec:
        """Return the spec of a stream's source topic.

        Args:
            stream: a `schemas.config.Stream`.
            domain: of the engine.
            key: 16 bytes, see `userhash.user_key`; needed where users are bounded, ignored elsewhere.
            steps: where the configuration says that they begin `now`.
            rows: what is read are rows of a file, whatever the format of the topic.
            schemas: of the job's registry.
            bounded: whether users are, where the stream says so.
        Raises: ConfigError if a user's events could not be kept together, or the key or the start is missing.
        """
        user = stream.privacy.user if bounded and stream.privacy.bounds_users else None
        if user is not None and stream.placed_by == "none" and partitions > 1:
            raise ConfigError.of(
                f"streams.{stream.name}.partitioner",
                f'"none" cannot keep a user\'s events together on the {partitions} partitions of {stream.source}',
                'set "any", and the job routes them; key the records by user and set "murmur2" or "crc32"; or use a '
                "source topic of one partition",
            )
        if user is not None and key is None:
            raise ConfigError.of(
                f"streams.{stream.name}.privacy.user_key_file",
                "missing: bounds on users need the secret of the hash of user ids",
                "name a file with at least 16 random bytes, or set PRIVSTREAM_USER_KEY_FILE",
            )
        if stream.split is not None and stream.part is None:
            raise ValueError(f"stream {stream.name} is split: its parts are the streams")
        steps = stream.time.steps if steps is None else steps
        if steps is None:
            raise ConfigError.of(
                f"streams.{stream.name}.time.start", 'is "now", and nobody said when that is', "pass the stored start"
            )
        return SourceSpec(
            stream=stream.name,
            topic=stream.source,
            role="blocks",
            partitions=partitions,
            domain=domain,
            clock=StepClock(steps, stream.time.max_ahead),
            format=stream.time.format,
            zone=stream.time.zone,
            fields=EventFields.from_stream(stream, domain, user=user),
            replay=stream.time.clock == "replay",
            key=key if user is not None else None,
            partitioner=stream.placed_by if user is not None else None,
            bounds=_bounds(stream) if user is not None else None,
            input=ROWS if rows else InputFormat.from_stream(stream),
            mapping=FieldMap.of(stream),
            part=stream.part,
            schemas=SchemaBook() if schemas is None else schemas,
        )

    @staticmethod
    def held_out(stream: Stream, domain: Domain, **settings: Any) -> SourceSpec:
        """Return the spec of a stream's audit topic, with its evaluator's domain; settings as of `of`.

        A simulation has held-out data without a topic.
        """
        spec = SourceSpec.from_stream(stream, domain, key=None, bounded=False, **settings)
        return replace(spec, topic=stream.audit or "", role="held_out")

    def routing(self, routed: str, sources: int) -> tuple[SourceSpec, SourceSpec]:
        """Return what the router does with the source, and ingest with the routed topic, in place of this spec.

        Args: sources: partitions of the source.
        """
        if self.replay and sources < 1:
            raise ValueError("a routed replay waits for the ticks of each partition of its source")
        router = replace(self, role="route", bounds=None, key=None)
        return router, replace(self, topic=routed, routed_from=self.topic, sources=sources if self.replay else 0)

    @property
    def name(self) -> str:
        """The name under which its place is noted; stored, so it never changes. Stream names hold no colon."""
        return {"blocks": "", "held_out": "truth:", "route": "route:"}[self.role] + self.stream

    @property
    def dead_letters(self) -> bool:
        return self.role == "blocks"

    @property
    def max_block_records(self) -> int:
        """The most records in one block, so that it stays below 4 MiB: key, count, hash, slot and charge of each."""
        row_bytes = 8 * self.domain.words + 8 + (0 if self.bounds is None else 32)
        if self.fields.trip is not None or (self.bounds is not None and self.bounds.pairs):
            row_bytes += 32  # a trip or a pair may have a row of its own beside its user's
        return min(_BLOCK_RECORDS, _BLOCK_RAW_BYTES // row_bytes) // self.decoder().most_events

    @property
    def filled(self) -> FilledWords:
        """The words of a key that are not the domain's to fill. Only points of trips have them."""
        assert isinstance(self.domain, FilledDomain), "a field names trips, and the domain has no words for them"
        return self.domain.filled

    def decoder(self, readings: Readings | None = None) -> EventDecoder | PartDecoder:
        """Return the decoder of its records. Args: readings: of those parts of split streams that read one source."""
        if self.part is None:
            return self._decoder()
        shared: Readings = {} if readings is None else readings
        key = self.role, self.part.whole
        if key not in shared:
            shared[key] = SplitReading(self._decoder(), self.part)
        return PartDecoder(shared[key], self.part)

    def _decoder(self) -> EventDecoder:
        fields, limit = self.fields, self.max_value_bytes
        plain = self.mapping is None and self.input in (JSON, ROWS)
        if plain and all(path.plain for path in paths_of(self.input, fields.names)):
            return EventDecoder(fields, max_value_bytes=limit)
        reader = RecordReader(
            self.input,
            fields.names,
            time=fields.time,
            unit=self.format if fields.time_is_number else None,
            user=fields.user,
            id_of=id_bytes,
            deletes=fields.operation is not None,
            kinds=fields.kinds,
            book=self.schemas,
            max_value_bytes=limit,
            mapping=self.mapping,
        )
        return FormatDecoder(fields, reader, max_value_bytes=limit)

    def time_parser(self) -> TimeParser:
        return TimeParser(self.format, self.zone)


def _bounds(stream: Stream) -> BoundSpec:
    assert stream.privacy.max_contributions is not None, "the configuration bounds the users of this stream"
    return BoundSpec(
        max_contributions=stream.privacy.max_contributions,
        charge=stream.insert_charge,
        max_per_step=stream.privacy.max_per_step,
        period_steps=stream.period_steps,
        trip_life=stream.trip_life,
        pairs=stream.pair_events,
        surplus=stream.surplus,
    )
