"""Every planted fault, and half the noise at every call that sizes noise, is found by a coupled pair of runs."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import patch

import pytest

from agents.local.coupling.mutants import Site, every_site, mutated
from engines.core.counters.kary import KaryCounter
from engines.core.counters.tree import TreeCounter
from engines.core.noise import scale_for
from tests.couple.counters import check_counters
from tests.couple.planted import found_mutant, found_plant
from tests.couple.plants import Plant
from tests.couple.plants.all import EVERY, OWN_SCENES, PLANTS

pytestmark = pytest.mark.seconds(1)

SITES = list(every_site())
NOTES = Path(__file__).resolve().parents[2] / "docs" / "notes" / "0060-coupled-runs.md"


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.engine}: {plant.name}")
def test_a_planted_fault_is_found(plant: Plant) -> None:
    assert found_plant(plant)


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)
def test_half_the_noise_is_found(site: Site) -> None:
    assert found_mutant(site)


@pytest.mark.parametrize("counter", [TreeCounter, KaryCounter], ids=lambda counter: counter.__name__)
def test_a_level_of_a_tree_that_is_not_paid_for_is_found(counter: type) -> None:
    """Noise for log2 T levels, as the listing has it, where an event is in one node more."""
    short = property(lambda self: scale_for(self.l1_sensitivity - 1, self.epsilon))
    with patch.object(counter, "scale", short):
        assert check_counters(counter.__module__)


def test_there_are_many_faults() -> None:
    """Those that need inputs of their own are named."""
    assert len(PLANTS) + len(SITES) >= 200
    assert {plant.name for plant in EVERY} >= OWN_SCENES
    assert len(EVERY) - len(PLANTS) == len(OWN_SCENES)


def test_notes_name_faults_that_are_planted() -> None:
    rows = [line for line in NOTES.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    named = {name.replace("\\|", "|") for row in rows for name in re.findall(r'"([^"]+)"', row)}
    assert len(named) > 30
    assert named <= {plant.name for plant in EVERY}


def test_a_mutant_is_gone_afterwards() -> None:
    site = SITES[0]
    with mutated(site):
        assert found_mutant is not None
    assert not check_counters()
