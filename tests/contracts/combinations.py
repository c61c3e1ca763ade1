"""Streams whose keys are combined, from the types of the configuration's sections: a new key is among them.

What types cannot tell (which file, which values of another key a key goes with) are variants of the engine's case.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
import re
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from agents.local.coupling.inputs import COPY
from agents.local.coupling.written import USER_IN_KEY
from engines.checks.contract_case import EngineCase
from engines.core.registry import build_domain
from schemas.config import ENGINES, Stream
from schemas.config.formats import BY_SCHEMA, OPERATION
from schemas.config.values import PublicFile, Section
from schemas.errors import ConfigError, EngineInputError

SECTIONS = ("privacy", "options", "domain", "time")
TURNS = 6
LIMIT = 1_000_000
"""So large a number is a limit at which a stream stops, or is refused; small ones would stop every stream."""
LENGTHS = ("1h", "2h", "8h", "2d")
"""In steps of an hour."""


def values_of(field: FieldInfo) -> list[Any]:
    """What a key may be set to: what its type has, what its documentation shows, and None where it may be absent."""
    found = list(_of_type(field.annotation))
    if any(isinstance(example, int) and example >= LIMIT for example in field.examples or ()):
        found = [each for each in found if not isinstance(each, int) or isinstance(each, bool)]
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
    """Streams that the configuration takes; the same ones every time."""
    yield from paired(case, mode)
    yield from deeper(case, mode)


def paired(case: EngineCase, mode: str) -> Iterator[Stream]:
    """Streams with keys of `SECTIONS` set together.

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


Path = tuple[str | int, ...]
Document = dict[str, Any]


def deeper(case: EngineCase, mode: str) -> Iterator[Stream]:
    """Streams of every variant of the case with one key set, of the stream itself and of sections in sections; and with
    the calendar's steps, with fields that are computed, and as a part of a split.
    """
    chance = random.Random(f"{case.engine} {mode} deeper")
    tried: Counter[Any] = Counter()
    for variant in (*case.drawn, *case.coupled(mode)):
        document = case.document(mode, variant)
        ways = (_calendars(document, chance), _mapped(document, chance), _split(document), _formats(document, chance))
        for changed in (document, *itertools.chain(*ways)):
            if (stream := _read(changed)) is not None:
                yield from itertools.islice(stream.parts(), 1, 2) if stream.split is not None else [stream]
        if (base := _read(document)) is None:
            continue
        known = dict(_keys(base))
        for path, (place, field) in known.items():
            for value in (each for each in values_of(field) if each is not None):
                if tried[place, str(value)] < TRIES:
                    tried[place, str(value)] += 1
                    if (taken := _with(document, path, value, known, chance)) is not None:
                        tried[place, str(value)] = TRIES
                        yield Stream.model_validate(taken)


def mixed(case: EngineCase, mode: str, chance: random.Random) -> Iterator[Stream]:
    """Streams without end, of which any keys are set and anything is computed or split."""
    while True:
        document = case.document(mode, chance.choice((*case.drawn, *case.coupled(mode))))
        document = chance.choice((document, *_calendars(document, chance)))
        if (base := _read(document)) is None:
            continue
        known = dict(_keys(base))
        for path, (_, field) in chance.sample(sorted(known.items(), key=str), chance.randint(0, MOST)):
            values = [each for each in values_of(field) if each is not None]
            if values:
                document = _with(document, path, chance.choice(values), known, chance) or document
        document = chance.choice((document, *_mapped(document, chance), *_formats(document, chance)))
        for changed in chance.sample((document, *_split(document)), 2):
            if (stream := _read(changed)) is not None:
                yield chance.choice(list(stream.parts()))
                break


MOST = 4
"""Keys that are set at random."""


TRIES = 2
"""Variants in which a value of a key is tried, until one takes it."""


def _read(document: Document) -> Stream | None:
    """Return the stream of a document; None where it is refused."""
    try:
        return Stream.model_validate(document)
    except ConfigError:
        return None


def _keys(section: Section, path: Path = ()) -> Iterator[tuple[Path, tuple[tuple[str, str], FieldInfo]]]:
    """Yield where each key stands, of a section and those in it, with the model that it is of."""
    for name, field in type(section).model_fields.items():
        value, at = getattr(section, name), (*path, field.alias or name)
        if at not in KINDS | UNREAD:
            yield at, ((type(section).__name__, name), field)
        for index, each in enumerate(value) if isinstance(value, tuple) else [(None, value)]:
            if isinstance(each, Section) and not isinstance(each, PublicFile):
                yield from _keys(each, at if index is None else (*at, index))


KINDS = frozenset((("engine",), ("mode",), ("name",), ("source",), ("domain", "kind")))
"""Keys that say what the others are."""
UNREAD = frozenset((("format",), ("envelope",), ("key_format",), ("csv",), ("output", "format")))
"""Keys that are set together: `_formats`."""


