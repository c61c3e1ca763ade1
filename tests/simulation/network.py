"""Connections between the processes and the broker, and everything that can happen to a frame on its way.

Takes the place of `aiokafka.conn.AIOKafkaConnection`: clients, producers, consumers and the group coordinator above it
are aiokafka's own. As on TCP, frames of one connection arrive in order, and a frame that was sent before a connection
broke may still arrive long after the client has gone on over another one.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaConnectionError

from tests.simulation.timeline import Process, Timeline

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

VERSIONS = {
    **{key: (version, version) for key, version in {0: 7, 1: 4, 2: 2, 8: 3, 9: 3, 10: 1, 11: 5, 13: 1}.items()},
    **{key: (version, version) for key, version in {14: 3, 21: 1, 22: 0, 24: 0, 25: 0, 26: 0, 28: 0}.items()},
    3: (5, 12),
    12: (1, 3),
}
"""API key -> versions that the broker speaks."""
NAMES = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch",
    10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup", 21: "DeleteRecords",
    22: "InitProducerId", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn", 26: "EndTxn", 28: "TxnOffsetCommit",
}  # fmt: skip
NO_ANSWER_S = 3.0  # until a client gives up on a host that does not answer


@dataclass(slots=True)
class Trap:
    """What waits for a frame.

    Attributes:
        api: key of the request; `process` whose, None: anybody's.
        kind: "hold" lets the request arrive late, "mute" its answer, "cut" breaks the connection instead of sending it.
        passes: frames that go by unharmed before it springs.
        until: a held frame arrives right behind the next one of this API with its transactional id, at the latest after
            `delay_s`: the place where it does most harm. `then` is told the client at that time.
    """

    api: int
    kind: str
    delay_s: float
    passes: int = 0
    process: str | None = None
    until: int | None = None
    then: Callable[[Process], None] | None = None


@dataclass(eq=False, slots=True)
class Channel:
    """The broker's end of a connection: one request at a time, in order."""

    connection: SimConnection
    frames: deque[tuple[Any, Any]] = field(default_factory=deque)
    busy: bool = False
    last_arrival: float = 0.0
    last_answer: float = 0.0
    impatient: Callable[[], None] | None = None  # ends a fetch that waits for data


