"""The engine of keys over periods: what it lists, forgets and refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from engines.checks.contract_case import contract_case
from engines.checks.contract_checks import same_state
from engines.core.accounting.accountant import Accountant
from engines.core.contract import Batch, Columns, Release
from engines.core.noise import seeded
from engines.core.registry import build_engine
from engines.keys.build import selection as build_selection
from engines.keys.engine import Keys
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from schemas.events import Reason

PERIODS: Mapping[str, Any] = {"privacy": {"per": "4h"}, "options": {"horizon": None}}


def engine(variant: Mapping[str, Any] = PERIODS) -> Keys:
    made = build_engine(contract_case("keys").stream("default", variant))
    assert isinstance(made, Keys)
    return made


def step(keys: Keys, number: int, **people: int) -> Release:
    """Let so many new people come to keys."""
    rows = keys.config.domain.packed([name.encode() for name in people])
    return keys.step(Batch(number, Folded.from_keys(rows, np.array(list(people.values()), np.int64))), seeded(number))


def counts(release: Release) -> dict[str, int]:
    return {record.fields["page"]: record.fields["count"] for record in release.added}


def test_a_key_is_listed_from_when_many_have_it_to_the_period_s_end() -> None:
    keys = engine()
    assert counts(step(keys, 0, a=2, b=900)).keys() == {"b"}
    second = step(keys, 1, a=500)
    assert counts(second).keys() == {"a", "b"}
    assert [record.fields["found"] for record in second.added] == [1, 0]
    assert counts(step(keys, 2)).keys() == counts(step(keys, 3)).keys() == {"a", "b"}
    error = keys.config.selection.deviation(4)
    assert abs(counts(second)["a"] - 502) < 8 * error
    assert second.measurements[0]["listed"] == 2


def test_a_new_period_knows_nothing_of_the_one_before() -> None:
    keys = engine()
    for number in range(4):
        step(keys, number, a=900)
    assert not step(keys, 4).added
    error = keys.config.selection.deviation(2)
    assert abs(counts(step(keys, 5, a=900))["a"] - 900) < 8 * error
    # Each period is charged once, and periods do not add up.
    [spent] = {each.spent.mu_squared for each in Accountant.kept(keys.state()).values()}
    assert spent == keys.guarantee().mu_squared


def test_sums_of_a_listed_key_differ_by_noise_of_their_own() -> None:
    keys = engine({"options": {"horizon": 20}})
    found = [counts(step(keys, number, **({"a": 900} if number == 0 else {})))["a"] for number in range(20)]
    assert len(set(found)) > 5


def test_nothing_is_released_beyond_the_horizon() -> None:
    keys = engine({"options": {"horizon": 2}})
    assert step(keys, 0, a=900).added
    assert step(keys, 1).added
    over = step(keys, 2, a=900)
    assert not over.added
    assert not over.measurements
    assert "over" in over.notes
    assert not keys.state()["table/numbers"].any()


def test_a_full_table_stops_before_anything_is_lost() -> None:
    keys = engine({"options": {"max_keys": 3}})
    step(keys, 0, a=1, b=900, c=1)
    before = keys.state()
    with pytest.raises(EngineInputError, match=r'max_keys = 3.*sample = "1/16"') as error:
        step(keys, 1, a=1, secret=1)
    assert "secret" not in str(error.value)
    assert same_state(keys.state(), before)
    assert step(keys, 1, a=900, b=1).step == 1


def test_a_late_key_has_noise_of_as_many_tests_as_an_early_one() -> None:
    keys = engine({"options": {"horizon": 6}})
    for number in range(3):
        step(keys, number, early=900)
    step(keys, 3, late=900, few=2)
    state = keys.state()
    assert (state["past/3"].shape, state["noise/3"].shape) == ((1, 3, 1), (1, 2))
    assert state["past/3"].all()
    assert state["noise/3"].all()
    assert (state["table/numbers"][0], state["table/numbers"][1:].sum()) == (3, 1), "three keys, one run"


@pytest.mark.parametrize(
    "change",
    [
        {"noise/0": np.zeros(9, np.int64)},
        {"past/0": np.zeros((1, 1), np.int64)},
        {"table/found": np.array([-1], np.int64)},
        {"table/totals": np.zeros((1, 0), np.int64)},
        {"table/totals": np.array([[2]], np.int64)},
        {"table/ends": np.array([2], np.int64)},
        {"table/numbers": np.full(9, 4)},
        {"table/numbers": np.array([4, 0], np.int64)},
        {"table/hash": np.zeros((1, 4), np.uint64)},
        {"keys/0": np.zeros((2, 3), np.uint64)},
        {"few/first": np.array([2**64 - 1, 0], np.uint64)},
        {"few/second": np.full(1, 3, np.uint64)},
        {"few/second": np.zeros(1, np.uint64)},
        {"few/first": np.full(1, 2**64 - 1, np.uint64)},
        {"few/first": np.zeros(1, np.uint64)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_damaged_table_is_refused(change: dict[str, Any]) -> None:
    keys = engine()
    step(keys, 0, a=900, b=1)
    state = keys.state()
    # There is one run, in the part where its hash is.
    [run] = {name.rpartition("/")[0] for name in state if name.startswith("few/")}
    with pytest.raises(EngineInputError):
        engine().restore({**state, **{name.replace("few", run): array for name, array in change.items()}})


def test_more_keys_may_be_allowed_while_a_stream_runs() -> None:
    """Or a full table could not be helped."""
    case = contract_case("keys")
    few, many, sampled = (
        case.stream("default", {"options": options}).fingerprint_fields()
        for options in ({"max_keys": 3}, {"max_keys": 4}, {"sample": "1/2"})
    )
    assert few == many != sampled
    assert engine({"options": {"sample": "1/4"}}).config.domain.one_in == 4
    keys = engine({"options": {"max_keys": 1}})
    step(keys, 0, a=1)
    larger = engine({"options": {"max_keys": 2}})
    larger.restore(keys.state())
    step(larger, 1, b=1)


def test_every_key_of_a_public_list_is_released_at_every_test() -> None:
    """Also those that nobody has. False alarms: 64 draws beyond 8 deviations, below 1e-13."""
    made = build_engine(contract_case("keys").stream("public", {"options": {"horizon": 3}}))
    assert isinstance(made, Keys)
    listed = len(made.config.domain.listed)
    for number, people in enumerate(({"d1": 900}, {}, {"d2": 400})):
        release = step(made, number, **people)
        assert len(release.added) == listed
        assert {record.fields["found"] for record in release.added} == {0}
        assert "threshold" not in release.measurements[0]
    error = made.config.selection.deviation(3)
    found = counts(release)
    for key, true in {"d1": 900, "d2": 400, "d3": 0}.items():
        assert abs(found[key] - true) < 8 * error
    columns = Columns({}, {}, np.ones(4, np.int8), {"page": ["d1", "cafe\u0301", "elsewhere", 7]})
    _, reasons = made.config.domain.encode(columns)
    assert reasons.tolist() == [Reason.ACCEPTED, Reason.ACCEPTED, *[Reason.OUTSIDE_DOMAIN] * 2]
    # All of delta is for noise, so it is less than that of keys which nobody listed.
    assert error < build_selection(contract_case("keys").stream("default", {"options": {"horizon": 3}})).deviation(3)
