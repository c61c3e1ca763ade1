"""Which step each synthetic record stands for, where records together stand for all that is alive.

When an engine moves mass from one place to another it withdraws records and adds as many elsewhere: those are no news,
though they are released today. So a step's added records take over the steps of those that it withdraws, in order, and
only what the stream has grown by is new: it stands for the steps in which it was measured (`Release.spans`).
Guarantee: none of its own. A function of released records, of what was measured and of the steps' numbers: pure
    post-processing, which costs nothing.
Memory: for each record alive the bytes of the longest id, 4 of a step, 1 that says whether it is gone, and some 2 that
    they are in a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engines.core.contract import Release
from engines.core.many_records import PART, FixedIds, RecordColumns
from schemas.arrays import BoolArray, IntArray, narrowed
from schemas.errors import EngineInputError
from schemas.wire import Kind, decode, encode

_OLD, _GONE, _IDS, _STEPS, _WRITTEN = (f"dating/{name}" for name in ("old", "gone", "ids", "steps", "written"))
_STEP = np.dtype("<i4")
IdArray = npt.NDArray[np.bytes_]


class Dating:
    """The step of each record of one stream that is alive, by its id."""

    def __init__(self) -> None:
        self._alive = StepTable()
        self._added: list[tuple[IdArray, IntArray]] = []

    def take(self, release: Release) -> Callable[[RecordColumns], Sequence[int]]:
        """Return what gives the steps of added records: call it once for each, in their order, as they are made.

        Raises: EngineInputError if a record is withdrawn that is not alive, or an earlier step added one that was.
        """
        self._settle()
        self._alive.begin_step()
        withdrawn = self._alive.pop(fixed_width(release.removed))
        steps = dated(withdrawn, len(release.added), now=release.step, spans=release.spans)
        done = 0

        def steps_of(part: RecordColumns) -> Sequence[int]:
            nonlocal done
            mine = steps[done : (done := done + len(part.ids))]
            self._added.append((fixed_width(part.ids), mine))
            numbers: list[int] = mine.tolist()
            return numbers

        return steps_of

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what a restart goes on from; all public. Raises: EngineInputError if a record was added twice."""
        self._settle()
        return self._alive.arrays()

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on as the one whose `arrays` these are."""
        self._alive.restore(arrays)
        self._added = []

    def _settle(self) -> None:
        """Let the added records be alive, all of a step at once: their ids come part by part, as they are made."""
        if self._added:
            ids, steps = zip(*self._added, strict=True)
            self._alive.add(np.concatenate(ids), np.concatenate(steps))
            self._added = []


class SortedSteps(NamedTuple):
    """Steps by id, as two arrays in ascending order of ids."""

    ids: IdArray
    steps: npt.NDArray[np.int32]

    @staticmethod
    def none() -> SortedSteps:
        return SortedSteps(np.zeros(0, "S1"), np.zeros(0, _STEP))

    def find(self, ids: IdArray) -> tuple[IntArray, BoolArray]:
        """Return where `(n,)` ids are, and which of them are there at all."""
        at = np.searchsorted(self.ids, ids)
        there = at < len(self.ids)
        there[there] = self.ids[at[there]] == ids[there]
        return at, there

    def only(self, stay: BoolArray) -> SortedSteps:
        return SortedSteps(self.ids[stay], self.steps[stay])

    def merged(self, others: SortedSteps, at: IntArray) -> SortedSteps:
        """Return these and others, of other ids, which `find` places there."""
        # The wider type comes first, since `np.insert` cuts what it inserts.
        wide = self.ids.astype(np.promote_types(self.ids.dtype, others.ids.dtype), copy=False)
        return SortedSteps(np.insert(wide, at, others.ids), np.insert(self.steps, at, others.steps))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return both as planes, `(width, records)` and `(4, records)` bytes: neighbours are alike in each, and it
        compresses to a tenth. The width is that of the longest id.
        """
        ids = _planes(self.ids)
        width = 1 + max(np.flatnonzero(ids.any(axis=1)), default=0)
        return {_IDS: ids[:width], _STEPS: _planes(self.steps)}

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> SortedSteps:
        """Return those whose `arrays` these are."""
        return SortedSteps(_joined(arrays[_IDS], f"S{len(arrays[_IDS])}"), _joined(arrays[_STEPS], _STEP))


