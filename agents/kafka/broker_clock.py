"""Steps are closed by this machine's clock, and by no more than the brokers' clock allows.

A clock that is an hour ahead would close an hour of steps for good before their events have come. Kafka tells the time
nowhere but in the timestamps that it gives to records, so each worker now and then writes one to a topic with
`message.timestamp.type = LogAppendTime`. Nobody's events have a part in it, and so in no step's end.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from agents.kafka.clients import close_client, log_reader
from agents.kafka.lifecycle.logs import Reminder
from agents.kafka.security import security_kwargs
from agents.kafka.topics import altering
from schemas.config import Config

log = logging.getLogger(__name__)

ASK_S = 20.0
REQUEST_TIMEOUT_MS = 8_000
RECENT_RECORDS = 200
RECENT_MS = 5 * 60 * 1000
BY_LOG_APPEND = 1  # Kafka's number of that timestamp type
WHAT_TO_DO = (
    "set the clock of this machine, or of the broker, whichever is wrong (NTP); max_clock_skew in [job] says how far "
    'they may differ (docs/operations.md, "A clock is wrong")'
)


class BrokerClock:
    """Asks the brokers for the time, and says where it is another one than here.

    Args:
        now_us: this machine's clock, in microseconds since 1970 UTC.

    Attributes:
        ahead_s: seconds that this clock is ahead of the brokers', None before the first answer.
    """

    def __init__(self, config: Config, *, now_us: Callable[[], int]) -> None:
        self._config = config
        self._topic = config.topics.clock
        self._now_us = now_us
        self._most_us = config.job.max_clock_skew_us
        self._broker_us: int | None = None
        self._told_s = 0.0  # when the brokers' clock showed that, by a clock that never jumps
        self._producer: AIOKafkaProducer | None = None
        self._reminder = Reminder()
        self.ahead_s: float | None = None

    def bounded_us(self) -> int | None:
        """Return the time by which steps may be closed, in microseconds; None before the first answer."""
        if self._broker_us is None:
            return None
        broker_us = self._broker_us + int((time.monotonic() - self._told_s) * 1e6)
        return min(self._now_us(), broker_us + self._most_us)

    def told(self, broker_us: int) -> None:
        """Note that the brokers' clock shows this now, or showed it shortly before."""
        self._broker_us, self._told_s = broker_us, time.monotonic()

    async def compare(self) -> None:
        """Ask once. What cannot be asked now is asked again later; meanwhile time goes on from the last answer."""
        try:
            broker_us = await self._ask()
        except (KafkaError, OSError) as error:
            effect = ", and no step ends before it does" if self.bounded_us() is None else ""
            said = f"topic {self._topic} did not tell the brokers' time: {type(error).__name__}{effect}"
            self._say(logging.WARNING, "unasked", said)
            return
        if broker_us is None:
            fix = altering(self._config.kafka, self._topic, "message.timestamp.type", "LogAppendTime")
            said = f"topic {self._topic} does not tell the brokers' time, and no step ends. Fix: {fix}"
            self._say(logging.ERROR, "untold", said)
            return
        now_us = self._now_us()
        self.told(broker_us)
        self.ahead_s = (now_us - broker_us) / 1e6
        if now_us - broker_us > self._most_us:
            effect = f"steps end {self._most_us / 1e6:g} s before the broker's time says so, and no earlier"
            said = f"this clock is {self.ahead_s:.1f} s ahead of the broker's: {effect}. {_FIX}"
            self._say(logging.ERROR, "ahead", said)
        elif broker_us - now_us > self._most_us:
            said = f"this clock is {-self.ahead_s:.1f} s behind the broker's: steps end late. {_FIX}"
            self._say(logging.WARNING, "behind", said)

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await close_client(producer)

    async def _ask(self) -> int | None:
        """Return the brokers' time, no later than now; None where the topic does not tell it."""
        if self._producer is None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._config.kafka.bootstrap,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                **security_kwargs(self._config.kafka),
            )
            try:
                await producer.start()
            except BaseException:
                await close_client(producer)
                raise
            self._producer = producer
        value = orjson.dumps({"local_ms": self._now_us() // 1000, "version": 1})
        told = await self._producer.send_and_wait(self._topic, value, key=worker_name().encode(), partition=0)
        return told.timestamp * 1000 if told.timestamp_type == BY_LOG_APPEND else None

    def _say(self, level: int, cause: str, text: str) -> None:
        if self._reminder.due(cause):
            log.log(level, text)


_FIX = f"What to do: {WHAT_TO_DO}"


def worker_name() -> str:
    """Return what tells this worker from others of the job."""
    return f"{socket.gethostname()}/{os.getpid()}"


async def worker_clocks(config: Config) -> dict[str, float]:
    """Return worker -> seconds that its clock was ahead of the brokers', of those that asked lately.

    Raises: BrokerError.
    """
    async with log_reader(config.kafka, config.topics.clock, 0) as reader:
        start = max(reader.beginning, reader.end - RECENT_RECORDS)
        records = [record async for batch in reader.read(start) for record in batch]
    newest = {record.key.decode(): record for record in records}
    latest_ms = max((record.timestamp for record in newest.values()), default=0)
    return {
        worker: (orjson.loads(record.value)["local_ms"] - record.timestamp) / 1000
        for worker, record in sorted(newest.items())
        if record.timestamp > latest_ms - RECENT_MS
    }
