"""Whether the laws that mechanisms ran under are those that the engine's guarantee states."""

from __future__ import annotations

from fractions import Fraction

from engines.checks.coupling import CouplingBroken, Recorder
from engines.core.noise.witness import ExceedsLaw, ExponentialLaw
from schemas.guarantee import Guarantee

LAPLACE, BITS, EXPONENTIAL = "discrete Laplace", "Laplace (one bit)", "exponential mechanism"


def check_declared(guarantee: Guarantee, recorder: Recorder) -> None:
    """Compare the noise of a run with the stated mechanisms.

    Sums of losses do not see less noise in a mechanism whose worst case the data never met: these have one law each,
    and it must be the stated one. Stated Laplace scales must buy the epsilon that stands beside them.

    Raises: CouplingBroken, naming the mechanism.
    """
    for mechanism in guarantee:
        if (
            mechanism.distribution == LAPLACE
            and Fraction(mechanism.l1_sensitivity) / mechanism.scale > mechanism.epsilon
        ):
            raise CouplingBroken(f"{mechanism.name}: its scale does not buy the epsilon that is stated")
    stated = {kind: [m for m in guarantee if m.distribution == kind] for kind in (BITS, EXPONENTIAL)}
    for used in recorder.used.values():
        match used.law:
            case ExceedsLaw(_, scale) if not any(m.scale == scale for m in stated[BITS]):
                raise CouplingBroken(f"{used.place}: bits of scale {scale} are not in the guarantee")
            case ExponentialLaw(_, _, epsilon) if not any(m.epsilon == epsilon for m in stated[EXPONENTIAL]):
                raise CouplingBroken(f"{used.place}: a choice of epsilon {epsilon} is not in the guarantee")
