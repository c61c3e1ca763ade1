"""The public ledger as a chain: each step's entry names the bytes of its step and the entry before it.

Pure: bytes in, entries out.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from agents.readers.consume.entries import PublicRecordsError, entry_of
from schemas.ledger import LedgerEntry
from schemas.releases import GENESIS


class Ledger:
    """Entries in order of steps, each linked to the one before it."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.entries: list[LedgerEntry] = []

    def take(self, value: bytes) -> None:
        """The next record of the topic. A copy of one that is known is passed over.

        Raises: PublicRecordsError if it is no entry of this stream, leaves a step out, or is not linked to the chain.
        """
        topic = f"{self.stream}.ledger"
        entry, linked = entry_of(value, self.stream)
        step = entry.step
        if step < len(self.entries) and entry.chain == self.entries[step].chain:
            return
        if step != len(self.entries):
            raise PublicRecordsError(
                f"topic {topic} goes on with step {step} where step {len(self.entries)} is due: entries are missing. "
                "Fix: the topic must keep one record for each step (cleanup.policy=compact, as privstream topics "
                "makes it)."
            )
        before = self.entries[-1].chain if self.entries else GENESIS
        if entry.previous_chain != before or not linked:
            raise PublicRecordsError(
                f"the entry of step {step} on topic {topic} is not linked to the chain: its words or those before it "
                "were "
                "changed. Fix: do not use these topics before you know who wrote to them."
            )
        self.entries.append(entry)

    @staticmethod
    def of(stream: str, values: Iterable[bytes]) -> Ledger:
        """Raises: PublicRecordsError."""
        ledger = Ledger(stream)
        for value in values:
            ledger.take(value)
        return ledger

    def at(self, wanted: str | None) -> LedgerEntry:
        """The entry of a step given by its number, or of the last step that has ended at a time (ISO 8601); None: of
        the last one.

        Raises: PublicRecordsError that says which steps there are.
        """
        if not self.entries:
            raise PublicRecordsError(
                f"stream {self.stream} has published no step yet. Fix: wait for its first one (privstream status "
                "CONFIG)."
            )
        last = self.entries[-1]
        if wanted is None:
            return last
        if wanted.isascii() and wanted.isdigit():
            if int(wanted) > last.step:
                raise PublicRecordsError(
                    f"step {wanted} of stream {self.stream} is not public yet: the last one is {last.step} (until "
                    f"{last.ends.isoformat()}). Fix: name a step from 0 to {last.step}."
                )
            return self.entries[int(wanted)]
        return self.entries[self.step_ended(instant_of(wanted, self.entries[0].begins))]

    def step_ended(self, when: datetime.datetime) -> int:
        """The last step that ends at or before a time. Raises: PublicRecordsError where none has."""
        steps = [entry.step for entry in self.entries if entry.ends <= when]
        if not steps:
            raise PublicRecordsError(
                f"no step of stream {self.stream} has ended by {when.isoformat()}: step 0 ends at "
                f"{self.entries[0].ends.isoformat()}. Fix: name a later time, or a step."
            )
        return steps[-1]


def instant_of(text: str, like: datetime.datetime) -> datetime.datetime:
    """A time as a person writes it; without an offset it is in the ledger's, UTC. Raises: PublicRecordsError."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise PublicRecordsError(
            f"{text!r} is neither a step nor a time. Fix: write the number of a step, or a time such as "
            "2026-01-31T00:00."
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=like.tzinfo)
