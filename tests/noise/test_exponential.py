"""The exponential mechanism: frequencies against weights, for small and lopsided choices. False-positive rate 1e-6."""

import math
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engines.core.noise import seeded
from engines.core.noise.exponential import exponential_mechanism
from schemas.errors import EngineInputError
from tests.noise.goodness import misfit

RUNS = 10_000
ONE = Fraction(1)


def weights(utilities: list[int], rate: Fraction) -> list[float]:
    masses = [math.exp(rate * (u - max(utilities))) for u in utilities]
    return [mass / sum(masses) for mass in masses]


def hits(utilities: list[int], rate: Fraction, seed: int) -> list[int]:
    """Run with a rate that is split over all three fractions, so that a forgotten one is seen."""
    source = seeded(seed)
    chosen = [
        exponential_mechanism(
            np.array(utilities), quantum=Fraction(1, 8), sensitivity=Fraction(3), epsilon=rate * 48, source=source
        )
        for _ in range(RUNS)
    ]
    return np.bincount(chosen, minlength=len(utilities)).tolist()


@pytest.mark.parametrize(
    ("utilities", "rate"),
    [
        ([0, 1], Fraction(1)),
        ([3, 0, -2, 3], Fraction(1, 2)),
        ([0, 0, 0, 0, 0, 0, 0], Fraction(5)),
        ([100, 99, 90, 0], Fraction(7, 30)),
        ([-(2**40), -(2**40) + 2**35], Fraction(1, 2**35)),
        ([4, *[0] * 200], Fraction(1)),
    ],
)
def test_frequencies(utilities: list[int], rate: Fraction) -> None:
    observed = hits(utilities, rate, seed=71)
    assert misfit(observed, weights(utilities, rate), RUNS) == ""


def test_wrong_laws_are_caught() -> None:
    """Power: the sign of [kumar2024], half the budget, and a sensitivity without its factor of two."""
    observed = hits([0, 1, 2], Fraction(1), seed=72)
    for rate in (Fraction(-1), Fraction(1, 2), Fraction(2)):
        wrong = [math.exp(rate * u) for u in (0, 1, 2)]
        assert misfit(observed, [mass / sum(wrong) for mass in wrong], RUNS) != ""


def test_one_dominates_among_very_many() -> None:
    """The expected number of proposals is the number of choices: 40 times that many has probability exp(-40)."""
    utilities = np.zeros(100_000, dtype=np.int64)
    utilities[77_777] = 10**6
    source = seeded(73)
    assert exponential_mechanism(utilities, quantum=ONE, sensitivity=ONE, epsilon=ONE, source=source) == 77_777
    assert int(repr(source).split("draws=")[1].rstrip(")")) < 1_000


@given(
    st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=9), st.integers(-(2**62), 2**62 - 1), st.integers(0, 9)
)
def test_only_differences_of_utilities_count(utilities: list[int], shift: int, seed: int) -> None:
    array = np.array(utilities)
    args: dict[str, Any] = {"quantum": Fraction(1, 2**60), "sensitivity": ONE, "epsilon": ONE}
    chosen = exponential_mechanism(array, **args, source=seeded(seed))
    assert chosen == exponential_mechanism(array + shift, **args, source=seeded(seed))
    assert array.tolist() == utilities


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.integers(0, 9))
def test_the_ends_of_int64(utilities: list[int], seed: int) -> None:
    best = max(utilities)
    assume(all(best - u > 2**8 for u in utilities if u != best))
    chosen = exponential_mechanism(np.array(utilities), quantum=ONE, sensitivity=ONE, epsilon=ONE, source=seeded(seed))
    assert utilities[chosen] == best


@pytest.mark.parametrize(
    "call",
    [
        lambda **args: exponential_mechanism([], **args),
        lambda **args: exponential_mechanism(np.array([], dtype=int), **args),
        lambda **args: exponential_mechanism([0.5], **args),
        lambda **args: exponential_mechanism([1], **{**args, "epsilon": Fraction(0)}),
        lambda **args: exponential_mechanism([1], **{**args, "sensitivity": Fraction(-1)}),
        lambda **args: exponential_mechanism([1], **{**args, "quantum": 0.5}),
    ],
    ids=count(),
)
def test_outside_the_contract(call: Any) -> None:
    with pytest.raises(EngineInputError):
        call(quantum=ONE, sensitivity=ONE, epsilon=ONE, source=seeded(1))
