"""Streams whose keys are combined, from the types of the configuration's sections: a new key is among them."""

from __future__ import annotations

import itertools
import random
import types
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from engines.checks.contract_case import EngineCase
from schemas.config import ENGINES, Stream
from schemas.errors import ConfigError

SECTIONS = ("privacy", "options", "domain", "time")
TURNS = 6
LENGTHS = ("1h", "2h", "8h", "2d")
"""In steps of an hour."""


def values_of(field: FieldInfo) -> list[Any]:
    """What a key may be set to: what its type has, what its documentation shows, and None where it may be absent."""
    found = list(_of_type(field.annotation))
    for example in field.examples or ():
        found.append(example)
        if isinstance(example, int | float) and not isinstance(example, bool):
            found += [example / 2, example * 3] if isinstance(example, float) else [example * 2 + 1]
        elif isinstance(example, str) and example[:1].isdigit():
            found += LENGTHS
    return found


def _of_type(annotation: Any) -> Iterator[Any]:
    if annotation is bool:
        yield from (True, False)
    elif annotation is int:
        yield from (1, 2, 3, 7)
    elif annotation is float:
        yield from (1e-6, 0.25)
    elif annotation is Decimal:
        yield from ("0.3", "4.0")
    elif annotation is types.NoneType:
        yield None
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif get_origin(annotation) in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _of_type(part)
    elif hasattr(annotation, "__metadata__"):
        yield from _of_type(get_args(annotation)[0])


def combinations(case: EngineCase, mode: str) -> Iterator[Stream]:
    """Streams that the configuration takes; the same ones every time.

    Each two keys of `[streams.privacy]`, where the promise is made, are set together, twice alone and once with a key
    of each other section. Each key of `[streams.options]` is also set beside each other one that is left out: what has
    a default often excludes what has none. What a key forbids is taken out.
    """
    chance, base = random.Random(f"{case.engine} {mode}"), case.stream(mode)
    keys: dict[str, list[tuple[str, list[Any]]]] = {}
    for name in SECTIONS:
        for key, field in type(getattr(base, name)).model_fields.items():
            others = [each for each in values_of(field) if each != getattr(getattr(base, name), key)]
            if others:
                keys.setdefault(name, []).append((key, others))
    more = {name: itertools.cycle(chance.sample(keys[name], len(keys[name]))) for name in SECTIONS[1:] if name in keys}
    for beside, pair in itertools.product((False, False, True), itertools.combinations(keys["privacy"], 2)):
        chosen: dict[tuple[str, ...], list[Any]] = {("privacy", key): values for key, values in pair}
        if beside:
            chosen |= {(name, key): values for name, cycle in more.items() for key, values in [next(cycle)]}
        if (stream := _accepted(case, mode, chosen, chance)) is not None:
            yield stream
    optional = [key for key, field in type(base.options).model_fields.items() if None in values_of(field)]
    for left_out, (key, values), beside in itertools.product(optional, keys.get("options", []), keys["privacy"]):
        chosen = {("options", key): values, ("options", left_out): [None], ("privacy", beside[0]): beside[1]}
        if (stream := _accepted(case, mode, chosen, chance)) is not None:
            yield stream


def _accepted(
    case: EngineCase, mode: str, chosen: dict[tuple[str, ...], list[Any]], chance: random.Random
) -> Stream | None:
    """A stream with these keys set; what is refused is set to something else, or left as it was or out."""
    variant: dict[str, dict[str, Any]] = {**chance.choice(case.tried(mode))}
    again = set(chosen)
    for turn in range(TURNS):
        for name, key in sorted(again & chosen.keys()):
            values = dict(variant.get(name, {}))
            if turn < TURNS // 2:
                values[key] = chance.choice(chosen[name, key])
            else:
                values.pop(key, None)
            variant[name] = values
        for name, key in sorted(again - chosen.keys()):
            variant[name] = {**variant.get(name, {}), key: None}
        try:
            return case.stream(mode, variant)
        except ConfigError as error:
            again = {tuple(problem.key.partition("[")[0].split(".")[:2]) for problem in error.problems}
        if any(len(key) < 2 for key in again):
            return None
    return None


def cases() -> list[tuple[str, str]]:
    """Every installed engine and mode."""
    return [(name, mode) for name, spec in ENGINES.items() for mode in spec.facts.modes]
