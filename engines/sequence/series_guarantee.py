"""What a series engine promises, as data: of one UNIT over a span (`EngineFacts.whole_unit`), mode by mode.

Guarantee: says what the modes prove; draws nothing.
Units: scales of Laplace noise in lattice steps of their field; of Gaussian and binomial noise sigma, in its own units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil, sqrt
from typing import TYPE_CHECKING

from engines.accounting import gaussian
from schemas.guarantee import Guarantee, Mechanism

if TYPE_CHECKING:
    from engines.sequence.series_config import SeriesConfig

_SHORT = 2**20


def guarantee(config: SeriesConfig) -> Guarantee:
    """See `engines.contract.Engine.guarantee`."""
    return Guarantee(
        epsilon=config.epsilon,
        delta=config.delta,
        mechanisms=MECHANISMS[config.mode](config),
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
    if config.mode in ("bd", "ba"):
        notes.append(
            f"This is w-event privacy: epsilon for what joins any {presence.steps} successive steps, nothing over a "
            "longer time."
        )
    elif presence.most_steps is not None and presence.most_steps == presence.steps:
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


def _measurements(config: SeriesConfig, distribution: str, sigma: Callable[[int], float]) -> tuple[Mechanism, ...]:
    """All measurements of each field, as one mechanism; its epsilon is that of its share of mu squared."""
    mu = gaussian.mu_for(config.epsilon, config.delta)
    mechanisms = []
    for index, (field, share) in enumerate(zip(config.domain.fields, config.shares, strict=True)):
        epsilon = config.epsilon
        if share < 1:
            epsilon = Fraction(gaussian.epsilon(config.delta, mu * float(share) ** 0.5)).limit_denominator(_SHORT)
        mechanisms.append(
            Mechanism(
                name=f"{field.name}: totals of all steps of a span together, scale at an even share",
                distribution=distribution,
                l1_sensitivity=ceil((field.sensitivity or field.shift * field.unit) * config.presence.per_step),
                scale=Fraction(sigma(index) * field.unit).limit_denominator(_SHORT),
                epsilon=max(epsilon, Fraction(1, _SHORT)),
            )
        )
    return tuple(mechanisms)


def _gaussian(config: SeriesConfig) -> tuple[Mechanism, ...]:
    if config.adaptive:
        from engines.sequence.series_gaussian import AdaptiveAmounts

        amounts, steps = AdaptiveAmounts(config.gaussian), config.presence.steps
        assert steps is not None
        return _measurements(config, "discrete Gaussian", lambda index: sqrt(steps / amounts.precision(index)))
    fixed = config.fixed
    # The smallest weight of the first steps is what most steps have.
    step = fixed.schedule.full

    def sigma(index: int) -> float:
        sigma_squared = fixed.sigma_squared(index, step) or Fraction(1)
        return sqrt(sigma_squared) / (1 << fixed.budget.refinement(index))

    return _measurements(config, "discrete Gaussian", sigma)


def _binomial(config: SeriesConfig) -> tuple[Mechanism, ...]:
    budget = config.binomial
    weight = budget.schedule.squared(budget.schedule.full)

    def sigma(index: int) -> float:
        return sqrt(budget.half(index, weight, budget.base) / 2) * (1 << budget.coarse(index))

    return _measurements(config, "binomial", sigma)


def _laplace(config: SeriesConfig) -> tuple[Mechanism, ...]:
    budget = config.laplace
    assert budget.presence.most is not None
    return tuple(
        Mechanism(
            name=f"{field.name}: total of a step, in lattice steps of {field.unit:g}",
            distribution="discrete Laplace",
            l1_sensitivity=field.shift,
            scale=budget.scale(index),
            epsilon=budget.event_epsilon * share,
            uses=budget.presence.most,
        )
        for index, (field, share) in enumerate(zip(config.domain.fields, config.shares, strict=True))
    )


def _tree(config: SeriesConfig) -> tuple[Mechanism, ...]:
    from engines.sequence.series_tree import TreeDifferences

    mode = config.build()
    assert isinstance(mode, TreeDifferences)
    most = config.presence.most
    assert most is not None
    return tuple(
        Mechanism(
            name=f"{field.name}: nodes of a binary tree, in lattice steps of {field.unit:g}",
            distribution="discrete Laplace",
            l1_sensitivity=field.shift * counter.l1_sensitivity,
            scale=counter.scale,
            epsilon=config.epsilon * share / most,
            uses=most,
        )
        for field, share, counter in zip(config.domain.fields, config.shares, mode.counters, strict=True)
    )


def _fourier(config: SeriesConfig) -> tuple[Mechanism, ...]:
    budget = config.fourier
    return tuple(
        Mechanism(
            name=f"{field.name}: {budget.kept} Fourier coefficients of {budget.block} steps, 2^-16 of {field.unit:g}",
            distribution="discrete Laplace",
            l1_sensitivity=budget.l1_sensitivity(index),
            scale=budget.scale(index),
            epsilon=config.epsilon * share,
        )
        for index, (field, share) in enumerate(zip(config.domain.fields, config.shares, strict=True))
    )


def _window(config: SeriesConfig) -> tuple[Mechanism, ...]:
    from engines.sequence.series_wevent import GRAINS

    budget = config.window
    mechanisms = []
    for index, field in enumerate(config.domain.fields):
        moved, even = budget.moved(index), budget.even(index)
        mechanisms += [
            Mechanism(
                name=f"{field.name}: distance of a total from the last release, in lattice steps of {field.unit:g}",
                distribution="discrete Laplace",
                l1_sensitivity=moved,
                scale=budget.dissimilarity_scale(index),
                epsilon=even,
                uses=budget.window,
            ),
            Mechanism(
                name=f"{field.name}: releases of a window (scale at an even share), in steps of {field.unit:g}",
                distribution="discrete Laplace",
                l1_sensitivity=moved,
                scale=budget.scale(index, GRAINS),
                epsilon=even * budget.window,
            ),
        ]
    return tuple(mechanisms)


MECHANISMS: Mapping[str, Callable[[SeriesConfig], tuple[Mechanism, ...]]] = {
    "default": _gaussian,
    "kalman": _gaussian,
    "paper": _gaussian,
    "gaussian": _gaussian,
    "paper-binomial": _binomial,
    "laplace": _laplace,
    "fast": _laplace,
    "tree": _tree,
    "dft": _fourier,
    "bd": _window,
    "ba": _window,
}
"""By mode."""
