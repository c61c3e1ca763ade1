"""The public records of a step, and the records of the private release log, which give each step exactly one answer.

The release log of a stream is: Seed(0) Candidate(0) Seed(1) Candidate(1) ... A candidate holds the public records of
its step as the bytes that will be published, and the digest of the private state with which the next step begins.
The same transaction writes that state to the changelog of the state tables, so both are committed atomically.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson

from schemas.arrays import IntArray, narrowed
from schemas.byte_columns import ByteColumn, Bytes, Piece, lengths_of, side_by_side
from schemas.errors import WireError
from schemas.wire import Kind, decode, encode, frame, unframe, unframe_first

CHUNK_BYTES = 900_000  # under the broker's default message limit of 1 MiB, with room for headers
GENESIS = "0" * 64
"""The chain before the first step."""
Channel = Literal["synthetic", "measurements", "ledger"]
CHANNELS: tuple[Channel, ...] = ("synthetic", "measurements", "ledger")
STEP_HEADER = "privstream-step"
"""Name of the header of every public record that holds its step, in decimal digits."""
STEP_LIMIT = 1 << 31
"""Upper bound of steps, exclusive: enough for 68 years of one step each second, or 4,000 years of one each minute."""
_STEP_DIGITS = 10


def public_step(headers: Iterable[tuple[str, bytes | None]] | None) -> int | None:
    """Return the step of a public record from its headers; None if the job did not write the record."""
    for name, value in headers or ():
        if name == STEP_HEADER:
            if value is None or len(value) > _STEP_DIGITS or not value.isdigit():  # of bytes, these are 0 to 9
                return None
            step = int(value)
            return step if step < STEP_LIMIT else None
    return None


class PublicRecord(NamedTuple):
    """One record of a public topic, as bytes. A `value` of None is a tombstone, which withdraws a synthetic record."""

    channel: Channel
    key: bytes
    value: bytes | None


_FRAME = struct.Struct("<BIi")
_HEAD = np.dtype([("channel", "u1"), ("key", "<u4"), ("value", "<i4")])
"""The same, of many records."""
_NUMBERS = {channel: number for number, channel in enumerate(CHANNELS)}


def frame_records(records: Iterable[PublicRecord]) -> bytes:
    """Return records as one byte string, for digests and storage; `unframe_records` is the inverse."""
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


def frame_column(channel: Channel, keys: ByteColumn, value: Sequence[Piece] | None) -> bytes:
    """Return the bytes of `frame_records` for many records of a channel; `value` None is that of tombstones."""
    heads = np.empty(len(keys), _HEAD)
    heads["channel"], heads["key"] = _NUMBERS[channel], narrowed(keys.lengths, _HEAD["key"])
    heads["value"] = -1 if value is None else narrowed(lengths_of(value, len(keys)), _HEAD["value"])
    return side_by_side([ByteColumn.fixed(heads), keys, *(value or ())], len(keys))


def unframe_records(data: bytes) -> list[PublicRecord]:
    """Return the records in framed bytes. Raises: WireError if the bytes are damaged."""
    return list(Frames.of(data))


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """Where the records are in framed bytes.

    Attributes:
        data: the bytes, `(size,)` uint8.
        channels: `(records,)` places in `CHANNELS`.
        begins: `(records,)` of the keys; a value is right behind its key.
        keys, values: `(records,)` sizes; a value of -1 is none.
    """

    data: Bytes
    channels: IntArray
    begins: IntArray
    keys: IntArray
    values: IntArray

    def __len__(self) -> int:
        return len(self.begins)

    @staticmethod
    def of(data: bytes) -> Frames:
        """Find the records. Raises: WireError if the bytes are damaged."""
        raw = np.frombuffer(data, np.uint8)
        # Texts have no NUL, so where all is text heads are easily seen. Whether they are heads is whether each begins
        # where the one before ends.
        likely = (raw[:-8] < len(CHANNELS)) & (raw[2:-6] == 0) & (raw[3:-5] == 0) & (raw[4:-4] == 0)
        likely &= (raw[8:] == 0) | (raw[8:] == 0xFF)
        for at in (np.flatnonzero(likely), None):
            frames, ends = Frames._at(raw, _followed(data) if at is None else at)
            begins = frames.begins - _FRAME.size
            if (
                np.array_equal(np.append(begins, len(raw)), np.insert(ends, 0, 0))
                and (frames.channels < len(CHANNELS)).all()
            ):
                return frames
        raise WireError("the frame of public records is damaged")

    @staticmethod
    def _at(raw: Bytes, begins: IntArray) -> tuple[Frames, IntArray]:
        """Read frames that begin there; return where each ends, too."""
        heads = raw[begins[:, None] + np.arange(_FRAME.size)].view(_HEAD).ravel()
        keys, values = heads["key"].astype(np.int64), np.maximum(heads["value"].astype(np.int64), -1)
        frames = Frames(raw, heads["channel"].astype(np.int64), begins + _FRAME.size, keys, values)
        return frames, frames.begins + keys + np.maximum(values, 0)

    def of_channel(self, channel: Channel) -> Frames:
        """Return the frames of the records of a channel."""
        return self.only(np.flatnonzero(self.channels == _NUMBERS[channel]))

    def only(self, rows: IntArray | slice) -> Frames:
        """Return the frames of these records."""
        return Frames(self.data, self.channels[rows], self.begins[rows], self.keys[rows], self.values[rows])

    @property
    def columns(self) -> tuple[ByteColumn, ByteColumn]:
        """Keys and values as columns, a tombstone with an empty one. Memory: records times the longest."""
        return (
            ByteColumn.cut(self.data, self.begins, self.keys),
            ByteColumn.cut(self.data, self.begins + self.keys, np.maximum(self.values, 0)),
        )

    def __iter__(self) -> Iterator[PublicRecord]:
        """Yield the records, one at a time: a list of a million takes 300 MB."""
        new = tuple.__new__  # the constructor of a named tuple takes twice as long
        # The last few of a hundred megabytes are no copy of all of them.
        first = int(self.begins.min(initial=len(self.data)))
        data = self.data[first : int((self.begins + self.keys + np.maximum(self.values, 0)).max(initial=0))].tobytes()
        for channel, begin, key, size in zip(
            *(each.tolist() for each in (self.channels, self.begins - first, self.keys, self.values)), strict=True
        ):
            value = begin + key
            yield new(
                PublicRecord, (CHANNELS[channel], data[begin:value], None if size < 0 else data[value : value + size])
            )


def _followed(data: bytes) -> IntArray:
    """Return where frames begin, each where the one before says that it ends."""
    begins, offset, unpack = list[int](), 0, _FRAME.unpack_from
    while offset + _FRAME.size <= len(data):
        begins.append(offset)
        _, key, value = unpack(data, offset)
        offset += _FRAME.size + key + max(value, 0)
    return np.array(begins, np.int64)


def sha256(*parts: bytes) -> str:
    """Return the SHA-256 of byte strings, each with its length before it, in hexadecimal."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def link(previous_chain: str, *, stream: str, step: int, digest: str, ledger: bytes) -> str:
    """Return the chain after a step: a hash of every public byte since the first step, ledger entries included.

    Args:
        digest: SHA-256 of the framed synthetic and measurement records.
        ledger: value of the ledger record, with or without its `chain`.
    Raises: WireError if `ledger` is not a JSON object.
    """
    try:
        entry = orjson.loads(ledger)
        entry.pop("chain", None)
    except (orjson.JSONDecodeError, AttributeError):
        raise WireError("a ledger entry is not a JSON object") from None
    canonical = orjson.dumps(entry, option=orjson.OPT_SORT_KEYS)
    return sha256(bytes.fromhex(previous_chain), stream.encode(), str(step).encode(), bytes.fromhex(digest), canonical)


