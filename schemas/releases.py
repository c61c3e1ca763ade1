"""What leaves the job at a step, and the private log that makes it happen once.

The release log of a stream is: Seed(0) Candidate(0) Seed(1) Candidate(1) ... A candidate carries the public records
of its step as the bytes that will be published, and names the private state from which the next step goes on by its
SHA-256. That state is on the changelog of the state tables, written by the same transaction, so both are atomic.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson

from schemas.errors import WireError
from schemas.wire import Kind, decode, encode, frame, unframe

CHUNK_BYTES = 900_000  # under the broker's default message limit of 1 MiB, with room for headers
GENESIS = "0" * 64  # the chain before the first step
Channel = Literal["synthetic", "measurements", "ledger"]
CHANNELS: tuple[Channel, ...] = ("synthetic", "measurements", "ledger")
STEP_HEADER = "privstream-step"
"""Header of every public record: its step, as decimal digits."""
STEP_LIMIT = 1 << 31
"""Steps are below: at one each second that is enough for 68 years, at one each minute for 4,000."""
_STEP_DIGITS = 10


def public_step(headers: Iterable[tuple[str, bytes | None]] | None) -> int | None:
    """Return the step that a public record belongs to, from its headers; None where the job did not write it."""
    for name, value in headers or ():
        if name == STEP_HEADER:
            if value is None or len(value) > _STEP_DIGITS or not value.isdigit():  # of bytes, these are 0 to 9
                return None
            step = int(value)
            return step if step < STEP_LIMIT else None
    return None


class PublicRecord(NamedTuple):
    """One record of a public topic, as bytes. `value` None is a tombstone: the synthetic record is withdrawn."""

    channel: Channel
    key: bytes
    value: bytes | None


_FRAME = struct.Struct("<BIi")
_NUMBERS = {channel: number for number, channel in enumerate(CHANNELS)}


def frame_records(records: Iterable[PublicRecord]) -> bytes:
    """Return records as one run of bytes, for digests and storage; `unframe_records` is the inverse."""
    framed = bytearray()
    pack = _FRAME.pack
    for channel, key, value in records:
        if value is None:
            framed += pack(_NUMBERS[channel], len(key), -1)
            framed += key
        else:
            framed += pack(_NUMBERS[channel], len(key), len(value))
            framed += key
            framed += value
    return bytes(framed)


def unframe_records(data: bytes) -> list[PublicRecord]:
    """Return the records in framed bytes. Raises: WireError if the bytes do not end where a record ends."""
    check_frames(data)
    return list(each_framed(data))


def check_frames(data: bytes) -> None:
    """Check that `each_framed` can read all of it. Raises: WireError."""
    unpack = _FRAME.unpack_from
    at = 0
    try:
        while at < len(data):
            channel, key_size, size = unpack(data, at)
            CHANNELS[channel]
            at += _FRAME.size + key_size + max(size, 0)
    except (struct.error, IndexError):
        at = -1
    if at != len(data):
        raise WireError("damaged frame of public records")


def each_framed(data: bytes) -> Iterator[PublicRecord]:
    """Yield records that `check_frames` has nothing against, one at a time: a million at once are 300 MB."""
    unpack, made = _FRAME.unpack_from, tuple.__new__  # a named tuple's own way to make one takes twice as long
    at, end, begin = 0, len(data), _FRAME.size
    while at < end:
        channel, key_size, size = unpack(data, at)
        key = at + begin
        value = at = key + key_size
        if size < 0:
            yield made(PublicRecord, (CHANNELS[channel], data[key:value], None))
        else:
            at += size
            yield made(PublicRecord, (CHANNELS[channel], data[key:value], data[value:at]))


def sha256(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def link(previous_chain: str, *, stream: str, step: int, digest: str, ledger: bytes) -> str:
    """Return the chain after a step: it names every public byte since the first step, the ledger's own words included.

    Args:
        digest: SHA-256 of the framed synthetic and measurement records.
        ledger: value of the ledger record, with or without its `chain`. Raises: WireError if it is no JSON object.
    """
    try:
        words = orjson.loads(ledger)
        words.pop("chain", None)
    except (orjson.JSONDecodeError, AttributeError):
        raise WireError("a ledger entry is not a JSON object") from None
    told = orjson.dumps(words, option=orjson.OPT_SORT_KEYS)
    return sha256(bytes.fromhex(previous_chain), stream.encode(), str(step).encode(), bytes.fromhex(digest), told)


@dataclass(frozen=True, slots=True)
class Seed:
    """The 256 bits from which all noise of a step is expanded; committed before anything of the step is computed."""

    stream: str
    step: int
    seed: bytes = field(repr=False)

    def encode(self) -> bytes:
        header = {"stream": self.stream, "step": self.step, "seed": self.seed.hex()}
        return encode(Kind.SEED, header, {})

    @staticmethod
    def decode(data: bytes) -> Seed:
        """Return the seed that bytes hold. Raises: WireError."""
        header, _ = decode(Kind.SEED, data)
        return Seed(header["stream"], header["step"], bytes.fromhex(header["seed"]))


class Encoded(NamedTuple):
    """A candidate as bytes, each part compressed once: `release` for the release log, which names `state` by its
    SHA-256, and `state` for the changelog of the state tables.
    """

    release: bytes
    state: bytes


_HEADER = ("stream", "step", "previous_chain", "chain", "digest", "progress")


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """The one answer of a step, before it is published, and the state from which the next step goes on.

    Attributes:
        previous_chain, chain: see `link`.
        digest: SHA-256 of the framed synthetic and measurement records.
        payload: framed synthetic and measurement records, the very bytes to publish.
        ledger: value of the ledger record.
        progress: JSON-able task state: position in the blocks topic, per source partition next offset, tick, floor, and
            from which step on it is live; and `measured`, see there.
        arrays: engine state and pending events of later steps. Private. None where only the release was read.
        state_digest: SHA-256 of the encoded arrays; empty before they are encoded.
    """

    stream: str
    step: int
    previous_chain: str
    chain: str
    digest: str
    payload: bytes = field(repr=False)
    ledger: bytes = field(repr=False)
    progress: Mapping[str, Any] = field(repr=False)
    arrays: Mapping[str, np.ndarray] | None = field(repr=False, default=None)
    state_digest: str = ""

    @property
    def measured(self) -> int:
        """Last step, up to this one, of which measurements are published; -1: of none."""
        return int(self.progress["measured"])

    @property
    def live(self) -> bool:
        """True where the wall clock closed the step on some source partition, after a replay went live there."""
        return any(begin is not None and begin <= self.step for begin in self.progress.get("live_from", ()))

    def encode(self) -> Encoded:
        if self.arrays is None:
            raise WireError(f"candidate of step {self.step} was read without its state")
        state = encode(Kind.STATE, {"stream": self.stream, "step": self.step}, self.arrays, level=3)
        header = {name: getattr(self, name) for name in _HEADER} | {"state": sha256(state)}
        parts = {"payload": np.frombuffer(self.payload, np.uint8), "ledger": np.frombuffer(self.ledger, np.uint8)}
        return Encoded(encode(Kind.RELEASE, header, parts, level=3), state)

    @staticmethod
    def decode(release: bytes, state: bytes | None = None) -> Candidate:
        """Return the candidate that bytes hold.

        Raises: WireError, also when payload, digest and chain, or release and state, do not belong together.
        """
        header, parts = decode(Kind.RELEASE, release)
        state_digest, payload, ledger = header.pop("state"), parts["payload"].tobytes(), parts["ledger"].tobytes()
        candidate = Candidate(**header, payload=payload, ledger=ledger, state_digest=state_digest)
        digest = sha256(payload)
        chain = link(
            candidate.previous_chain, stream=candidate.stream, step=candidate.step, digest=digest, ledger=ledger
        )
        if digest != candidate.digest or chain != candidate.chain:
            raise WireError(f"candidate of step {candidate.step} does not match its digests")
        return candidate if state is None else candidate.with_state(state)

    def with_state(self, state: bytes) -> Candidate:
        """Return the candidate with the arrays of its state. Raises: WireError if `state` is not the one it names."""
        if sha256(state) != self.state_digest:
            raise WireError(f"state does not match the digest that the candidate of step {self.step} names")
        return replace(self, arrays=decode(Kind.STATE, state)[1])


class SavedState(NamedTuple):
    """An encoded state as a state table holds it: after which step, and the SHA-256 of its bytes."""

    step: int
    digest: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an encoded release, small enough for a Kafka record; `digest` is that of the whole release."""

    stream: str
    step: int
    index: int
    count: int
    digest: str
    part: bytes = field(repr=False)

    def encode(self) -> bytes:
        header = {name: getattr(self, name) for name in ("stream", "step", "index", "count", "digest")}
        return frame(Kind.CANDIDATE, header, self.part)

    @staticmethod
    def decode(data: bytes) -> Chunk:
        """Return the chunk that bytes hold. Raises: WireError."""
        header, part = unframe(Kind.CANDIDATE, data)
        return Chunk(**header, part=part)


def pieces(body: bytes, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """Cut an encoded body into what a Kafka record takes."""
    return [body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes)]


def cut(body: bytes, *, stream: str, step: int, chunk_bytes: int = CHUNK_BYTES) -> list[Chunk]:
    """Return an encoded release as chunks, in order."""
    digest = sha256(body)
    parts = pieces(body, chunk_bytes)
    return [Chunk(stream, step, index, len(parts), digest, part) for index, part in enumerate(parts)]


def join(chunks: Sequence[Chunk]) -> bytes:
    """Return the body of complete chunks in index order. Raises: WireError if the digest does not match."""
    body = b"".join(chunk.part for chunk in chunks)
    if sha256(body) != chunks[0].digest:
        raise WireError(f"chunks of step {chunks[0].step} do not match their digest")
    return body


LogRecord = Seed | Chunk


def decode_log_record(data: bytes) -> LogRecord:
    """Return a record of the release log. Raises: WireError."""
    if data[:4] == Kind.SEED.value:
        return Seed.decode(data)
    return Chunk.decode(data)
