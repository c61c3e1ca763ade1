"""Raw events: why one can be refused, and the control records that a replay writes between them.

A raw topic holds JSON objects. A *tick* is a record with the header `TICK_HEADER`; it closes a step on its partition.
The last one may say that the partition *goes live*: from there on the wall clock closes steps, and no tick does.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Self

import orjson

from schemas.errors import RecordError

TICK_HEADER = "privstream-tick"

# More empty steps than this between two rows is a wrong time unit or a broken row, not a quiet night; believing it
# would close, and for ever, every step in between. No replay writes a tick that jumps further.
LARGEST_JUMP = 10_000


class Reason(IntEnum):
    """Why a raw record was not used. The order is the order of the filters; values are in dead letters, never
    renumber.

    Attributes:
        meaning: a sentence for people.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        reason = int.__new__(cls, value)
        reason._value_, reason.meaning = value, meaning
        return reason

    ACCEPTED = 0, "The record is used."
    NOT_JSON = 1, "It is not JSON in UTF-8. NaN and Infinity are not JSON."
    MISSING_FIELD = 2, "A field that the configuration names is absent."
    WRONG_TYPE = 3, "It is no object, or a field holds another type, null among them."
    EMPTY = 4, "It has no value (a tombstone), or an empty one."
    TOO_LARGE = 5, "It has more than 1 MiB."
    BAD_USER = 6, "The user id is neither a text of 1 to 256 bytes nor an integer."
    WRONG_PARTITION = 7, "It is not on the partition of its user, who would be bounded twice."
    BAD_TIME = 8, "The time cannot be read as the configured format."
    BEFORE_START = 9, "Its time is before step 0."
    TOO_FAR_AHEAD = 10, "Its step is more than `max_ahead` beyond the open one."
    NOT_FINITE = 11, "A number is too large for 64 bits of floating point."
    OUTSIDE_DOMAIN = 12, "A value is outside of what the domain declares."
    BAD_OPERATION = 13, "The operation is neither `insert` nor `delete`."
    BAD_TICK = 14, "A tick that cannot be read, or where nothing but the wall clock closes steps."
    OVER_BOUND = 15, "Its user has no contributions left: the bound at work, no fault of the record."
    CLIPPED = 16, "Counted beside ACCEPTED: a value was moved to the nearest public limit."
    TICK_TOO_FAR = 17, "A tick that closes more than 10,000 steps at once."
    LOST = 18, "Deleted from the source topic before it was read; counted by offsets."
    UNREADABLE = 19, "It is cut off, or not of the stream's format."
    NO_SCHEMA_ID = 20, "Nothing says with which schema of the registry it was written."
    UNKNOWN_SCHEMA = 21, "The registry has no schema of its id."
    UNUSABLE_SCHEMA = 22, "Its schema is of another kind than the format, or does not compile."
    NO_ENVELOPE = 23, "It is no CloudEvent, or no change of a table."
    NO_BEFORE = 24, "A change that does not say which row it takes away."
    WRONG_COLUMNS = 25, "CSV with another number of cells, or a header that names a column twice."
    NO_EVENT = 26, "Counted alone: what a format has beside events, such as a header or a tombstone."
    TWO_USERS = 27, "It would be events of two users: a change that hands a row from one to the other."
    PLACED_BY_MURMUR2 = 28, "Counted beside WRONG_PARTITION: it is where murmur2 puts its user, the other partitioner."
    PLACED_BY_CRC32 = 29, "Counted beside WRONG_PARTITION: it is where crc32 puts its user, the other partitioner."


def encode_tick(step: int, *, row: int, source: str) -> bytes:
    """Return the header value of a tick: every step up to `step` is over on this partition.

    Args:
        step: last closed step; may repeat an earlier one (then the tick only marks how far the replay has come).
        row: first row of the replayed file that is not yet written, so that a replay can be resumed.
        source: digest of the replayed file.
    """
    return orjson.dumps({"row": row, "source": source, "step": step, "version": 1})


def encode_going_live(step: int, *, live_from: int, row: int, source: str) -> bytes:
    """Return the header value of a partition's last tick, which goes live with it: the wall clock closes later steps.

    Args:
        step: last step that is over by the clock where this is written: `live_from - 1` or later.
        live_from: first step that is not of the replayed history.
        row, source: as in `encode_tick`.
    """
    return orjson.dumps({"live_from": live_from, "row": row, "source": source, "step": step, "version": 1})


class Tick(NamedTuple):
    """What a tick says, see `encode_tick` and `encode_going_live`; `live_from` is None where it does not go live."""

    step: int
    row: int
    source: str
    live_from: int | None = None

    @property
    def replayed(self) -> int:
        """The last closed step of the history."""
        return self.step if self.live_from is None else self.live_from - 1


def read_tick(value: bytes) -> Tick:
    """Return what a tick says. Raises: RecordError("BAD_TICK")."""
    try:
        said = orjson.loads(value)
        step, row, source, version = said["step"], said["row"], said["source"], said["version"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise RecordError(Reason.BAD_TICK.name) from None
    if version != 1 or type(step) is not int or type(row) is not int or step < -1:
        raise RecordError(Reason.BAD_TICK.name)
    if "live_from" not in said:
        return Tick(step, row, str(source))
    live_from = said["live_from"]
    if type(live_from) is not int or not 0 <= live_from <= step + 1:
        raise RecordError(Reason.BAD_TICK.name)
    return Tick(step, row, str(source), live_from)
