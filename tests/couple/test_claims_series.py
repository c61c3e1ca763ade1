"""What a series claims is what forced runs cost: for every mode, over more than forty steps, and never less.

Two runs on neighbouring inputs are forced through equal noisy values, those of the noise and those that an adversary
picked; they must release the same, and what the noise hid must cost no more than is claimed. Where a unit is as bad as
it may be, it costs ALL of the claim, so that half of any scale would be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import sqrt
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from engines.contract_case import contract_case
from engines.counters.contract import spent
from engines.counters.tree import TreeCounter
from engines.coupling import OutputAdversary
from engines.noise.witness import BinomialLaw, CounterLaw, GaussianLaw, LaplaceLaw, Law
from engines.registry import build_engine
from engines.series.config import SeriesConfig
from engines.series.engine import Series
from schemas.config import ENGINES, Stream
from tests.couple.plants import unasked
from tests.couple.sequence_pairs import (
    Arrangement,
    Distant,
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
GAUSSIAN = ("default", "kalman", "paper", "gaussian")

_USERS: Mapping[str, Any] = {
    "options": {"horizon": STEPS, "delay": 6, "coefficients": 4},
    "privacy": {"max_contributions": 5, "max_per_step": 2},
}
_EVERYWHERE: Mapping[str, Any] = {
    "time": {"step": "6h"},
    "options": {"horizon": STEPS, "delay": 6, "coefficients": 4},
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
    if mode in ("bd", "ba") and variant == "users in every step, with a clock":
        tables["privacy"] = {**tables["privacy"], "per": "2d"}
    return contract_case("series").stream(mode, tables)


def applies(mode: str, variant: str) -> bool:
    """Weights decay where they are Gaussian. Modes that differ in their filters alone share the case of two fields."""
    if variant == "two fields":
        return mode not in ("kalman", "gaussian", "fast")
    return "decay" not in variant or mode in GAUSSIAN


CASES = [(mode, variant) for mode in MODES for variant in VARIANTS if applies(mode, variant)]


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


def worst(configured: Stream) -> Arrangement:
    """Where a user costs most: in the steps with the largest weights, which come first."""
    if configured.mode != "dft":
        return bunched(configured, STEPS)
    # In each block the column of the transform that is the longest in L1.
    engine = build_engine(configured)
    assert isinstance(engine, Series)
    budget = engine.config.fourier
    column = int(np.abs(budget.matrix).sum(axis=0).argmax())
    most, per_step = configured.privacy.max_contributions, configured.privacy.max_per_step
    assert most is not None
    assert per_step is not None
    return {budget.block * at + column: min(per_step, most - per_step * at) for at in range(-(-most // per_step))}


def tight(mode: str, variant: str) -> bool:
    """Whether the worst user costs all of the claim.

    Not in mode dft for users in every step, whose bound is a norm of the transform that no arrangement of whole events
    reaches, or where periods have fewer blocks than a user needs. Not in modes bd and ba where bounds keep a user out
    of some steps of a window: they count all of them.
    """
    if mode == "dft":
        return variant in ("users", "two fields")
    return mode not in ("bd", "ba") or variant != "periods"


@pytest.mark.parametrize(("mode", "variant"), [case for case in CASES if tight(*case)])
def test_the_worst_unit_costs_all_of_the_claim(mode: str, variant: str) -> None:
    configured, chance = stream(mode, variant), Random(f"worst {mode} {variant}")
    pair = series_pair(configured, STEPS, worst(configured), chance, full=True)
    pairs = coupled(configured, pair, adversary=Distant(), restarts=RESTARTS)
    part = cost(configured, pairs, STEPS)
    if mode == "bd":
        # Each release takes half of what is left, and of the whole half is for distances.
        assert configured.privacy.per_us is not None
        window = configured.period_steps
        assert part == pytest.approx(1 - 2.0 ** -(window + 1), rel=1e-5)
    elif mode in ("laplace", "fast", "tree", "dft"):
        # Thirds and sevenths of epsilon make scales of long terms, which are rounded up.
        assert 0.999999 < part <= 1
    else:
        assert 0.99 < part <= 1 + 1e-9


def in_declared_units(law: Law, config: SeriesConfig, index: int) -> float | Fraction:
    """Scale of a draw as `guarantee` tells it, for a field."""
    unit = config.domain.fields[index].unit
    match law:
        case LaplaceLaw(scale):
            return scale
        case CounterLaw(counter):
            # Its cost is charged, its scale is drawn with: what it costs at that scale.
            assert spent(counter, STEPS) <= counter.cost
            return counter.scale  # type: ignore[no-any-return]
        case GaussianLaw(sigma_squared):
            return sqrt(sigma_squared) / (1 << config.gaussian.refinement(index)) * unit
        case BinomialLaw(half):
            return sqrt(half / 2) * (1 << config.binomial.coarse(index)) * unit
    raise AssertionError(law)


@pytest.mark.parametrize("variant", ["users", "two fields", "readings"])
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "default"])
def test_noise_has_the_declared_scale(mode: str, variant: str) -> None:
    """Each draw has the law of the guarantee's mechanism, in public words.

    Where weights fall, that of most steps; in modes bd and ba, of a step that spends its even share. Mode default
    spends what it likes: there the sum decides, see above.
    """
    configured, steps = stream(mode, variant), 6
    engine = build_engine(configured)
    assert isinstance(engine, Series)
    config = engine.config
    pair = series_pair(configured, steps, bunched(configured, steps), Random(mode), full=True)
    at, each = (0, 2) if mode in ("bd", "ba") else (steps - 1, 1)
    laws = [used.law for used, _ in coupled(configured, pair, adversary=Distant()) if used.step == at]
    declared = [float(mechanism.scale) for mechanism in engine.guarantee().mechanisms]
    assert len(laws) == len(declared) == each * len(config.domain.fields)
    found = [float(in_declared_units(law, config, number // each)) for number, law in enumerate(laws)]
    assert found == pytest.approx(declared, rel=1e-5)


def test_half_the_scale_of_a_counter_is_found() -> None:
    """It declares what it draws with, and charges another constant: what its draws cost is compared with that."""
    scale = TreeCounter.scale
    assert isinstance(scale, property)
    assert scale.fget is not None
    whole = scale.fget
    halved = patch.object(TreeCounter, "scale", property(lambda self: whole(self) / 2))
    with halved, unasked(), pytest.raises(AssertionError):
        test_noise_has_the_declared_scale("tree", "users")
