"""Every planted fault of engine `series` is found, and the same run without it is clean."""

from __future__ import annotations

import pytest

from tests.couple.plants import Plant
from tests.couple.plants.series import HIDDEN, PEEKS
from tests.couple.sequence_pairs import series_pair
from tests.couple.sequence_plants import check_forced_run_finds, check_peek_is_found, name_of


@pytest.mark.parametrize("plant", PEEKS, ids=name_of)
def test_a_peek_is_found_on_sealed_events(plant: Plant) -> None:
    check_peek_is_found(plant, series_pair)


@pytest.mark.parametrize("plant", HIDDEN, ids=name_of)
def test_what_hides_in_an_aggregate_or_costs_too_much_is_found_by_a_forced_run(plant: Plant) -> None:
    check_forced_run_finds(plant, series_pair)
