"""Raw events: the reasons for which one is refused, and the control records that a replay writes between them.

A *tick* is a record with the header `TICK_HEADER`; it closes a step on its partition. The last tick may say that the
partition *goes live*: from then on the wall clock closes steps, and no tick does.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Self

import orjson

from schemas.errors import RecordError

TICK_HEADER = "privstream-tick"

LARGEST_JUMP = 10_000
"""Most steps that a tick may close at once.

A longer gap between two rows means a wrong time unit or a broken row, and to accept it would close every step in
between for ever. No replay writes a tick that jumps further.
"""


class Reason(IntEnum):
    """Why a raw record was not used, in the order of the filters. Dead letters hold the values: never renumber them.

    Attributes:
        meaning: one sentence, shown to operators.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        reason = int.__new__(cls, value)
        reason._value_, reason.meaning = value, meaning
        return reason

    ACCEPTED = 0, "The record is used."
    NOT_JSON = 1, "It is not JSON in UTF-8."
    MISSING_FIELD = 2, "A field that the configuration names is absent."
    WRONG_TYPE = 3, "It is not an object, or a field holds another type, null included."
    EMPTY = 4, "It has no value (a tombstone), or an empty one."
    TOO_LARGE = 5, "It is larger than 1 MiB."
    BAD_USER = 6, "The user id is neither a text of 1 to 256 bytes nor an integer."
    WRONG_PARTITION = 7, "It is not on the partition of its user, who would be bounded twice."
    BAD_TIME = 8, "The time cannot be read in the configured format."
    BEFORE_START = 9, "Its time is before step 0."
    TOO_FAR_AHEAD = 10, "Its step is more than `max_ahead` beyond the open one."
    NOT_FINITE = 11, "A number is NaN, infinite or too large for 64-bit floating point."
    OUTSIDE_DOMAIN = 12, "A value is outside the declared domain."
    BAD_OPERATION = 13, "The operation is neither `insert` nor `delete`."
    BAD_TICK = 14, "It is a tick that cannot be read, or a tick where only the wall clock closes steps."
    OVER_BOUND = 15, "Its user has no contributions left. The bound does its work; the record is not at fault."
    CLIPPED = 16, "It is also counted as ACCEPTED: a value was moved to the nearest public limit."
    TICK_TOO_FAR = 17, "It is a tick that closes more than 10,000 steps at once."
    LOST = 18, "It was deleted from the source topic before it was read; offsets are counted."
    UNREADABLE = 19, "It is truncated, or not in the format of the stream."
    NO_SCHEMA_ID = 20, "It does not name the schema of the registry with which it was written."
    UNKNOWN_SCHEMA = 21, "The registry has no schema with its id, or not all that this refers to."
    UNUSABLE_SCHEMA = 22, "Its schema is not of the stream's format, or does not compile."
    NO_ENVELOPE = 23, "It is not a CloudEvent, or not a change of a table."
    NO_BEFORE = 24, "It is a change that does not say which row it removes."
    WRONG_COLUMNS = 25, "It is CSV with another number of cells, or with a header that names a column twice."
    NO_EVENT = 26, "It is a part of the format that is not an event, such as a header or a tombstone; counted alone."
    TWO_USERS = 27, "It would be events of two users: a change that gives a row of one user to another."
    PLACED_BY_MURMUR2 = 28, "It is also counted as WRONG_PARTITION: the partitioner murmur2 would place it here."
    PLACED_BY_CRC32 = 29, "It is also counted as WRONG_PARTITION: the partitioner crc32 would place it here."
    AMBIGUOUS_TIME = 30, "It is also counted as ACCEPTED: clocks showed its local time twice, and the earlier counts."
    NONEXISTENT_TIME = (
        31,
        "It is also counted as ACCEPTED: clocks skipped its local time; it is read as if they had not.",
    )
    UNMAPPED = 32, "An expression of `[streams.map]` cannot be computed for it."
    DROPPED = (
        33,
        "It is left out by `drop` of `[streams.map]`, or by `sample` of keys, so it is not an event; counted alone.",
    )
    REPEATED = 34, "Its user has had this key in the period as often as it counts; it charges nobody."
    NO_PART = 35, "The field of `split` has a value that no part lists; the first part counts it."
    OTHER_PART = 36, "It is of another part of the split stream, which counts it; counted alone."


def encode_tick(step: int, *, row: int, source: str) -> bytes:
    """Return the header value of a tick, which says that every step up to `step` is over on this partition.

    Args:
        step: last closed step; it may repeat an earlier one, and then the tick only marks the progress of the replay.
        row: first row of the replayed file that is not yet written, from which a replay is resumed.
        source: digest of the replayed file.
    """
    return orjson.dumps({"row": row, "source": source, "step": step, "version": 1})


def encode_going_live(step: int, *, live_from: int, row: int, source: str) -> bytes:
    """Return the header value of the last tick of a partition, after which the wall clock closes steps.

    Args:
        step: last step that is over by the clock when the tick is written: `live_from - 1` or later.
        live_from: first step after the replayed history.
        row, source: see `encode_tick`.
    """
    return orjson.dumps({"live_from": live_from, "row": row, "source": source, "step": step, "version": 1})


class Tick(NamedTuple):
    """The content of a tick; see `encode_tick` and `encode_going_live`. `live_from` is None if it does not go live."""

    step: int
    row: int
    source: str
    live_from: int | None = None

    @property
    def last_replayed(self) -> int:
        """Last closed step of the replayed history."""
        return self.step if self.live_from is None else self.live_from - 1


def read_tick(value: bytes) -> Tick:
    """Return the content of a tick's header value. Raises: RecordError("BAD_TICK")."""
    try:
        content = orjson.loads(value)
        step, row, source, version = content["step"], content["row"], content["source"], content["version"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise RecordError(Reason.BAD_TICK.name) from None
    if version != 1 or type(step) is not int or type(row) is not int or step < -1:
        raise RecordError(Reason.BAD_TICK.name)
    if "live_from" not in content:
        return Tick(step, row, str(source))
    live_from = content["live_from"]
    if type(live_from) is not int or not 0 <= live_from <= step + 1:
        raise RecordError(Reason.BAD_TICK.name)
    return Tick(step, row, str(source), live_from)
