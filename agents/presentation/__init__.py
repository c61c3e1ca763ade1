"""What `explain`, `simulate` and `audit` show of each engine."""

from __future__ import annotations

from collections.abc import Mapping

from agents.presentation import markov, series, spatial, tabular, trajectory
from agents.presentation.contract import Presentation, Rehearsal
from schemas.config import Stream
from schemas.errors import PrivstreamError

PRESENTATIONS: Mapping[str, Presentation] = {
    "spatial": spatial.PRESENTATION,
    "markov": markov.PRESENTATION,
    "series": series.PRESENTATION,
    "tabular": tabular.PRESENTATION,
    "trajectory": trajectory.PRESENTATION,
}


def presentation(stream: Stream) -> Presentation:
    """Of a stream's engine. Raises: PrivstreamError if there is none: an error is never left out."""
    try:
        return PRESENTATIONS[stream.engine]
    except KeyError:
        raise PrivstreamError(
            f'nothing is known of how to show engine "{stream.engine}". Mend: add it to agents/presentation.'
        ) from None


__all__ = ["PRESENTATIONS", "Presentation", "Rehearsal", "presentation"]
