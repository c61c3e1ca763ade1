"""What a step is spent on: processor time inside its parts, without the parts that they call."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engines.spatial.held import engine as held
from engines.spatial.held import measure as held_measure
from engines.spatial.held import tree as held_tree
from engines.spatial.papers import phdstream

PARTS: tuple[tuple[Any, str, str], ...] = (
    (held_tree.HeldTree, "copy", "copy of the tree"),
    (held_measure.Watch, "step", "watch"),
    (held, "follow", "follow the watch"),
    (held, "hold", "hold"),
    (held, "due", "who is due"),
    (held, "measure", "measure, learn rates"),
    (held_measure.LeafCounter, "noisy", "exact noise of leaves"),
    (held, "divide", "divide"),
    (held, "unite", "merge"),
    (held, "estimate", "estimate"),
    (held, "project", "project"),
    (held, "change", "points that change"),
    (held.HeldLeaves, "_measurements", "measurements"),
    (phdstream, "descend", "partition"),
    (phdstream.NodeCounters, "count", "count leaves"),
    (phdstream, "counted", "consistent counts"),
    (phdstream, "change", "points that change"),
    (phdstream.PHDStream, "_measurements", "measurements"),
)
"""Owner, name of the function there, what to call it."""


class Clock:
    """Seconds by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[float] = []

    def run(self, label: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        """Call something and note its time, less that of the parts inside."""
        start = time.process_time()
        self._open.append(0.0)
        try:
            return call(*args, **kwargs)
        finally:
            spent = time.process_time() - start
            self.seconds[label] += spent - self._open.pop()
            if self._open:
                self._open[-1] += spent


@contextmanager
def watching(clock: Clock) -> Iterator[None]:
    """Every part notes its time while this lasts."""
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in PARTS]

    def noting(label: str, honest: Any) -> Any:
        return lambda *args, **kwargs: clock.run(label, honest, *args, **kwargs)

    for (owner, name, honest), (_, _, label) in zip(kept, PARTS, strict=True):
        setattr(owner, name, noting(label, honest))
    try:
        yield
    finally:
        for owner, name, honest in kept:
            setattr(owner, name, honest)
