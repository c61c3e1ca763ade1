"""What PHDStream and its baselines promise, mechanism by mechanism."""

from __future__ import annotations

from math import ceil

from engines.counters import Counter
from engines.counters.contract import laplace_scale
from engines.spatial.papers.config import PHDStreamConfig
from engines.spatial.split import SplitRule, path_cost
from schemas.guarantee import Guarantee, Mechanism

EARLY, LATE = "events of the first release", "events of later steps"


def of(config: PHDStreamConfig, rule: SplitRule | None, first: Counter | None, counter: Counter) -> Guarantee:
    """Pure; what one event meets adds up to epsilon exactly.

    Args: rule, first, counter: what draws the partition, counts the first release and counts the leaves.
    """
    early, late = (EARLY, LATE) if first is not None else ("", "")
    mechanisms = []
    if rule is not None:
        mechanisms.append(
            Mechanism(
                name="partition of the domain (PrivTree, all levels of a step together)",
                distribution="Laplace (one bit)",
                l1_sensitivity=1,
                scale=rule.scale,
                epsilon=rule.epsilon,
                events=early,
                account="event",
                shift=path_cost(rule.fanout),
            )
        )
    if first is not None:
        mechanisms.append(_counting("first counts of the leaves", first, early))
    mechanisms.append(_counting("event counts of the leaves", counter, late))
    return Guarantee(
        epsilon=config.epsilon,
        mechanisms=tuple(mechanisms),
        private=config.parts.private,
        note=_note(config),
    )


def _counting(name: str, counter: Counter, events: str) -> Mechanism:
    """A counter's nodes as they are in its first release: how many one event is in, and the noise of each."""
    scale = laplace_scale(counter)
    return Mechanism(
        name=name,
        distribution="discrete Laplace",
        l1_sensitivity=max(1, ceil(counter.cost * scale)),
        scale=scale,
        epsilon=counter.cost,
        events=events,
        account="event",
        # The scale is rounded up, so this may be a little above what one event is in.
        shift=counter.cost * scale,
    )


def _note(config: PHDStreamConfig) -> str:
    if not config.parts.private:
        return (
            f'mode "{config.parts.mode}" counts every event that is alive anew at EVERY step: epsilon is the price of '
            "ONE step, an event that is alive for T steps pays T times as much, and there is no bound over the stream. "
            "For comparison with data that need no protection, and for nothing else"
        )
    note = "One event is measured in one step."
    return note if config.ttl_steps is None else note + " A ttl insert is two events: itself and its expiry."