class Network:
    """See the module."""

    def __init__(self, timeline: Timeline, broker: Broker, chance: random.Random) -> None:
        self.timeline = timeline
        self.broker = broker
        self.chance = chance
        self.up = True
        self.isolated: dict[str, float] = {}
        self.traps: list[Trap] = []
        self.sprung: list[str] = []
        self.frames = 0
        self._connections: set[SimConnection] = set()
        self._behind: list[tuple[Trap, Any, Channel, Any, Any]] = []
        self._delivered: set[Any] = set()

    def latency(self) -> float:
        return 0.0002 + self.chance.random() * (0.002 if self.chance.random() < 0.95 else 0.05)

    async def connect(self, host: str, port: int, **settings: Any) -> SimConnection:
        """Stands for `aiokafka.client.create_conn`."""
        process = asyncio.get_running_loop()
        assert isinstance(process, Process)
        away = not self.up or self._is_isolated(process)
        await asyncio.sleep(NO_ANSWER_S if away else self.latency())
        if not self.up or self._is_isolated(process):
            raise ConnectionRefusedError("the broker is down")
        connection = SimConnection(self, process, host, port, settings["request_timeout_ms"], settings.get("on_close"))
        self._connections.add(connection)
        return connection

    def _is_isolated(self, process: Process) -> bool:
        return self.isolated.get(process.name, 0.0) > self.timeline.now

    def transmit(self, channel: Channel, request: Any, answer: Any) -> None:
        """A request leaves a process."""
        self.frames += 1
        connection, timeline = channel.connection, self.timeline
        process = connection.process
        arrival = max(timeline.now + self.latency(), channel.last_arrival)
        if not process.alive:
            return
        process.pass_by("frame")
        if not process.alive:
            return
        arrival = max(arrival, process.stopped_until, self.isolated.get(process.name, 0.0))
        late = 0.0
        if (trap := self._trap(request.API_KEY, process.name)) is not None:
            if trap.kind == "cut":
                process.receive(connection.broken)
                return
            if trap.kind == "hold":
                arrival += trap.delay_s
                if trap.until is not None:
                    self._behind.append((trap, request.transactional_id, channel, request, answer))
            else:
                late = trap.delay_s
        channel.last_arrival = arrival
        timeline.at(arrival, self._arrive, channel, request, answer, late)

    def _trap(self, api: int, process: str) -> Trap | None:
        for trap in self.traps:
            if trap.api == api and trap.process in (None, process):
                if trap.passes:
                    trap.passes -= 1
                    return None
                self.traps.remove(trap)
                self.sprung.append(f"{trap.kind} {NAMES[api]} of {process} {trap.delay_s:.0f} s")
                return trap
        return None

    def _arrive(self, channel: Channel, request: Any, answer: Any, late: float) -> None:
        if not self.up or answer in self._delivered:  # lost with the connection, or released before
            return
        channel.frames.append((request, (answer, late)))
        if channel.impatient is not None:
            channel.impatient()
        self._serve(channel)
        for waiting in list(self._behind):
            trap, transactional_id, its_channel, held, its_answer = waiting
            if trap.until == request.API_KEY and getattr(request, "transactional_id", None) == transactional_id:
                self._behind.remove(waiting)
                self.timeline.after(0.0, self._release, its_channel, held, its_answer)
                if trap.then is not None:
                    trap.then(channel.connection.process)

    def _release(self, channel: Channel, request: Any, answer: Any) -> None:
        self._arrive(channel, request, answer, 0.0)
        self._delivered.add(answer)

    def _serve(self, channel: Channel) -> None:
        if channel.busy or not channel.frames:
            return
        request, (answer, late) = channel.frames.popleft()
        channel.busy = True
        answered = False

        def reply(response: Any) -> None:
            nonlocal answered
            if answered:
                return
            answered = True
            channel.busy, channel.impatient = False, None
            process = channel.connection.process
            when = max(self.timeline.now + self.latency(), channel.last_answer, self.isolated.get(process.name, 0.0))
            channel.last_answer = when = when + late
            self.timeline.at(when, process.receive, channel.connection.answered, answer, response)
            if channel.frames:
                self.timeline.after(0.0, self._serve, channel)

        self.broker.handle(request, reply, channel)

    def go_down(self) -> None:
        """The broker dies: every connection breaks, requests under way are lost or were the last ones served."""
        self.up = False
        connections, self._connections = self._connections, set()
        for connection in sorted(connections, key=lambda each: each.number):
            connection.process.receive(connection.broken)

    def come_up(self) -> None:
        self.up = True
        self.broker.restarted()

    def forget(self, connection: SimConnection) -> None:
        self._connections.discard(connection)

    def end_process(self, process: Process) -> None:
        """A dead process' connections break; what it sent is under way."""
        self._connections = {each for each in self._connections if each.process is not process}


class SimConnection:
    """The interface of `AIOKafkaConnection` that aiokafka's clients use."""

    numbers = 0

    def __init__(
        self, network: Network, process: Process, host: str, port: int, timeout_ms: int, on_close: Any
    ) -> None:
        SimConnection.numbers += 1
        self.number = SimConnection.numbers
        self.process = process
        self.host, self.port = host, port
        self._network = network
        self._timeout_s = timeout_ms / 1000
        self._on_close = on_close
        self._channel = Channel(self)
        self._waiting: dict[Any, Any] = {}
        self._closed = False

    def __hash__(self) -> int:
        return self.number

    def connected(self) -> bool:
        return not self._closed

    def send(self, request: Any, expect_response: bool = True) -> Any:
        if self._closed:
            raise KafkaConnectionError(f"No connection to broker at {self.host}:{self.port}")
        answer = self.process.create_future()
        self._waiting[answer] = self.process.call_later(self._timeout_s, self._expire, answer)
        self._network.transmit(self._channel, request.prepare(VERSIONS), answer)
        return answer

    @staticmethod
    def _expire(answer: Any) -> None:
        if not answer.done():
            answer.set_exception(TimeoutError())

    def answered(self, answer: Any, response: Any) -> None:
        if (timer := self._waiting.pop(answer, None)) is not None:
            timer.cancel()
        if not self._closed and not answer.done():
            answer.set_result(response)

    def broken(self) -> None:
        self.close(CloseReason.CONNECTION_BROKEN)

    def close(self, reason: Any = None, exc: Any = None) -> Any:
        done = self.process.create_future()
        done.set_result(None)
        if self._closed:
            return done
        self._closed = True
        self._network.forget(self)
        for answer, timer in self._waiting.items():
            timer.cancel()
            if not answer.done():
                answer.set_exception(KafkaConnectionError(f"Connection at {self.host}:{self.port} closed"))
        self._waiting = {}
        if self._on_close is not None and self.process.alive:
            self._on_close(self, reason)
        return done