class StepTable:
    """A map from ids to steps: all that was alive at some step, and what has come and gone since.

    The former is kept as the bytes that a state has of it. They are the same from step to step, so that they are not
    written again (`schemas.releases.split_state`), and only what has changed is. It is written at each step, though:
    once that comes to as many records as there were, all is written anew. So what a step writes grows with the root of
    the number of records, and not with the number. Equal histories have equal arrays, restarts or not.
    """

    def __init__(self) -> None:
        self._new = SortedSteps.none()
        self._renew(self._new)

    def __len__(self) -> int:
        return len(self._old.ids) - int(np.count_nonzero(self._gone)) + len(self._new.ids)

    def begin_step(self) -> None:
        """Take note that the arrays were written, and see to it that the next ones are not long."""
        self._written += int(np.count_nonzero(self._gone)) + len(self._new.ids)
        if self._written >= len(self._old.ids):
            stay = self._old.only(~self._gone)
            self._renew(stay.merged(self._new, stay.find(self._new.ids)[0]))

    def add(self, ids: IdArray, steps: IntArray) -> None:
        """Take in `(n,)` ids and their steps. Raises: EngineInputError if one of the ids is there already."""
        order = np.argsort(ids, kind="stable")
        ids, steps = ids[order], steps[order]
        at, there = self._new.find(ids)
        if (ids[1:] == ids[:-1]).any() or there.any() or self._find_old(ids)[1].any():
            raise EngineInputError("an engine added a record under the id of one that is alive")
        self._new = self._new.merged(SortedSteps(ids, narrowed(steps, _STEP)), at)

    def pop(self, ids: IdArray) -> IntArray:
        """Remove `(n,)` ids; return their steps, in that order. Raises: EngineInputError if one is not there."""
        at_new, new = self._new.find(ids)
        at_old, old = self._find_old(ids)
        if not (new | old).all() or len(np.unique(np.where(new, -1 - at_new, at_old))) != len(ids):
            raise EngineInputError("an engine withdrew a record that is not alive")
        steps = np.empty(len(ids), np.int64)
        steps[new], steps[old] = self._new.steps[at_new[new]], self._old.steps[at_old[old]]
        stay = np.ones(len(self._new.ids), np.bool_)
        stay[at_new[new]] = False
        self._new = self._new.only(stay)
        self._gone[at_old[old]] = True
        return steps

    def _find_old(self, ids: IdArray) -> tuple[IntArray, BoolArray]:
        """Return where ids are in the old table, and which of them are there still."""
        at, there = self._old.find(ids)
        there[there] = ~self._gone[at[there]]
        return at, there

    def _renew(self, alive: SortedSteps) -> None:
        self._old, self._gone = alive, np.zeros(len(alive.ids), np.bool_)
        self._packed = encode(Kind.STATE_PART, {}, alive.arrays(), level=3)
        self._new, self._written = SortedSteps.none(), 0

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the old table as bytes, and what has changed since."""
        gone = np.diff(np.flatnonzero(self._gone), prepend=0)
        return {
            _OLD: np.frombuffer(self._packed, np.uint8),
            _GONE: _planes(narrowed(gone, _STEP)),
            _WRITTEN: np.array([self._written]),
            **self._new.arrays(),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Become the table whose `arrays` these are. Raises: WireError."""
        self._packed = arrays[_OLD].tobytes()
        self._old, self._new = SortedSteps.of(decode(Kind.STATE_PART, self._packed)[1]), SortedSteps.of(arrays)
        self._gone = np.zeros(len(self._old.ids), np.bool_)
        self._gone[np.cumsum(_joined(arrays[_GONE], _STEP), dtype=np.int64)] = True
        self._written = int(arrays[_WRITTEN][0])


def _planes(values: np.ndarray) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(values.view(np.uint8).reshape(len(values), values.itemsize).T)


def _joined(planes: npt.NDArray[np.uint8], dtype: npt.DTypeLike) -> np.ndarray:
    """Undo `_planes`."""
    joined: np.ndarray = np.ascontiguousarray(planes.T).view(dtype)[:, 0]
    return joined


def fixed_width(names: Iterable[str]) -> IdArray:
    """Return ids in UTF-8, each as wide as the longest. Raises: EngineInputError if one has a NUL.

    >>> fixed_width(["1-0", "1-0f"])
    array([b'1-0', b'1-0f'], dtype='|S4')
    """
    if isinstance(names, FixedIds):
        return names.names
    rest, parts = iter(names), [np.zeros(0, "S1")]
    while part := list(islice(rest, PART)):
        text = "".join(part)
        if "\0" in text:  # numpy drops those at the end, and would take two ids for one
            raise EngineInputError("an id of a synthetic record has a NUL, which no id may have")
        parts.append(np.array(part if text.isascii() else [name.encode() for name in part], "S"))
    return np.concatenate(parts)


def dated(withdrawn: npt.ArrayLike, added: int, *, now: int, spans: Iterable[tuple[int, float]]) -> IntArray:
    """Return `(added,)` steps: those of the withdrawn records in their order, and of what is new, evenly in between.

    Where less is added than withdrawn, the newest steps lose: noise that made too many is what is taken back.

    >>> dated([3, 1], 4, now=9, spans=[(7, 5.0)]).tolist()
    [3, 8, 1, 9]
    >>> dated([3, 1, 2], 2, now=9, spans=[]).tolist()
    [1, 2]
    """
    old = np.asarray(withdrawn, np.int64)
    if len(old) > added:
        old = old[np.sort(np.argsort(old, kind="stable")[:added])]
    new = added - len(old)
    place = np.arange(added)
    fresh = (place + 1) * new // max(added, 1) > place * new // max(added, 1)
    steps = np.empty(added, np.int64)
    steps[~fresh], steps[fresh] = old, _spread(new, now, spans)
    return steps


def _spread(count: int, now: int, spans: Iterable[tuple[int, float]]) -> IntArray:
    """Return so many steps, in proportion to what was measured in each span and evenly within it; neighbours differ."""
    weighty = [(since, weight) for since, weight in spans if weight > 0 and since < now]
    if not weighty:
        return np.full(count, now, np.int64)
    first = min(since for since, _ in weighty) + 1
    weights = np.zeros(now - first + 1)
    for since, weight in weighty:
        weights[since + 1 - first :] += weight / (now - since)
    ends = np.floor(np.cumsum(weights) / weights.sum() * count + 0.5).astype(np.int64)
    ends[-1] = count
    steps = first + np.repeat(np.arange(len(weights)), np.diff(ends, prepend=0))
    # A stride near the golden section, so that no place gets the old ones and another the new.
    stride = max(1, round(count * 0.6180339887498949))
    while gcd(stride, count) > 1:
        stride += 1
    return steps[np.arange(count) * stride % max(count, 1)]
