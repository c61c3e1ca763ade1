"""Table streams that modes are compared on: those of [kumar2024c], and Minneapolis police stops, from ../shared/data.

The Adult table is rebuilt with 15 attributes like the papers', from a copy with 14: education is education-num under a
fixed permutation, age has its decade beside it, and gains, losses and hours are in fewer bins. `ordered` is sorted by
all columns, the first one first. Windows: a row lives for a quarter of the stream, and is then deleted by an event, or
is gone by its ttl.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache

import numpy as np

from benchmarks.data import DATA
from engines.core.contract import Batch
from engines.tabular.domain import Category, TableDomain
from schemas.blocks import Folded

INCOME = "income"
Codes = np.ndarray


@dataclass(frozen=True)
class Table:
    """Rows `(rows, attributes)` of codes in some order, and what they are codes of."""

    domain: TableDomain
    codes: Codes


@dataclass(frozen=True)
class StreamData:
    """One stream. `inserts` and `deletes` hold `(events, attributes)` codes for each step; `ttl` deletes are not there.

    Attributes:
        table: what its rows are of: the papers' modes choose their rounds by it.
        ttl: steps after which a row is gone by itself.
        deletable: rows are deleted by events.
    """

    domain: TableDomain
    inserts: list[Codes]
    deletes: list[Codes]
    table: str = "adult"
    ttl: int | None = None
    deletable: bool = False

    def batch(self, step: int) -> Batch:
        codes = np.concatenate([self.inserts[step], self.deletes[step]])
        signs = np.repeat(np.array([1, -1], np.int8), [len(self.inserts[step]), len(self.deletes[step])])
        return Batch(step, Folded.from_keys(self.domain.keys.pack(codes, signs)))

    def changes(self, step: int) -> tuple[Codes, np.ndarray]:
        """Rows that come (+1) and go (-1), expiries included."""
        gone = [self.deletes[step]]
        if self.ttl is not None and step >= self.ttl:
            gone.append(self.inserts[step - self.ttl])
        codes = np.concatenate([self.inserts[step], *gone])
        return codes, np.repeat(np.array([1, -1]), [len(self.inserts[step]), sum(map(len, gone))])


def _read(path: str) -> dict[str, list[str]]:
    with gzip.open(DATA / path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}


def _listed(columns: Mapping[str, list[str]]) -> Table:
    """A table whose attributes are all values that there are, in their order."""
    attributes, codes = [], []
    for name, values in columns.items():
        known, places = np.unique(np.array(values), return_inverse=True)
        attributes.append(Category(field=name, values=tuple(known.tolist())))
        codes.append(places)
    return Table(TableDomain(tuple(attributes)), np.stack(codes, axis=1).astype(np.int64))


@cache
def adult() -> Table:
    column = {name: np.array(values, np.int64) for name, values in _read("adult/adult.csv.gz").items()}
    sizes = json.loads((DATA / "adult" / "adult-domain.json").read_text(encoding="utf-8"))
    gain_edges = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 30, 50, 90)
    order = np.random.default_rng(7).permutation(16)
    columns: dict[str, tuple[np.ndarray, int]] = {
        "age": (column["age"], sizes["age"]),
        "workclass": (column["workclass"], sizes["workclass"]),
        "education": (order[column["education-num"]], 16),
        "education-num": (column["education-num"], 16),
        **{
            name: (column[name], sizes[name])
            for name in ("marital-status", "occupation", "relationship", "race", "sex")
        },
        "capital-gain": (np.digitize(column["capital-gain"], gain_edges), 16),
        "capital-loss": (np.digitize(column["capital-loss"], (1, 25, 50, 75)), 5),
        "hours": (column["hours-per-week"] // 10, 10),
        "country": (column["native-country"], sizes["native-country"]),
        INCOME: (column["income>50K"], 2),
        # Codes of age are years above 17.
        "decade": ((column["age"] + 17) // 10, 11),
    }
    attributes = tuple(Category(field=name, values=tuple(range(size))) for name, (_, size) in columns.items())
    return Table(TableDomain(attributes), np.stack([codes for codes, _ in columns.values()], axis=1).astype(np.int64))


@cache
def evictions() -> tuple[Table, list[date]]:
    columns = _read("sf_evictions/eviction_notices_2011_2015.csv.gz")
    places = ("Eviction Notice Source Zipcode", "Supervisor District", "Neighborhoods - Analysis Boundaries")
    reasons = (name for name, values in columns.items() if set(values) == {"true", "false"})
    table = _listed({name: columns[name] for name in (*places, *reasons)})
    return table, [date.fromisoformat(day) for day in columns["File Date"]]


@cache
def stops() -> Table:
    columns = _read("minneapolis_stops_2017/mpls_stops_2017.csv.gz")
    times = [datetime.fromisoformat(time) for time in columns["date"]]
    names = "problem MDC citationIssued personSearch vehicleSearch preRace race gender policePrecinct neighborhood"
    made = {name: columns[name] for name in names.split()}
    made["hour"] = [str(time.hour // 3) for time in times]
    made["weekday"] = [str(time.weekday()) for time in times]
    for name, low, high in (("lat", 44.89, 45.05), ("long", -93.33, -93.19)):
        place = (np.array(columns[name], np.float64) - low) / (high - low)
        made[name] = [str(cell) for cell in np.clip((place * 8).astype(int), 0, 7)]
    return _listed(made)


def _cut(table: Table, codes: Codes, rows: int, *, steps: int | None) -> list[Codes]:
    count = len(codes) // rows if steps is None else min(steps, len(codes) // rows)
    return [codes[at * rows : (at + 1) * rows] for at in range(count)]


def _of_adult(
    rows: int, *, ordered: bool = False, window: str | None = None
) -> Callable[[int, int | None], StreamData]:
    def make(seed: int, steps: int | None) -> StreamData:
        table = adult()
        shuffled = np.random.default_rng(1000 + seed).permutation(len(table.codes))
        codes = table.codes[np.lexsort(table.codes.T[::-1]) if ordered else shuffled]
        inserts = _cut(table, codes, rows, steps=steps)
        none: Codes = table.codes[:0]
        life = max(1, len(inserts) // 4)
        gone = [inserts[at - life] if window == "deletes" and at >= life else none for at in range(len(inserts))]
        return StreamData(
            table.domain, inserts, gone, ttl=life if window == "ttl" else None, deletable=window == "deletes"
        )

    return make


def _of_evictions(days: int) -> Callable[[int, int | None], StreamData]:
    def make(seed: int, steps: int | None) -> StreamData:
        table, filed = evictions()
        step = np.array([(day - date(2011, 1, 1)).days // days for day in filed])
        inserts = [table.codes[step == at] for at in range(int(step.max()) + 1)][:steps]
        return StreamData(table.domain, inserts, [table.codes[:0]] * len(inserts), table="evictions")

    return make


def _of_stops(seed: int, steps: int | None) -> StreamData:
    table = stops()
    inserts = _cut(table, table.codes, 200, steps=steps)
    return StreamData(table.domain, inserts, [table.codes[:0]] * len(inserts), table="minneapolis")


STREAMS: Mapping[str, Callable[[int, int | None], StreamData]] = {
    "adult-randomised-200": _of_adult(200),
    "adult-ordered-200": _of_adult(200, ordered=True),
    "adult-randomised-50": _of_adult(50),
    "adult-ordered-50": _of_adult(50, ordered=True),
    "evictions-weekly": _of_evictions(7),
    "evictions-biweekly": _of_evictions(14),
    "minneapolis-200": _of_stops,
    "adult-window-deletes": _of_adult(200, window="deletes"),
    "adult-window-ttl": _of_adult(200, window="ttl"),
}
"""From a seed (which only orders Adult's rows) and the most steps to make."""
ADULT = ("adult-randomised-200", "adult-ordered-200", "adult-randomised-50", "adult-ordered-50")
WINDOWS = ("adult-window-deletes", "adult-window-ttl")
