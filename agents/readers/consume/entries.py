"""Entries of a public ledger, as readers take them: what is none stops nothing but what would rest on it. Pure."""

from __future__ import annotations

from schemas.errors import PrivstreamError, WireError
from schemas.ledger import LedgerEntry
from schemas.releases import link


class PublicRecordsError(PrivstreamError):
    """Public topics do not hold what their ledger says, or no longer hold it whole. Names steps and topics only."""


def entry_of(value: bytes, stream: str) -> tuple[LedgerEntry, bool]:
    """Return the entry that a record of a stream's ledger holds, and whether its chain is that of its words.

    Raises: PublicRecordsError if it is no entry.
    """
    try:
        entry = LedgerEntry.decode(value, stream)
        chain = link(entry.previous_chain, stream=stream, step=entry.step, digest=entry.digest, ledger=value)
    except WireError as error:
        raise PublicRecordsError(
            f"{error}. Fix: only the job may write to its public topics; look at who else can (privstream topics "
            "CONFIG --acls)."
        ) from None
    return entry, chain == entry.chain
