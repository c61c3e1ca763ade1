"""What each field of a published record means. The reference is made of it; tests hold it against real records."""

from __future__ import annotations

from collections.abc import Mapping

LEDGER: Mapping[str, str] = {
    "version": "Of this format.",
    "stream": "Name of the stream.",
    "step": "Counts from 0. It is the record's key, too.",
    "start": "When the step begins, ISO 8601 in UTC.",
    "end": "First moment after the step, ISO 8601 in UTC.",
    "digest": "SHA-256 of everything that the step published: records, tombstones and measurements.",
    "previous_chain": "`chain` of the step before; 64 zeros before the first.",
    "chain": "SHA-256 over the chain before, the digest and this entry: who keeps one knows all before it.",
    "draw": "Names the noise of the step: a second answer has another one, and so another `chain`, even where it is "
    "the same in all else.",
    "engine": "As configured.",
    "mode": "As configured.",
    "gathered": "True while the engine gathers its first steps, to release them together: no data was published; "
    "`notes` may hold a measured surplus, which is in `epsilon_spent`.",
    "synthetic_records": "Synthetic records alive after the step.",
    "added": "Synthetic records that the step published.",
    "removed": "Synthetic records that it withdrew.",
    "unit": "What is protected: `user`, `event` or `replace`.",
    "max_contributions": "Events (trips) of one user that count; null where no user is bounded.",
    "epsilon": "Of the protected unit, over the whole stream or one period.",
    "epsilon_per_us": "Length of the period after which the bound renews, in microseconds; null: it never does.",
    "epsilon_spent": "What a user has paid at most for this step and all before it, or in this period: the sum of what "
    "was charged for them, at the `delta` of the guarantee.",
    "guarantee": "What one event is promised: `epsilon` (and exactly, as a fraction), `delta`, `neighbouring`, "
    "`private`, `note`, and `mechanisms`, each with its noise, scale, sensitivity and epsilon.",
    "notes": "Public facts of the engine, such as the number of leaves.",
    "witness": "Only where a cluster that was put back may go unnoticed: `none configured`, or up to which step an "
    "operator vouched for this ledger.",
}
"""Of `<stream>.ledger`, one record a step."""

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
