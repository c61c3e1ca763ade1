"""What a series engine promises, as data: of one UNIT over a span (`EngineFacts.whole_unit`), mode by mode.

Guarantee: says what the modes prove; draws nothing.
Units: scales are sigma, in the field's own units.
"""

from __future__ import annotations

from engines.series.config import SeriesConfig
from schemas.guarantee import Guarantee


def guarantee(config: SeriesConfig) -> Guarantee:
    """See `engines.core.contract.Engine.guarantee`."""
    return Guarantee(
        epsilon=config.epsilon,
        delta=config.delta,
        mechanisms=config.mechanisms(),
        neighbouring="replace" if config.domain.readings else "add_remove",
        note=" ".join(_notes(config)),
    )


def _notes(config: SeriesConfig) -> list[str]:
    presence = config.presence
    notes = []
    if config.domain.readings:
        notes.append(
            "A reading is aggregated upstream: the promise is for readings that differ by the declared sensitivity at "
            "most, and WHETHER a reading came is taken as public."
        )
    if presence.most_steps is not None and presence.most_steps == presence.steps:
        notes.append(f"One unit may be in all {presence.steps} steps of a span; all of them together cost epsilon.")
    elif presence.most_steps is not None:
        notes.append(
            f"One unit is in at most {presence.most_steps} steps, whichever they are; all together cost epsilon."
        )
    else:
        notes.append("One unit may be in every step for ever; weights that decay make the sum finite.")
    if config.horizon is not None:
        notes.append(f"After {config.horizon} steps nothing is released any more.")
    return notes
