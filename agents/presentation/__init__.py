"""What `explain`, `simulate` and `audit` show of each engine."""

from __future__ import annotations

from dataclasses import replace

from agents.presentation.contract import AuditPlan, Presentation
from agents.presentation.error import ErrorModel
from engines.registry import build_engine, part
from schemas.config import Stream


def presentation(stream: Stream) -> Presentation:
    """Of a stream's engine. Raises: PrivstreamError if there is none: an error is never left out."""
    found: Presentation = part(stream.engine, "presentation")
    return found


def expected_error(stream: Stream) -> ErrorModel:
    """Of a stream's answers, before anything is launched. Raises: EngineInputError if its engine cannot be built."""
    model = presentation(stream).error_model(stream, build_engine(stream).guarantee())
    if not stream.surplus:
        return model
    told = (
        "Releases are scaled up by what the bound drops, and these errors with them: where it drops half of the "
        "events they are twice as large."
    )
    return replace(model, conditions=f"{model.conditions} {told}")


__all__ = ["AuditPlan", "Presentation", "expected_error", "presentation"]
