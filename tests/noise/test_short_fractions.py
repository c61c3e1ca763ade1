"""Fractions of short terms lie on the side that they are rounded to, and within what is claimed of them."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from engines.core.accounting.gaussian import mu_squared_for
from engines.core.accounting.user_level import event_mu_squared
from engines.core.noise.arguments import shortened
from engines.keys.engine import _root
from engines.keys.selection import short

TERMS = st.integers(1, 2**200)


@given(TERMS, TERMS, st.integers(2, 60))
@example(2**60 + 1, 2**90 - 1, 40)
def test_a_short_fraction_lies_on_its_side_and_near(numerator: int, denominator: int, bits: int) -> None:
    value = Fraction(numerator, denominator)
    below, above = shortened(value, bits, up=False), shortened(value, bits, up=True)
    nearest = Fraction(1, 2 ** (bits - 1))
    assert value * (1 - nearest) < below <= value <= above < value * (1 + nearest)
    for each in (below, above):
        assert min(each.numerator, each.denominator).bit_length() <= bits + 1


def test_half_of_what_is_claimed_is_too_little() -> None:
    """Just above a power of two a step is two parts in 2**bits: so much is lost, and no more may be claimed."""
    value = Fraction(2**41 + 2, 2**41 - 1)
    lost = value - short(value)
    assert Fraction(1, 2**40) * value < lost < Fraction(1, 2**39) * value


@given(st.integers(1, 1000), st.floats(0.01, 20.0), st.floats(1e-12, 1e-2))
def test_the_budget_of_an_event_is_rounded_down_by_little(contributions: int, epsilon: float, delta: float) -> None:
    exact = mu_squared_for(Fraction(epsilon), delta) / contributions**2
    found = event_mu_squared(Fraction(epsilon), delta, contributions)
    assert exact * (1 - Fraction(1, 2**31)) < found <= exact


@given(TERMS, TERMS)
@example(2**25, 1)
def test_a_root_is_above_by_little(numerator: int, denominator: int) -> None:
    value = Fraction(numerator, denominator)
    assert value < _root(value) ** 2 <= value * (1 + Fraction(1, 2000)) ** 2
