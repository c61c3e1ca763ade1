"""A budget spent twice in selection: exp(eps u / Delta) for exp(eps u / 2 Delta).

Source: [kumar2024], algorithm 13, line 10.
"""

from __future__ import annotations

from fractions import Fraction

from engines.auditor.cases import Case, Claim, Neighbours
from engines.auditor.observations import Observations
from engines.noise import NoiseSource, exponential_mechanism

ROUNDS = 1


class Selection:
    """`ROUNDS` selections that together should cost `epsilon`."""

    def __init__(self, epsilon: Fraction, *, spent: int) -> None:
        self.each = spent * epsilon / ROUNDS

    def choose(self, utilities: tuple[int, ...], source: NoiseSource) -> list[int]:
        one = Fraction(1)
        return [
            exponential_mechanism(
                utilities, quantum=one, sensitivity=one, epsilon=self.each, source=source.child("round", k)
            )
            for k in range(ROUNDS)
        ]


def _case(name: str, selection: Selection, epsilon: Fraction) -> Case:
    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        utilities = (1, 2) if side else (0, 3)
        chosen = [selection.choose(utilities, source.child(index)) for index in range(runs)]
        return Observations.of_arrays(first=[ROUNDS - sum(rounds) for rounds in chosen])

    return Case(
        name, "mechanism", Claim(epsilon), neighbours=(Neighbours("utilities of two candidates", run, times=20),)
    )


def cheat() -> Case:
    return _case("selection at twice its budget", Selection(Fraction(1), spent=2), Fraction(1))


def honest() -> Case:
    return _case("selection at its budget", Selection(Fraction(1), spent=1), Fraction(1))
