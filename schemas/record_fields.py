"""What each field of a published record means. The reference is made of it; tests hold it against real records."""

from __future__ import annotations

from collections.abc import Mapping

MEASUREMENT: Mapping[str, str] = {
    "step": "The step that published it. It is the record's key, too.",
    "part": "Where a measurement is cut because it is larger than 900 kB: number of this part, from 0 on.",
    "parts": "How many parts there are; their lists one behind the other are the whole.",
}
"""Of `<stream>.measurements`, what all engines have; the rest is the engine's, see its page."""

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
"""Of `<stream>.utility`, for operators only."""
