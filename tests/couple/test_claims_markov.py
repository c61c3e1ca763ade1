"""What a Markov stream claims is what forced runs cost: in both modes, for all chains and budgets, over 44 steps.

Two runs in which a member of the population is elsewhere are forced through equal noisy counts, those of the noise and
those that an adversary picked; they must release the same, and what the noise hid must cost no more than is claimed. A
member who is elsewhere in every step costs ALL of it, so that half of the scale would be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from engines.contract_case import contract_case
from engines.coupling import OutputAdversary
from engines.markov.engine import Markov
from engines.noise.witness import LaplaceLaw
from engines.registry import build_engine
from schemas.config import ENGINES, Stream
from tests.couple.sequence_pairs import Wild, anyhow, bunched, check_pair, coupled, markov_pair, spread

STEPS = 44
RESTARTS = (12,)
MODES = ENGINES["markov"].facts.modes
_HORIZON: Mapping[str, Any] = {"options": {"horizon": STEPS - 2}, "privacy": {"max_contributions": STEPS - 2}}
_CHAIN = b"0.8,0.1,0,0.1\n0,0.5,0.5,0\n0.2,0.2,0.6,0\n0.3,0.3,0.2,0.2\n"
_PERIOD = {"options": {"horizon": None}, "privacy": {"max_contributions": 4, "per": "4h"}}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "a horizon": _HORIZON,
    "some are in no state": {
        "options": {"horizon": STEPS},
        "privacy": {"max_contributions": 9},
        "domain": {"unseen": True, "transition": {"path": "chain.csv", "sha256": "", "content": _CHAIN}},
    },
    "periods": _PERIOD,
    "an unknown chain": {**_HORIZON, "domain": {"transition": None}},
    "a bounded leakage": {
        "options": {"horizon": STEPS, "allocation": "leakage"},
        "privacy": {"max_contributions": 1, "per": "1h"},
    },
}
CASES = [
    (mode, variant)
    for mode in MODES
    for variant in VARIANTS
    if not (mode == "paper" and variant == "an unknown chain")
    # Working out these budgets takes longer than the runs, and what is done with them is the same in both modes.
    and (variant != "a bounded leakage" or mode == "default")
]


def stream(mode: str, variant: str) -> Stream:
    return contract_case("markov").stream(mode, VARIANTS[variant])


@pytest.mark.parametrize(("mode", "variant"), CASES)
def test_neighbours_forced_to_equal_noise_release_the_same_and_cost_no_more_than_claimed(
    mode: str, variant: str
) -> None:
    configured, chance = stream(mode, variant), Random(f"{mode} {variant}")
    arrangements = (anyhow(configured, STEPS, chance), spread(configured, STEPS))
    for number, adversary in enumerate((OutputAdversary(), Wild(1))):
        pair = markov_pair(configured, STEPS, arrangements[number], chance, full=False)
        pair = pair.turned() if number else pair
        assert check_pair(configured, pair, adversary=adversary, restarts=RESTARTS) > 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_member_who_is_elsewhere_whenever_they_speak_costs_all_of_the_claim(variant: str) -> None:
    """Both modes are measured alike. Under bounded leakage, each step costs all of its own budget."""
    configured, chance = stream("default", variant), Random(variant)
    pair = markov_pair(configured, STEPS, bunched(configured, STEPS), chance, full=True)
    if variant != "a bounded leakage":
        assert check_pair(configured, pair, restarts=RESTARTS) == 1
        return
    engine = build_engine(configured)
    assert isinstance(engine, Markov)
    for before, after in coupled(configured, pair):
        assert isinstance(before.law, LaplaceLaw)
        budget = engine.config.budget(before.step)
        assert 0.999999 < abs(before.private - after.private).sum() / before.law.scale / budget <= 1


@pytest.mark.parametrize(("mode", "variant"), CASES)
def test_noise_has_the_declared_scale(mode: str, variant: str) -> None:
    """Of every step; under bounded leakage the scale of the step that costs most is declared."""
    configured = stream(mode, variant)
    (mechanism,) = build_engine(configured).guarantee().mechanisms
    pair = markov_pair(configured, 8, bunched(configured, 8), Random(mode), full=True)
    scales = [used.law.scale for used, _ in coupled(configured, pair) if isinstance(used.law, LaplaceLaw)]
    assert len(scales) == 8
    assert min(scales) == mechanism.scale
    assert variant == "a bounded leakage" or set(scales) == {mechanism.scale}
