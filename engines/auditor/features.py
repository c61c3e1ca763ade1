"""A whole release as numbers: its records with ids, coordinates and order, its measurements, its ledger or notes.

Whatever the number of records, the columns are few: of each field, over all records of a kind in the order of their
publication, first, last, sum, least, largest, how often it falls, and the parity of its last digits.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from engines.contract import Release

Features = dict[str, float]

FEW = 16
"""Records, or numbers of a list, that have columns of their own."""
_LONG = 400
"""Numbers of which the last digits are looked at."""
_PARTS = re.compile(r"[^0-9A-Za-z]+")


def numbers(prefix: str, value: object) -> Features:
    """Every number in a JSON-able value, by its path."""
    match value:
        case bool() | int() | float():
            return {prefix: float(value)}
        case Mapping():
            parts = [numbers(f"{prefix}/{name}", part) for name, part in value.items()]
        case list() | tuple():
            parts = [numbers(f"{prefix}/{index}", part) for index, part in enumerate(value)]
        case _:
            return {}
    return {name: number for part in parts for name, number in part.items()}


def of_release(release: Release) -> Features:
    """All of a release, as an engine returns it."""
    return of_public(
        removed=list(release.removed),
        added=[(record.id, record.fields) for record in release.added],
        measurements=list(release.measurements),
        words={"total": release.total, "gathered": release.gathered, "notes": dict(release.notes)},
    )


def of_public(
    *,
    removed: Sequence[str],
    added: Sequence[tuple[str, Mapping[str, Any]]],
    measurements: Sequence[Mapping[str, Any]],
    words: Mapping[str, Any],
) -> Features:
    """All that is public of a step.

    Args:
        removed: ids withdrawn. added: ids and fields. Both in the order of their publication, as are `measurements`.
        words: notes of the release, or its ledger entry.
    """
    features = numbers("words", words)
    features |= of_records("removed", [id_parts(each) for each in removed])
    features |= of_records("added", [{**id_parts(key), **fields} for key, fields in added])
    features |= of_records("measured", measurements)
    if len(measurements) <= FEW:
        for measurement in measurements:
            features |= _labelled(measurement)
    return features


def id_parts(key: str) -> dict[str, float]:
    """The numbers that an id is made of, in base 10 or 16; of other parts their checksums."""
    return {f"id {index}": _number(part) for index, part in enumerate(_PARTS.split(key))}


def _number(part: str) -> float:
    try:
        return float(int(part, 10 if part.isdecimal() else 16))
    except ValueError:
        return float(zlib.crc32(part.encode()))


def of_records(kind: str, records: Sequence[Mapping[str, Any]]) -> Features:
    """Records of a kind, field by field."""
    fields: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.items():
            _gather(fields, name, value)
    features: Features = {f"{kind}/number": float(len(records))}
    for name, values in fields.items():
        features |= {f"{kind}/{name}/{what}": number for what, number in _summary(values)}
    return features


def _gather(fields: dict[str, list[float]], name: str, value: object) -> None:
    match value:
        case bool() | int() | float():
            fields.setdefault(name, []).append(float(value))
        case str():
            fields.setdefault(name, []).append(float(zlib.crc32(value.encode())))
        case Mapping():
            for part, inner in value.items():
                _gather(fields, f"{name}/{part}", inner)
        case list() | tuple():
            for inner in value:
                _gather(fields, name, inner)


def _summary(values: Sequence[float]) -> Iterable[tuple[str, float]]:
    array = np.array(values)
    yield "number", float(len(array))
    yield "first", values[0]
    yield "last", values[-1]
    yield "sum", float(array.sum())
    yield "least", float(array.min())
    yield "largest", float(array.max())
    yield "falls", float((array[1:] < array[:-1]).sum())
    if len(values) <= _LONG:
        digits = [_last_digit(value) for value in values]
        yield "first digit", float(digits[0] % 2)
        yield "last digit", float(digits[-1] % 2)
        yield "digits", float(sum(digits) % 2)


def _last_digit(value: float) -> int:
    """Of the number as JSON writes it; 0 where it is not finite."""
    if value.is_integer():
        return int(value) % 10
    text = repr(value)
    return int(text[-1]) if text[-1].isdecimal() else 0


def _labelled(measurement: Mapping[str, Any]) -> Features:
    """Numbers of a measurement under what it is a measurement of: its texts and lists of texts."""
    labels = [value for value in measurement.values() if isinstance(value, str) or _texts(value)]
    if not labels:
        return {}
    found: Features = {}
    for name, value in measurement.items():
        if isinstance(value, (int, float)) or (isinstance(value, (list, tuple)) and len(value) <= FEW):
            found |= numbers(f"measured {labels}/{name}", value)
    return found


def _texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(each, str) for each in value)
