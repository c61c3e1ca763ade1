"""What `explain`, `simulate` and `audit` show of each engine."""

from __future__ import annotations

from agents.presentation.contract import AuditPlan, Presentation
from engines.registry import part
from schemas.config import Stream


def presentation(stream: Stream) -> Presentation:
    """Of a stream's engine. Raises: PrivstreamError if there is none: an error is never left out."""
    found: Presentation = part(stream.engine, "presentation")
    return found


__all__ = ["AuditPlan", "Presentation", "presentation"]
