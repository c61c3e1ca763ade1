"""The schema of a ledger entry, by which entries are written, read and documented, and the fields of other topics.

Anybody with write access to a public topic chooses the content of a record, so a record with a field of another type
is not an entry. `MeasurementRecord` holds the fields on which readers of the measurements may rely;
`MEASUREMENT_FIELDS` and `UTILITY_FIELDS` document the other topics. The reference is generated from them, and tests
compare them with real records.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import orjson

from schemas.errors import WireError
from schemas.releases import STEP_LIMIT, link
from schemas.topics import Topics

Step = Annotated[int, msgspec.Meta(ge=0, description="Steps count from 0 at the start of the stream.")]


class MeasurementRecord(msgspec.Struct, kw_only=True):
    """The measurements of a step, with their noise. Each engine adds fields of its own (docs/engines)."""

    step: Step
    variance: Annotated[
        float | msgspec.UnsetType,
        msgspec.Meta(description="Variance of the noise, in the squared unit of the measured numbers."),
    ] = msgspec.UNSET
    part: Annotated[
        int | msgspec.UnsetType, msgspec.Meta(description="Index of this record among the `parts` of one measurement.")
    ] = msgspec.UNSET
    parts: int | msgspec.UnsetType = msgspec.UNSET
    cut: list[list[str]] | msgspec.UnsetType = msgspec.UNSET


MEASUREMENT_FIELDS: Mapping[str, str] = {
    "step": "The step that published it. It is also the key of the record.",
    "part": "Number of this part, from 0, if a measurement larger than 900 kB is split.",
    "parts": "Number of parts.",
    "cut": "Path to each list of which a part has a run: the runs of all parts, in order, are the list.",
}
"""Fields of `<stream>.measurements` that all engines share; the page of each engine documents the others."""

UTILITY_FIELDS: Mapping[str, str] = {
    "step": "The step that is measured.",
    "time": "Its end, ISO 8601.",
    "events_total": "True held-out events so far. PRIVATE.",
    "events": "True held-out events of the step. PRIVATE.",
    "events_alive": "True held-out events alive, which synthetic_points estimates; null if the engine compares single "
    "steps, so that a record does not stand for an event. PRIVATE.",
    "synthetic_points": "Synthetic records alive; with weights their sum.",
    "gathered": "As in the ledger.",
    "metrics": "Errors by name, see the engine's page. PRIVATE.",
    "counts": "Held-out records by reason, see Reasons. PRIVATE.",
}
"""Fields of `<stream>.utility`, for operators only."""


MAX_COUNT = 1 << 53
"""Integers from here on are not exact in JavaScript."""


def _described(description: str, **limits: Any) -> msgspec.Meta:
    return msgspec.Meta(description=description, **limits)


Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, msgspec.Meta(ge=0, lt=MAX_COUNT)]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class LedgerMechanism(msgspec.Struct, kw_only=True, frozen=True):
    """One mechanism, with its noise and the privacy loss of one event."""

    name: str
    distribution: str
    l1_sensitivity: int | float
    scale: float
    epsilon: float
    epsilon_exact: str
    uses: int
    mu_squared: float | msgspec.UnsetType = msgspec.UNSET


class LedgerGuarantee(msgspec.Struct, kw_only=True, frozen=True):
    """The guarantee for one event over the whole stream."""

    epsilon: Amount
    epsilon_exact: str
    delta: Amount
    neighbouring: str
    private: bool
    note: str
    mechanisms: list[LedgerMechanism]


class LedgerRenewal(msgspec.Struct, kw_only=True, frozen=True):
    """What somebody has lost at most who contributes in several periods of a bound that renews."""

    periods: Annotated[int, _described("Number of periods that have begun.", ge=1)]
    epsilon: Annotated[Amount, _described("Epsilon of a user who was in all of these periods, at `delta`.")]
    delta: Annotated[Amount, _described("Delta of a user who was in all of these periods.")]
    window_epsilon: Annotated[
        Amount,
        _described(
            "Epsilon, at `window_delta`, of all events of a user that join steps of any time as long as one period: it "
            "touches two. By the calendar it ends a period after it begins: 31 days can be in three months. "
            "An event that comes late joins the step in which it comes."
        ),
    ]
    window_delta: Annotated[Amount, _described("Delta of all events of a user that join steps of such a time.")]


class LedgerEntry(msgspec.Struct, kw_only=True, frozen=True):
    """The public account of one step: what was published, by which mechanisms, and what a user has lost at most."""

    version: Annotated[Literal[1], _described("Version of this format.")]
    stream: Annotated[str, _described("Name of the stream.")]
    step: Annotated[
        int, _described("Number of the step, from 0. It is also the key of the record.", ge=0, lt=STEP_LIMIT)
    ]
    start: Annotated[str, _described("Start of the step, ISO 8601 in UTC.")]
    end: Annotated[str, _described("First moment after the step, ISO 8601 in UTC.")]
    digest: Annotated[
        Hash, _described("SHA-256 of everything that the step published: records, tombstones and measurements.")
    ]
    previous_chain: Annotated[Hash, _described("`chain` of the previous step; 64 zeros for the first step.")]
    chain: Annotated[
        Hash,
        _described("SHA-256 of the previous chain, the digest and this entry. It fixes this entry and all before it."),
    ]
    draw: Annotated[
        str,
        _described(
            "Identifier of the noise of the step. A second answer has another one, and thus another `chain`, even if "
            "it is equal in everything else.",
            pattern="^[0-9a-f]{32}$",
        ),
    ]
    engine: Annotated[str, _described("Configured engine.")]
    mode: Annotated[str, _described("Configured mode of the engine.")]
    gathered: Annotated[
        bool,
        _described(
            "True while the engine gathers its first steps, to release them together. No data was published; `notes` "
            "may hold a measured surplus, which `epsilon_spent` includes."
        ),
    ]
    synthetic_records: Annotated[Count, _described("Synthetic records alive after the step.")]
    added: Annotated[Count, _described("Synthetic records that the step published.")]
    removed: Annotated[Count, _described("Synthetic records that the step withdrew.")]
    unit: Annotated[str, _described("Unit of privacy: `user`, `event` or `replace`.")]
    max_contributions: Annotated[
        int | None, _described("Events (trips) of one user that count; null if users are not bounded.")
    ]
    epsilon: Annotated[Amount, _described("Epsilon of the protected unit, over the whole stream or one period.")]
    epsilon_per_us: Annotated[
        int | None,
        _described("Length of the period after which the bound renews, in microseconds; null if it never renews."),
    ]
    epsilon_per: Annotated[
        str | msgspec.UnsetType,
        _described(
            "That length as it is configured, if it is one of the calendar; `epsilon_per_us` is then the shortest."
        ),
    ] = msgspec.UNSET
    epsilon_spent: Annotated[
        Amount,
        _described(
            "Largest privacy loss of a user over this step and all before it, or in this period: the sum of their "
            "charges, at the `delta` of the guarantee."
        ),
    ]
    renewal: Annotated[
        LedgerRenewal | msgspec.UnsetType,
        _described(
            "What several periods cost, as far as periods have begun: by Gaussian composition where noise is Gaussian, "
            "and by adding up elsewhere. Present only if the bound renews."
        ),
    ] = msgspec.UNSET
    guarantee: Annotated[
        LedgerGuarantee,
        _described(
            "Guarantee for one event: `epsilon` (also exact, as a fraction), `delta`, `neighbouring`, `private`, "
            "`note`, and `mechanisms`, each with its noise, scale, sensitivity and epsilon."
        ),
    ]
    notes: Annotated[dict[str, Any], _described("Public facts of the engine, such as the number of leaves.")]
    witness: Annotated[
        str | msgspec.UnsetType,
        _described(
            "Present only if a restored cluster may go unnoticed: `none configured`, or the step up to which an "
            "operator vouched for this ledger."
        ),
    ] = msgspec.UNSET

    def __post_init__(self) -> None:
        for moment in (self.begins, self.ends):
            if moment.tzinfo is None:
                raise ValueError("a time of a ledger entry needs an offset from UTC")

    @property
    def begins(self) -> datetime.datetime:
        """`start` as an aware datetime."""
        return datetime.datetime.fromisoformat(self.start)

    @property
    def ends(self) -> datetime.datetime:
        """`end` as an aware datetime."""
        return datetime.datetime.fromisoformat(self.end)

    @property
    def records(self) -> int:
        """Number of synthetic records and tombstones that the step wrote."""
        return self.added + self.removed

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a JSON object."""
        builtins: dict[str, Any] = msgspec.to_builtins(self)
        return builtins

    def encode(self) -> bytes:
        """Return the value of the record. Keys are sorted, so that equal entries have equal bytes."""
        return orjson.dumps(self.as_json(), option=orjson.OPT_SORT_KEYS)

    def with_chain(self) -> LedgerEntry:
        """Return the entry with the chain that follows from its content and the previous chain."""
        chain = link(self.previous_chain, stream=self.stream, step=self.step, digest=self.digest, ledger=self.encode())
        return msgspec.structs.replace(self, chain=chain)

    @staticmethod
    def decode(value: bytes | None, stream: str) -> LedgerEntry:
        """Return the entry in the value of a ledger record.

        Raises: WireError, also for a tombstone; the message names the topic and repeats nothing of the record.
        """
        try:
            return _DECODER.decode(value or b"")
        except (msgspec.DecodeError, ValueError, OverflowError):
            raise WireError(f"topic {Topics.ledger(stream)} holds a record that is not a ledger entry") from None


_DECODER = msgspec.json.Decoder(LedgerEntry)
