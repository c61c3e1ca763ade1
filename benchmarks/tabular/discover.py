"""What it costs that nobody lists the values of an attribute: AvgWE with them found, over AvgWE with them listed.

`default` at epsilon 1 and delta 1e-6 for one event, 200 rows or a week a step, the same rows and seeds on both sides.
In each table one attribute of many values is not listed. AvgWE is that of the papers, over the marginals of the table
with all values listed: what is "other" there has no cell, so a value that is not found yet, and all of its rows that
came before it was, count as missing. Means over all steps, over the last ones, and over all steps of the marginals
that the attribute is in, alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import geometric_mean

import numpy as np

from benchmarks.size import sized
from benchmarks.tabular.metrics import LAST, errors
from benchmarks.tabular.modes import DELTA, growing_pairs, pairs
from benchmarks.tabular.streams import STREAMS, StreamData
from engines.core.contract import Batch, Columns
from engines.core.noise import seeded
from engines.core.registry import build_domain, build_engine
from engines.tabular.domain import FOUND, Category, TableDomain
from engines.tabular.growing.engine import GrowingBlocks
from schemas.blocks import Folded
from schemas.config import Stream

SEEDS = sized(5, smallest=1)
STEPS = sized(None, smallest=2)
UNLISTED: Mapping[str, str] = {
    "minneapolis-200": "neighborhood",
    "evictions-weekly": "Neighborhoods - Analysis Boundaries",
    "adult-randomised-200": "country",
}
"""The attribute of each stream whose values are found."""


@dataclass(frozen=True)
class Figures:
    """AvgWE `(seeds, 3)`, as above. `found`: how many values are, by seed; `values`: how many there are."""

    listed: np.ndarray
    discovered: np.ndarray
    found: np.ndarray
    values: int


def _stream(domain: TableDomain, unlisted: str | None) -> Stream:
    attributes = [
        {"field": each.name, "values": "discover", "most": 200}
        if each.name == unlisted
        else {"field": each.name, "values": [str(value) for value in each.values]}
        for each in domain.attributes
        if isinstance(each, Category)
    ]
    return Stream.model_validate(
        {
            "name": "bench",
            "engine": "tabular",
            "source": "raw.bench",
            "privacy": {"epsilon": 1.0, "delta": DELTA, "unit": "event"},
            "time": {"field": "t", "format": "s", "step": "1h", "start": "2020-01-01T00:00:00"},
            "domain": {"kind": "table", "attributes": attributes},
            "options": {"records": False},
        }
    )


def _batches(data: StreamData, stream: Stream) -> Iterator[Batch]:
    domain = build_domain(stream)
    for step, codes in enumerate(data.inserts):
        texts = {
            each.name: [str(each.values[code]) for code in codes[:, at].tolist()]
            for at, each in enumerate(data.domain.attributes)
            if isinstance(each, Category)
        }
        keys, reasons = domain.encode(Columns({}, {}, np.ones(len(codes), np.int8), texts))
        assert not reasons.any()
        yield Batch(step, Folded.from_keys(keys))


def released(engine: GrowingBlocks, listed: TableDomain) -> np.ndarray:
    """Released counts of all pairs, over the cells of the table whose values are listed."""
    counts = growing_pairs(engine)
    if engine.config.domain.discovered is None:
        return counts
    index, attribute = engine.config.domain.discovered
    (values,) = (
        each.values for each in listed.attributes if each.name == attribute.name and isinstance(each, Category)
    )
    places = {str(value): code for code, value in enumerate(values)}
    of_found = [places[text] for text in attribute.found]
    whole, mine = pairs(listed), engine.config.larger
    wide = np.zeros(whole.cells)
    for at, clique in enumerate(whole.cliques):
        table, source = whole.table(wide, at), mine.table(counts, at)
        if index not in clique:
            table[:] = source
        elif clique[0] == index:
            table[of_found] = source[FOUND:]
        else:
            table[:, of_found] = source[:, FOUND:]
    return wide


def avg_we(data: StreamData, name: str, seed: int, *, listed: bool) -> tuple[np.ndarray, int]:
    """AvgWE over all steps, over the last ones and of the attribute's own marginals; and how many values were found."""
    stream = _stream(data.domain, None if listed else name)
    engine = build_engine(stream)
    assert isinstance(engine, GrowingBlocks)
    layout, index = pairs(data.domain), data.domain.names.index(name)
    own = [at for at, clique in enumerate(layout.cliques) if index in clique]
    true, found, of_own = np.zeros(layout.cells, np.int64), [], []
    for batch in _batches(data, stream):
        engine.step(batch, seeded(seed).child("discover", batch.step))
        true += layout.counts(*data.changes(batch.step))
        counts = released(engine, data.domain)
        found.append(errors(layout, true, counts)[0])
        each = layout.sums(np.abs(counts - true)) / layout.lengths / max(int(true[: layout.offsets[1]].sum()), 1)
        of_own.append(each[own].mean())
    known = engine.config.domain.discovered
    means = np.array([np.mean(found), np.mean(found[-LAST:]), np.mean(of_own)])
    return means, 0 if known is None else len(known[1].found)


def measured() -> dict[str, Figures]:
    """Of each stream."""
    figures = {}
    for name, unlisted in UNLISTED.items():
        listed, discovered, found, values = [], [], [], 0
        for seed in range(SEEDS):
            data = STREAMS[name](seed, STEPS)
            data = replace(data, domain=TableDomain(data.domain.attributes))
            values = next(each.size for each in data.domain.attributes if each.name == unlisted)
            listed.append(avg_we(data, unlisted, seed, listed=True)[0])
            error, known = avg_we(data, unlisted, seed, listed=False)
            discovered.append(error)
            found.append(known)
        figures[name] = Figures(np.array(listed), np.array(discovered), np.array(found), values)
    return figures


def _ratio(figures: Figures) -> tuple[np.ndarray, np.ndarray]:
    """The ratio of means, of each figure, and its standard error by the seeds."""
    ratio = figures.discovered.mean(axis=0) / figures.listed.mean(axis=0)
    each = figures.discovered / figures.listed
    spread = each.std(axis=0, ddof=1) / len(each) ** 0.5 if len(each) > 1 else np.full(3, np.nan)
    return ratio, spread


def table(figures: Mapping[str, Figures]) -> Iterator[str]:
    yield "\n## Values that nobody listed, at epsilon 1 and delta 1e-6\n"
    yield "| stream | attribute | values | found | AvgWE listed | found | ratio | at the end | its marginals |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, of in figures.items():
        ratio = [f"{value:.2f} ± {spread:.2f}" for value, spread in zip(*_ratio(of), strict=True)]
        yield (
            f"| {name} | {UNLISTED[name]} | {of.values} | {of.found.mean():.1f} | {of.listed[:, 0].mean():.5f} | "
            f"{of.discovered[:, 0].mean():.5f} | {' | '.join(ratio)} |"
        )


def summary(figures: Mapping[str, Figures]) -> dict[str, float]:
    """For the last line: geometric means over the streams."""
    ratios = [_ratio(of)[0] for of in figures.values()]
    names = ("table_discover", "table_discover_end", "table_discover_own")
    return {name: round(geometric_mean(float(each[at]) for each in ratios), 3) for at, name in enumerate(names)}
