"""Which step each synthetic record stands for, where records together stand for all that is alive.

When an engine moves mass from one place to another it withdraws records and adds as many elsewhere: those are no news,
though they are released today. So a step's added records take over the steps of those that it withdraws, in order, and
only what the stream has grown by is new: it stands for the steps in which it was measured (`Release.spans`).
Guarantee: none of its own. A function of released records, of what was measured and of the steps' numbers: pure
    post-processing, which costs nothing.
Memory: about 120 bytes of a record alive; its id and 4 bytes in each candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import gcd

import numpy as np

from engines.core.contract import Release
from engines.core.many_records import RecordColumns
from schemas.arrays import IntArray

_TEXT, _STEPS = "dating/ids", "dating/steps"


class Dating:
    """The step of each record of one stream that is alive, by its id."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}

    def take(self, release: Release) -> Callable[[RecordColumns], Sequence[int]]:
        """Return what gives the steps of added records: call it once for each, in their order, as they are made."""
        withdrawn = [self._steps.pop(name) for name in release.removed]
        steps: Iterator[int] = iter(
            dated(withdrawn, len(release.added), now=release.step, spans=release.spans).tolist()
        )

        def steps_of(part: RecordColumns) -> Sequence[int]:
            mine = list(islice(steps, len(part.ids)))
            self._steps.update(zip(part.ids, mine, strict=True))
            return mine

        return steps_of

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what a restart goes on from; all public. Raises: ValueError where an engine's id has a line break."""
        names = "\n".join(self._steps)
        if names.count("\n") > max(len(self._steps) - 1, 0):
            raise ValueError("an id of a synthetic record has a line break, and would be read back as two")
        return {
            _TEXT: np.frombuffer(names.encode(), np.uint8).copy(),
            _STEPS: np.array(list(self._steps.values()), np.int32),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on as the one whose `arrays` these are."""
        steps = arrays[_STEPS].tolist()
        names = arrays[_TEXT].tobytes().decode().split("\n") if steps else []
        self._steps = dict(zip(names, steps, strict=True))


def dated(withdrawn: Sequence[int], added: int, *, now: int, spans: Iterable[tuple[int, float]]) -> IntArray:
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
