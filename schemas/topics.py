"""Names and settings of all topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Audience = Literal["private", "public", "operator"]
TopicAndPartition = tuple[str, int]
"""Name of a topic, and number of a partition."""

FOREVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
COMPACTED = {"cleanup.policy": "compact"}
BATCH_BYTES = 1 << 20
"""Largest batch of records, in bytes: the limit of a broker is on batches."""
BATCHES = {"max.message.bytes": str(BATCH_BYTES + 12)}
"""The default of Kafka: a batch, and the 12 bytes that a log puts before it."""
CLOCK = {"message.timestamp.type": "LogAppendTime", "retention.ms": str(86_400_000)}
OWN_TIMES = {"message.timestamp.type": "CreateTime"}
"""Records keep the times that their producer gives them, whatever brokers do by default."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as the job needs it.

    Attributes:
        partitions: required number of partitions; None if any number will do, as source topics belong to their
            producers.
        settings: required configuration of the topic, as Kafka names it.
        purpose: what the topic holds, in a few words for operators.
        optional: created with the others, but not reported if it is missing.
        like: the source whose number of partitions it is created with, and whose records it has; None: of no source.
    """

    name: str
    audience: Audience
    partitions: int | None
    settings: Mapping[str, str] = field(default_factory=dict)
    purpose: str = ""
    optional: bool = False
    like: str | None = None

    @property
    def of_others(self) -> bool:
        """Whether it is a source, which belongs to its producers."""
        return self.partitions is None and self.like is None


@dataclass(frozen=True, slots=True)
class Topics:
    """Names of the topics of a job, derived from the name of the job and the names of its streams.

    `blocks`, `held_out`, `releases` and `changelog` have the same number of partitions: a task works on partition p of
    each.
    """

    job: str
    partitions: int

    @property
    def blocks(self) -> str:
        return f"{self.job}.blocks"

    @property
    def held_out(self) -> str:
        """Blocks of the held-out audit topics; operator only."""
        return f"{self.job}.truth"

    @property
    def releases(self) -> str:
        return f"{self.job}.releases"

    @property
    def bounds(self) -> str:
        return f"{self.job}.bounds"

    @property
    def dead_letters(self) -> str:
        return f"{self.job}.dead-letters"

    @property
    def clock(self) -> str:
        """Topic from which the time of the brokers is read; see `agents.kafka.broker_clock`."""
        return f"{self.job}.clock"

    def routed(self, stream: str) -> str:
        """Return the topic that ingest of a stream reads where the job routes its users itself."""
        return f"{self.job}.routed.{stream}"

    @property
    def fingerprints(self) -> str:
        return f"{self.job}.fingerprints"

    @property
    def stops(self) -> str:
        """Topic with the streams that have stopped, and why; for `privstream status`."""
        return f"{self.job}.stops"

    @property
    def ingest_group(self) -> str:
        """Consumer group of the workers that read sources; the group of the private topics has the name of the job."""
        return f"{self.job}-ingest"

    @property
    def history(self) -> tuple[str, ...]:
        """Topics with what was released and the state of the bounds: a lost one cannot be replaced."""
        return self.blocks, self.held_out, self.releases, self.bounds, self.fingerprints

    @property
    def table(self) -> str:
        return "state"

    @property
    def changelog(self) -> str:
        """Name that Faust gives the changelog of `table`: app id, table name, suffix."""
        return f"{self.job}-{self.table}-changelog"

    @staticmethod
    def synthetic(stream: str) -> str:
        return f"{stream}.synthetic"

    @staticmethod
    def measurements(stream: str) -> str:
        return f"{stream}.measurements"

    @staticmethod
    def ledger(stream: str) -> str:
        return f"{stream}.ledger"

    @classmethod
    def published(cls, stream: str) -> tuple[str, str, str]:
        """Return the public topics of a stream."""
        return cls.synthetic(stream), cls.measurements(stream), cls.ledger(stream)

    @staticmethod
    def utility(stream: str) -> str:
        return f"{stream}.utility"

    @classmethod
    def outputs(cls, stream: str) -> tuple[str, ...]:
        """Return the topics that a stream writes for readers and operators."""
        return *cls.published(stream), cls.utility(stream)

    @staticmethod
    def publisher_id(stream: str) -> str:
        """Return the `transactional.id` of the one producer of the cluster that may write the stream's public topics.

        It does not contain the name of the job, so that two jobs with a stream of the same name fence each other.
        """
        return f"privstream-publisher-{stream}"

    def routing(self, stream: str, source: str) -> Topic:
        """Return the topic with the copies of a stream's raw records, which the job deletes once they are in blocks."""
        settings = {**FOREVER, **OWN_TIMES, "max.message.bytes": str(8 << 20)}
        settings["segment.ms"] = str(3_600_000)  # what is deleted leaves the disk with its segment
        return Topic(self.routed(stream), "private", None, settings, "raw events by user", like=source)

    def private(self) -> list[Topic]:
        """Return the topics of the job itself.

        Those with the history have no retention by time: the job deletes what no restart can need.
        """
        size = {"max.message.bytes": str(8 << 20)}
        return [
            Topic(self.blocks, "private", self.partitions, {**FOREVER, **size}, "folded events"),
            Topic(self.held_out, "operator", self.partitions, {**FOREVER, **size}, "folded held-out audit events"),
            Topic(
                self.releases,
                "private",
                self.partitions,
                {**FOREVER, **size},
                "seeds, and candidates without their state",
            ),
            Topic(
                self.bounds,
                "private",
                self.partitions,
                {**COMPACTED, **size},
                "contribution bounds, and how far routers are",
            ),
            Topic(
                self.dead_letters, "private", 1, {"retention.ms": str(14 * 86_400_000), **BATCHES}, "refused records"
            ),
            Topic(self.clock, "private", 1, CLOCK, "what time it is for the brokers, and for each worker"),
            Topic(self.fingerprints, "private", 1, FOREVER, "what each stream was started with"),
            Topic(self.stops, "operator", 1, COMPACTED, "which streams have stopped"),
            Topic(self.changelog, "private", self.partitions, {**COMPACTED, **size}, "states after candidates"),
        ]

    def public(self, stream: str) -> list[Topic]:
        """Return the topics that a stream writes for readers and operators.

        Public records have the time at which their step ended: a broker's would be that of computing, which is private.
        """
        public = {**OWN_TIMES, **BATCHES}
        return [
            Topic(
                self.synthetic(stream),
                "public",
                1,
                {**COMPACTED, **public},
                "synthetic records, keyed by synthetic id",
            ),
            Topic(self.measurements(stream), "public", 1, {**FOREVER, **public}, "noisy measurements with variances"),
            Topic(self.ledger(stream), "public", 1, {**COMPACTED, **public}, "what each step cost"),
            Topic(self.utility(stream), "operator", 1, COMPACTED, "true error: operator only"),
        ]
