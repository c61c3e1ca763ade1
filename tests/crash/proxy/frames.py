"""Kafka's frames as the fault proxy needs them: where one ends, which request it is, and which broker an answer names.

A frame is a length of 4 bytes and as many bytes; a request begins with API key, version, correlation id and client id,
an answer with the correlation id (https://kafka.apache.org/protocol). Versions are those that aiokafka 0.14 speaks, and
Metadata 9 to 12, in which strings and arrays carry their lengths in one byte for seven bits
(`agents.kafka.topics`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhi")
_SHORT = struct.Struct(">h")
MOST_BYTES = 100 << 20  # Kafka's own limit of a request

APIS = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch",
    10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup", 18: "ApiVersions",
    22: "InitProducerId", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn", 26: "EndTxn", 28: "TxnOffsetCommit",
}  # fmt: skip
METADATA, FIND_COORDINATOR = 3, 10
FLEXIBLE_METADATA, NEWEST_METADATA, NEWEST_FIND_COORDINATOR = 9, 12, 2

Address = tuple[str, int]


class FrameError(ValueError):
    """Bytes that are no frame of a version that is understood here."""


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request."""

    api: int
    version: int
    correlation: int
    client: str | None

    @property
    def name(self) -> str:
        """Name of the API, or its number."""
        return APIS.get(self.api, str(self.api))


class Frames:
    """Cuts a stream of bytes into frames, without their lengths, however it arrives."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    @property
    def rest(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._bytes)

    def feed(self, data: bytes) -> list[bytes]:
        """Take in bytes; return the frames that are now whole. Raises: FrameError for an impossible length."""
        self._bytes += data
        frames = []
        while len(self._bytes) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._bytes)
            if not 0 <= size <= MOST_BYTES:
                raise FrameError(f"a frame of {size} bytes")
            if len(self._bytes) < LENGTH.size + size:
                break
            frames.append(bytes(self._bytes[LENGTH.size : LENGTH.size + size]))
            del self._bytes[: LENGTH.size + size]
        return frames


def framed(content: bytes) -> bytes:
    """A frame as it goes over the wire."""
    return LENGTH.pack(len(content)) + content


def parse_request(frame: bytes) -> Request:
    """Raises: FrameError if the frame ends within the head."""
    reader = _Reader(frame)
    api, version, correlation = reader.take(_HEADER)
    return Request(api, version, correlation, reader.text())


def correlation_of(answer: bytes) -> int:
    """Raises: FrameError."""
    return int(_Reader(answer).take(LENGTH)[0])


def readdressed(answer: bytes, request: Request, moved: Callable[[Address], Address]) -> bytes:
    """The answer with every broker's address moved, so that clients stay behind the proxy; others stay as they are.

    Raises: FrameError for a version that is not understood.
    """
    if request.api == METADATA:
        return _metadata(answer, request.version, moved)
    if request.api == FIND_COORDINATOR:
        return _coordinator(answer, request.version, moved)
    return answer


def _metadata(answer: bytes, version: int, moved: Callable[[Address], Address]) -> bytes:
    _understood("Metadata", version, NEWEST_METADATA)
    compact = version >= FLEXIBLE_METADATA
    reader = _Reader(answer, compact=compact)
    reader.skip(4)
    if compact:
        reader.tags()
    if version >= 3:
        reader.skip(4)  # throttle time
    for _ in range(reader.varint() - 1 if compact else reader.take(LENGTH)[0]):
        reader.skip(4)
        reader.move(moved)
        if version >= 1:
            reader.text()  # rack
        if compact:
            reader.tags()
    return reader.whole()


def _coordinator(answer: bytes, version: int, moved: Callable[[Address], Address]) -> bytes:
    _understood("FindCoordinator", version, NEWEST_FIND_COORDINATOR)
    reader = _Reader(answer)
    reader.skip(10 if version >= 1 else 6)  # correlation id, from 1 on the throttle time, error code
    if version >= 1:
        reader.text()  # error message
    reader.skip(4)
    reader.move(moved)
    return reader.whole()


def _understood(name: str, version: int, newest: int) -> None:
    if version > newest:
        raise FrameError(f"{name} of version {version}, and {newest} is the newest understood here")


class _Reader:
    """Walks over a frame and collects it, with what was changed on the way."""

    def __init__(self, frame: bytes, *, compact: bool = False) -> None:
        self._frame = frame
        self._compact = compact
        self._at = 0
        self._kept = 0
        self._parts: list[bytes] = []

    def take(self, shape: struct.Struct) -> tuple[int, ...]:
        start = self._at
        self.skip(shape.size)
        return shape.unpack_from(self._frame, start)

    def skip(self, size: int) -> None:
        if self._at + size > len(self._frame):
            raise FrameError("a frame that ends too early")
        self._at += size

    def varint(self) -> int:
        value = shift = 0
        while True:
            self.skip(1)
            byte = self._frame[self._at - 1]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 28:
                raise FrameError("a number that does not end")

    def tags(self) -> None:
        """Tagged fields, whatever they hold."""
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())

    def text(self) -> str | None:
        """A string behind its length; None where there is none."""
        size = self.varint() - 1 if self._compact else self.take(_SHORT)[0]
        if size < 0:
            return None
        self.skip(size)
        try:
            return self._frame[self._at - size : self._at].decode()
        except UnicodeDecodeError:
            raise FrameError("a string that is no UTF-8") from None

    def move(self, moved: Callable[[Address], Address]) -> None:
        """Replace the host and port that come next. Nobody (an empty host: no coordinator is known) stays nobody."""
        start = self._at
        host = self.text()
        (port,) = self.take(LENGTH)
        if host:
            host, port = moved((host, port))
            self._parts += [self._frame[self._kept : start], self._written(host), LENGTH.pack(port)]
            self._kept = self._at

    def _written(self, text: str) -> bytes:
        data = text.encode()
        if not self._compact:
            return _SHORT.pack(len(data)) + data
        size, head = len(data) + 1, bytearray()
        while size > 0x7F:
            head.append(size & 0x7F | 0x80)
            size >>= 7
        return bytes([*head, size]) + data

    def whole(self) -> bytes:
        return b"".join([*self._parts, self._frame[self._kept :]])
