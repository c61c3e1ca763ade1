"""What readers of the measurements may rely on, as a type; of the ledger that is `schemas.ledger`.

Fields may be added in later versions.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

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
