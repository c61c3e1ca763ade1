"""Our samplers beside SampCert's, both computed: no draws, no statistics.

Theirs: `tests.noise.sampcert`, in fractions, with a proven bound of what is left out. Ours: every run of the sampler's
own code, its control flow and its arithmetic as they stand, with the uniform integers and bits, and comparisons with
powers of 1/e, replaced by a choice among all that they can give. In floats, so they agree to 1e-10.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from engines.core.noise import seeded
from engines.core.noise.digits import TOP, exp_digits
from tests.noise import sampcert
from tests.noise.goodness import Choose, exact_law

BERNOULLI = importlib.import_module("engines.core.noise.bernoulli")
LAPLACE = importlib.import_module("engines.core.noise.laplace")
GAUSSIAN = importlib.import_module("engines.core.noise.gaussian")
FLOOR = 1e-14
CLOSE = 1e-10
"""What is cut off, runs of probability below `FLOOR` and whole parts from `WHOLES` on, is less."""
WHOLES = 25
Ours = dict[int, float]


class Uniform:
    """One uniform integer of which only a comparison is asked for: so many values are one choice between two."""

    def __init__(self, bound: int, choose: Choose) -> None:
        self.bound, self.choose = bound, choose

    __hash__ = None  # type: ignore[assignment]

    def _with(self, probability: float) -> np.ndarray:
        return np.array([self.choose([1 - probability, probability]) == 1])

    def __eq__(self, value: object) -> Any:
        assert value == 0
        return self._with(1 / self.bound)

    def __lt__(self, values: np.ndarray) -> np.ndarray:
        return self._with(int(values[0]) / self.bound)


class Parts:
    """The draws of one attempt as choices, with the probabilities of SampCert's coins where they are irrational."""

    choose: Choose

    def __init__(self, monkeypatch: pytest.MonkeyPatch, proposed: sampcert.Law | None = None) -> None:
        wholes = sampcert.geometric(sampcert.exp_coin(Fraction(1))).mass
        self.wholes = [float(wholes[v]) for v in range(WHOLES)]
        self.proposed = [(k, float(p)) for k, p in proposed.mass.items() if p > FLOOR] if proposed else []
        monkeypatch.setattr(BERNOULLI, "uniform_below", self.compared)
        monkeypatch.setattr(BERNOULLI, "below_exp", self.below_exp)
        monkeypatch.setattr(GAUSSIAN, "laplace_values", self.laplace_values)
        for part in (self.uniform_below, self.geometric, self.random_bits):
            monkeypatch.setattr(LAPLACE, part.__name__, part)

    def law(self, attempt: Callable[[], np.ndarray]) -> Ours:
        """Of an attempt that succeeds."""

        def run(choose: Choose) -> int | None:
            self.choose = choose
            values = attempt()
            return int(values[0]) if values.size else None

        law, _ = exact_law(run, floor=FLOOR)
        succeeded = sum(mass for value, mass in law.items() if value is not None)
        return {value: mass / succeeded for value, mass in law.items() if value is not None}

    def compared(self, bound: int, size: int, source: Any) -> Any:
        return Uniform(bound, self.choose) if size else np.zeros(0, np.int64)

    def uniform_below(self, bound: int, size: int, source: Any) -> np.ndarray:
        return np.array([self.choose([1 / bound] * bound) for _ in range(size)], dtype=np.int64)

    def below_exp(self, v: np.ndarray, source: Any) -> np.ndarray:
        heads = [float(sampcert.exp_coin(Fraction(int(each))).mass[True]) for each in v]
        return np.array([self.choose([1 - p, p]) == 1 for p in heads], dtype=np.bool_)

    def geometric(self, size: int, source: Any) -> np.ndarray:
        return np.array([self.choose(self.wholes) for _ in range(size)], dtype=np.int64)

    def random_bits(self, size: int, source: Any) -> np.ndarray:
        return np.array([self.choose([0.5, 0.5]) == 1 for _ in range(size)], dtype=np.bool_)

    def laplace_values(self, size: int, scale: Fraction, source: Any) -> np.ndarray:
        weights = [p for _, p in self.proposed]
        return np.array([self.proposed[self.choose(weights)][0] for _ in range(size)], dtype=np.int64)


