"""What the figures of a tabular stream are called and mean."""

from __future__ import annotations

from collections.abc import Sequence

from agents.show.pages.metrics import Metric, Term, percent
from engines.tabular.ties import STRONG
from schemas.config import Stream

_CELLS = "of the counts of rows that have a pair (or more) of values"
_SHARE = "as a share of all rows"
_RELATIVE = "each by its own true count; a pair that no true row has counts as 0"


def metrics(stream: Stream) -> Sequence[Metric]:
    return [
        Metric(
            keys=("avg_we",),
            label="mean workload error",
            short="AvgWE",
            meaning=f"Mean absolute error {_CELLS}, {_SHARE}; the mean over all such attributes.",
            baseline="It is small wherever most cells are nearly empty: look at the relative one beside it.",
            text=percent,
        ),
        Metric(
            keys=("max_we",),
            label="largest workload error",
            short="MaxWE",
            meaning=f"Mean absolute error {_CELLS}, {_SHARE}; of the attributes where it is largest.",
            text=percent,
        ),
        Metric(
            keys=("avg_rel_we",),
            label="mean relative workload error",
            short="AvgRelWE",
            meaning=f"Mean relative error {_CELLS}, {_RELATIVE}; the mean over all such attributes.",
            text=percent,
        ),
        Metric(
            keys=("max_rel_we",),
            label="largest relative workload error",
            short="MaxRelWE",
            meaning=f"Mean relative error {_CELLS}, {_RELATIVE}; of the attributes where it is largest.",
            text=percent,
        ),
    ]


TERMS = (
    Term("marginal", "The counts of all combinations of values of some attributes: of one, a column of bars."),
    Term(
        "Cramer's V",
        "How strongly two attributes are tied together: 0, knowing one says nothing of the other; 1, it says all. "
        f"Pairs whose true V is above {STRONG} are worth keeping.",
    ),
)
