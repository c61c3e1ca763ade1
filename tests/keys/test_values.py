"""Values of a key: what is rounded, and how far published sums and means are from the true ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.checks.contract_case import contract_case
from engines.core.contract import Batch, Columns
from engines.core.noise import seeded
from engines.core.registry import build_engine
from engines.keys.engine import Keys
from engines.keys.table import LEVELS
from engines.keys.values import BoundedValue
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from schemas.events import Reason

LIMITS = st.tuples(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9)).map(lambda each: (each[0], each[0] + each[1]))
PRICE = {"domain": {"value": {"field": "price", "limits": [-1.0, 5.0]}}}


@given(LIMITS.filter(lambda each: each[0] < each[1]), st.lists(st.floats(allow_nan=False), min_size=1, max_size=9))
def test_a_value_is_the_nearest_level_between_its_limits(limits: tuple[float, float], values: list[float]) -> None:
    value = BoundedValue(field="x", low=limits[0], high=limits[1])
    levels = value.levels(np.array(values)).astype(np.int64)
    assert ((levels >= 0) & (levels <= 2 * LEVELS)).all()
    back, _ = value.sums(np.ones(len(values)), (levels - LEVELS).astype(np.float64))
    inside = np.clip(values, *limits)
    rounding = value.half / LEVELS / 2 + 1e-14 * max(map(abs, limits))
    assert (np.abs(back - inside) <= rounding * (1 + 1e-9)).all()
    assert (value.clipped(np.array(values)) == (inside != values)).all()


@pytest.mark.parametrize("limits", [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0)])
def test_limits_are_two_finite_numbers(limits: tuple[float, float]) -> None:
    with pytest.raises(EngineInputError, match="two finite numbers"):
        BoundedValue(field="x", low=limits[0], high=limits[1])


def engine(**changes: Any) -> Keys:
    variant = {**PRICE, "options": {"horizon": 10, **changes}}
    made = build_engine(contract_case("keys").stream("default", variant))
    assert isinstance(made, Keys)
    return made


def events(keys: Keys, rows: dict[str, list[float]]) -> Folded:
    """One person for each value of a key."""
    pages = [page for page, values in rows.items() for _ in values]
    prices = np.array([each for values in rows.values() for each in values])
    columns = Columns({"price": prices}, {}, np.ones(len(pages), np.int8), {"page": pages})
    encoded, reasons = keys.config.domain.encode(columns)
    assert not reasons.any()
    return Folded.from_keys(encoded)


def test_sums_and_means_are_as_far_off_as_their_errors_say() -> None:
    """Of 60 keys with 400 people at each of ten steps: the mean square of errors over stated ones lies within 0.3 and
    2.2 but for a probability below 10^-6 (chi-squared of 60 keys), and no mean leaves its limits.
    """
    keys = engine()
    spread = {f"k{number}": [-1.0, 5.0, *([number / 20] * 38)] for number in range(60)}
    for number in range(10):
        release = keys.step(Batch(number, events(keys, spread)), seeded(number + 50))
    true = {page: 10 * sum(values) for page, values in spread.items()}
    assert len(release.added) == 60
    off = np.array(
        [
            [
                (record.fields["sum"] - true[page]) / record.fields["sum_error"],
                (record.fields["mean"] - true[page] / 400) / record.fields["mean_error"],
            ]
            for record in release.added
            for page in (record.fields["page"],)
        ]
    )
    squares = (off**2).mean(axis=0)
    assert (squares > 0.3).all()
    assert (squares < 2.2).all()
    assert all(-1 <= record.fields["mean"] <= 5 for record in release.added)


def test_a_person_who_brings_most_moves_a_sum_by_less_than_its_noise() -> None:
    """What values cost is stated: a third of mu^2, and a count has noise as if the others were all."""
    keys = engine()
    counts, sums = keys.guarantee().mechanisms
    assert counts.mu_squared is not None
    assert sums.mu_squared is not None
    assert float(sums.mu_squared / (counts.mu_squared + sums.mu_squared)) == pytest.approx(1 / 3, rel=1e-6)
    assert sums.l1_sensitivity == LEVELS
    assert "1/3 is for the sums" in keys.guarantee().note


def test_a_value_that_is_none_is_refused_by_its_name_and_one_beyond_is_clipped() -> None:
    domain = engine().config.domain
    prices = np.array([np.nan, np.inf, 7.0, 1.0])
    columns = Columns({"price": prices}, {}, np.ones(4, np.int8), {"page": ["a", "b", "c", None]})
    keys, reasons = domain.encode(columns)
    assert [Reason(each) for each in reasons.tolist()] == [
        Reason.NOT_FINITE, Reason.NOT_FINITE, Reason.ACCEPTED, Reason.MISSING_FIELD,
    ]  # fmt: skip
    assert [domain.at_fault(columns)[row] for row in (0, 1, 3)] == ["price", "price", "page"]
    assert domain.clipped(columns).tolist() == [False, True, True, False]
    assert keys[2, -1] == 2 * LEVELS
    assert domain.pairs(keys).shape == (4, domain.key_words)


def test_counts_of_events_have_the_noise_of_all_that_a_user_may_have() -> None:
    one, three = (engine(max_per_key=each).config.selection for each in (None, 3))
    assert three.deviation(10) == pytest.approx(3 * one.deviation(10), rel=1e-3)
    assert three.value_deviation(10) == pytest.approx(3 * one.value_deviation(10), rel=1e-3)
    above = [each.threshold(10) - (each.least_count - 1 + each.together) for each in (one, three)]
    assert above[1] == pytest.approx(3 * above[0], rel=1e-3)
