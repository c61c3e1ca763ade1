"""Planted faults of engine `series`: peeks outside of any aggregate, and what hides inside or costs too much."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from engines.series.budget import GaussianBudget
from tests.couple.plants import Plant, peeked
from tests.couple.plants import series_faults as faults
from tests.couple.plants.remembered import Planted

_LONG: Mapping[str, Any] = {"options": {"horizon": 40}}
_CLOCKED: Mapping[str, Any] = {
    "time": {"step": "6h"},
    "options": {"horizon": 16},
    "privacy": {"max_contributions": 32, "max_per_step": 2},
}
_PERIODS: Mapping[str, Any] = {"options": {"horizon": None}, "privacy": {"max_contributions": 16, "per": "8h"}}
_READINGS: Mapping[str, Any] = {
    "domain": {"fields": [{"name": "km", "of": "value", "limits": [0.0, 4.0], "sensitivity": 0.5}]},
    "options": {"horizon": 16},
    "privacy": {"user": None, "max_contributions": None, "max_per_step": None},
}
_ONCE: Mapping[str, Any] = {"options": {"horizon": 40}, "privacy": {"max_contributions": 6, "max_per_step": 1}}


def _plant(name: str, mode: str, planted: Planted, variant: Mapping[str, Any] = _LONG, *, shown_by: int = 0) -> Plant:
    return Plant(name=name, engine="series", mode=mode, planted=planted, variant=variant, shown_by=shown_by)


_HALF_NOISE = faults.smaller(GaussianBudget, "sigma_squared", Fraction(1, 4))
_ODD_ID = partial(faults.in_the_record, faults.odd_id)

PEEKS = (
    _plant("hours weighed by true totals", "default", partial(faults.hours_weighed, lambda total: total), _CLOCKED),
    _plant("w z released as a real number", "paper", faults.real_valued(lambda total: total)),
    _plant("parameters from raw totals", "paper", partial(faults.raw_parameters, lambda total: total)),
    _plant("a threshold on a true total", "default", faults.threshold()),
    _plant("an empty step is left out", "paper-binomial", faults.silent_when_empty()),
    _plant("noise added by hand", "default", faults.by_hand()),
)
"""Read a private value outside of any aggregate: sealed events show them, whatever the data."""

HIDDEN = (
    _plant("hours weighed by totals that were revealed", "default", partial(faults.hours_weighed, peeked), _CLOCKED),
    _plant("the fraction of w z passes", "paper", faults.real_valued(peeked)),
    _plant("parameters from revealed totals", "paper", partial(faults.raw_parameters, peeked)),
    _plant("a true total's last bit in a value", "default", partial(faults.in_the_record, faults.low_bit), shown_by=3),
    _plant("standard error of a true total", "paper", partial(faults.in_the_record, faults.error_of_truth)),
    _plant("a true total's parity in an id", "paper-binomial", _ODD_ID, shown_by=21),
    _plant("a note of a quiet step", "paper", faults.busy_noted, shown_by=4),
    _plant("noise of a constant seed", "default", faults.constant_seed()),
    _plant("a total counts in the next step", "default", faults.carried_over),
    _plant("totals are measured twice", "default", faults.twice(), _CLOCKED, shown_by=10),
    _plant("delta divided by contributions", "default", faults.divided_delta()),
    _plant("first weights not accounted for", "paper", faults.first_weights_dropped()),
    _plant("two events in a step, noise for one", "default", faults.one_event_a_step()),
    _plant("a restart gives the budget back", "default", faults.forgets_at_restart(), _CLOCKED),
    _plant("a period's budget twice in it", "default", faults.renewed_early(), _PERIODS),
    _plant("half the sensitivity of a reading", "paper", faults.half_sensitivity(), _READINGS, shown_by=8),
    _plant("half the noise: fixed", "default", _HALF_NOISE),
    _plant("half the noise: adaptive", "default", _HALF_NOISE, _CLOCKED, shown_by=3),
    _plant("half the noise", "paper", _HALF_NOISE, shown_by=7),
    _plant("a quarter of the coins", "paper-binomial", faults.fewer_coins(), _ONCE),
)
"""Look inside an aggregate, or cost more than is claimed: forced runs show them."""

PLANTS: tuple[Plant, ...] = PEEKS + HIDDEN
