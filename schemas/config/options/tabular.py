"""`[streams.options]` of engine `tabular`."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from schemas.config.domain.common import DomainSection
from schemas.config.domain.table import TableDomainSection
from schemas.config.options.common import OptionsSection
from schemas.config.options.spatial import CounterName, horizon_problems
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import ExactDecimal, FieldName, Flag, Section, Whole, must
from schemas.errors import ConfigProblem

MAX_WAYS = 3
BYTES_PER_CELL = 96
"""Of memory, as the engine reckons."""


Weight = Annotated[ExactDecimal, must(lambda value: value > 0, "must be above 0", "write 1, or leave the marginal out")]
Part = Annotated[
    ExactDecimal, must(lambda value: 0 <= value <= 1, "must lie between 0 and 1", "write 0.02 for two percent")
]


class Marginal(Section):
    """One entry of `marginals`."""

    header: ClassVar[str] = "[streams.options.marginals]"

    of: tuple[FieldName, ...] = Field(min_length=1, max_length=MAX_WAYS, examples=[["age", "income"]])
    """Its attributes, in any order."""
    weight: Weight = Decimal(1)
    """How much it matters, beside the others."""


class TabularOptions(OptionsSection):
    """`[streams.options]` of engine `tabular`."""

    unpinned: ClassVar[frozenset[str]] = frozenset({"churn", "max_cells"})

    ways: tuple[Whole, ...] = Field((1, 2), examples=[[1, 2]])
    """All marginals of so many attributes matter; 1 to 3. One-way marginals are always measured."""
    marginals: tuple[Marginal, ...] = Field((), examples=[[{"of": ["age", "income"], "weight": 2}]])
    """Where given, these matter and not those of `ways`."""
    records: Flag = Field(True, examples=[True])
    """False publishes measurements only."""
    churn: Part = Field(Decimal("0.02"), examples=[0.02])
    """Rows that a step may change, as a share of the table, beyond twice the events that it is thought to have."""
    max_cells: Whole = Field(4_000_000, ge=1, le=1_000_000_000, examples=[4_000_000])
    """Of all marginals together: memory, state and a step's work are proportional to them."""
    rounds: Whole = Field(4, ge=1, le=1000, examples=[4])
    """Mode `paper`: marginals that are chosen and measured in a step."""
    counter: CounterName = Field("simple", examples=["simple"])
    """Mode `paper`: the continual counter of each marginal."""
    horizon: Whole | None = Field(None, ge=1, le=1_000_000_000)
    """Mode `paper`: steps that the counter is calibrated for, where it needs to know; the stream stops after them."""
    fit: Literal["pgm", "joint"] = Field("pgm", examples=["pgm"])
    """Mode `paper`: Private-PGM (the extra `pgm`), or the whole table where it is small."""
    model_cells: Whole = Field(4096, ge=1, le=100_000_000, examples=[4096])
    """Mode `paper`: of the model's tables."""

    @property
    def churn_fraction(self) -> Fraction:
        """`churn` as an exact fraction."""
        return Fraction(self.churn)

    def problems(self) -> Iterator[ConfigProblem]:
        """What the options say against each other."""
        if not self.ways or not set(self.ways) <= set(range(1, MAX_WAYS + 1)) or len(set(self.ways)) < len(self.ways):
            yield ConfigProblem("ways", "are not different numbers from 1 to 3", "write ways = [1, 2]")
        seen = set()
        for index, marginal in enumerate(self.marginals):
            key = frozenset(marginal.of)
            if len(key) < len(marginal.of):
                yield ConfigProblem(f"marginals[{index}].of", "names an attribute twice", "name each once")
            if key in seen:
                yield ConfigProblem(f"marginals[{index}].of", "is a marginal that came before", "remove it")
            seen.add(key)
        yield from horizon_problems(self.counter, self.horizon)

    def in_stream(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Yield a counter in a mode without, marginals of attributes that the table lacks, and too many cells."""
        if self.counter != "simple" and mode != "paper":
            fix = 'remove the key, or set mode = "paper"'
            yield ConfigProblem("options.counter", f'mode "{mode}" counts each event in a block', fix)
        if not isinstance(domain, TableDomainSection):
            return
        known = set(domain.fields)
        yield from self._too_large(domain)
        for index, marginal in enumerate(self.marginals):
            for field in marginal.of:
                if field not in known:
                    yield ConfigProblem(
                        f"options.marginals[{index}].of",
                        "names no attribute of the table",
                        "name a field of attributes",
                    )

    def _too_large(self, domain: TableDomainSection) -> Iterator[ConfigProblem]:
        sizes = {attribute.field: attribute.size for attribute in domain.all_attributes}
        if self.marginals:
            cliques = [tuple(field for field in marginal.of if field in sizes) for marginal in self.marginals]
        else:
            cliques = [clique for way in {1, *self.ways} for clique in combinations(sizes, way)]
        cells = [(prod(sizes[field] for field in clique), clique) for clique in cliques]
        total = sum(count for count, _ in cells)
        if total > self.max_cells:
            largest, clique = max(cells)
            yield ConfigProblem(
                "options.max_cells",
                f"is {self.max_cells:,}, but the {len(cells)} marginals have {total:,} cells, about "
                f"{total * BYTES_PER_CELL >> 20:,} MiB of memory; the largest, {' x '.join(clique)}, has {largest:,}",
                "use coarser bins or fewer values, list the marginals that matter in options.marginals, or raise it",
            )

    def fingerprint_fields(self) -> dict[str, Any]:
        marginals = [[*marginal.of, str(Fraction(marginal.weight))] for marginal in self.marginals]
        return {**super().fingerprint_fields(), "marginals": marginals}
