"""Whether sources are still those with which their streams were started. Asks, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.protocol.fingerprint import Fingerprint
from agents.topic_ids import TopicIdentity

if TYPE_CHECKING:
    from schemas.config import Stream

NEW_STREAM = (
    "what is left of the old stream stays as it is, and its budget spent; start a new stream under another name "
    '(docs/operations.md, "A source has changed")'
)


@dataclass(frozen=True, slots=True)
class Change:
    """What has become of a source topic, and what to do."""

    topic: str
    reason: str
    mend: str

    def __str__(self) -> str:
        return f"source {self.topic} {self.reason}. What to do: {self.mend}"


def change_of(topic: str, was: TopicIdentity, now: TopicIdentity | None) -> Change | None:
    """How a topic differs from what it was; None where it does not."""
    if now is None:
        return Change(
            topic, "is gone", f"made again it is another topic, whose offsets name other events: {NEW_STREAM}"
        )
    if now.id != was.id:
        reason = "was deleted and made again: its offsets name other events than those that were read"
        return Change(topic, reason, NEW_STREAM)
    if now.partitions != was.partitions:
        reason = (
            f"has {now.partitions} partitions and had {was.partitions}: producers now place users on other ones, where "
            "their bounds are not, and their events are refused"
        )
        return Change(topic, reason, f"Kafka cannot take partitions away: {NEW_STREAM}")
    return None


def changed_source(stream: Stream, stored: Fingerprint | None, found: Mapping[str, TopicIdentity]) -> Change | None:
    """How a stream's source differs from the one it was started with; None where it does not, or never started."""
    if stored is None:
        return None
    was = TopicIdentity(str(stored.fields["source_topic_id"]), int(stored.fields["source_partitions"]))
    return change_of(stream.source, was, found.get(stream.source))
