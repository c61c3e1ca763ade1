"""What the figures of a trajectory stream are called and mean: the paper's, [kumar2024] section 5.6.2."""

from __future__ import annotations

from collections.abc import Sequence

from agents.show.pages.metrics import Metric, Term
from engines.trajectory.metrics import LONGEST, PATTERNS
from schemas.config import Stream

_ARE = "Mean relative error of"
_JSD = "Jensen-Shannon distance between the true and the synthetic shares of"
_PAIRS = "trips by their first and last cell on a grid of 40 x 40"
_ROUTES = f"the {PATTERNS} most frequent true routes of 2 to {LONGEST} cells of a 40 x 40 grid"
_COLLAPSED = f"{_ROUTES}, staying in a cell counted once,"
_WORST = (
    "0.83 is the worst, where the two have nothing in common; with fewer trips than pairs of cells, a second sample of "
    "the same trips is near it, too."
)
_NOTHING = "0.83 is the worst, where the two have nothing in common."
_EMPTY = "A release without any trips has 1."


def metrics(stream: Stream) -> Sequence[Metric]:
    def of(key: str, label: str, meaning: str, baseline: str, *, tile: bool = False) -> Metric:
        return Metric(
            keys=(key,), label=label, short=key.upper(), meaning=meaning, baseline=baseline, tile=tile, error=tile
        )

    return [
        of(
            "qe",
            "error of trips through small areas",
            f"{_ARE} how many trips touch a rectangle of 0.01 to 0.1 % of the domain; 500 of them. A count below 0.1 "
            "% of all trips is divided by that instead.",
            "A release without any trips has at most 1.",
            tile=True,
        ),
        of("se_jsd", "distance of start-end pairs", f"{_JSD} {_PAIRS}.", _WORST, tile=True),
        of("fp_are", "error of frequent routes", f"{_ARE} how often {_ROUTES} are taken.", _EMPTY, tile=True),
        of("se_are", "error of start-end pairs", f"{_ARE} the numbers of {_PAIRS}.", _EMPTY),
        of("fp_jsd", "distance of frequent routes", f"{_JSD} {_ROUTES}.", _NOTHING),
        of("cp_are", "error of frequent ways", f"{_ARE} how often {_COLLAPSED} are taken.", _EMPTY),
        of("cp_jsd", "distance of frequent ways", f"{_JSD} {_COLLAPSED[:-1]}.", _NOTHING),
    ]


TERMS = (
    Term("ARE", "Average relative error: differences divided by what is true, in the mean."),
    Term("JSD", "Jensen-Shannon distance of two distributions: the root of their divergence, in natural logarithms."),
    Term("SE, FP, CP, QE", "Start and end; frequent patterns; frequent patterns, collapsed; query error."),
    Term("flow", "Trips from one square to another: by where they begin and where they end."),
)
