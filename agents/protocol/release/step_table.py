"""The steps of all records of a stream that are alive, by their ids: what a step costs follows from what it changes.

Records lie in runs. A step makes one, of the records that it adds and of which records of other runs it withdraws. A
run is never changed in a state, so its bytes are encoded, hashed and written once, however long it lives; in memory its
withdrawn records are marked. Runs are merged where those that are lighter together weigh three times as much, up to
`MOST`, and one is written anew when half of it means nothing any more. So there are few to look into, and with c
changes a step each record is written about log(MOST / c) / log(4) times, whatever is alive. Which are merged follows
from numbers that a state has: a table that was restored goes on with the same bytes.
Memory: a record's id as a whole number (`Letters`), 4 bytes where no more than 2^32 are possible; the distance of its
step from the first of its run, one byte up to 254; and the bytes of the run in a state, some 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.arrays import BoolArray, IntArray, narrowed
from schemas.errors import EngineInputError
from schemas.releases import StatePart

MOST = 1 << 20
"""Most entries of a run that is merged of others: what a step may have to write at once."""
LIGHTER = 3
"""A run is merged with the lighter ones when these weigh so many times as much."""
_STEP = np.dtype("<i4")
_NEXT = "dating/next"
IdArray = npt.NDArray[np.bytes_]


@dataclass(frozen=True)
class Letters:
    """Ids as whole numbers in the same order, by the letters that ids have at each place; NUL where one has ended.

    >>> letters = Letters.of(np.array([b"1-0", b"1-0f"]))
    >>> letters.places
    (b'1', b'-', b'0', b'\\x00f')
    >>> letters.numbers(np.array([b"1-0f", b"2-0f"]))
    (array([1, 1], dtype=uint32), array([ True, False]))
    """

    places: tuple[bytes, ...]

    @staticmethod
    def of(ids: IdArray) -> Letters:
        """Return those of `(n,)` ids."""
        counts = (np.bincount(place, minlength=256) for place in _cells(ids).T)
        return Letters(tuple(np.flatnonzero(count).astype(np.uint8).tobytes() for count in counts))

    def __or__(self, other: Letters) -> Letters:
        both = zip_longest(self.places, other.places, fillvalue=b"\0")
        return Letters(tuple(bytes(sorted({*mine, *others})) for mine, others in both))

    @cached_property
    def kind(self) -> np.dtype[np.generic]:
        """The type of numbers. Where there are too many possible ids an id is its own number."""
        possible = prod(map(len, self.places))
        return np.dtype("<u4" if possible < 1 << 32 else "<u8" if possible < 1 << 64 else f"S{len(self.places)}")

    @cached_property
    def _strides(self) -> list[int]:
        return [prod(map(len, self.places[at + 1 :])) for at in range(len(self.places))]

    @cached_property
    def _tables(self) -> list[tuple[np.ndarray, BoolArray]]:
        """What a letter adds to the number at each place, `(256,)`, and whether any id has it there."""
        tables = []
        for place, stride in zip(self.places, self._strides, strict=True):
            adds, known = np.zeros(256, self.kind), np.zeros(256, np.bool_)
            adds[list(place)] = [rank * stride for rank in range(len(place))]
            known[list(place)] = True
            tables.append((adds, known))
        return tables

    def numbers(self, ids: IdArray) -> tuple[np.ndarray, BoolArray]:
        """Return the numbers of `(n,)` ids, and which of them have one."""
        if self.kind.kind == "S":
            cut = ids.astype(self.kind)
            return cut, np.asarray(cut == ids)
        width = len(self.places)
        cells = _cells(ids.astype(f"S{width}") if ids.itemsize < width else ids)
        numbers, there = np.zeros(len(ids), self.kind), np.count_nonzero(cells[:, width:], axis=1) == 0
        for column, (adds, known) in zip(cells.T, self._tables, strict=False):
            numbers += adds[column]
            there &= known[column]
        return numbers, there

    def ids(self, numbers: np.ndarray) -> IdArray:
        """Return the `(n,)` ids that have these numbers."""
        if self.kind.kind == "S":
            return numbers
        cells = np.empty((len(numbers), len(self.places)), np.uint8)
        for at, (place, stride) in enumerate(zip(self.places, self._strides, strict=True)):
            if len(numbers):
                cells[:, at] = np.frombuffer(place, np.uint8)[numbers // stride % len(place)]
        return cells.view(f"S{len(self.places)}")[:, 0]

    def renumbered(self, numbers: np.ndarray, others: Letters) -> np.ndarray:
        """Return the numbers that the same ids have by other letters, which have all of these."""
        return numbers if others == self else others.numbers(self.ids(numbers))[0]


@dataclass(slots=True, eq=False)
class DatedRun:
    """Records of a step, or of several, and what these have withdrawn.

    Attributes:
        letters, numbers: ids, ascending, `(records,)`.
        first: the smallest step.
        steps: `(records,)` distances from it; the largest number of their type says that the record was withdrawn.
        gone: places of records in other runs that these steps have withdrawn, by the serial numbers of those runs.
        alive: records that were not withdrawn.
        part: the run in a state, as it was made.
    """

    letters: Letters
    numbers: np.ndarray
    first: int
    steps: npt.NDArray[Any]
    gone: Mapping[int, IntArray]
    alive: int
    part: StatePart

    @staticmethod
    def of(
        serial: int, letters: Letters, numbers: np.ndarray, steps: IntArray, gone: Mapping[int, IntArray]
    ) -> DatedRun:
        """Make a run. Args: numbers: ascending."""
        first = int(narrowed(steps, _STEP).min()) if len(steps) else 0
        distances = steps - first
        kind = next(kind for kind in ("<u1", "<u2", "<u4") if distances.max(initial=0) < np.iinfo(kind).max)
        distances = narrowed(distances, kind)
        places = {target: narrowed(np.sort(at), _STEP) for target, at in gone.items()}
        header = {
            "serial": serial,
            "letters": [place.decode("latin-1") for place in letters.places],
            "first": first,
            "gone": [[target, len(at)] for target, at in places.items()],
        }
        arrays = {
            "numbers": _planes(numbers if letters.kind.kind == "S" else np.diff(numbers, prepend=letters.kind.type(0))),
            "steps": _planes(distances),
            "gone": _planes(np.concatenate([np.zeros(0, _STEP), *(np.diff(at, prepend=0) for at in places.values())])),
        }
        part = StatePart.of(header, {name: array for name, array in arrays.items() if array.size}, level=3)
        return DatedRun(letters, numbers, first, distances, places, len(numbers), part)

    @staticmethod
    def read(part: StatePart) -> tuple[int, DatedRun]:
        """Return the run of a part, with its serial number. Raises: WireError."""
        header, arrays = part.read()
        letters = Letters(tuple(place.encode("latin-1") for place in header["letters"]))
        numbers = _joined(arrays.get("numbers"), letters.kind)
        if letters.kind.kind != "S":
            numbers = np.cumsum(numbers, dtype=letters.kind)
        steps = arrays.get("steps")
        steps = _joined(steps, np.dtype(f"<u{1 if steps is None else len(steps)}"))
        places, begin = _joined(arrays.get("gone"), _STEP), 0
        gone: dict[int, IntArray] = {}
        for target, size in header["gone"]:
            gone[target] = np.cumsum(places[begin : (begin := begin + size)], dtype=_STEP)
        return header["serial"], DatedRun(letters, numbers, header["first"], steps, gone, len(numbers), part)

    def find(self, numbers: np.ndarray, there: BoolArray) -> tuple[IntArray, BoolArray]:
        """Return where records are, and which of them are alive here. Args: see `Letters.numbers`."""
        at = np.searchsorted(self.numbers, numbers)
        alive = there & (at < len(self.numbers))
        alive[alive] = (self.numbers[at[alive]] == numbers[alive]) & (self.steps[at[alive]] != self._withdrawn)
        return at, alive

    def steps_at(self, places: IntArray | BoolArray) -> IntArray:
        return self.first + self.steps[places].astype(np.int64)

    def withdraw(self, places: IntArray) -> None:
        self.steps[places] = self._withdrawn
        self.alive -= len(places)

    @property
    def stays(self) -> BoolArray:
        """Which records were not withdrawn."""
        stays: BoolArray = self.steps != self._withdrawn
        return stays

    @property
    def entries(self) -> int:
        """What is written of it."""
        return len(self.numbers) + sum(map(len, self.gone.values()))

    @property
    def _withdrawn(self) -> int:
        return int(np.iinfo(self.steps.dtype).max)


class StepTable:
    """A map from ids to steps. A step takes out records by `pop`, and ends with `add`."""

    def __init__(self) -> None:
        self._runs: dict[int, DatedRun] = {}
        self._next = 0
        self._gone: dict[int, list[IntArray]] = {}

    def __len__(self) -> int:
        return sum(run.alive for run in self._runs.values())

    def pop(self, ids: IdArray) -> IntArray:
        """Remove `(n,)` ids; return their steps, in that order. Raises: EngineInputError if one is not there."""
        numbers = cache(lambda letters: letters.numbers(ids))
        steps, left, found = np.empty(len(ids), np.int64), np.arange(len(ids)), list[tuple[int, IntArray]]()
        for serial, run in self._runs.items():
            some, there = numbers(run.letters)
            at, there = run.find(some[left], there[left])
            if there.any():
                steps[left[there]] = run.steps_at(at[there])
                found.append((serial, at[there]))
                left = left[~there]
        if len(left) or any(len(np.unique(at)) < len(at) for _, at in found):
            raise EngineInputError("an engine withdrew a record that is not alive")
        for serial, at in found:
            self._runs[serial].withdraw(at)
            self._gone.setdefault(serial, []).append(at)
        return steps

    def add(self, ids: IdArray, steps: IntArray) -> None:
        """Take in `(n,)` ids, all that a step adds, and their steps. Raises: EngineInputError if one is there."""
        if not len(ids) and not self._gone:
            return
        # Those of all runs: before long nearly all have the same, and ids that are looked up are made numbers once.
        letters = reduce(Letters.__or__, {run.letters: None for run in self._runs.values()}, Letters.of(ids))
        numbers, _ = letters.numbers(ids)
        order = np.argsort(numbers, kind="stable")
        numbers, asked = numbers[order], cache(lambda letters: letters.numbers(ids[order]))
        if (numbers[1:] == numbers[:-1]).any() or any(
            run.find(*asked(run.letters))[1].any() for run in self._runs.values()
        ):
            raise EngineInputError("an engine added a record under the id of one that is alive")
        self._keep(letters, numbers, steps[order], self._gone)
        self._gone = {}
        while due := self._due():
            self._merge([self._runs.pop(serial) for serial in due])

    def _keep(
        self, letters: Letters, numbers: np.ndarray, steps: IntArray, gone: Mapping[int, Sequence[IntArray]]
    ) -> None:
        """Make a run, if there is anything to keep. Args: gone: see `DatedRun`; runs that are no more are left out."""
        places = {target: np.concatenate(at) for target, at in sorted(gone.items()) if target in self._runs}
        if len(numbers) or places:
            self._runs[self._next] = DatedRun.of(self._next, letters, numbers, steps, places)
            self._next += 1

    def _due(self) -> list[int]:
        """Return the serial numbers of runs that become one: of one that is to be written anew, or of the lightest."""
        weights = {serial: self._meaning(run) for serial, run in self._runs.items()}
        for serial, run in self._runs.items():
            if 2 * weights[serial] < run.entries:
                return [serial]
        some, due, lighter = list[int](), list[int](), 0
        for serial in sorted(weights, key=lambda serial: (weights[serial], -serial)):
            some, weight = [*some, serial], weights[serial]
            if lighter + weight > MOST:
                break
            if lighter >= LIGHTER * weight:
                due = some
            lighter += weight
        return sorted(due)

    def _meaning(self, run: DatedRun) -> int:
        """Return how many entries of a run still mean something."""
        return run.alive + sum(len(at) for target, at in run.gone.items() if target in self._runs)

    def _merge(self, runs: Sequence[DatedRun]) -> None:
        """Make one run of some that were taken out."""
        letters = reduce(Letters.__or__, (run.letters for run in runs))
        stays = [run.stays for run in runs]
        numbers = np.concatenate(
            [run.letters.renumbered(run.numbers[stay], letters) for run, stay in zip(runs, stays, strict=True)]
        )
        steps = np.concatenate([run.steps_at(stay) for run, stay in zip(runs, stays, strict=True)])
        order = np.argsort(numbers, kind="stable")
        gone: dict[int, list[IntArray]] = {}
        for run in runs:
            for target, at in run.gone.items():
                gone.setdefault(target, []).append(at)
        self._keep(letters, numbers[order], steps[order], gone)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what a restart goes on from, beside `kept`."""
        return {_NEXT: np.array([self._next])}

    def kept(self) -> tuple[StatePart, ...]:
        """Return all runs, each as it was made."""
        return tuple(run.part for run in self._runs.values())

    def restore(self, arrays: Mapping[str, np.ndarray], kept: Iterable[StatePart]) -> None:
        """Become the table whose `arrays` and `kept` these are. Raises: WireError."""
        self._next, self._gone = int(arrays[_NEXT][0]), {}
        self._runs = dict(map(DatedRun.read, kept))
        for run in self._runs.values():
            for target, at in run.gone.items():
                if target in self._runs:
                    self._runs[target].withdraw(at)


def _cells(ids: IdArray) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(ids).view(np.uint8).reshape(len(ids), ids.itemsize)


def _planes(values: np.ndarray) -> npt.NDArray[np.uint8]:
    """Return the first bytes of all values, the second ones, and so on: neighbours are alike, and compress well."""
    return np.ascontiguousarray(values.view(np.uint8).reshape(len(values), values.itemsize).T)


def _joined(planes: npt.NDArray[np.uint8] | None, kind: np.dtype[np.generic]) -> np.ndarray:
    """Undo `_planes`; None: of no values."""
    if planes is None:
        return np.zeros(0, kind)
    return np.ascontiguousarray(planes.T).view(kind)[:, 0]
