"""Which rows were taken in before: whole batches, and single rows that wait for their step. PRIVATE.

A cell that is run again hands in the very same batch, which its digest says. `run` is meant to get a longer batch each
time, and leaves alone what is released; rows that `add` or `step` took in for a step to come it must be told of one by
one, or they would count twice. They are known by a keyed hash, as the journal must hold no row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from agents.local.library.batches import BatchRows

MARK_BYTES = 8
"""Of a row's hash: a million rows are taken for another million's with probability 1e-7, and are then refused."""


def digest_of(rows: BatchRows) -> str:
    """Of a batch."""
    digest = hashlib.sha256()
    for record in rows.records:
        digest.update(b"%d," % len(record))
        digest.update(record)
    return digest.hexdigest()


def waiting_with(
    before: Mapping[int, bytes], rows: BatchRows, steps: Sequence[int | None], *, key: bytes, open_steps: range
) -> dict[int, bytes]:
    """Hashes of all rows that wait, by their step.

    Args:
        steps: own step of each row.
        open_steps: those that rows can wait for; what waited for another one is released.
    """
    found: dict[int, list[bytes]] = {}
    for step, record in zip(steps, rows.records, strict=True):
        if step is not None and step in open_steps:
            found.setdefault(step, []).append(_mark(record, key))
    kept = {step: marks for step, marks in before.items() if step >= open_steps.start}
    return kept | {step: kept.get(step, b"") + b"".join(marks) for step, marks in found.items()}


def any_waits(waiting: Mapping[int, bytes], parts: Iterable[tuple[int, BatchRows]], *, key: bytes) -> bool:
    """Whether any row of `parts`, by step, is among those that wait."""
    for step, rows in parts:
        marks = waiting.get(step, b"")
        known = {marks[at : at + MARK_BYTES] for at in range(0, len(marks), MARK_BYTES)}
        if known and any(_mark(record, key) in known for record in rows.records):
            return True
    return False


def _mark(record: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=MARK_BYTES, key=key, person=b"waiting row").digest()
