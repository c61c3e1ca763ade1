"""Discrete Gaussian noise: what it costs exactly, and that on a fine lattice it is charged for no less."""

import decimal
import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from engines.core.accounting import gaussian
from engines.core.accounting.lattice import ROUNDING, dominating
from schemas.errors import EngineInputError


@cache
def discrete(sigma_squared: Fraction, *, shift: int = 1, count: int = 1) -> Any:
    """Return the loss of so many draws on integers that move by `shift`, by dp-accounting; never below the true one.

    Losses are shift (2 k + shift) / (2 sigma_squared): on a grid of that step none of them is rounded.
    """
    from dp_accounting.pld import privacy_loss_distribution

    one = privacy_loss_distribution.from_discrete_gaussian_mechanism(
        math.sqrt(sigma_squared),
        sensitivity=shift,
        truncation_bound=math.ceil(12 * math.sqrt(sigma_squared)) + shift,
        value_discretization_interval=float(shift / (2 * sigma_squared)),
        use_connect_dots=True,
    )
    return one if count == 1 else one.self_compose(count)


def discrete_delta(sigma_squared: Fraction, epsilon: float, *, shift: int = 1, count: int = 1) -> float:
    """Return the delta of so many draws on integers that move by `shift`."""
    return float(discrete(sigma_squared, shift=shift, count=count).get_delta_for_epsilon(epsilon))


@pytest.mark.parametrize(("sigma", "factor"), [(1, 2.14), (2, 1.35), (37, 1.0009)])
def test_discrete_noise_is_not_continuous_noise(sigma: int, factor: float) -> None:
    """Largest delta over the Gaussian formula's, over all epsilon at which that formula says at least 1e-9."""
    # The ratio peaks where losses lie, (2 k + 1) / (2 sigma**2), and close below.
    peaks = [(2 * k + 1) / (2 * sigma**2) for k in range(8 * sigma)]
    ratios = [
        discrete_delta(Fraction(sigma**2), e) / gaussian.delta(e, 1 / sigma)
        for peak in peaks
        for e in peak * np.linspace(0.9, 1.0, 41)
        if gaussian.delta(e, 1 / sigma) >= 1e-9
    ]
    assert math.isclose(max(ratios), factor, rel_tol=0.005 if sigma < 37 else 5e-5)


def test_rounding_of_variance_nine_is_even_to_75_digits() -> None:
    """Lemma D: sums of a Gaussian of variance 9 over shifted integers hardly depend on the shift."""
    with decimal.localcontext() as context:
        context.prec = 110
        sums = [
            sum((-((k - shift) ** 2) / decimal.Decimal(2 * ROUNDING)).exp() for k in range(-80, 81))
            for shift in (decimal.Decimal(0), decimal.Decimal("0.25"), decimal.Decimal("0.5"))
        ]
        spread = (max(sums) - min(sums)) / min(sums)
    assert decimal.Decimal("1e-78") < spread < decimal.Decimal("1e-76")


@pytest.mark.parametrize(("shift", "count"), [(16, 1), (16, 20), (1, 400)])
def test_discrete_noise_costs_no_more_than_what_dominates_it(shift: int, count: int) -> None:
    sigma_squared = Fraction(1024)
    for epsilon in (0.5, 1.0):
        above = gaussian.delta(epsilon, shift * (count / float(dominating(sigma_squared))) ** 0.5)
        assert discrete_delta(sigma_squared, epsilon, shift=shift, count=count) <= above


def test_a_coarse_lattice_is_refused() -> None:
    # There continuous noise of the same sigma is no bound at all.
    assert discrete_delta(Fraction(1), 1.0) > 1.1 * gaussian.delta(1.0, 1.0)
    with pytest.raises(EngineInputError, match="finer"):
        dominating(Fraction(100))
