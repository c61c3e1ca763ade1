"""Attributes out of a JSON Schema: what its properties say of their values, where that is finite and public.

| property                                                   | attribute                       |
|------------------------------------------------------------|---------------------------------|
| `enum`, `const`                                            | listed values                   |
| `"type": "boolean"`                                        | false, true                     |
| `"type": "integer"` with `minimum` and `maximum`           | listed, or 20 bins above 50 values |
| `"type": "number"` with `minimum` and `maximum`            | 20 bins                         |
| null among the types or the `enum`, or not in `required`   | missing = true                  |
| anything else                                              | refused, by name                |
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from schemas.errors import ConfigProblem

BINS = 20
LISTED = 50
_MEND = "give it an enum, or minimum and maximum, or list the attribute in [streams.domain] yourself"


def attributes_of_schema(
    content: bytes, *, skip: Collection[str] = ()
) -> tuple[list[dict[str, Any]], list[ConfigProblem]]:
    """Keys of an `Attribute` for each property, and what could not be read. Properties in `skip` are passed over.

    >>> attributes_of_schema(b'{"properties": {"sex": {"enum": ["f", "m"]}}, "required": ["sex"]}')
    ([{'field': 'sex', 'missing': False, 'values': ('f', 'm')}], [])
    """
    try:
        schema = json.loads(content)
    except ValueError:
        return [], [ConfigProblem("", "is not JSON", "name a file with a JSON Schema")]
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return [], [ConfigProblem("", "has no properties", "name a JSON Schema of an object")]
    required = schema.get("required", [])
    found, problems = [], []
    for field, rule in properties.items():
        if field in skip:
            continue
        keys = _attribute(rule) if isinstance(rule, Mapping) else None
        if keys is None:
            problems.append(ConfigProblem("", f'says of "{field}" nothing that is finite', _MEND))
            continue
        found.append({"field": field, **keys, "missing": keys["missing"] or field not in required})
    return found, problems


def _attribute(rule: Mapping[str, Any]) -> dict[str, Any] | None:
    types = rule.get("type", [])
    kinds = {types} if isinstance(types, str) else set(types)
    missing = "null" in kinds or rule.get("nullable") is True
    kinds -= {"null"}
    if "const" in rule or "enum" in rule:
        values = [rule["const"]] if "const" in rule else list(rule["enum"])
        listed = tuple(value for value in values if value is not None)
        if not listed or not all(isinstance(value, (str, int, float, bool)) for value in listed):
            return None
        return {"missing": missing or None in values, "values": listed}
    if kinds == {"boolean"}:
        return {"missing": missing, "values": (False, True)}
    if kinds in ({"integer"}, {"number"}):
        return _bounded(rule, whole=kinds == {"integer"}, missing=missing)
    return None


def _bounded(rule: Mapping[str, Any], *, whole: bool, missing: bool) -> dict[str, Any] | None:
    low, high = rule.get("minimum"), rule.get("maximum")
    if whole:
        low = _next(rule.get("exclusiveMinimum"), 1) if low is None else low
        high = _next(rule.get("exclusiveMaximum"), -1) if high is None else high
    if not all(isinstance(bound, (int, float)) and not isinstance(bound, bool) for bound in (low, high)):
        return None
    assert low is not None
    assert high is not None
    if not (math.isfinite(low) and math.isfinite(high)) or low >= high:
        return None
    if not whole:
        edges = tuple(low + (high - low) * index / BINS for index in range(BINS + 1))
        return {"missing": missing, "edges": (*edges[:-1], float(high))}
    first, last = math.ceil(low), math.floor(high)
    if last - first < LISTED:
        return {"missing": missing, "values": tuple(range(first, last + 1))}
    return {"missing": missing, "edges": (*_whole_edges(first, last), float(last)), "integer": True}


def _whole_edges(first: int, last: int) -> Iterator[float]:
    count = last - first + 1
    for index in range(BINS):
        yield float(first + count * index // BINS)


def _next(bound: Any, step: int) -> Any:
    return bound + step if isinstance(bound, int) and not isinstance(bound, bool) else bound
