"""What the recipes of both modes share: what a row is, which marginals matter, and the layouts that follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from engines.tabular.domain import TableDomain
from engines.tabular.marginals import Clique, Marginals, Workload, check_memory, every_marginal
from engines.tabular.records import Keeper


@dataclass(frozen=True, kw_only=True)
class TableConfig(ABC):
    """The recipe of a mode, and what follows from it, made once. All of it is public. Marginals of the layouts name
    active attributes by their place among them.

    Args:
        name: of the stream.
        domain: what a row is.
        epsilon: of ONE event, over the whole stream.
        workload: marginals that matter; None: all of one and two attributes.
        deletable: rows may be deleted by events.
        ttl_steps: steps after which an insert is gone by itself. Not with `deletable`.
        max_cells: of all marginals together; memory and a step's work are proportional to them.
        records: False releases measurements only.
        weighted: synthetic records are weighted ones, one for each different row.
        churn: rows that a step may change, as a share of the table, beyond twice the events that it is thought to have.
    Raises: EngineInputError if the marginals have too many cells.
    """

    BYTES_PER_CELL: ClassVar[int]
    """Of memory."""
    name: str
    domain: TableDomain
    epsilon: Fraction
    workload: Workload | None = None
    deletable: bool = False
    ttl_steps: int | None = None
    max_cells: int = 4_000_000
    records: bool = True
    weighted: bool = False
    churn: Fraction = Fraction(1, 50)

    def __post_init__(self) -> None:
        sizes, names = self.domain.sizes, self.domain.names
        check_memory(sizes, self.cliques, names, max_cells=self.max_cells, bytes_per_cell=self.BYTES_PER_CELL)

    @cached_property
    def wanted(self) -> Workload:
        """Marginals that matter, with their weights."""
        return every_marginal(len(self.domain.sizes)) if self.workload is None else self.workload

    @cached_property
    def active(self) -> tuple[int, ...]:
        """Attributes with two codes or more: of the others nothing is to be learnt."""
        return tuple(a for a, size in enumerate(self.domain.sizes) if size > 1)

    def reduced(self, clique: Clique) -> Clique:
        """Return a marginal without attributes that have one value: the same cells."""
        return tuple(attribute for attribute in clique if self.domain.sizes[attribute] > 1)

    @property
    @abstractmethod
    def larger_cliques(self) -> tuple[Clique, ...]:
        """Marginals of two or more active attributes that the release speaks of."""

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """All marginals that the release speaks of: of each active attribute, then the larger ones."""
        return (*((attribute,) for attribute in self.active), *self.larger_cliques)

    @cached_property
    def ones(self) -> Marginals:
        """The layout of one-way marginals."""
        sizes = tuple(self.domain.sizes[attribute] for attribute in self.active)
        return Marginals(sizes, tuple((index,) for index in range(len(sizes))))

    @cached_property
    def larger(self) -> Marginals:
        """The layout of larger marginals."""
        place = {attribute: index for index, attribute in enumerate(self.active)}
        return Marginals(self.ones.sizes, tuple(tuple(place[a] for a in clique) for clique in self.larger_cliques))

    @cached_property
    def keeper(self) -> Keeper:
        """What keeps the rows."""
        return Keeper(self.domain, self.active, self.ones, self.larger, bundled=self.weighted)
