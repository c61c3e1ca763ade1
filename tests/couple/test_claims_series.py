"""What a series claims is what forced runs cost: for every mode, over more than forty steps, and never less.

Two runs on neighbouring inputs are forced through equal noisy values, those of the noise and those that an adversary
picked; they must release the same, and what the noise hid must cost no more than is claimed. Where a unit is as bad as
it may be, it costs ALL of the claim, so that half of any scale would be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from random import Random
from typing import Any

import pytest

from engines.contract_case import contract_case
from engines.coupling import OutputAdversary
from engines.noise.witness import BinomialLaw, GaussianLaw, Law
from engines.registry import build_engine
from engines.series.config import SeriesConfig
from engines.series.engine import Series
from schemas.config import ENGINES, Stream
from tests.couple.sequence_pairs import (
    Wild,
    anyhow,
    bunched,
    check_pair,
    cost,
    coupled,
    series_pair,
    spread,
)

STEPS = 44
RESTARTS = (3, 12, 30)
MODES = ENGINES["series"].facts.modes

_USERS: Mapping[str, Any] = {
    "options": {"horizon": STEPS},
    "privacy": {"max_contributions": 5, "max_per_step": 2},
}
_EVERYWHERE: Mapping[str, Any] = {
    "time": {"step": "6h"},
    "options": {"horizon": STEPS},
    "privacy": {"max_contributions": 2 * STEPS, "max_per_step": 2},
}
_FIELDS = [{"name": "n", "of": "count"}, {"name": "km", "of": "sum", "limits": [-8.0, 3.0], "share": 3}]
_READINGS = [{"name": "v", "of": "value", "limits": [-10.0, 30.0], "sensitivity": 0.5}]
NO_USER = {"user": None, "max_contributions": None, "max_per_step": None}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "users": _USERS,
    "users in every step, with a clock": _EVERYWHERE,
    "two fields": {**_USERS, "domain": {"fields": _FIELDS}},
    "readings": {**_USERS, "domain": {"fields": _READINGS}, "privacy": NO_USER},
    "periods": {**_USERS, "privacy": {"max_contributions": 5, "max_per_step": 2, "per": "12h"}},
    "periods, in every step": {**_USERS, "privacy": {"max_contributions": 8, "max_per_step": 2, "per": "4h"}},
    "decay": {"options": {"horizon": None, "decay": 0.5}, "privacy": {"max_contributions": 8, "max_per_step": 1}},
    "readings that decay": {
        "domain": {"fields": _READINGS},
        "options": {"horizon": None, "decay": 0.75},
        "privacy": NO_USER,
    },
}


def stream(mode: str, variant: str) -> Stream:
    tables = dict(VARIANTS[variant])
    if mode == "paper-binomial":
        # Its accounting is of units that are in a step once.
        most = tables["privacy"].get("max_contributions")
        once = {"max_per_step": 1, "max_contributions": min(most, STEPS)} if most else {}
        tables["privacy"] = {**tables["privacy"], **once}
    return contract_case("series").stream(mode, tables)


CASES = [
    (mode, variant) for mode in MODES for variant in VARIANTS if mode != "paper-binomial" or "decay" not in variant
]
"""Binomial noise has weights that stay."""


@pytest.mark.parametrize(("mode", "variant"), CASES)
def test_neighbours_forced_to_equal_noise_release_the_same_and_cost_no_more_than_claimed(
    mode: str, variant: str
) -> None:
    configured, chance = stream(mode, variant), Random(f"{mode} {variant}")
    arrangements = (anyhow(configured, STEPS, chance), spread(configured, STEPS))
    for number, adversary in enumerate((OutputAdversary(), Wild(1))):
        pair = series_pair(configured, STEPS, arrangements[number], chance, full=False)
        pair = pair.turned() if number else pair
        assert check_pair(configured, pair, adversary=adversary, restarts=RESTARTS) > 0


@pytest.mark.parametrize(("mode", "variant"), CASES)
def test_the_worst_unit_costs_all_of_the_claim(mode: str, variant: str) -> None:
    configured, chance = stream(mode, variant), Random(f"worst {mode} {variant}")
    # A user costs most in the steps with the largest weights, which come first.
    pair = series_pair(configured, STEPS, bunched(configured, STEPS), chance, full=True)
    pairs = coupled(configured, pair, adversary=OutputAdversary(), restarts=RESTARTS)
    assert 0.99 < cost(configured, pairs, STEPS) <= 1 + 1e-9


def in_declared_units(law: Law, config: SeriesConfig, index: int) -> float:
    """Scale of a draw as `guarantee` tells it, for a field."""
    unit = config.domain.fields[index].unit
    match law:
        case GaussianLaw(sigma_squared):
            return sqrt(sigma_squared) / (1 << config.gaussian.refinement(index)) * unit
        case BinomialLaw(half):
            return sqrt(half / 2) * (1 << config.binomial.coarse(index)) * unit
    raise AssertionError(law)


@pytest.mark.parametrize("variant", ["users", "two fields", "readings"])
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "default"])
def test_noise_has_the_declared_scale(mode: str, variant: str) -> None:
    """Each draw has the law of the guarantee's mechanism, in public words.

    Where weights fall, that of most steps. Mode default spends what it likes: there the sum decides, see above.
    """
    configured, steps = stream(mode, variant), 6
    engine = build_engine(configured)
    assert isinstance(engine, Series)
    config = engine.config
    pair = series_pair(configured, steps, bunched(configured, steps), Random(mode), full=True)
    pairs = coupled(configured, pair, adversary=OutputAdversary())
    laws = [used.law for used, _ in pairs if used.step == steps - 1]
    declared = [float(mechanism.scale) for mechanism in engine.guarantee().mechanisms]
    assert len(laws) == len(declared) == len(config.domain.fields)
    found = [in_declared_units(law, config, number) for number, law in enumerate(laws)]
    assert found == pytest.approx(declared, rel=1e-5)
