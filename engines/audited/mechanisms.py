"""Every mechanism of `engines.noise` as a case: a new one is audited by being entered in `MECHANISMS`.

`PARTS` names what draws chance there without being a mechanism: no claim of its own can be audited. A test holds the
two together to all that `engines.noise` exports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
from scipy.stats import binom

from engines.audited import paths
from engines.auditor.cases import Case, Claim, Exact, Fresh, Neighbours, Observe
from engines.auditor.exact import gaussian_epsilon, laplace_loss, threshold_loss
from engines.auditor.observations import Observations
from engines.noise import (
    NoiseSource,
    centred_binomial,
    discrete_gaussian,
    discrete_laplace,
    exponential_mechanism,
    laplace_exceeds,
    scale_for,
)
from engines.spatial.split import SplitRule

WIDE = 64
"""Draws compared between fresh seeds: honest ones of scale 1 agree in all with probability below 1e-20."""
THRESHOLDS = (0, 1, 4, -3)
"""Of the threshold bit: both sides of the centre, and both tails."""


def laplace(epsilon: Fraction = Fraction(1), *, dimensions: int = 1) -> Case:
    """A vector of counts; one event moves one of them, so every scale is 1/epsilon."""
    scale = scale_for(1, epsilon)

    def observe(before: int, after: int) -> Observe:
        def run(side: int, runs: int, source: NoiseSource) -> Observations:
            noise = discrete_laplace(runs * dimensions, scale, source).reshape(dimensions, runs)
            counts = np.zeros((dimensions, 1), np.int64)
            counts[0] = after if side else before
            return Observations.of_arrays(**{f"count {i}": row for i, row in enumerate(counts + noise)})

        return run

    return Case(
        "discrete Laplace",
        "mechanism",
        Claim(epsilon),
        neighbours=(
            Neighbours("insert, empty cell", observe(0, 1)),
            Neighbours("insert, dense cell", observe(1000, 1001)),
            Neighbours("delete, empty cell", observe(0, -1)),
        ),
        exact=(Exact("integer shift over scale", lambda: laplace_loss(np.ones((1, 1), np.int64), scale)),),
        fresh=(Fresh(lambda source: discrete_laplace(WIDE, scale, source).tobytes(), 1e-20, runs=1000),),
    )


def gaussian(sigma_squared: Fraction = Fraction(4), delta: float = 1e-3, *, shift: int = 1) -> Case:
    """A count moved by `shift`; the claim is the discrete Gaussian's own exact epsilon at `delta`, rounded up."""
    exact = gaussian_epsilon(shift=shift, sigma_squared=sigma_squared, delta=delta)
    epsilon = Fraction(int(np.ceil(exact * 2**30)), 2**30)

    def observe(sign: int) -> Observe:
        def run(side: int, runs: int, source: NoiseSource) -> Observations:
            return Observations.of_arrays(count=sign * side * shift + discrete_gaussian(runs, sigma_squared, source))

        return run

    return Case(
        "discrete Gaussian",
        "mechanism",
        Claim(epsilon, delta),
        neighbours=(Neighbours("insert", observe(1)), Neighbours("delete", observe(-1))),
        exact=(Exact("hockey-stick sum", lambda: exact),),
        fresh=(Fresh(lambda source: discrete_gaussian(WIDE, sigma_squared, source).tobytes(), 1e-20, runs=1000),),
    )


def binomial(shift: int = 1, half: int = 100, delta: float = 1e-3) -> Case:
    """A count moved by `shift` under fair coins; the claim is the exact epsilon at `delta`, rounded up."""
    exact = binomial_epsilon(shift=shift, half=half, delta=delta)

    def observe(sign: int) -> Observe:
        def run(side: int, runs: int, source: NoiseSource) -> Observations:
            drawn = [centred_binomial(half, source.child(index)) for index in range(runs)]
            return Observations.of_arrays(count=[sign * side * shift + noise for noise in drawn])

        return run

    def fresh(source: NoiseSource) -> bytes:
        return repr([centred_binomial(2**16, source.child(index)) for index in range(12)]).encode()

    return Case(
        "binomial",
        "mechanism",
        Claim(Fraction(int(np.ceil(exact * 2**30)), 2**30), delta),
        neighbours=(Neighbours("insert", observe(1), times=5), Neighbours("delete", observe(-1), times=5)),
        exact=(Exact("hockey-stick sum", lambda: exact),),
        fresh=(Fresh(fresh, 0.01**12, runs=50),),
    )


def binomial_epsilon(*, shift: int, half: int, delta: float) -> float:
    """The least epsilon at `delta` of an integer that moves by `shift` under `centred_binomial(half)`, by bisection."""
    law = binom(2 * half, 0.5)
    counts = np.arange(-shift, 2 * half + shift + 1)
    here, there = law.pmf(counts), law.pmf(counts + shift)
    low, high = 0.0, 20.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(here - np.exp(middle) * there, 0).sum() > delta else (low, middle)
    return high


