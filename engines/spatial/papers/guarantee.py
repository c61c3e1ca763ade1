"""What PHDStream promises, mechanism by mechanism."""

from __future__ import annotations

from math import ceil

from engines.core.counters import Counter
from engines.core.counters.contract import laplace_scale
from engines.spatial.papers.config import PHDStreamConfig
from engines.spatial.split import SplitRule, path_cost
from schemas.guarantee import Guarantee, Mechanism


def of(config: PHDStreamConfig, rule: SplitRule, counter: Counter) -> Guarantee:
    """Pure; what one event meets adds up to epsilon exactly.

    Args: rule, counter: what draws the partition and counts the leaves.
    """
    scale = laplace_scale(counter)
    return Guarantee(
        epsilon=config.epsilon,
        mechanisms=(
            Mechanism(
                name="partition of the domain (PrivTree, all levels of a step together)",
                distribution="Laplace (one bit)",
                l1_sensitivity=1,
                scale=rule.scale,
                epsilon=rule.epsilon,
                account="event",
                shift=path_cost(rule.fanout),
            ),
            # A counter's nodes as they are in its first release: how many one event is in, and the noise of each.
            Mechanism(
                name="event counts of the leaves",
                distribution="discrete Laplace",
                l1_sensitivity=max(1, ceil(counter.cost * scale)),
                scale=scale,
                epsilon=counter.cost,
                account="event",
                # The scale is rounded up, so this may be a little above what one event is in.
                shift=counter.cost * scale,
            ),
        ),
        note="One event is measured in one step."
        + ("" if config.ttl_steps is None else " A ttl insert is two events: itself and its expiry."),
    )
