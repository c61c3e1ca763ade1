"""The fitters by name: Private-PGM, and multiplicative weights on the joint table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engines.tabular.domain import TableDomain
from engines.tabular.papers.fitting import ModelFitter, tree_for
from engines.tabular.papers.joint import JointFit
from engines.tabular.workload import Clique


def _pgm(domain: TableDomain, wanted: Sequence[Clique], max_cells: int) -> ModelFitter:
    # JAX takes seconds and hundreds of megabytes: only a process that fits with it imports it.
    from engines.tabular.papers.pgm import PrivatePgm

    return PrivatePgm.over(domain, wanted, tree_for(domain, wanted, max_cells=max_cells))


def _joint(domain: TableDomain, wanted: Sequence[Clique], max_cells: int) -> ModelFitter:
    return JointFit.over(domain, wanted, max_cells=max_cells)


FITTERS: Mapping[str, Callable[[TableDomain, Sequence[Clique], int], ModelFitter]] = {"pgm": _pgm, "joint": _joint}
"""By name, from a domain, the marginals wanted, and the most cells that a model may have."""