def _with(
    document: Document, path: Path, value: Any, known: Mapping[Path, tuple[Any, FieldInfo]], chance: random.Random
) -> Document | None:
    """A stream with a key set; another key that this one needs is set too, and what it excludes is taken out."""
    changed = copy.deepcopy(document)
    _put(changed, path, value)
    for turn in range(TURNS // 2):
        try:
            Stream.model_validate(changed)
        except ConfigError as error:
            for at in {_path(problem.key) for problem in error.problems} - {path}:
                values = [each for each in values_of(known[at][1]) if each is not None] if at in known else []
                _put(changed, at, chance.choice(values) if values and turn % 2 == 0 else None)
        else:
            return changed
    return None


def _path(key: str) -> Path:
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"[.\[\]]+", key) if part)


def _put(document: Any, path: Path, value: Any) -> None:
    """Set a key; None takes it out. Where another key has taken its section away, nothing is done."""
    *way, key = path
    for part in way:
        match document, part:
            case dict(), _:
                document = document.setdefault(part, {})
            case list(), int() if part < len(document):
                document = document[part]
            case _:
                return
    if isinstance(document, dict):
        document[key] = value
        if value is None:
            document.pop(key)


CALENDARS = (
    ("month", "America/New_York", "2020-01-01T00:00:00"),
    ("day", "Europe/Berlin", "2020-03-27T00:00:00"),
    ("week", "Australia/Lord_Howe", "2020-03-30T00:00:00"),
)
"""Units, each with a place and a start after which its clocks change."""
LENGTHS_AT = (("privacy", "per"), ("domain", "ttl"))


def _calendars(document: Document, chance: random.Random) -> Iterator[Document]:
    """The same stream by the calendar, with as many steps in each length."""
    unit, zone, start = chance.choice(CALENDARS)
    changed, hours = copy.deepcopy(document), int(document["time"]["step"].removesuffix("h"))
    changed["time"] |= {"step": f"1 {unit}", "timezone": zone, "start": start}
    for section, key in LENGTHS_AT:
        if length := document[section].get(key):
            changed[section][key] = f"{int(length.removesuffix('h')) // hours} {unit}s"
    yield changed


TABLE = {"path": "same.json", "sha256": "", "content": b'{"here": "here"}'}


def _mapped(document: Document, chance: random.Random) -> Iterator[Document]:
    """The same stream with all fields computed: from elsewhere in the record, and from there where they are absent."""
    if (stream := _read(document)) is None or not (names := _names(document)):
        return
    beside = (stream.time.field, stream.privacy.user, stream.domain.operation_field, stream.domain.trip_field)
    readings = getattr(stream.domain, "readings", False)
    drop = {"drop": f"ends_with(to_string({COPY}.{stream.time.field}), '7')"} if chance.random() < 0.5 else {}
    for fallback in (False, True):
        expressions = {}
        for name in names:
            here, there = json.dumps(name), f"{COPY}.{json.dumps(name)}"
            ways = [f"{here} || {there}", f"not_null({here}, {there})"] if fallback else [there, f"{COPY} | {here}"]
            if name not in beside and not readings:
                ways += [f"lookup('same', to_string({there})) || {there}"]
            expressions[name] = chance.choice(ways)
        tables = {"tables": {"same": TABLE}} if any("lookup" in each for each in expressions.values()) else {}
        yield {**document, "map": {**expressions, **drop, **tables}}


def _split(document: Document) -> Iterator[Document]:
    """The same stream, split by a field that says nothing else."""
    split = {"split": {"field": "region", "parts": {"north": ["n", "ne"], "south": ["s"]}}}
    if "map" in document:
        split["map"] = {**document["map"], "region": f"{COPY}.region || region"}
    yield {**document, **split}


def _formats(document: Document, chance: random.Random) -> Iterator[Document]:
    """The same stream, of records in another format, in an envelope, and with the user in a key that has fields."""
    names = _names(document)
    by_schema = BY_SCHEMA if all(map(str.isidentifier, names)) else ()
    form = chance.choice((*by_schema, "json-schema", "msgpack", "csv"))
    yield {**document, "format": form}
    yield {**document, "format": "csv", "csv": {"delimiter": ";", "decimal": ",", "encoding": "utf-16"}}
    if "map" not in document and names:
        yield {**document, "format": "csv", "csv": {"columns": names}}
    yield {**document, "format": form, "envelope": "cloudevents"}
    operation = {"op": OPERATION} if document["domain"].get("op") else {}
    row = {**document, "domain": {**document["domain"], **operation}}
    yield {**row, "format": chance.choice(("json", *by_schema)), "envelope": "debezium"}
    keyed = {"privacy": {**document["privacy"], "user": USER_IN_KEY}, "partitioner": "none"}
    yield {**document, **keyed, "format": form, "key_format": chance.choice(("json", "json-schema", *BY_SCHEMA))}


def _names(document: Document) -> list[str]:
    """Return the fields of a stream's records; none where it is refused."""
    try:
        stream = Stream.model_validate(document)
        domain = build_domain(stream)
    except (ConfigError, EngineInputError):
        return []
    split = None if stream.split is None else stream.split.field
    beside = (stream.time.field, stream.privacy.user, stream.domain.operation_field, stream.domain.trip_field, split)
    return sorted({*domain.number_fields, *domain.text_fields, *domain.value_fields, *filter(None, beside)})


def cases() -> list[tuple[str, str]]:
    """Every installed engine and mode."""
    return [(name, mode) for name, spec in ENGINES.items() for mode in spec.facts.modes]
