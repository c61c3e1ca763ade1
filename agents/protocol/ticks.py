"""Records that close steps, as one source partition reads them."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.errors import RecordError
from schemas.events import TICK_HEADER, Tick, read_tick
from schemas.releases import STEP_LIMIT


def tick_values(headers: Sequence[tuple[str, bytes | None]]) -> list[bytes | None]:
    """What a record says as a tick, the last one last; empty where it is an event."""
    return [value for name, value in headers if name == TICK_HEADER]


def usable_tick(value: bytes | None) -> Tick | None:
    """What a tick says; None where nobody could mean it."""
    try:
        tick = read_tick(value or b"")
    except RecordError:
        return None
    return tick if tick.step < STEP_LIMIT else None
