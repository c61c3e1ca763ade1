"""Whether synthetic rows keep what ties attributes together: Cramer's V of pairs, synthetic over true, at epsilon 2.

Three tables of some 10^4 rows and eight attributes, 200 rows a step; V after the last step, of the synthetic rows, with
the bias of a sample taken off (Bergsma 2013). Pairs whose true V is above .1 count. Beside it AvgWE of the released
pairs over all steps, and a classifier's gain: how far the area under the ROC curve of gradient boosting, trained on the
synthetic rows and tested on real rows of no stream, comes from that of independent attributes to that of real rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from benchmarks.size import sized
from benchmarks.tabular.consumer import trained
from benchmarks.tabular.metrics import errors
from benchmarks.tabular.modes import growing, growing_pairs, pairs
from benchmarks.tabular.streams import Codes, StreamData, Table, adult, evictions, stops
from engines.core.noise import seeded
from engines.tabular.domain import TableDomain
from engines.tabular.evaluator import STRONG, cramers_v

EPSILON = Fraction(2)
SEEDS = sized(5, smallest=1)
ROWS, BATCH = sized((10_000, 200), smallest=(200, 50))
TEST = 5
"""One row out of so many is kept for a classifier's test."""
PREDICTED: Mapping[str, str] = {"adult": "income", "minneapolis": "problem", "evictions": "Breach"}
TABLES: Mapping[str, tuple[Callable[[], Table], Sequence[str]]] = {
    "adult": (
        adult,
        ("workclass", "education", "marital-status", "occupation", "relationship", "sex", "hours", "income"),
    ),
    "minneapolis": (
        stops,
        ("problem", "personSearch", "vehicleSearch", "race", "gender", "policePrecinct", "hour", "lat"),
    ),
    "evictions": (
        lambda: evictions()[0],
        (
            "Supervisor District",
            "Non Payment",
            "Breach",
            "Nuisance",
            "Owner Move In",
            "Ellis Act WithDrawal",
            "Late Payments",
            "Roommate Same Unit",
        ),
    ),
}


def _stream(name: str, choose: Callable[[Codes], Codes]) -> StreamData:
    """The chosen rows of a table's eight attributes, in batches, without the last ones that fill none."""
    make, wanted = TABLES[name]
    table = make()
    places = [table.domain.names.index(each) for each in wanted]
    domain = TableDomain(tuple(table.domain.attributes[place] for place in places))
    codes = choose(table.codes)[:, places]
    inserts = [codes[at : at + BATCH] for at in range(0, len(codes) - BATCH + 1, BATCH)]
    return StreamData(domain, inserts, [codes[:0]] * len(inserts), table=name)


def sample(name: str, seed: int) -> StreamData:
    """Rows of a table drawn at random, in their order."""

    def some(codes: Codes) -> Codes:
        return codes[np.sort(np.random.default_rng(3000 + seed).permutation(len(codes))[:ROWS])]

    return _stream(name, some)


def strong(domain: TableDomain, true: Codes, synthetic: Codes) -> np.ndarray:
    """`(strong pairs, 2)`: true V, and that of the synthetic rows."""
    layout = pairs(domain)
    counts = [layout.counts(codes, np.ones(len(codes), np.int64)) for codes in (true, synthetic)]
    both = np.array([[cramers_v(layout.table(of, index)) for of in counts] for index in range(len(layout))])
    return both[both[:, 0] > STRONG]


def ties(name: str, seed: int) -> tuple[np.ndarray, float]:
    """`(strong pairs, 2)` true V and that of the synthetic rows; and AvgWE."""
    data = sample(name, seed)
    layout = pairs(data.domain)
    engine, counts, found = growing(data, EPSILON, records=True), np.zeros(layout.cells, np.int64), []
    for step in range(len(data.inserts)):
        engine.step(data.batch(step), seeded(seed).child("ties", step))
        counts += layout.counts(*data.changes(step))
        found.append(errors(layout, counts, growing_pairs(engine))[0])
    return strong(data.domain, np.concatenate(data.inserts), engine._rows.codes), float(np.mean(found))


def gain(name: str, seed: int) -> float:
    """Of a classifier; a fifth of the table is kept for the test."""
    target = TABLES[name][1].index(PREDICTED[name])
    order = np.random.default_rng(4000 + seed).permutation(len(TABLES[name][0]().codes))
    held = len(order) // TEST
    test = np.concatenate(_stream(name, lambda codes: codes[order[:held]]).inserts)
    data = _stream(name, lambda codes: codes[np.sort(order[held : held + ROWS])])
    engine = growing(data, EPSILON, records=True)
    for step in range(len(data.inserts)):
        engine.step(data.batch(step), seeded(seed).child("gain", step))
    real = np.concatenate(data.inserts)
    shuffled = np.random.default_rng(seed).permuted(real, axis=0)
    low, synthetic, high = (trained(of, test, target)[1] for of in (shuffled, engine._rows.codes, real))
    return (synthetic - low) / (high - low)


@dataclass(frozen=True)
class Tied:
    """Of one table, `(seeds,)` each: mean ratios over its strong pairs, AvgWE, and a classifier's gain."""

    ratios: np.ndarray
    avg_we: np.ndarray
    gains: np.ndarray


def measured() -> dict[str, Tied]:
    """Of each table."""
    found = {}
    for name in TABLES:
        both = [ties(name, seed) for seed in range(SEEDS)]
        ratios = np.array([float((v[:, 1] / v[:, 0]).mean()) for v, _ in both])
        gains = np.array([gain(name, seed) for seed in range(SEEDS)])
        found[name] = Tied(ratios, np.array([error for _, error in both]), gains)
    return found


def table(found: Mapping[str, Tied]) -> Iterator[str]:
    yield "\n## Ties: Cramer's V of synthetic rows over the true one, at epsilon 2\n"
    yield "| table | mean of pairs with a true V above .1 | AvgWE | predicted | a classifier's gain |"
    yield "|---|---|---|---|---|"
    for name, tied in found.items():
        ratios, gains = (f"{of.mean():.3f} ± {of.std(ddof=1):.3f} ({len(of)})" for of in (tied.ratios, tied.gains))
        yield f"| {name} | {ratios} | {tied.avg_we.mean():.5f} | {PREDICTED[name]} | {gains} |"


def summary(found: Mapping[str, Tied]) -> dict[str, float]:
    """For the last line: means over the tables."""
    return {
        "ties": round(float(np.mean([tied.ratios.mean() for tied in found.values()])), 3),
        "classifier_gain": round(float(np.mean([tied.gains.mean() for tied in found.values()])), 3),
    }
