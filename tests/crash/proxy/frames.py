"""Kafka's frames as the fault proxy needs them: where one ends, which request it is, and which broker an answer names.

A frame is a length of 4 bytes and as many bytes; a request begins with API key, version, correlation id and client id,
an answer with the correlation id (https://kafka.apache.org/protocol). The two answers that name brokers are read and
written by aiokafka's own classes, and by that of `agents.kafka.topics`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

from aiokafka.protocol import coordination, metadata
from aiokafka.protocol.api import Response

from agents.kafka.topics import MetadataResponse12

LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
MOST_BYTES = 100 << 20  # Kafka's own limit of a request

APIS = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch",
    10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup", 18: "ApiVersions",
    22: "InitProducerId", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn", 26: "EndTxn", 28: "TxnOffsetCommit",
}  # fmt: skip
METADATA, FIND_COORDINATOR = 3, 10
ADDRESSED: dict[tuple[int, int], type[Response]] = {
    (kind.API_KEY, kind.API_VERSION): kind
    for kind in (
        metadata.MetadataResponse_v0, metadata.MetadataResponse_v1, metadata.MetadataResponse_v2,
        metadata.MetadataResponse_v3, metadata.MetadataResponse_v4, metadata.MetadataResponse_v5, MetadataResponse12,
        coordination.FindCoordinatorResponse_v0, coordination.FindCoordinatorResponse_v1,
    )
}  # fmt: skip
"""Answers that name brokers, by API and version."""

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
    """Raises: FrameError if the frame ends within the head, or names its client in no UTF-8."""
    try:
        api, version, correlation, size = _HEADER.unpack_from(frame)
        client = frame[_HEADER.size : _HEADER.size + size].decode() if size >= 0 else None
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError("no head of a request") from error
    if len(frame) < _HEADER.size + max(0, size):
        raise FrameError("a frame that ends within its head")
    return Request(api, version, correlation, client)


def correlation_of(answer: bytes) -> int:
    """Raises: FrameError."""
    if len(answer) < LENGTH.size:
        raise FrameError("a frame that ends within its head")
    return int(LENGTH.unpack_from(answer)[0])


def readdressed(answer: bytes, request: Request, moved: Callable[[Address], Address]) -> bytes:
    """The answer with every broker's address moved, so that clients stay behind the proxy; others stay as they are.

    Raises: FrameError for a version that is not understood.
    """
    if request.api not in (METADATA, FIND_COORDINATOR):
        return answer
    kind = ADDRESSED.get((request.api, request.version))
    if kind is None:
        raise FrameError(f"{request.name} of version {request.version} is not understood here")
    head = LENGTH.size + (kind is MetadataResponse12)  # whose head ends with a number of tagged fields: none
    try:
        body = kind.decode(BytesIO(answer[head:]))
    except Exception as error:
        raise FrameError(f"no answer to {request.name}") from error
    if request.api == METADATA:
        body.brokers = [(node, *moved((host, port)), *more) for node, host, port, *more in body.brokers]
    elif body.host:  # else no coordinator is known
        body.host, body.port = moved((body.host, body.port))
    return answer[:head] + body.encode()
