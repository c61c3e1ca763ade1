"""Which step each synthetic record stands for, where records together stand for all that is alive.

When an engine moves mass from one place to another it withdraws records and adds as many elsewhere: those are no news,
though they are released today. So a step's added records take over the steps of those that it withdraws, in order, and
only what the stream has grown by is new: it stands for the steps in which it was measured (`Release.spans`).
Guarantee: none of its own. A function of released records, of what was measured and of the steps' numbers: pure
    post-processing, which costs nothing.
Memory: the bytes of the longest id and 4 of a step for each record alive; in each candidate the same, compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import gcd

import numpy as np
import numpy.typing as npt

from engines.core.contract import Release
from engines.core.many_records import PART, RecordColumns
from schemas.arrays import BoolArray, IntArray, narrowed
from schemas.errors import EngineInputError

_IDS, _STEPS = "dating/ids", "dating/steps"
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


class StepTable:
    """A map from ids to steps, as two arrays in ascending order of ids. Equal maps have equal arrays, however they
    came about.
    """

    def __init__(self) -> None:
        self._ids: IdArray = np.zeros(0, "S1")
        self._steps: npt.NDArray[np.int32] = np.zeros(0, _STEP)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, ids: IdArray, steps: IntArray) -> None:
        """Take in `(n,)` ids and their steps. Raises: EngineInputError if one of the ids is there already."""
        order = np.argsort(ids, kind="stable")
        ids, steps = ids[order], steps[order]
        at = np.searchsorted(self._ids, ids)
        if (ids[1:] == ids[:-1]).any() or self._has(ids, at).any():
            raise EngineInputError("an engine added a record under the id of one that is alive")
        # The wider type comes first, since `np.insert` cuts what it inserts.
        wide = self._ids.astype(np.promote_types(self._ids.dtype, ids.dtype), copy=False)
        self._ids, self._steps = np.insert(wide, at, ids), np.insert(self._steps, at, narrowed(steps, _STEP))

    def pop(self, ids: IdArray) -> IntArray:
        """Remove `(n,)` ids; return their steps, in that order. Raises: EngineInputError if one is not there."""
        at = np.searchsorted(self._ids, ids)
        if not self._has(ids, at).all() or len(np.unique(at)) != len(at):
            raise EngineInputError("an engine withdrew a record that is not alive")
        stay = np.ones(len(self), np.bool_)
        stay[at] = False
        steps = self._steps[at].astype(np.int64)
        self._ids, self._steps = self._ids[stay], self._steps[stay]
        return steps

    def _has(self, ids: IdArray, at: IntArray) -> BoolArray:
        """Return `(n,)` bool: which of these ids are there. `at` is where they would be."""
        if not len(self):
            return np.zeros(len(ids), np.bool_)
        there: BoolArray = self._ids[np.minimum(at, len(self) - 1)] == ids
        return there

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the table as planes, `(width, records)` and `(4, records)` bytes: neighbours are alike in each, and
        it compresses to a tenth. The width is that of the longest id.
        """
        ids = _planes(self._ids)
        width = 1 + max(np.flatnonzero(ids.any(axis=1)), default=0)
        return {_IDS: ids[:width], _STEPS: _planes(self._steps)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Become the table whose `arrays` these are."""
        self._ids = _joined(arrays[_IDS], f"S{len(arrays[_IDS])}")
        self._steps = _joined(arrays[_STEPS], _STEP)


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
