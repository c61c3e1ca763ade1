"""An entry of a public ledger: the one statement of what stands in it, by which it is written, read and described.

Whoever may write to a public topic chooses the words of a record: one of which a field is of another kind is no entry.
`MeasurementRecord` is what readers of the measurements may rely on, and `MEASUREMENT` and `UTILITY` say what each field
of the other topics means: the reference is made of them, and tests hold them against real records.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
import orjson

from schemas.errors import WireError
from schemas.releases import STEP_LIMIT, link
from schemas.topics import Topics

Step = Annotated[int, msgspec.Meta(ge=0, description="Steps count from 0 at the start of the stream.")]


class MeasurementRecord(msgspec.Struct, kw_only=True):
    """What was measured in a step, with its noise. Which further fields there are is the engine's (docs/engines)."""

    step: Step
    variance: Annotated[
        float | msgspec.UnsetType, msgspec.Meta(description="Of the noise, in squares of the measured numbers' unit.")
    ] = msgspec.UNSET
    part: Annotated[
        int | msgspec.UnsetType, msgspec.Meta(description="Place of this record among `parts` of one measurement.")
    ] = msgspec.UNSET
    parts: int | msgspec.UnsetType = msgspec.UNSET


MEASUREMENT: Mapping[str, str] = {
    "step": "The step that published it. It is the record's key, too.",
    "part": "Where a measurement is cut because it is larger than 900 kB: number of this part, from 0 on.",
    "parts": "How many parts there are; their lists one behind the other are the whole.",
}
"""Fields of `<stream>.measurements` that all engines have; the rest is the engine's, see its page."""

UTILITY: Mapping[str, str] = {
    "step": "The step that is measured.",
    "time": "Its end, ISO 8601.",
    "events_total": "True held-out events so far. PRIVATE.",
    "events": "True held-out events of the step. PRIVATE.",
    "events_alive": "True held-out events alive, of which synthetic_points is the estimate; null where the engine "
    "compares single steps, so that one record is not one event. PRIVATE.",
    "synthetic_points": "Synthetic records alive.",
    "gathered": "As in the ledger.",
    "metrics": "Errors by name, see the engine's page. PRIVATE.",
    "counts": "Held-out records by reason, see Reasons. PRIVATE.",
}
"""Fields of `<stream>.utility`, for operators only."""


MOST_COUNTED = 1 << 53
"""Counts from here on are no whole numbers of a browser."""


def _said(description: str, **limits: Any) -> msgspec.Meta:
    return msgspec.Meta(description=description, **limits)


Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0, lt=MOST_COUNTED)]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class LedgerMechanism(msgspec.Struct, kw_only=True, frozen=True):
    """One source of noise, and what it costs one event."""

    name: str
    distribution: str
    l1_sensitivity: int | float
    scale: float
    epsilon: float
    epsilon_exact: str
    uses: int
    mu_squared: float | msgspec.UnsetType = msgspec.UNSET


class LedgerGuarantee(msgspec.Struct, kw_only=True, frozen=True):
    """What one event is promised, over the whole stream."""

    epsilon: Amount
    epsilon_exact: str
    delta: Amount
    neighbouring: str
    private: bool
    note: str
    mechanisms: list[LedgerMechanism]


