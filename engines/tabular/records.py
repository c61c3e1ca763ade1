"""The synthetic table: rows that are kept from step to step, and change as little as the fitted tables ask for.

Post-processing of fitted tables: a step adds and removes rows to reach the released total, turns the rows that are most
too many into copies of others, as many as may change, and then moves single attributes of new and replaced rows to
values that lower the squared distance between the rows' marginals and the fitted ones (batched greedy moves). New rows
begin as copies of rows; the very first ones are drawn along the forest. The randomness is that of the step's noise
source, under a label of its own; it protects nobody.
Records have raw field names and types. A number's place in its bin is a function of the stream's name, the row's origin
and the attribute: public pseudo-randomness, splitmix64 ([steele2014]) under a key from SHA-256. Nothing here is noise
and nothing protects anybody.
Units: rows. A replaced row counts as one removed and one added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from engines.core.contract import State
from engines.core.many_records import Change, ManyRecords, RecordColumns
from engines.core.noise import NoiseSource, uniform_below
from engines.core.state import reading
from engines.core.words import GAMMA, fractions, mixed
from engines.tabular.domain import RowKeys, TableDomain
from engines.tabular.marginals import Marginals
from schemas.arrays import BoolArray, FloatArray, IntArray, KeyArray, WordArray, narrowed
from schemas.blocks import Folded
from schemas.errors import EngineInputError

CANDIDATES = 4
"""Rows looked at for each one that is added or removed."""
PARTS, CROWDED = 6, 6
"""Rows are replaced in so many parts, since rows replaced together do not know of each other; and candidates looked at
for each."""
BATCH, SHARE = 32, 0.35
"""Rows looked at in a round of moves, at least; and the part of the moves worth making that is made at once."""
FEW, MANY = 100, 200
"""Rounds of a step: usually, and when the fit is new."""
BUNDLES = 1 << 14
"""Bundles of equal rows that move together, about, where rows are bundled: from twice as many free rows on."""


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What a fit leaves: shares of the rows in marginals that agree with each other. Public. Attributes:

    ones: `(cells of one-ways,)` shares of the rows, 1 in all for each marginal. larger: the same for larger ones.
    apart: `(larger marginals,)` L1 distance from the prior of lower order, as a share; 0 before they were measured.
    drift: the largest believed L1 change of an attribute since the last settled block, as a share of the rows.
    edges: `(edges,)` indices of the forest's pairs.
    """

    ones: FloatArray
    larger: FloatArray
    apart: FloatArray
    drift: float
    edges: IntArray

    def widened(self, ones: tuple[Marginals, Marginals], larger: tuple[Marginals, Marginals]) -> Fitted:
        """Return it over layouts with more values, which no row has. Args: ones, larger: before and after."""
        return replace(self, ones=ones[0].widened(self.ones, ones[1]), larger=larger[0].widened(self.larger, larger[1]))

    def arrays(self) -> State:
        values = {"ones": self.ones, "larger": self.larger, "apart": self.apart, "drift": np.array([self.drift])}
        return {f"fitted/{name}": array.copy() for name, array in {**values, "edges": self.edges}.items()}

    @staticmethod
    def of(state: Mapping[str, np.ndarray]) -> Fitted | None:
        """Return None where nothing was fitted yet. Raises: EngineInputError if an array is missing."""
        if "fitted/ones" not in state:
            return None
        with reading():
            ones, larger, apart, drift = (
                np.array(state[f"fitted/{name}"], np.float64) for name in ("ones", "larger", "apart", "drift")
            )
            return Fitted(ones, larger, apart, float(drift[0]), np.array(state["fitted/edges"], np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The table. Attributes:

    codes: `(rows, attributes)` int16. ids: `(rows,)` int64 serial numbers, new for a row that was moved.
    origins: `(rows,)` int64, the id with which the row began: places numbers in their bins. serial: the next id.
    counted: a layout and `(cells,)` int64, how many of these rows are in each of its cells, as far as that is known:
        follows from `codes`, so it is not stored.
    """

    codes: np.ndarray
    ids: IntArray
    origins: IntArray
    serial: int
    counted: tuple[Marginals, IntArray] | None = None

    @staticmethod
    def none(attributes: int) -> Rows:
        return Rows(np.zeros((0, attributes), np.int16), np.zeros(0, np.int64), np.zeros(0, np.int64), 0)

    def __len__(self) -> int:
        return len(self.ids)

    def since(self, before: Rows, domain: TableDomain, key: int) -> tuple[RowRecords, list[str]]:
        """Return records of rows that an earlier table lacks, and ids of those gone. Args: key: see `stream_key`."""
        new, gone = self.ids >= before.serial, np.setdiff1d(before.ids, self.ids, assume_unique=True)
        added = RowRecords(domain, key, self.codes[new], self.ids[new], self.origins[new])
        return added, [record_id(serial) for serial in gone.tolist()]

    def change(self, before: Rows, domain: TableDomain, key: int, *, weighted: bool) -> Change:
        """Return how the synthetic records come to be these rows: see `since`, or `WeightedRows`."""
        if not weighted:
            added, removed = self.since(before, domain, key)
            return Change(added, removed, len(self), None)
        old, new = (Folded.from_keys(rows.keys(domain)) for rows in (before, self))
        keys = old.merge(new).keys
        nothing = Folded(keys, np.zeros(len(keys), np.int64))
        was, now = nothing.merge(old).counts, nothing.merge(new).counts
        changed, gone = (now > 0) & (now != was), (now == 0) & (was > 0)
        codes = RowKeys(domain.sizes).codes(keys)
        records = WeightedRows(domain, key, codes[changed], now[changed])
        return Change(records, row_ids(codes[gone]), len(new.keys), len(self))

    def keys(self, domain: TableDomain) -> KeyArray:
        """Return `(rows, words)` keys, equal for equal rows."""
        return RowKeys(domain.sizes).pack(self.codes.astype(np.int64), np.ones(len(self), np.int8))

    def arrays(self, domain: TableDomain) -> State:
        return {
            "rows/keys": self.keys(domain),
            "rows/ids": self.ids.copy(),
            "rows/origins": self.origins.copy(),
            "rows/serial": np.array([self.serial], np.int64),
        }

    @staticmethod
    def of(state: Mapping[str, np.ndarray], domain: TableDomain) -> Rows:
        """Return what `arrays` were of. Raises: EngineInputError if some are missing or do not fit together."""
        packed = RowKeys(domain.sizes)
        with reading():
            keys = np.array(state["rows/keys"], np.uint64).reshape(-1, packed.words)
            ids, origins = np.array(state["rows/ids"], np.int64), np.array(state["rows/origins"], np.int64)
            (serial,) = state["rows/serial"].tolist()
        if not len(keys) == len(ids) == len(origins):
            raise EngineInputError("the state's rows do not fit together")
        packed.check(keys)
        return Rows(narrowed(packed.codes(keys), np.int16), ids, origins, serial)


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps the rows of one stream. Public constants only.

    Args:
        domain: of all attributes. active: those that the layouts below are over.
        ones, larger: layouts of the fitted tables.
        bundled: of very many free rows equal ones move together: for tables of which no single row is released.
    """

    domain: TableDomain
    active: tuple[int, ...]
    ones: Marginals
    larger: Marginals
    bundled: bool = False
    _all: Marginals = field(init=False, repr=False, compare=False)
    _strides: IntArray = field(init=False, repr=False, compare=False)
    _lines: tuple[tuple[IntArray, IntArray], ...] = field(init=False, repr=False, compare=False)
    """Of each attribute: the marginals that it is in, and how far each of its values `(marginals, values)` lies from
    the first one in them."""

    def __post_init__(self) -> None:
        both = Marginals(self.ones.sizes, (*self.ones.cliques, *self.larger.cliques))
        strides = np.zeros((len(both), len(self.active)), np.int64)
        for index, clique in enumerate(both.cliques):
            for place, attribute in enumerate(clique):
                strides[index, attribute] = int(np.prod(both.shape(index)[place + 1 :]))
        object.__setattr__(self, "_all", both)
        object.__setattr__(self, "_strides", strides)
        lines = []
        for attribute, size in enumerate(self.ones.sizes):
            members = np.flatnonzero(strides[:, attribute])
            lines.append((members, strides[members, attribute][:, None] * np.arange(size)))
        object.__setattr__(self, "_lines", tuple(lines))

    def follow(self, rows: Rows, fitted: Fitted, *, total: int, most: int, new_fit: bool, noise: NoiseSource) -> Rows:
        """Return the rows after a step.

        Args:
            total: rows that there should be. most: rows that may be added and removed together.
            new_fit: the fitted tables have changed, so that more work is worth while.
        """
        work = _Moving(self, rows, fitted, most, noise)
        work.resize(total)
        work.improve(MANY if new_fit else FEW)
        return work.rows()

    def bundle(self, rows: int) -> int:
        """Return how many equal ones of so many rows move together at most."""
        return max(1, rows // BUNDLES) if self.bundled else 1

    def counts(self, codes: np.ndarray) -> IntArray:
        """Count all marginals of rows with these active codes."""
        return self._all.counts(codes.astype(np.int64), np.ones(len(codes), np.int64))

    def counts_of(self, rows: Rows) -> IntArray:
        """Count all marginals of a table: all of its rows are counted once, and later those that changed."""
        if rows.counted is not None and rows.counted[0] == self._all:
            return rows.counted[1]
        return self.counts(rows.codes[:, list(self.active)])

    def cells(self, codes: np.ndarray) -> IntArray:
        """Return the cells of rows with these active codes, `(rows, marginals)`."""
        return self._all.cell_numbers(codes.astype(np.int64))

    def shares(self, fitted: Fitted) -> FloatArray:
        return np.concatenate([fitted.ones, fitted.larger])

    def draw(self, fitted: Fitted, count: int, noise: NoiseSource) -> np.ndarray:
        """Draw codes along the forest, `(count, active)`; rows that cannot be are left out."""
        places = np.zeros((count, len(self.active)), np.int64)
        drawn = np.zeros(len(self.active), np.bool_)
        for root in range(len(self.active)):
            if drawn[root]:
                continue
            places[:, root] = _choices(self.ones.table(fitted.ones, root)[None, :], np.zeros(count, np.int64), noise)
            drawn[root] = True
            waiting = [root]
            while waiting:
                here = waiting.pop()
                for edge in fitted.edges.tolist():
                    left, right = self.larger.cliques[edge]
                    if here not in (left, right) or drawn[left + right - here]:
                        continue
                    there = left + right - here
                    table = self.larger.table(fitted.larger, edge)
                    places[:, there] = _choices(table if here == left else table.T, places[:, here], noise)
                    drawn[there] = True
                    waiting.append(there)
        return narrowed(places[self.possible(places)], np.int16)

    def whole(self, codes: np.ndarray) -> np.ndarray:
        """Return rows of all attributes from active codes: an attribute with one value has code 0."""
        full = np.zeros((len(codes), len(self.domain.attributes)), np.int16)
        full[:, list(self.active)] = codes
        return full

    def possible(self, codes: np.ndarray) -> BoolArray:
        """Tell which active codes have no structural zero, `(rows,)`."""
        if not self.domain.impossible:
            return np.ones(len(codes), np.bool_)
        return self.domain.possible(self.whole(codes).astype(np.int64))


def _choices(tables: FloatArray, given: IntArray, noise: NoiseSource) -> IntArray:
    """Draw one code for each row of `given`, in proportion to that line of the tables."""
    sums = np.cumsum(tables, axis=1)
    points = fractions(noise.words(len(given))) * sums[given, -1]
    chosen: IntArray = np.minimum((sums[given] <= points[:, None]).sum(axis=1), tables.shape[1] - 1)
    return chosen


class _Moving:
    """Rows while they change. `excess` is how many rows too many each cell has."""

    def __init__(self, keeper: Keeper, rows: Rows, fitted: Fitted, most: int, noise: NoiseSource) -> None:
        self.keeper, self.before, self.fitted, self.noise = keeper, rows, fitted, noise
        self.left = most
        self.codes = rows.codes[:, list(keeper.active)].copy()
        self.counts = keeper.counts_of(rows)
        """Of the rows before this step."""
        self.place = np.arange(len(rows))
        """Row before this step that each row was, -1 for new ones."""
        self.free = np.zeros(len(rows), np.bool_)
        """Rows that may move at no further cost: new ones, and those that were replaced."""
        self.excess: FloatArray = np.zeros(0)

    def resize(self, total: int) -> None:
        """Add or remove rows, the better ones of some candidates, as far as the limit allows."""
        present = len(self.codes)
        change = max(-self.left, min(self.left, total - present))
        self.left -= abs(change)
        self.excess = self.counts - self.keeper.shares(self.fitted) * (present + change)
        if change > 0:
            self._add(change)
        elif change < 0:
            self._remove(-change)

    def _add(self, count: int) -> None:
        keeper, noise = self.keeper, self.noise.child("add")
        new = keeper.draw(self.fitted, count, noise) if len(self.codes) == 0 else self._missing(count, noise)
        self.codes = np.concatenate([self.codes, new])
        self.place = np.concatenate([self.place, np.full(len(new), -1)])
        self.free = np.concatenate([self.free, np.ones(len(new), np.bool_)])
        self.excess += keeper.counts(new)

    def _remove(self, count: int) -> None:
        present = len(self.codes)
        words = self.noise.child("remove").words(present)
        candidates = _smallest(words, CANDIDATES * count)
        gone = candidates[_smallest(-self._crowding(self.codes[candidates]), count)]
        self.excess -= self.keeper.counts(self.codes[gone])
        kept = np.ones(present, np.bool_)
        kept[gone] = False
        self.codes, self.place, self.free = self.codes[kept], self.place[kept], self.free[kept]

    def _missing(self, count: int, noise: NoiseSource) -> np.ndarray:
        """Return copies of rows, those that are missing most of some candidates; where rows are bundled, several of
        each.
        """
        each = self.keeper.bundle(count)
        wanted = -(-count // each)
        candidates = self.codes[uniform_below(len(self.codes), CANDIDATES * wanted, noise)]
        best = _smallest(self._crowding(candidates), wanted)
        return candidates[np.repeat(best, each)[:count]]

    def _crowding(self, codes: np.ndarray) -> FloatArray:
        """Return how full the cells of each row are, `(rows,)`."""
        crowding: FloatArray = self.excess[self.keeper.cells(codes)].sum(axis=1)
        return crowding

    def improve(self, rounds: int) -> None:
        """Replace the most crowded rows, as many as may change, then move what is free, one attribute at a time."""
        rows, attributes = self.codes.shape
        if rows == 0 or attributes == 0:
            return
        noise = self.noise.child("move")
        for some in np.array_split(np.arange(self.left // 2), PARTS):
            self._replace(len(some), noise)
        free = np.flatnonzero(self.free)
        order = free[np.argsort(noise.words(len(free)), kind="stable")]
        order, sizes = self._bundled(order)
        # Few at once: all would rush into the same cells, and back.
        batch = min(len(sizes), max(BATCH, len(sizes) // 8))
        if not batch:
            return
        first = order[np.cumsum(sizes) - sizes]
        moving = _Free(self.keeper, self.excess, self.codes[first].astype(np.int64), sizes)
        windows = (np.arange(rounds * batch) % len(sizes)).reshape(rounds, batch)
        for attribute, window in zip(uniform_below(attributes, rounds, noise).tolist(), windows, strict=True):
            moving.round(attribute, window)
        self.codes[order] = np.repeat(moving.codes, sizes, axis=0)

    def _bundled(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return rows, which are in random order, so that those of a bundle follow each other; and the bundles' sizes.
        A bundle is of equal rows. Bundles are in the random order of their first rows.
        """
        most = self.keeper.bundle(len(rows))
        if most == 1:
            return rows, np.ones(len(rows), np.int64)
        words = row_words(self.codes[rows].astype(np.int64))
        place = np.argsort(words, kind="stable")
        codes = self.codes[rows[place]]
        begins = np.ones(len(rows), np.bool_)
        begins[1:] = (codes[1:] != codes[:-1]).any(axis=1)  # and not by words, of which two rows may have the same
        alike = np.flatnonzero(begins)
        within = np.arange(len(rows)) - np.repeat(alike, np.diff(alike, append=len(rows)))
        starts = np.flatnonzero(within % most == 0)
        sizes = np.diff(starts, append=len(rows))
        shuffled = np.argsort(place[starts], kind="stable")
        starts, sizes = starts[shuffled], sizes[shuffled]
        behind = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return rows[place[np.repeat(starts, sizes) + behind]], sizes

    def _replace(self, count: int, noise: NoiseSource) -> None:
        """Turn the most crowded of some candidates into copies of rows that are missing, for two changes each."""
        kept = np.flatnonzero(~self.free)
        candidates = kept[_smallest(noise.words(len(kept)), CROWDED * count)]
        crowding = self._crowding(self.codes[candidates])
        worst = _smallest(-crowding, count)
        # Without such a row the distance is less: it is squared, and a row is in one cell of each marginal.
        gone = candidates[worst[crowding[worst] > len(self.keeper._strides) / 2]]
        if len(gone) == 0:
            return
        self.left -= 2 * len(gone)
        self.free[gone] = True
        self.excess -= self.keeper.counts(self.codes[gone])
        self.codes[gone] = self._missing(len(gone), noise)
        self.excess += self.keeper.counts(self.codes[gone])

    def rows(self) -> Rows:
        """Return the table after the step: rows that are as before keep their id."""
        before, keeper = self.before, self.keeper
        old = self.place >= 0
        same = old & ~self.free
        active = list(keeper.active)
        # Of those that were free to move, some are where they were.
        moved = np.flatnonzero(old & self.free)
        same[moved] = (before.codes[self.place[moved]][:, active] == self.codes[moved]).all(axis=1)
        ids = np.empty(len(self.codes), np.int64)
        ids[same] = before.ids[self.place[same]]
        changed = np.flatnonzero(~same)
        ids[changed] = before.serial + np.arange(len(changed))
        origins = ids.copy()
        origins[old] = before.origins[self.place[old]]
        gone = np.ones(len(before), np.bool_)
        gone[self.place[same]] = False
        counts = self.counts + keeper.counts(self.codes[changed]) - keeper.counts(before.codes[gone][:, active])
        return Rows(keeper.whole(self.codes), ids, origins, before.serial + len(changed), (keeper._all, counts))


class _Free:
    """Rows that are free to move, while they do. Their cells are kept beside them: each round moves few of them.

    Args: excess: see `_Moving`; it is changed in place. codes: `(rows, active)`. sizes: `(rows,)`, how many rows each
        of them is, which are equal and move together.
    """

    def __init__(self, keeper: Keeper, excess: FloatArray, codes: IntArray, sizes: IntArray) -> None:
        self.keeper, self.excess, self.codes = keeper, excess, codes
        self.sizes = sizes.astype(np.float64)
        # `(marginals, rows)`: sums over marginals are sums of long rows.
        self.cells = keeper.cells(codes).T.copy()

    def round(self, attribute: int, some: IntArray) -> None:
        """Move these rows to the value of this attribute where they are missing most."""
        members, values = self.keeper._lines[attribute]
        line, now = np.arange(len(some)), self.codes[some, attribute]
        # Each row's cells, were its value the first one.
        base = self.cells.take(some, axis=1).take(members, axis=0) - values.take(now, axis=1)
        crowding = np.add.reduce(self.excess.take(base[:, :, None] + values[:, None, :]), axis=0)
        best = crowding.argmin(axis=1)
        # Of the squared distance, for each row: moving s of them adds s to a cell of each marginal, and takes s away.
        gain = crowding[line, now] - crowding[line, best] - len(members) * self.sizes[some]
        (worth,) = (gain > 0).nonzero()
        if len(worth) == 0:
            return
        worth = worth[(-gain[worth]).argsort(kind="stable")[: max(1, int(SHARE * len(worth)))]]
        self._move(attribute, some[worth], best[worth])

    def _move(self, attribute: int, rows: IntArray, values: IntArray) -> None:
        if self.keeper.domain.impossible:
            codes = self.codes[rows]
            codes[:, attribute] = values
            fine = self.keeper.possible(codes)
            rows, values = rows[fine], values[fine]
        before = self.cells[:, rows]
        after = before + self.keeper._strides[:, attribute, None] * (values - self.codes[rows, attribute])
        moved = np.tile(self.sizes[rows], len(before))
        np.subtract.at(self.excess, before.ravel(), moved)
        np.add.at(self.excess, after.ravel(), moved)
        self.codes[rows, attribute], self.cells[:, rows] = values, after


def _smallest(values: WordArray | FloatArray, count: int) -> IntArray:
    """Return where the smallest values are, in their order, the first of equal ones first: all need not be sorted.

    >>> _smallest(np.array([7, 5, 3, 9, 5, 5], np.uint64), 3)
    array([2, 1, 4])
    """
    if count >= len(values) or count == 0:
        return np.argsort(values, kind="stable")[:count]
    some = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return some[np.argsort(values[some], kind="stable")[:count]]


def stream_key(name: str) -> int:
    """Return the public key of a stream's placement."""
    return int.from_bytes(hashlib.sha256(b"privstream/rows/1\0" + name.encode()).digest()[:8], "little")


def record_id(serial: int) -> str:
    """Return the key of the record with this serial number."""
    return f"{serial:x}"


def places(key: int, origins: IntArray, attributes: int) -> FloatArray:
    """Return where numbers lie in their bins: `(rows, attributes)` in [0, 1)."""
    columns = mixed(np.arange(1, attributes + 1, dtype=np.uint64) * GAMMA + np.uint64(key))
    return fractions(mixed((origins.astype(np.uint64) * GAMMA)[:, None] + columns[None, :]))


@dataclass(frozen=True, slots=True, eq=False)
class RowRecords(ManyRecords):
    """Records of rows, made when they are read.

    Attributes:
        key: see `stream_key`.
        codes: `(rows, attributes)`. ids, origins: `(rows,)`, see `Rows`.
    """

    domain: TableDomain
    key: int
    codes: np.ndarray
    ids: IntArray
    origins: IntArray

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, rows: range) -> RecordColumns:
        at = np.arange(rows.start, rows.stop, rows.step)
        within = places(self.key, self.origins[at], len(self.domain.attributes))
        columns = self.domain.decode_values(self.codes[at].astype(np.int64), within)
        return RecordColumns(
            [record_id(serial) for serial in self.ids[at].tolist()],
            dict(zip(self.domain.names, columns, strict=True)),
        )


def row_ids(codes: IntArray) -> list[str]:
    """Return the ids of weighted records of rows: their codes in hexadecimal, which never change their meaning.

    >>> row_ids(np.array([[0, 17], [3, 2]]))
    ['0-11', '3-2']
    """
    form = "-".join(["%x"] * codes.shape[1])
    return [form % tuple(row) for row in codes.tolist()]


def row_words(codes: IntArray) -> IntArray:
    """Return `(rows,)` words that look random: a fixed function of the row."""
    words = np.zeros(len(codes), np.uint64)
    for column in codes.T:
        words = mixed(words * GAMMA + column.astype(np.uint64) + np.uint64(1))
    return words.view(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class WeightedRows(ManyRecords):
    """One record for each of some different rows, made when it is read. Its id and its numbers follow from the row.

    Attributes:
        key: see `stream_key`.
        codes: `(rows, attributes)` int64. weights: `(rows,)` int64, how many rows there are of each.
    """

    domain: TableDomain
    key: int
    codes: IntArray
    weights: IntArray

    def __len__(self) -> int:
        return len(self.weights)

    def part(self, rows: range) -> RecordColumns:
        at = slice(rows.start, rows.stop, rows.step)
        codes = self.codes[at]
        columns = self.domain.decode_values(codes, places(self.key, row_words(codes), codes.shape[1]))
        return RecordColumns(
            row_ids(codes), dict(zip(self.domain.names, columns, strict=True)), weights=self.weights[at].tolist()
        )