def apart(ours: Ours, theirs: sampcert.Law) -> float:
    """The largest difference of two probabilities."""
    values = ours.keys() | theirs.mass.keys()
    return max(abs(ours.get(value, 0.0) - float(theirs.mass.get(value, 0))) for value in values)


def our_laplace(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> Ours:
    return Parts(monkeypatch).law(lambda: LAPLACE._attempt(1, scale, seeded(0)))


def our_gaussian(sigma: Fraction, monkeypatch: pytest.MonkeyPatch) -> Ours:
    """The Laplace draws that it thins out are SampCert's, of the scale that it asks for."""
    scale = GAUSSIAN._proposal_scale(sigma**2)
    parts = Parts(monkeypatch, sampcert.laplace(scale))
    return parts.law(lambda: GAUSSIAN._attempt(1, sigma**2, scale, seeded(0)))


@pytest.mark.parametrize("v", [*range(1, 9), 20, TOP])
def test_powers_of_1_over_e_have_the_digits_of_sampcerts_coin(v: int) -> None:
    """What a uniform word is compared with: the first 64 binary digits, between the bounds of the coin."""
    heads = sampcert.exp_coin(Fraction(v))
    low, high = heads.mass[True], heads.mass[True] + heads.missing
    assert math.floor(2**64 * low) == math.floor(2**64 * high) == exp_digits(v, 1)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(5, 2)], ids=str)
def test_laplace_is_that_of_sampcert(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = our_laplace(scale, monkeypatch)
    assert apart(ours, sampcert.laplace(scale)) < CLOSE
    assert apart(ours, sampcert.laplace_by_parts(scale)) < CLOSE


@pytest.mark.parametrize("sigma", [Fraction(1, 2), Fraction(1), Fraction(3, 2)], ids=str)
def test_gaussian_is_that_of_sampcert(sigma: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    assert apart(our_gaussian(sigma, monkeypatch), sampcert.gaussian(sigma)) < CLOSE


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(5, 2), Fraction(40, 3)], ids=str)
def test_what_is_compared_with_is_the_law_itself(scale: Fraction) -> None:
    """In the closed form, by floats: both programs of SampCert are one law, and its Gaussian is one."""
    q = math.exp(-1 / scale)
    programs = [sampcert.laplace(scale)] + ([sampcert.laplace_by_parts(scale)] if scale < 10 else [])
    for law in programs:
        assert law.missing < 1e-19
        for k in (0, 1, -1, 3, -7, 20):
            assert math.isclose(float(law.mass[k]), (1 - q) / (1 + q) * q ** abs(k), rel_tol=1e-9, abs_tol=1e-18)
    law, total = sampcert.gaussian(Fraction(3)), sum(math.exp(-k * k / 18) for k in range(-60, 61))
    assert all(math.isclose(float(law.mass[k]), math.exp(-k * k / 18) / total, rel_tol=1e-9) for k in (0, 2, -5, 9))


def test_a_wrong_law_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero twice as often, a scale or sigma that is one part in a million off, a coin that rounds."""
    ours = our_laplace(Fraction(3, 2), monkeypatch)
    again = sampcert.geometric(sampcert.exp_coin(Fraction(2, 3)))
    minus = sampcert.coin(Fraction(1, 2))
    zero_twice = again.then(lambda y: minus.map(lambda negative: -y if negative else y))
    assert apart(ours, zero_twice) > 0.01
    nearly = Fraction(3, 2) * (1 + Fraction(1, 10**6))
    assert apart(ours, sampcert.laplace(nearly)) > 10 * CLOSE
    assert apart(our_gaussian(Fraction(1), monkeypatch), sampcert.gaussian(1 + Fraction(1, 10**6))) > 10 * CLOSE
