"""A place for small records that replaces one only by who names it: what a witness must be able to do.

Every place does the same three things, and each in one atomic act of its own: a folder under a lock, a server by the
condition of the request (`If-Match`, `If-None-Match: *`). So of two who have read the same record, one can replace it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple, Protocol, TypeVar

from schemas.errors import WitnessAwayError

TIMEOUT_S = 10.0
MOST_BYTES = 10_000
"""Of a record; what is larger is none."""
PROOF = "conditions"
"""Name of the record by which a place shows that it heeds conditions; no stream can be called `.conditions`."""

T = TypeVar("T")


class Noted(NamedTuple):
    """A record as it stands. `data` None: there is none. `tag`: the store's own name of it."""

    data: bytes | None
    tag: str | None = None


class ChangedError(Exception):
    """Another record stands there than the one that was to be replaced."""


class Store(Protocol):
    """See the module. Whatever is wrong with the place is an `OSError` or a `WitnessAwayError`, to be tried again.

    Attributes:
        place: for messages, without a secret.
    """

    place: str

    async def read(self, name: str) -> Noted: ...

    async def write(self, name: str, data: bytes, before: Noted) -> Noted:
        """Replace `before`, durably. Raises: ChangedError if it does not stand there any more."""


async def within(work: Awaitable[T], place: str) -> T:
    """An answer of a place in time. Raises: WitnessAwayError, and ChangedError."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await work
    except TimeoutError:
        raise WitnessAwayError(f"{place} does not answer within {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise WitnessAwayError(f"{place} cannot be used: {error.strerror or type(error).__name__}") from error


async def prove(store: Store) -> None:
    """See that a place heeds conditions: a server that knows none would let an older worker write over a newer one.

    Raises: WitnessAwayError.
    """
    for _ in range(2):
        try:
            await within(store.write(f".{PROOF}", b"{}", Noted(None)), store.place)
        except ChangedError:
            return
    raise WitnessAwayError(
        f"{store.place} replaces a record on a condition that does not hold (If-None-Match: *), so it cannot be a "
        "witness: use a store that heeds conditional writes"
    )
