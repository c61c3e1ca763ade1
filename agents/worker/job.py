"""What the roles of one worker share: its configuration, its streams, and what has stopped."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from agents.kafka.fingerprint import stored_fingerprints
from agents.kafka.lifecycle.advice import PAGE
from agents.kafka.lifecycle.stops import Stops
from agents.kafka.lifecycle.vitals import Vitals
from agents.kafka.witness.places import Store
from agents.kafka.witness.streams import store_of
from agents.protocol.partitioner import home_partition
from agents.worker.processors import Processors
from agents.worker.trimming import Deletions
from engines.core.noise import fresh_seed, repeated_seed
from schemas.config import Config, Stream
from schemas.topics import Topics

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Job:
    """The state that the tasks of one worker share.

    Attributes:
        source_partitions: stream -> partitions of its source topic; `audit_partitions` the same of its audit topic.
        schema_ids: stream -> id of the schema of its records, of streams with typed output.
        trusted: stream -> step up to which `--trust-ledger` says that the public ledger is whole.
        instance_id: the worker's place in its consumer groups (`agents.kafka.membership`); None: a new one each time.
        insecure_seed: makes every run repeatable and therefore not private; None draws from the operating system.
        kept: streams that have a history and are not configured here: it stays as it is, see `meet`.
        stops: which streams have stopped in this process.
        vitals: what each part of this worker is doing.
    """

    config: Config
    source_partitions: Mapping[str, int]
    audit_partitions: Mapping[str, int] = field(default_factory=dict)
    schema_ids: Mapping[str, int] = field(default_factory=dict)
    insecure_seed: int | None = None
    trusted: Mapping[str, int] = field(default_factory=dict)
    instance_id: str | None = None
    kept: frozenset[str] = field(init=False, default=frozenset())
    stops: Stops = field(init=False)
    vitals: Vitals = field(default_factory=Vitals)

    def __post_init__(self) -> None:
        self.stops = Stops.of(stream.name for stream in self.config.streams)
        self._known = {*self.config.job.retired, *(stream.name for stream in self.config.streams)}

    @cached_property
    def processors(self) -> Processors:
        """What computes steps."""
        return Processors()

    @cached_property
    def deletions(self) -> Deletions:
        """What deletes private records that nothing can need again."""
        return Deletions(self.config)

    @property
    def topics(self) -> Topics:
        return self.config.topics

    @cached_property
    def witness(self) -> Store:
        """The place where the last answered steps are noted. Raises: ConfigError."""
        return store_of(self.config.job)

    def witness_remark(self, stream: str) -> str:
        """Say for the ledger what its steps are released with in place of a configured witness; empty: with one."""
        if self.config.job.witness is None:
            return "none configured"
        return f"trusted up to step {self.trusted[stream]}" if stream in self.trusted else ""

    @property
    def caveat(self) -> str:
        """The reason why the releases are not private; empty: they are."""
        return "" if self.insecure_seed is None else "the noise came from an insecure seed"

    def streams_on(self, partition: int) -> Sequence[Stream]:
        """Return the streams whose home is this partition."""
        return self._streams_by_home.get(partition, ())

    @cached_property
    def _streams_by_home(self) -> Mapping[int, Sequence[Stream]]:
        found: dict[int, list[Stream]] = {}
        for stream in self.config.streams:
            found.setdefault(home_partition(stream.name, self.config.kafka.partitions), []).append(stream)
        return found

    def holds_back(self, partition: int) -> bool:
        """Return whether private records on this partition must stay: a stream at home there cannot say what it still
        needs.

        It has stopped, or it is not configured here: taken out, and may be put back, or served by another worker.
        """
        partitions = self.config.kafka.partitions
        return bool(self.stops.among(stream.name for stream in self.streams_on(partition))) or any(
            home_partition(name, partitions) == partition for name in self.kept
        )

    def meet(self, name: str) -> None:
        """Keep what a stream needs of which somebody has a private record, if it is not configured here.

        It was taken out, or a worker with a later configuration started it. Whoever deletes calls this for each record
        that is read, so before anything behind it can be deleted.
        """
        if name in self._known:
            return
        self._known.add(name)
        self.kept |= {name}
        log.warning(
            "stream %s was started once and is not configured: all that it needs to go on is kept, and old private "
            "records of the streams beside it too. Put it back, name it in [job] retired, or restart this worker with "
            "the configuration that has it (%s, %r)",
            name, PAGE, "A stream that is taken out",
        )  # fmt: skip

    async def meet_all(self) -> None:
        """Meet the streams that were started until now. For whoever goes on behind records that it has not read itself:
        of a stream that is started later, all records are written later. Raises: BrokerError, WireError.
        """
        for name in sorted(await stored_fingerprints(self.config)):
            self.meet(name)

    def draw_seed(self, stream: str, step: int) -> bytes:
        """Return the 32 bytes from which all noise of the step is expanded."""
        if self.insecure_seed is None:
            return fresh_seed()
        return repeated_seed(self.insecure_seed, stream, step)
