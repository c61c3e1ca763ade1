"""Private-PGM: a graphical model fitted to noisy marginals, by the library `mbi`.

`mbi` brings JAX, which takes seconds to import and compiles each shape that it meets. So this module is imported only
by processes that fit with it (extra `pgm`), and everything that has a shape is fixed by the domain: a measurement that
there is not has weight zero. One program is compiled for each domain and serves every step.

Source: [mckenna2019], algorithm 1, with a step length that is searched for. Message passing, and the model that it is
about, are `mbi`'s.
See `fitting` for what a fit promises. Float64 throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

# Single precision moves a score by more than an event does; a cache on disk would be a file beside the state.
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_enable_compilation_cache", False)

import mbi  # noqa: E402 - it warns of both unless they are set before

from engines.tabular.domain import TableDomain  # noqa: E402
from engines.tabular.marginals import Clique  # noqa: E402
from engines.tabular.papers.fitting import LENGTHEN, SHORTEN, ModelFitter, Observed, tree_for  # noqa: E402
from engines.tabular.papers.model import JunctionTree  # noqa: E402
from schemas.arrays import FloatArray  # noqa: E402

ITERATIONS = 30
"""Steps of mirror descent in a fit: twice as many lower the error of a stream by 2 %."""


@dataclass(frozen=True, slots=True, eq=False)
class PrivatePgm(ModelFitter):
    """Fits any junction tree."""

    @staticmethod
    def over(domain: TableDomain, wanted: Sequence[Clique], *, max_cells: int) -> PrivatePgm:
        """Return what fits to those of the wanted marginals that a tree within `max_cells` holds."""
        tree = tree_for(domain, wanted, max_cells=max_cells)
        return PrivatePgm(domain, tree, tuple(clique for clique in wanted if tree.holds(clique)))

    def _fitted(self, potentials: FloatArray, observed: Sequence[Observed], total: float) -> FloatArray:
        counts = [np.zeros([self.tree.sizes[a] for a in clique]) for clique in self.marginals]
        weights = np.zeros(len(self.marginals))
        for each in observed:
            index = self.marginals.index(each.clique)
            counts[index] = each.counts.reshape(counts[index].shape)
            weights[index] = 1.0 / each.variance
        fitted = _program(self.tree, self.marginals)(self.tree.cut(potentials), counts, weights, float(total))
        return np.concatenate([np.asarray(table).ravel() for table in fitted])


@lru_cache(maxsize=16)
def _program(tree: JunctionTree, marginals: tuple[Clique, ...]) -> Callable[..., Any]:
    """Return what makes fitted potentials of potentials, counts of all marginals, their weights and the total."""
    domain = mbi.Domain(tuple(range(len(tree.sizes))), tree.sizes)
    cliques = tree.cliques
    homes = [tree.home(marginal) for marginal in marginals]

    def vector(tables: Sequence[Any]) -> Any:
        factors = {c: mbi.Factor(domain.project(c), table) for c, table in zip(cliques, tables, strict=True)}
        return mbi.CliqueVector(domain, cliques, factors)

    def tables(values: Any) -> list[Any]:
        return [values[clique].values for clique in cliques]

    def infer(potentials: Any, total: Any) -> Any:
        return mbi.marginal_oracles.message_passing_shafer_shenoy(potentials, total)

    def loss_and_slope(beliefs: Any, counts: Sequence[Any], weights: Any) -> tuple[Any, Any]:
        loss = jnp.zeros(())
        slopes = [jnp.zeros(tree.shape(index)) for index in range(len(cliques))]
        for place, (marginal, home) in enumerate(zip(marginals, homes, strict=True)):
            assert home is not None
            off_axes = tuple(axis for axis, a in enumerate(cliques[home]) if a not in marginal)
            sums = beliefs[cliques[home]].values.sum(axis=off_axes, keepdims=True)
            off = sums - counts[place].reshape(sums.shape)
            loss = loss + 0.5 * weights[place] * jnp.vdot(off, off)
            slopes[home] = slopes[home] + weights[place] * off
        return loss, vector(slopes)

    def fit(potentials: Sequence[Any], counts: Sequence[Any], weights: Any, total: Any) -> list[Any]:
        zeros = vector([jnp.zeros_like(table) for table in potentials])

        def step(state: Any, _: None) -> tuple[Any, None]:
            at, beliefs, slope, length, loss = state
            tried = at - length * slope
            tried_beliefs = infer(tried, total)
            tried_loss, tried_slope = loss_and_slope(tried_beliefs, counts, weights)
            better = loss - tried_loss >= 0.5 * length * slope.dot(beliefs - tried_beliefs)
            following = jnp.where(better, LENGTHEN * length, SHORTEN * length)
            chosen = jax.tree.map(
                lambda new, old: jnp.where(better, new, old),
                (tried, tried_beliefs, tried_slope, tried_loss),
                (at, beliefs, slope, loss),
            )
            return (*chosen[:3], following, chosen[3]), None

        # As in `JointFit`: no step of this length can be wrong. The first one goes nowhere, and finds the loss.
        start = (vector(potentials), zeros, zeros, 1.0 / (total * weights.sum()), jnp.asarray(jnp.inf))
        (fitted, *_), _ = jax.lax.scan(step, start, None, length=ITERATIONS + 1)
        return [table - table.max() for table in tables(fitted)]

    return cast(Callable[..., Any], jax.jit(fit))
