"""An entry of a public ledger, for tests to which most of its words are all the same."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.ledger import LedgerEntry, LedgerGuarantee, LedgerMechanism
from schemas.releases import GENESIS

ENTRY = LedgerEntry(
    version=1,
    stream="s",
    step=3,
    start="2020-01-01T03:00:00+00:00",
    end="2020-01-01T04:00:00+00:00",
    digest="ab" * 32,
    previous_chain=GENESIS,
    chain="",
    draw="0f" * 16,
    engine="spatial",
    mode="default",
    gathered=False,
    synthetic_records=5,
    added=4,
    removed=2,
    unit="user",
    max_contributions=2,
    epsilon=1.0,
    epsilon_per_us=None,
    epsilon_spent=0.95,
    guarantee=LedgerGuarantee(
        epsilon=0.5,
        epsilon_exact="1/2",
        delta=0.0,
        neighbouring="add_remove",
        private=True,
        note="",
        mechanisms=[
            LedgerMechanism(
                name="counts", distribution="laplace", l1_sensitivity=1, scale=2.0, epsilon=0.5, epsilon_exact="1/2",
                uses=1,
            )
        ],
    ),
    notes={"leaves": 7},
).with_chain()  # fmt: skip


def entry_like(**changes: Any) -> LedgerEntry:
    """The entry with other words, and the chain that they make."""
    return msgspec.structs.replace(ENTRY, **changes).with_chain()
