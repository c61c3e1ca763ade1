"""Every topic name and topic setting in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Audience = Literal["private", "public", "operator"]
TopicAndPartition = tuple[str, int]
"""Place of a record."""

FOREVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
COMPACTED = {"cleanup.policy": "compact"}
BATCH_BYTES = 1 << 20
"""Most records that a transaction writes together: a broker's limit is on these."""
BATCHES = {"max.message.bytes": str(BATCH_BYTES + 12)}
"""What Kafka has by default: a batch, and what a log puts before it."""
CLOCK = {"message.timestamp.type": "LogAppendTime", "retention.ms": str(86_400_000)}


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as the job needs it. `partitions` None: whatever is there (source topics belong to their producers).

    Attributes:
        optional: made with the others, and missed by nobody where it is not there.
    """

    name: str
    audience: Audience
    partitions: int | None
    settings: Mapping[str, str] = field(default_factory=dict)
    purpose: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Topics:
    """Names of the job's topics, derived from the job's name and a stream's name.

    `blocks`, `held_out`, `releases` and `changelog` have equal partition counts: a task of partition p has p of each.
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
        """Asked for the brokers' time, see `agents.kafka.broker_clock`."""
        return f"{self.job}.clock"

    @property
    def fingerprints(self) -> str:
        return f"{self.job}.fingerprints"

    @property
    def stops(self) -> str:
        """What has stopped and why, for `privstream status`."""
        return f"{self.job}.stops"

    @property
    def history(self) -> tuple[str, ...]:
        """Topics that say what was released and who is at the bound: nothing can replace one that is lost."""
        return self.blocks, self.held_out, self.releases, self.bounds, self.fingerprints

    @property
    def table(self) -> str:
        return "state"

    @property
    def changelog(self) -> str:
        """Name that Faust gives: app id, table name, suffix."""
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
    def written(cls, stream: str) -> tuple[str, ...]:
        """Return what a stream writes for readers and operators."""
        return *cls.published(stream), cls.utility(stream)

    @staticmethod
    def publisher_id(stream: str) -> str:
        """Return the id of the one producer of the cluster that may write a stream's public topics.

        It holds no job name: two jobs that were given one stream name must fence each other.
        """
        return f"privstream-publisher-{stream}"

    def private(self) -> list[Topic]:
        """Return the job's own topics. None has time retention: the job deletes what nothing can need again."""
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
            Topic(self.bounds, "private", self.partitions, {**COMPACTED, **size}, "contribution bounds"),
            Topic(
                self.dead_letters, "private", 1, {"retention.ms": str(14 * 86_400_000), **BATCHES}, "refused records"
            ),
            Topic(self.clock, "private", 1, CLOCK, "what time it is for the brokers, and for each worker"),
            Topic(self.fingerprints, "private", 1, FOREVER, "what each stream was started with"),
            Topic(self.stops, "operator", 1, COMPACTED, "which streams have stopped"),
            Topic(self.changelog, "private", self.partitions, {**COMPACTED, **size}, "states after candidates"),
        ]

    def public(self, stream: str) -> list[Topic]:
        return [
            Topic(
                self.synthetic(stream),
                "public",
                1,
                {**COMPACTED, **BATCHES},
                "synthetic records, keyed by synthetic id",
            ),
            Topic(self.measurements(stream), "public", 1, {**FOREVER, **BATCHES}, "noisy measurements with variances"),
            Topic(self.ledger(stream), "public", 1, {**COMPACTED, **BATCHES}, "what each step cost"),
            Topic(self.utility(stream), "operator", 1, COMPACTED, "true error: operator only"),
        ]
