"""The claim of a split stream, by coupled runs of all of its parts on the same neighbouring records (theorem R).

False alarms: none, as in `test_couple`.
"""

from __future__ import annotations

from fractions import Fraction
from unittest.mock import PropertyMock, patch

import pytest

from agents.local.coupling.runs import couple
from agents.show.explain.parts import Split
from engines.checks.contract_case import contract_case
from schemas.config import Stream
from schemas.config.split import SplitPart
from tests.couple.planted import SHORT

pytestmark = pytest.mark.seconds(1)

CITIES = ("here", "there", "elsewhere")
DOMAIN = {
    "attributes": [{"field": "smokes", "values": [False, True]}, {"field": "city", "values": [*CITIES]}],
    "ttl": None,
}


def parts(unit: str) -> list[Stream]:
    """A table that is split by its attribute `city`."""
    of_users = contract_case("tabular").stream("default", {"domain": DOMAIN, "options": {"fit": None}})
    privacy = {"epsilon": 2.0, "unit": "event"} if unit == "event" else of_users.privacy.explicit
    split = {"field": "city", "parts": [*CITIES]}
    return list(of_users.revised(privacy=privacy, split=split).parts())


def shares(unit: str, seed: int) -> list[float]:
    """Of the epsilon of one part, what each part costs the unit in which the records differ."""
    found = [couple(f"split by {unit}", stream, seed, steps=SHORT) for stream in parts(unit)]
    assert [verdict.broken for verdict in found] == [[], [], []]
    return [verdict.share for verdict in found]


def claimed(unit: str) -> Fraction:
    """What all parts together cost the unit, as `explain` says it, in epsilons of one part."""
    found = Split.of(parts(unit)[0], partitions=None)
    assert found is not None
    return found.price.epsilon / 2


@pytest.mark.parametrize("seed", [1, 3])
def test_all_parts_together_cost_an_event_what_one_does(seed: int) -> None:
    assert claimed("event") == 1
    assert sum(shares("event", seed)) == pytest.approx(1)


def test_a_user_pays_in_each_part() -> None:
    """So the largest part in place of their sum would be no bound: the planted fault of what `explain` says."""
    found = sum(shares("user", 1))
    assert found <= claimed("user") == len(CITIES)
    assert found > claimed("event")


def test_parts_that_overlap_cost_an_event_several_times() -> None:
    """The planted fault: all parts have the events of the first one."""
    with patch.object(SplitPart, "number", PropertyMock(return_value=0)):
        assert sum(shares("event", 3)) > claimed("event") + 1