class LedgerEntry(msgspec.Struct, kw_only=True, frozen=True):
    """The public account of one step: what was published, how it was made private, what a user has paid at most."""

    version: Annotated[Literal[1], _said("Of this format.")]
    stream: Annotated[str, _said("Name of the stream.")]
    step: Annotated[int, _said("Counts from 0. It is the record's key, too.", ge=0, lt=STEP_LIMIT)]
    start: Annotated[str, _said("When the step begins, ISO 8601 in UTC.")]
    end: Annotated[str, _said("First moment after the step, ISO 8601 in UTC.")]
    digest: Annotated[
        Hash, _said("SHA-256 of everything that the step published: records, tombstones and measurements.")
    ]
    previous_chain: Annotated[Hash, _said("`chain` of the step before; 64 zeros before the first.")]
    chain: Annotated[
        Hash, _said("SHA-256 over the chain before, the digest and this entry: who keeps one knows all before it.")
    ]
    draw: Annotated[
        str,
        _said(
            "Names the noise of the step: a second answer has another one, and so another `chain`, even where it is "
            "the same in all else.",
            pattern="^[0-9a-f]{32}$",
        ),
    ]
    engine: Annotated[str, _said("As configured.")]
    mode: Annotated[str, _said("As configured.")]
    gathered: Annotated[
        bool,
        _said(
            "True while the engine gathers its first steps, to release them together: no data was published; `notes` "
            "may hold a measured surplus, which is in `epsilon_spent`."
        ),
    ]
    synthetic_records: Annotated[Count, _said("Synthetic records alive after the step.")]
    added: Annotated[Count, _said("Synthetic records that the step published.")]
    removed: Annotated[Count, _said("Synthetic records that it withdrew.")]
    unit: Annotated[str, _said("What is protected: `user`, `event` or `replace`.")]
    max_contributions: Annotated[
        int | None, _said("Events (trips) of one user that count; null where no user is bounded.")
    ]
    epsilon: Annotated[Amount, _said("Of the protected unit, over the whole stream or one period.")]
    epsilon_per_us: Annotated[
        int | None,
        _said("Length of the period after which the bound renews, in microseconds; null: it never does."),
    ]
    epsilon_per: Annotated[
        str | msgspec.UnsetType,
        _said("That length as it is configured, where it is one of the calendar: `epsilon_per_us` is the shortest."),
    ] = msgspec.UNSET
    epsilon_spent: Annotated[
        Amount,
        _said(
            "What a user has paid at most for this step and all before it, or in this period: the sum of what was "
            "charged for them, at the `delta` of the guarantee."
        ),
    ]
    guarantee: Annotated[
        LedgerGuarantee,
        _said(
            "What one event is promised: `epsilon` (and exactly, as a fraction), `delta`, `neighbouring`, `private`, "
            "`note`, and `mechanisms`, each with its noise, scale, sensitivity and epsilon."
        ),
    ]
    notes: Annotated[dict[str, Any], _said("Public facts of the engine, such as the number of leaves.")]
    witness: Annotated[
        str | msgspec.UnsetType,
        _said(
            "Only where a cluster that was put back may go unnoticed: `none configured`, or up to which step an "
            "operator vouched for this ledger."
        ),
    ] = msgspec.UNSET

    def __post_init__(self) -> None:
        for moment in (self.begins, self.ends):
            if moment.tzinfo is None:
                raise ValueError("a time has an offset")

    @property
    def begins(self) -> datetime.datetime:
        """`start`, aware."""
        return datetime.datetime.fromisoformat(self.start)

    @property
    def ends(self) -> datetime.datetime:
        """`end`, aware."""
        return datetime.datetime.fromisoformat(self.end)

    @property
    def records(self) -> int:
        """Synthetic records and tombstones that the step wrote."""
        return self.added + self.removed

    def as_json(self) -> dict[str, Any]:
        """Return the entry as objects of JSON."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told

    def encode(self) -> bytes:
        """Return the bytes of the record: names in order, so that equal entries are equal bytes."""
        return orjson.dumps(self.as_json(), option=orjson.OPT_SORT_KEYS)

    def chained(self) -> LedgerEntry:
        """Return the entry with the chain that its words and the chain before it make."""
        chain = link(self.previous_chain, stream=self.stream, step=self.step, digest=self.digest, ledger=self.encode())
        return msgspec.structs.replace(self, chain=chain)

    @staticmethod
    def decode(value: bytes | None, stream: str) -> LedgerEntry:
        """Return the entry that a record of a stream's ledger holds; a tombstone holds none.

        Raises: WireError, which names the topic and repeats nothing of the record.
        """
        try:
            return _DECODER.decode(value or b"")
        except (msgspec.DecodeError, ValueError, OverflowError):
            raise WireError(f"topic {Topics.ledger(stream)} holds a record that is no ledger entry") from None


_DECODER = msgspec.json.Decoder(LedgerEntry)


def descriptions() -> Mapping[str, str]:
    """Return what each field of an entry means, by name."""
    hints = get_type_hints(LedgerEntry, include_extras=True)
    return {
        name: next(
            meta.description for meta in reversed(hints[name].__metadata__) if getattr(meta, "description", None)
        )
        for name in LedgerEntry.__struct_fields__
    }