@dataclass(frozen=True, slots=True)
class Seed:
    """The 256 bits that are expanded to all noise of a step; committed before the step is computed."""

    stream: str
    step: int
    seed: bytes = field(repr=False)

    def encode(self) -> bytes:
        """Return the seed as the value of a record."""
        header = {"stream": self.stream, "step": self.step, "seed": self.seed.hex()}
        return encode(Kind.SEED, header, {})

    @staticmethod
    def decode(data: bytes) -> Seed:
        """Return the seed in the value of a record. Raises: WireError."""
        header, _ = decode(Kind.SEED, data)
        return Seed(header["stream"], header["step"], bytes.fromhex(header["seed"]))


class StatePiece(NamedTuple):
    """Bytes that fit into a Kafka record, and their SHA-256."""

    body: bytes
    digest: str


def pieces_of(body: bytes) -> tuple[StatePiece, ...]:
    """Return a body in pieces, in order."""
    return tuple(StatePiece(part, sha256(part)) for part in split_body(body))


@dataclass(frozen=True, slots=True)
class StatePart:
    """A part of an encoded state: a `STATE_PART` record in pieces. Hashed once, however many states it is a part of."""

    pieces: tuple[StatePiece, ...] = field(repr=False)

    @staticmethod
    def of(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, level: int = 1) -> StatePart:
        """Return the part with this header and these arrays. Args: level: of zstd, see `schemas.wire.encode`."""
        return StatePart(pieces_of(encode(Kind.STATE_PART, header, arrays, level=level)))

    def read(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the header and the arrays. Raises: WireError."""
        return decode(Kind.STATE_PART, self.body)

    @property
    def body(self) -> bytes:
        return self.pieces[0].body if len(self.pieces) == 1 else b"".join(piece.body for piece in self.pieces)

    @property
    def size(self) -> int:
        return sum(len(piece.body) for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class EncodedState:
    """An encoded state: a head, which has sizes and digests of all pieces of the parts, and behind it the parts.

    So the head's SHA-256 is that of the state, and a part that stays what it is costs the next state nothing: it is
    neither encoded nor hashed, and `DurableTable` does not write it again.

    Attributes:
        head: names what follows.
        parts: those that were encoded for this state.
        kept: those that were there already, see `Candidate`.
    """

    head: bytes = field(repr=False)
    parts: tuple[StatePart, ...]
    kept: tuple[StatePart, ...]

    @staticmethod
    def of(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], kept: Sequence[StatePart] = ()) -> EncodedState:
        """Encode arrays: each large one is a part by itself, and all the others are one."""
        large = {name: array for name, array in arrays.items() if array.nbytes >= PART_BYTES}
        groups = [{name: array for name, array in arrays.items() if name not in large}]
        groups += [{name: array} for name, array in large.items()]
        parts = [StatePart.of({}, group) for group in groups]
        sizes = [[(len(piece.body), piece.digest) for piece in part.pieces] for part in (*parts, *kept)]
        head = frame(Kind.STATE, {**header, "parts": sizes, "kept": len(kept)}, b"")
        return EncodedState(head, tuple(parts), tuple(kept))

    @staticmethod
    def decode(body: bytes) -> EncodedState:
        """Return the state whose `body` this is. Raises: WireError."""
        header, rest = unframe_first(Kind.STATE, body)
        parts, at = list[StatePart](), 0
        for sizes in header["parts"]:
            pieces = []
            for size, digest in sizes:
                pieces.append(StatePiece(rest[at : at + size], digest))
                at += size
            parts.append(StatePart(tuple(pieces)))
        if at != len(rest) or any(sha256(piece.body) != piece.digest for part in parts for piece in part.pieces):
            raise WireError(f"the parts of a state are {len(rest)} bytes, and not those that it says")
        own = len(parts) - header["kept"]
        return EncodedState(body[: len(body) - len(rest)], tuple(parts[:own]), tuple(parts[own:]))

    @property
    def digest(self) -> str:
        return sha256(self.head)

    @property
    def pieces(self) -> list[StatePiece]:
        """All of it, in order. The first pieces differ from those of every other state: they have the head."""
        first, *others = (*self.parts, *self.kept)
        return [*pieces_of(self.head + first.body), *(piece for part in others for piece in part.pieces)]

    @property
    def body(self) -> bytes:
        return b"".join([self.head, *(part.body for part in (*self.parts, *self.kept))])

    @property
    def own_bytes(self) -> int:
        """Size without what is kept."""
        return len(self.head) + sum(part.size for part in self.parts)

    @property
    def size(self) -> int:
        return self.own_bytes + sum(part.size for part in self.kept)


class Encoded(NamedTuple):
    """An encoded candidate: `release` for the release log, and `state` for the changelog of the state tables.

    `release` holds the digest of `state`.
    """

    release: bytes
    state: EncodedState


_HEADER = ("stream", "step", "previous_chain", "chain", "digest", "progress")


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """The one answer of a step before it is published, and the state with which the next step begins.

    Attributes:
        previous_chain, chain: see `link`.
        digest: SHA-256 of the framed synthetic and measurement records.
        payload: framed synthetic and measurement records, exactly the bytes to publish.
        ledger: value of the ledger record.
        progress: state of the task, as a JSON object: position in the blocks topic; for each source partition the next
            offset, tick, floor and first live step; and `measured`, see the property.
        arrays: state of the engine, and pending events of later steps. Private. None if only the release was read.
        state_digest: that of the encoded state; empty before it is encoded.
        kept: parts of the state that are encoded already. What is in them is for their owner to read.
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
    kept: tuple[StatePart, ...] = field(repr=False, default=())

    @property
    def measured(self) -> int:
        """Last step, up to this one, with published measurements; -1 if there is none."""
        return int(self.progress["measured"])

    @property
    def live(self) -> bool:
        """Whether the wall clock closed the step on some source partition, after a replay went live there."""
        return any(begin is not None and begin <= self.step for begin in self.progress.get("live_from", ()))

    def encode(self) -> Encoded:
        """Return the release and the state as records. Raises: WireError if it was read without its state."""
        if self.arrays is None:
            raise WireError(f"candidate of step {self.step} was read without its state")
        state = EncodedState.of({"stream": self.stream, "step": self.step}, self.arrays, self.kept)
        header = {name: getattr(self, name) for name in _HEADER} | {"state": state.digest}
        parts = {"payload": np.frombuffer(self.payload, np.uint8), "ledger": np.frombuffer(self.ledger, np.uint8)}
        return Encoded(encode(Kind.RELEASE, header, parts), state)

    @staticmethod
    def decode(release: bytes, state: EncodedState | None = None) -> Candidate:
        """Return the candidate in an encoded release, and in an encoded state if one is given.

        Raises: WireError, also if payload, digest and chain, or release and state, do not match.
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

    def with_state(self, state: EncodedState) -> Candidate:
        """Return the candidate with its state. Raises: WireError if it is another, or damaged."""
        if state.digest != self.state_digest:
            raise WireError(f"the state does not match the digest in the candidate of step {self.step}")
        arrays: dict[str, np.ndarray] = {}
        for part in state.parts:
            arrays |= part.read()[1]
        return replace(self, arrays=arrays, kept=state.kept)


PART_BYTES = 64 << 10
"""Size of an array from which on it is a part of the encoded state by itself."""


class SavedState(NamedTuple):
    """A body in a state table: the step after which it holds, its digest, and the bytes. The digest of an encoded state
    is `EncodedState.digest`, that of any other body its SHA-256.
    """

    step: int
    digest: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of an encoded release, small enough for a Kafka record; `digest` is the SHA-256 of the whole release."""

    stream: str
    step: int
    index: int
    count: int
    digest: str
    part: bytes = field(repr=False)

    def encode(self) -> bytes:
        """Return the chunk as the value of a record."""
        header = {name: getattr(self, name) for name in ("stream", "step", "index", "count", "digest")}
        return frame(Kind.CANDIDATE, header, self.part)

    @staticmethod
    def decode(data: bytes) -> Chunk:
        """Return the chunk in the value of a record. Raises: WireError."""
        header, part = unframe(Kind.CANDIDATE, data)
        return Chunk(**header, part=part)


def split_body(body: bytes, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """Return the parts of an encoded body, each small enough for a Kafka record."""
    return [body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes)]


def split_into_chunks(body: bytes, *, stream: str, step: int, chunk_bytes: int = CHUNK_BYTES) -> list[Chunk]:
    """Return the chunks of an encoded release, in order."""
    digest = sha256(body)
    parts = split_body(body, chunk_bytes)
    return [Chunk(stream, step, index, len(parts), digest, part) for index, part in enumerate(parts)]


def join_chunks(chunks: Sequence[Chunk]) -> bytes:
    """Return the body of all chunks, given in order of `index`. Raises: WireError if the digest does not match."""
    body = b"".join(chunk.part for chunk in chunks)
    if sha256(body) != chunks[0].digest:
        raise WireError(f"chunks of step {chunks[0].step} do not match their digest")
    return body


LogRecord = Seed | Chunk


def decode_log_record(data: bytes) -> LogRecord:
    """Return the seed or chunk in a record of the release log. Raises: WireError."""
    if data[:4] == Kind.SEED.value:
        return Seed.decode(data)
    return Chunk.decode(data)
