"""Measurements as the engine made them: those that were cut for Kafka are put together again.

Pure. How they are cut is said in `agents.protocol.release.public_records.measurement_records`: the longest list, or
lists where several are as long, is shared out over the parts in runs, and all else stands in each part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from schemas.releases import PublicRecord

Path = tuple[str, ...]

SURELY_CUT = 1000
"""Values of a run: records are cut above 900 kB only, so that runs of the longest list are longer than any other "
"list."""


def measurements_of(records: Iterable[PublicRecord]) -> list[dict[str, Any]]:
    """The measurements of one step, in the order of their publication; a part that came twice is taken once."""
    found: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for record in records:
        told = orjson.loads(record.value or b"{}")
        if "parts" not in told:
            found.append(told)
            continue
        if told["part"] == len(waiting):
            waiting.append(told)
        if len(waiting) == told["parts"]:
            found.append(together(waiting))
            waiting = []
    return found


def together(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One measurement of all its parts, in order.

    >>> parts = [{"of": ["a"], "counts": [1, 2], "part": 0}, {"of": ["a"], "counts": [3], "part": 1}]
    >>> together(parts)
    {'of': ['a'], 'counts': [1, 2, 3]}
    """
    bare = [{name: value for name, value in part.items() if name not in ("part", "parts")} for part in parts]
    runs = {path: [_at(part, path) for part in bare] for path in _lists(bare[0])}
    # What differs between parts was cut, and so was every long list that is as long together.
    differ = [path for path, lists in runs.items() if any(each != lists[0] for each in lists)]
    lengths = {path: sum(map(len, lists)) for path, lists in runs.items()}
    longest = max((lengths[path] for path in differ or runs), default=0)
    cut = {path for path in runs if path in differ or (lengths[path] == longest and len(runs[path][0]) >= SURELY_CUT)}
    whole: dict[str, Any] = _whole(bare[0], (), {path: [v for run in runs[path] for v in run] for path in cut})
    return whole


def _lists(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, list):
        yield path
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _lists(inner, (*path, name))


def _at(value: Any, path: Path) -> Any:
    for name in path:
        value = value[name]
    return value


def _whole(value: Any, path: Path, cut: Mapping[Path, list[Any]]) -> Any:
    if path in cut:
        return cut[path]
    if isinstance(value, dict):
        return {name: _whole(inner, (*path, name), cut) for name, inner in value.items()}
    return value
