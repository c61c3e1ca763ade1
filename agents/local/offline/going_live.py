"""What it means for a stream to go live behind its history, told before anything is written.

Where history ends and the present begins there is a stretch of steps that nobody replays: they are over, and each is
released. What is over is said by the record with which the partitions go live, by the brokers' time as for any step
that ends by the wall clock.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.kafka.broker_clock import BrokerClock
from agents.kafka.clients import tail
from agents.kafka.topics import admin_client, topic_identities
from agents.protocol.clock import MANY_STEPS, StepClock, time_for
from agents.protocol.partitioner import home_partition
from agents.protocol.replay import ReplayError
from schemas.blocks import Block
from schemas.errors import BrokerError, WireError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config, Stream


@dataclass(frozen=True, slots=True)
class Prospect:
    """What going live will do.

    Attributes:
        streams: all that go live: those that are replayed from these topics.
        history: last step of the history, -1 for none. over: last step that is over by now.
        doubts: why it is probably not meant; empty where it may be.
    """

    streams: tuple[str, ...]
    history: int
    over: int
    doubts: tuple[str, ...] = ()

    @property
    def between(self) -> int:
        """Steps after the history that are over: each is released, with what live producers have sent for it."""
        return max(0, self.over - self.history)

    def __str__(self) -> str:
        first = max(self.history, self.over) + 1
        return (
            f"{' and '.join(self.streams)}: history ends with step {self.history}; {self.between:,} steps after it are "
            f"over and are released first, empty or not, in about {time_for(self.between)}; from step {first} on steps "
            "end by the wall clock, for good"
        )


class GoingLive:
    """Asks the brokers for the time, and says what is over.

    Args: topics: source (and audit) topic of the replayed stream.
    Raises: ReplayError, if streams that would go live together do not count steps alike: one record says what is over.
    """

    def __init__(self, config: Config, stream: Stream, topics: Mapping[str, int]) -> None:
        self._config = config
        self._streams = [
            each for each in config.streams if each.time.clock == "replay" and {each.source, each.audit} & topics.keys()
        ]
        self._steps = steps = StepClock.of(stream)
        for each in self._streams:
            if each.time.steps != steps.steps:
                raise ReplayError(
                    f"streams {stream.name} and {each.name} are replayed from the same topic and have another start or "
                    "step, so what is over for one is not for the other. Fix: give each a source of its own."
                )
        self._grace_us = max(each.time.grace_us for each in self._streams)
        self._clock = BrokerClock(config, now_us=lambda: time.time_ns() // 1000)

    @property
    def streams(self) -> Sequence[Stream]:
        """All that go live together."""
        return self._streams

    async def prospect(self, history: int, *, yes: bool) -> Prospect:
        """Args: history: its last step. yes: doubts have been answered.

        Raises: ReplayError, if it makes no sense, or is probably not meant and nobody has said so; BrokerError.
        """
        now_us = await self._now_us()
        if history >= 0 and self._steps.end_of(history) > now_us:
            raise ReplayError(
                f"the history ends with step {history}, which is not over yet: live events would join steps of the "
                "future. Fix: give an --until that has passed, or check format and start in [streams.time]."
            )
        over = self._steps.last_over(now_us, grace_us=self._grace_us)
        found = Prospect(tuple(each.name for each in self._streams), history, over)
        doubts = []
        if found.between > MANY_STEPS:
            doubts.append(
                f"{found.between:,} steps are over since the history ended, and each is released, empty or not, which "
                f"takes about {time_for(found.between)}"
            )
        doubts += [
            f"stream {each.name} measures nothing after its options.horizon of {each.horizon:,} steps, and "
            f"{over + 1:,} are over"
            for each in self._streams
            if each.horizon is not None and each.horizon <= over + 1
        ]
        if doubts and not yes:
            raise ReplayError(
                f"going live is probably not what is meant: {'; and '.join(doubts)}. Fix: look at the end of the "
                "file, and at start, step and horizon in the configuration; add --yes if it is meant."
            )
        return Prospect(found.streams, history, over, tuple(doubts))

    async def over(self) -> int:
        """The last step that is over. Raises: BrokerError."""
        return self._steps.last_over(await self._now_us(), grace_us=self._grace_us)

    async def close(self) -> None:
        await self._clock.close()

    async def _now_us(self) -> int:
        kafka, name = self._config.kafka, Topics(self._config.job.name, self._config.kafka.partitions).clock
        async with admin_client(kafka) as admin:
            there = name in await topic_identities(admin, [name])
        if there:
            await self._clock.compare()
        if not there or (now_us := self._clock.bounded_us()) is None:
            raise BrokerError(
                f"topic {name} does not tell the brokers' time, without which no live step ends. Fix: privstream "
                "topics CONFIG --create, and see that workers may write to it (privstream topics CONFIG --acls)."
            )
        return now_us


async def has_gone_live(config: Config, stream: Stream) -> bool:
    """Whether the job says so of a stream that is replayed from the same topics, where what they said of it may be
    deleted by now. Raises: BrokerError.
    """
    topics = Topics(config.job.name, config.kafka.partitions)
    async with admin_client(config.kafka) as admin:
        if topics.blocks not in await topic_identities(admin, [topics.blocks]):
            return False
    mine = {stream.source, stream.audit} - {None}
    for each in config.streams:
        if each.time.clock == "replay" and {each.source, each.audit} & mine and await _is_live(config, each.name):
            return True
    return False


async def _is_live(config: Config, stream: str) -> bool:
    """Whether the newest block says so."""
    place = (Topics(config.job.name, config.kafka.partitions).blocks, home_partition(stream, config.kafka.partitions))
    async with tail(config.kafka, [place], wait=False) as end:
        newest = await end.newest(place, lambda record: record.key == stream.encode())
    try:
        return newest is not None and Block.decode(newest.value).live_from is not None
    except WireError:
        return False
