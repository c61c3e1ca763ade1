"""Raw events: why one can be refused, and the control records that a replay writes between them.

A raw topic holds JSON objects. A *tick* is a record with the header `TICK_HEADER`; it closes a step on its partition.
"""

from __future__ import annotations

from enum import IntEnum

import orjson

from schemas.errors import RecordError

TICK_HEADER = "privstream-tick"

# More empty steps than this between two rows is a wrong time unit or a broken row, not a quiet night; believing it
# would close, and for ever, every step in between. No replay writes a tick that jumps further.
LARGEST_JUMP = 10_000


class Reason(IntEnum):
    """Why a raw record was not used. The order is the order of the filters; values are in dead letters, never
    renumber.
    """

    ACCEPTED = 0
    NOT_JSON = 1
    MISSING_FIELD = 2
    WRONG_TYPE = 3
    EMPTY = 4  # tombstone or empty value
    TOO_LARGE = 5
    BAD_USER = 6
    WRONG_PARTITION = 7
    BAD_TIME = 8
    BEFORE_START = 9
    TOO_FAR_AHEAD = 10
    NOT_FINITE = 11
    OUTSIDE_DOMAIN = 12
    BAD_OPERATION = 13
    BAD_TICK = 14
    OVER_BOUND = 15  # counted, not dead-lettered: it is the bound at work, not a fault of the record
    CLIPPED = 16  # counted beside ACCEPTED: a value was moved to the nearest public limit
    TICK_TOO_FAR = 17  # a tick that closes more than LARGEST_JUMP steps at once
    LOST = 18  # counted by offsets: deleted from the source topic before it was read


def encode_tick(step: int, *, row: int, source: str) -> bytes:
    """The header value of a tick: every step up to `step` is over on this partition.

    Args:
        step: last closed step; may repeat an earlier one (then the tick only marks how far the replay has come).
        row: first row of the replayed file that is not yet written, so that a replay can be resumed.
        source: digest of the replayed file.
    """
    return orjson.dumps({"row": row, "source": source, "step": step, "version": 1})


def decode_tick(value: bytes) -> int:
    """The last closed step of a tick. Raises: RecordError("BAD_TICK")."""
    return tick_progress(value)[0]


def tick_progress(value: bytes) -> tuple[int, int, str]:
    """`(step, row, source)` of a tick, see `encode_tick`. Raises: RecordError("BAD_TICK")."""
    try:
        tick = orjson.loads(value)
        step, row, source = tick["step"], tick["row"], tick["source"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise RecordError(Reason.BAD_TICK.name) from None
    if tick.get("version") != 1 or type(step) is not int or type(row) is not int or step < -1:
        raise RecordError(Reason.BAD_TICK.name)
    return step, row, str(source)
