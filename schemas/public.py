"""What readers of the public topics may rely on, as types; `privstream topics --asyncapi` makes schemas of them.

The job writes these records itself (`agents.protocol.release.public_records`), and tests read what it writes as these.
Fields may be added in later versions.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Step = Annotated[int, msgspec.Meta(ge=0, description="Steps count from 0 at the start of the stream.")]
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class MechanismRecord(msgspec.Struct, kw_only=True):
    """One source of noise, and what it costs one event."""

    name: str
    distribution: str


class GuaranteeRecord(msgspec.Struct, kw_only=True):
    """What one event is promised, over the whole stream."""

    epsilon: float
    mechanisms: list[MechanismRecord]


class LedgerRecord(msgspec.Struct, kw_only=True):
    """The public account of one step: what was published, how it was made private, what a user has paid at most."""

    version: int
    stream: str
    step: Step
    start: Annotated[str, msgspec.Meta(description="ISO 8601, with an offset.")]
    end: Annotated[str, msgspec.Meta(description="First instant after the step.")]
    digest: Annotated[
        Hash, msgspec.Meta(description="SHA-256 of the framed synthetic and measurement records of the step.")
    ]
    previous_chain: Hash
    chain: Annotated[Hash, msgspec.Meta(description="Names every public byte since the first step.")]
    draw: Annotated[
        str,
        msgspec.Meta(
            pattern="^[0-9a-f]{32}$",
            description="Names the noise of the step. A second answer has another one, and so another chain, even "
            "where it is the same in all else.",
        ),
    ]
    engine: str
    mode: str
    gathered: Annotated[bool, msgspec.Meta(description="True while first steps are gathered: no data is released yet.")]
    synthetic_records: Annotated[int, msgspec.Meta(ge=0, description="Alive after the step.")]
    added: Annotated[int, msgspec.Meta(ge=0)]
    removed: Annotated[int, msgspec.Meta(ge=0)]
    unit: str
    max_contributions: int | None
    epsilon: float
    epsilon_per_us: int | None
    epsilon_spent: float
    guarantee: GuaranteeRecord
    notes: dict[str, Any]
    witness: Annotated[
        str | msgspec.UnsetType,
        msgspec.Meta(
            description="Only where a cluster that was put back may go unnoticed: `none configured`, or up to which "
            "step an operator vouched for this ledger."
        ),
    ] = msgspec.UNSET


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
