"""Exact noise from a seed: every draw is integer arithmetic on words of one `NoiseSource`.

Nothing here computes a probability in floating point: the only floats are those that the laws report.
Mechanisms of the papers alone are imported from their modules: `binomial`, `exponential`, `split`.
How long a draw takes depends on the noise drawn: the running time of a step must not be published beside its release.
"""

from engines.core.noise.arguments import int64_vector
from engines.core.noise.bernoulli import bernoulli_exp, bernoulli_exp_multiples
from engines.core.noise.digits import geometric
from engines.core.noise.door import check_zero
from engines.core.noise.gaussian import MAX_SIGMA_SQUARED, DiscreteGaussian, discrete_gaussian, sigma_squared_for
from engines.core.noise.laplace import LEAST_VARIANCE, DiscreteLaplace, discrete_laplace, scale_for
from engines.core.noise.mechanisms import gaussian_mechanism, laplace_mechanism
from engines.core.noise.private import aggregate, private_like
from engines.core.noise.source import SEED_BYTES, Label, NoiseSource, fresh_seed, repeated_seed, seeded
from engines.core.noise.uniform import random_bits, uniform_below

__all__ = [
    "LEAST_VARIANCE",
    "MAX_SIGMA_SQUARED",
    "SEED_BYTES",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Label",
    "NoiseSource",
    "aggregate",
    "bernoulli_exp",
    "bernoulli_exp_multiples",
    "check_zero",
    "discrete_gaussian",
    "discrete_laplace",
    "fresh_seed",
    "gaussian_mechanism",
    "geometric",
    "int64_vector",
    "laplace_mechanism",
    "private_like",
    "random_bits",
    "repeated_seed",
    "scale_for",
    "seeded",
    "sigma_squared_for",
    "uniform_below",
]
