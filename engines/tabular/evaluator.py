"""The utility metrics of tables: workload errors, absolute and relative, averaged over marginals and at worst.

Not private: for operators. Source: [kumar2024c], section 7.3, on counts divided by the true number of rows, as its
tables are. For a marginal W with |W| cells, true counts q(f) and synthetic ones q(g):

    WE(W)    = 1/|W| sum |q(f) - q(g)| / |f|        RelWE(W) = 1/|W| sum |q(f) - q(g)| / q(f)

`avg_*` is the mean over the marginals, `max_*` the largest. Zero-query rule: a cell with q(f) = 0 has no relative error
and adds 0 to RelWE's sum; it counts in |W|. Where no row is alive |f| is taken to be 1.

How strongly two attributes are tied together is Cramer's V, with the correction of the bias that a sample has towards
ties ([bergsma2013]).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, ClassVar, Literal

import numpy as np

from engines.core.state import signs_of
from engines.tabular.domain import OTHER, TableDomain
from engines.tabular.marginals import Marginals, Workload
from schemas.arrays import FloatArray, IntArray
from schemas.blocks import Folded

STRONG = 0.1
"""A true V above which a pair is worth keeping."""
METRICS = ("avg_we", "max_we", "avg_rel_we", "max_rel_we")


def workload_errors(true: FloatArray, synthetic: FloatArray, layout: Marginals, rows: float) -> dict[str, float]:
    """Return the metrics of counts `(cells,)`; `rows` is the true number of rows.

    >>> layout = Marginals((2,), ((0,),))
    >>> workload_errors(np.array([8.0, 0.0]), np.array([6.0, 2.0]), layout, 8.0)
    {'avg_we': 0.25, 'max_we': 0.25, 'avg_rel_we': 0.125, 'max_rel_we': 0.125}
    """
    gaps = np.abs(true - synthetic)
    absolute = layout.sums(gaps) / layout.lengths / max(rows, 1.0)
    relative = layout.sums(np.where(true > 0, gaps / np.maximum(true, 1.0), 0.0)) / layout.lengths
    values = (absolute.mean(), absolute.max(), relative.mean(), relative.max())
    return {name: float(value) for name, value in zip(METRICS, values, strict=True)}


@dataclass(frozen=True, slots=True)
class TableEvaluator:
    """Implements `engines.core.contract.Evaluator`.

    Args:
        domain: of the rows. workload: its marginals of two or more attributes are compared, or all if it has none.
    """

    metrics: ClassVar[tuple[str, ...]] = METRICS
    scope: ClassVar[Literal["alive", "step"]] = "alive"

    domain: TableDomain
    workload: Workload
    layout: Marginals = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        larger = tuple(clique for clique in self.workload if len(clique) > 1)
        object.__setattr__(self, "layout", Marginals(self.domain.sizes, larger or tuple(self.workload)))

    @property
    def fields(self) -> tuple[str, ...]:
        return self.domain.names

    def size(self, truth: Folded) -> int:
        """Return the number of inserts less deletes."""
        return int((truth.counts * signs_of(truth.keys)).sum())

    def true_counts(self, truth: Folded, layout: Marginals) -> FloatArray:
        """Count inserts less deletes in all cells of a layout."""
        codes, signs = self.domain.codes(truth.keys), signs_of(truth.keys)
        return layout.counts(codes, truth.counts * signs).astype(np.float64)

    def synthetic_counts(self, synthetic: Mapping[str, Sequence[Any]], layout: Marginals) -> FloatArray:
        """Count rows in all cells of a layout; what the domain cannot say is in none."""
        columns = [synthetic[name] for name in self.domain.names]
        codes, reasons = self.domain.encode_values(columns, len(columns[0]))
        codes = codes[reasons == 0]
        return layout.counts(codes, np.ones(len(codes), np.int64)).astype(np.float64)

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        found = self.domain.discovered
        shown = self if found is None else self.showing(synthetic[found[1].name])
        return shown._errors(truth, shown.synthetic_counts(synthetic, shown.layout))

    def showing(self, values: Sequence[Any]) -> TableEvaluator:
        """Return the evaluator for which these texts are values of their own, as all others are not."""
        assert self.domain.discovered is not None
        texts = sorted({value for value in values if isinstance(value, str)} - {self.domain.discovered[1].other})
        return TableEvaluator(self.domain.with_found(texts), self.workload)

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.exact`: every value has been found that is kept often enough."""
        shown = self if self.domain.discovered is None else self.showing(_texts(self.domain, kept))
        return shown._errors(truth, shown.true_counts(kept, shown.layout))

    def _errors(self, truth: Folded, released: FloatArray) -> dict[str, float]:
        return workload_errors(self.true_counts(truth, self.layout), released, self.layout, float(self.size(truth)))


def others(domain: TableDomain, events: Folded) -> tuple[list[str], IntArray]:
    """Return values of the attribute whose values are found that are none in this domain, the commonest first, and how
    many events have each.
    """
    assert domain.discovered is not None
    index, attribute = domain.discovered
    texts = Folded.from_keys(
        events.keys[:, domain.keys.words :], events.counts * (domain.codes(events.keys)[:, index] == OTHER)
    )
    common = np.argsort(-texts.counts, kind="stable")
    common = common[texts.counts[common] > 0]
    return attribute.texts(texts.keys[common]), texts.counts[common]


def _texts(domain: TableDomain, events: Folded) -> list[str]:
    """Return the commonest values of the attribute whose values are found, as many as may be."""
    assert domain.discovered is not None
    _, attribute = domain.discovered
    texts, counts = others(domain, events)
    return texts[: min(attribute.most, int((counts >= attribute.least_count).sum()))]


def cramers_v(counts: FloatArray | IntArray) -> float:
    """Return V of a table of counts of rows `(values of one, values of the other)`: from 0, independent, to 1.

    0 where an attribute has one value only.

    >>> cramers_v(np.array([[50, 0], [0, 50]])), cramers_v(np.array([[25, 25], [25, 25]]))
    (1.0, 0.0)
    """
    counts = np.asarray(counts, np.float64)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    rows, (r, k) = counts.sum(), counts.shape
    if min(r, k) < 2 or rows < 2:
        return 0.0
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / rows
    phi = float(((counts - expected) ** 2 / expected).sum()) / rows
    phi = max(0.0, phi - (r - 1) * (k - 1) / (rows - 1))
    least = min(r - (r - 1) ** 2 / (rows - 1), k - (k - 1) ** 2 / (rows - 1)) - 1
    return round(sqrt(phi / least), 12) if least > 0 else 0.0