def threshold_bit(epsilon: Fraction = Fraction(1)) -> Case:
    """One bit, whether Laplace noise exceeds a threshold that one event moves by 1: far in both tails too."""
    scale = 1 / epsilon

    def observe(threshold: int) -> Observe:
        def run(side: int, runs: int, source: NoiseSource) -> Observations:
            thresholds = np.full(runs, threshold - side, np.int64)
            return Observations.of_arrays(bit=laplace_exceeds(thresholds, unit=Fraction(1), scale=scale, source=source))

        return run

    return Case(
        "Laplace threshold bit",
        "mechanism",
        Claim(epsilon),
        neighbours=tuple(Neighbours(f"insert, threshold {at} counts away", observe(at)) for at in THRESHOLDS),
        exact=(Exact("log-odds of the bit", lambda: threshold_loss(THRESHOLDS, scale)),),
        fresh=(
            Fresh(
                lambda source: laplace_exceeds(
                    np.zeros(256, np.int64), unit=Fraction(1), scale=scale, source=source
                ).tobytes(),
                2.0**-256,
                runs=1000,
            ),
        ),
    )


def privtree(epsilon: Fraction = Fraction(1), fanout: int = 2) -> Case:
    """All decisions on the worst path found, drawn by the sampler itself, and the loss of that search computed."""
    rule, scores = SplitRule(epsilon=epsilon, fanout=fanout), paths.PathScores()

    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        _, worst, deleted = paths.worst_path(rule, scores)
        shown = worst.with_event(deleted=deleted) if side else worst
        return Observations.of_arrays(stop=paths.stops(rule, scores.scores(shown), runs=runs, source=source))

    exact = Exact("loss of the worst path found, 20 levels", paths.worst_loss(rule, scores))
    return Case(
        f"PrivTree partition, epsilon {float(epsilon):g}, fanout {fanout}",
        "mechanism",
        Claim(epsilon),
        # Below one half the loss is too small to be counted: the computation alone decides there.
        neighbours=(Neighbours("event on the worst path found", run),) if epsilon >= Fraction(1, 2) else (),
        exact=(exact,),
    )


def selection(epsilon: Fraction = Fraction(1)) -> Case:
    """The exponential mechanism where one event raises the utility of one candidate and lowers the others'."""
    # The loss tends to epsilon where the first candidate is unlikely; there are few of these runs to count, though.
    utilities = {"even": ((0, 2, 2), (1, 1, 1)), "unlikely": ((0, 4, 4), (1, 3, 3))}

    def choose(values: tuple[int, ...], source: NoiseSource) -> int:
        one = Fraction(1)
        return exponential_mechanism(values, quantum=one, sensitivity=one, epsilon=epsilon, source=source)

    def observe(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> Observe:
        def run(side: int, runs: int, source: NoiseSource) -> Observations:
            chosen = [choose(pair[side], source.child(index)) for index in range(runs)]
            return Observations.of_arrays(first=[index == 0 for index in chosen], chosen=chosen)

        return run

    return Case(
        "exponential mechanism",
        "mechanism",
        Claim(epsilon),
        neighbours=tuple(Neighbours(f"{name} candidates", observe(pair), times=5) for name, pair in utilities.items()),
        exact=(Exact("log-odds of the first candidate", lambda: _selection_loss(utilities.values(), epsilon)),),
        fresh=(
            Fresh(
                lambda source: bytes(choose((0,) * 200, source.child(index)) for index in range(8)), 200.0**-8, runs=50
            ),
        ),
    )


def _selection_loss(pairs: object, epsilon: Fraction) -> float:
    losses = []
    for before, after in pairs:  # type: ignore[attr-defined]
        logs = []
        for values in (before, after):
            weights = float(epsilon) / 2 * np.array(values, float)
            logs.append(weights - np.logaddexp.reduce(weights))
        losses.append(float(np.abs(logs[1] - logs[0]).max()))
    return max(losses)


MECHANISMS: Mapping[str, Callable[[], list[Case]]] = {
    "discrete_laplace": lambda: [laplace()],
    "discrete_gaussian": lambda: [gaussian()],
    "centred_binomial": lambda: [binomial()],
    "laplace_exceeds": lambda: [
        threshold_bit(),
        *(privtree(epsilon, fanout) for epsilon in paths.epsilons() for fanout in (2, 4)),
    ],
    "exponential_mechanism": lambda: [selection()],
}

PARTS: Mapping[str, str] = {
    "laplace_mechanism": "adds what discrete_laplace draws",
    "gaussian_mechanism": "adds what discrete_gaussian draws",
    "binomial_mechanism": "adds what centred_binomial draws",
    "bernoulli": "a coin of public probability",
    "bernoulli_exp": "a coin of public probability",
    "bernoulli_exp_multiples": "a coin; its multiples are private, what is done with it is audited as laplace_exceeds",
    "geometric": "noise of public law",
    "random_bits": "noise of public law",
    "uniform_below": "noise of public law",
}
