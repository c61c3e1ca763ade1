"""Which step each synthetic record stands for, where records together stand for all that is alive.

When an engine moves mass from one place to another it withdraws records and adds as many elsewhere: those are no news,
though they are released today. So a step's added records take over the steps of those that it withdraws, in order, and
only what the stream has grown by is new: it stands for the steps in which it was measured (`Release.spans`).
Guarantee: none of its own. A function of released records, of what was measured and of the steps' numbers: pure
    post-processing, which costs nothing.
Memory and what a step costs: see `agents.protocol.release.step_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import gcd

import numpy as np
import numpy.typing as npt

from agents.protocol.release.step_table import IdArray, StepTable
from engines.core.contract import Release
from engines.core.many_records import PART, FixedIds, RecordColumns
from schemas.arrays import IntArray
from schemas.errors import EngineInputError
from schemas.releases import StatePart


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
        """Return what a restart goes on from beside `kept`. Raises: EngineInputError if a record was added twice."""
        self._settle()
        return self._alive.arrays()

    def kept(self) -> tuple[StatePart, ...]:
        """Return the parts of a state that a restart goes on from; all public. Most are those of the step before."""
        self._settle()
        return self._alive.kept()

    def restore(self, arrays: Mapping[str, np.ndarray], kept: Sequence[StatePart]) -> None:
        """Go on as the one whose `arrays` and `kept` these are."""
        self._alive.restore(arrays, kept)
        self._added = []

    def _settle(self) -> None:
        """Let the added records be alive, all of a step at once: their ids come part by part, as they are made."""
        ids, steps = [np.zeros(0, "S1")], [np.zeros(0, np.int64)]
        for some, theirs in self._added:
            ids.append(some)
            steps.append(theirs)
        self._added = []
        self._alive.add(np.concatenate(ids), np.concatenate(steps))


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
