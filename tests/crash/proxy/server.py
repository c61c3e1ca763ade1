"""The fault proxy: clients that bootstrap here stay here, and their frames suffer what a plan says.

    async with Proxy(broker.bootstrap) as proxy:
        proxy.plan = Once("EndTxn", Fault(Kind.HOLD))
        producer = AIOKafkaProducer(bootstrap_servers=proxy.bootstrap, ...)

For one broker without TLS or SASL. A connection's requests keep their order, as TCP keeps it; across connections
nothing does. A request that is held outlives the connection of its sender, as bytes under way do.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Self

from tests.crash.proxy.faults import Fault, Kind, Plan, no_faults
from tests.crash.proxy.frames import (
    Address,
    FrameError,
    Frames,
    Request,
    correlation_of,
    framed,
    parse_request,
    readdressed,
)

READ_BYTES = 1 << 16
TRICKLES = 8
LINGER_S = 10.0  # how long a broker may take for the last request of a client that is gone
TURNS = 5  # of the event loop, within which a connection under way has come, or one that was aborted has closed

_GONE = (OSError, EOFError)


class _CutError(Exception):
    """The plan ends this connection."""


@dataclass(eq=False)
class Held:
    """A request that is kept back. `answer`: what the broker said when it came."""

    request: Request
    released: asyncio.Event = field(default_factory=asyncio.Event)
    answer: asyncio.Future[bytes] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def release(self) -> None:
        """Let it arrive now."""
        self.released.set()


class Proxy:
    """See the module.

    Attributes:
        plan: asked once for each request; may be changed at any time.
        faults: what was done to which request, in order.
        held: requests that were or are kept back.

    Raises: FrameError on leaving, if something came that it does not understand.
    """

    def __init__(self, upstream: str, *, plan: Plan = no_faults) -> None:
        host, port = upstream.rsplit(":", 1)
        self.upstream: Address = (host, int(port))
        self.plan = plan
        self.faults: list[tuple[Request, Fault]] = []
        self.held: list[Held] = []
        self.errors: list[FrameError] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> Address:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    @property
    def bootstrap(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        # No more are accepted, and who was is in the list some turns later. Not by `close`, which CPython 3.11 does not
        # survive with a connection half made: an assertion, and a socket that nobody closes.
        asyncio.get_running_loop().remove_reader(self._server.sockets[0].fileno())
        await _turns()
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()  # nobody waits for a peer that reads no more
        await _turns()
        if self.errors:
            raise self.errors[0]

    async def until_held(self, number: int = 1) -> Held:
        """Wait for the `number`th request that is kept back."""
        while len(self.held) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self.held[number - 1]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called in the very turn in which the connection is there: none is without an owner at any time."""
        self._writers.add(writer)
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = [writer]
        try:
            up_reader, up_writer = await asyncio.open_connection(*self.upstream)
            opened.append(up_writer)
            self._writers.add(up_writer)
            await _Connection(self, reader, writer, up_reader, up_writer).run()
        except OSError:  # the broker is down
            writer.close()
        for each in opened:
            with contextlib.suppress(*_GONE):
                await each.wait_closed()
            self._writers.discard(each)

    def moved(self, address: Address) -> Address:
        """Where clients find a broker: there is one, and it is here."""
        return self.address


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


class _Connection:
    """One client's connection and the one behind it."""

    def __init__(
        self,
        proxy: Proxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._client = reader, writer
        self._broker = up_reader, up_writer
        self._asked: dict[int, tuple[Request, Fault | None, Held | None]] = {}
        self._quiet = asyncio.Event()  # nothing is unanswered

    async def run(self) -> None:
        answers = asyncio.create_task(self._answers())
        try:
            with contextlib.suppress(*_GONE):
                await self._requests()
            # The sender is gone. What it sent before is carried out all the same.
            while self._asked and not answers.done():
                self._quiet.clear()
                quiet = asyncio.create_task(self._quiet.wait())
                done, _ = await asyncio.wait([quiet, answers], timeout=LINGER_S, return_when=asyncio.FIRST_COMPLETED)
                quiet.cancel()
                if not done:
                    break
        except FrameError as error:
            self._proxy.errors.append(error)
        except _CutError:
            pass
        finally:
            answers.cancel()
            self._client[1].close()
            self._broker[1].close()
            await asyncio.gather(answers, return_exceptions=True)

    async def _requests(self) -> None:
        frames = Frames()
        while data := await self._client[0].read(READ_BYTES):
            for frame in frames.feed(data):
                await self._request(frame)

    async def _request(self, frame: bytes) -> None:
        request = parse_request(frame)
        fault = self._proxy.plan(request)
        held = None
        if fault is not None:
            self._proxy.faults.append((request, fault))
            if fault.kind is Kind.DROP:
                return
            if fault.kind is Kind.DELAY:
                await asyncio.sleep(fault.seconds or 0.0)
            if fault.kind is Kind.HOLD:
                held = Held(request)
                self._proxy.held.append(held)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(fault.seconds):
                        await held.released.wait()
        self._asked[request.correlation] = (request, fault, held)
        await self._send(framed(frame), fault)

    async def _send(self, data: bytes, fault: Fault | None) -> None:
        writer = self._broker[1]
        if fault is not None and fault.kind is Kind.CUT:
            writer.write(data[: len(data) // 2])
            await writer.drain()
            raise _CutError
        pieces = TRICKLES if fault is not None and fault.kind is Kind.THROTTLE else 1
        size = -(-len(data) // pieces)
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await writer.drain()
            if pieces > 1 and fault is not None:
                await asyncio.sleep((fault.seconds or 0.0) / pieces)

    async def _answers(self) -> None:
        frames = Frames()
        try:
            while data := await self._broker[0].read(READ_BYTES):
                for answer in frames.feed(data):
                    await self._answer(answer)
        except FrameError as error:
            self._proxy.errors.append(error)
        except (*_GONE, _CutError):
            pass
        finally:
            self._client[1].close()  # the broker has ended the connection: so its client sees

    async def _answer(self, answer: bytes) -> None:
        request, fault, held = self._asked.pop(correlation_of(answer))
        if not self._asked:
            self._quiet.set()
        if held is not None and not held.answer.done():
            held.answer.set_result(answer)
        data = framed(readdressed(answer, request, self._proxy.moved))
        if fault is not None and fault.kind is Kind.LATE_ANSWER:
            await asyncio.sleep(fault.seconds or 0.0)
        writer = self._client[1]
        if fault is not None and fault.kind is Kind.CUT_ANSWER:
            writer.write(data[: len(data) // 2])
            await writer.drain()
            raise _CutError
        with contextlib.suppress(*_GONE):  # a client that is gone; its other requests are still to be carried out
            writer.write(data)
            await writer.drain()


__all__ = ["Held", "Proxy"]
