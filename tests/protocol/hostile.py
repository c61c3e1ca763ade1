"""Hostile input: a stream for every kind of domain, and whatever a producer can put on the wire of its source."""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.spec import SourceSpec
from engines.checks.contract_case import contract_case
from engines.core.contract import Columns
from engines.core.registry import build_domain
from schemas.config import ENGINES, Stream
from schemas.events import TICK_HEADER, encode_going_live, encode_tick
from schemas.releases import STEP_LIMIT
from tests.protocol.ingest_runs import KEY

START = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
START_MS = int(START.timestamp() * 1000)
CANARY = "canary7f3a"
"""In every hostile record where there is room for it: it must not be seen anywhere else."""

FORMATS = ("s", "iso", "us", "%d.%m.%Y %H:%M:%S", "ms")
CANDIDATES: Mapping[str, tuple[Any, ...]] = {
    "lon": (0.5, 0.0, 0.7), "lat": (40.5, 40.05, 40.2), "x": (0.5, 0.7), "y": (0.5, 40.5, 40.2),
    "zone": ("zone 1", "a"),
    "km": (1.5,), "smokes": (False,), "age": (30,), "city": ("here",), "n": ("trip",), "e": (False,),
    "what": ("insert",), "op": ("insert",), "page": ("/",), "query": ("a b",),
}  # fmt: skip


def _streams() -> Iterator[tuple[str, Stream]]:
    for engine in ENGINES:
        case, formats = contract_case(engine), itertools.cycle(FORMATS)
        variants = list(case.tried("default"))
        if engine == "spatial":
            variants.append({"domain": {"op": "op"}})
        for number, variant in enumerate(variants):
            clock = ("replay", "wall")[number % 2]
            changes = {**variant, "time": {**variant.get("time", {}), "format": next(formats), "clock": clock}}
            yield f"{engine}-{number}-{clock}", case.stream("default", changes)


def _spec(stream: Stream) -> SourceSpec:
    return SourceSpec.from_stream(stream, build_domain(stream), key=KEY, partitions=1)


SPECS: Mapping[str, SourceSpec] = {name: _spec(stream) for name, stream in _streams()}


# --- Good events --------------------------------------------------------------------------------------------------


def time_as(spec: SourceSpec, after_s: float) -> Any:
    at = START + datetime.timedelta(seconds=after_s)
    units = {"s": 1, "ms": 1_000, "us": 1_000_000}
    if spec.format in units:
        return int(at.timestamp()) * units[spec.format]
    return at.isoformat() if spec.format == "iso" else at.strftime(spec.format)


def good_event(spec: SourceSpec, *, user: str = "ann", after_s: float = 60) -> dict[str, Any]:
    """An event that the stream takes."""
    fields = spec.fields
    event: dict[str, Any] = {fields.time: time_as(spec, after_s)}
    for name in (fields.user, fields.trip):
        if name is not None:
            event[name] = user
    if fields.operation is not None:
        event[fields.operation] = "insert"
    return event | dict(_inside(spec))


_FOUND: dict[int, dict[str, Any]] = {}


def _inside(spec: SourceSpec) -> dict[str, Any]:
    if id(spec) not in _FOUND:
        names = (*spec.fields.numbers, *spec.fields.texts, *spec.fields.scalars)
        for values in itertools.product(*(CANDIDATES[name] for name in names)):
            found = dict(zip(names, values, strict=True))
            if _taken(spec, found):
                _FOUND[id(spec)] = found
                break
    return _FOUND[id(spec)]


def _taken(spec: SourceSpec, event: Mapping[str, Any]) -> bool:
    import numpy as np

    columns = Columns(
        {name: np.array([event[name]], np.float64) if type(event[name]) is not str else np.array([np.nan])
         for name in spec.fields.numbers},
        {name: [event[name]] for name in spec.fields.texts},
        np.array([1], np.int8),
        {name: [event[name]] for name in spec.fields.scalars},
    )  # fmt: skip
    return not spec.domain.encode(columns)[1].any()


def written(event: Mapping[str, Any], **raw: bytes) -> bytes:
    """JSON of an event, some values of it given as they are to stand there."""
    parts = {name: json.dumps(value).encode() for name, value in event.items()} | raw
    return b"{" + b",".join(json.dumps(name).encode() + b":" + value for name, value in parts.items()) + b"}"


# --- Hostile values, records, headers -----------------------------------------------------------------------------

ATOMS: tuple[bytes, ...] = (
    b"null", b"true", b"false", b"0", b"-0", b"-0.0", b"1", b"-1", b"1.5", b"1e0", b"1E+2", b"1e-400", b"1e308",
    b"-1e308", b"1e309", b"-1e999", b"1e99999999999999999999", b"0." + b"9" * 400, b"9" * 18, b"9" * 19, b"9" * 40,
    b"-" + b"9" * 300, b"9" * 400, b"9" * 4_301, b"9" * 100_000, b"0." + b"0" * 50_000 + b"1", str(2**63).encode(),
    str(-(2**63)).encode(), str(2**63 - 1).encode(), str(2**64).encode(), str(-(2**63) - 1).encode(), b"NaN",
    b"Infinity", b"-Infinity", b"0x10", b"01", b"+1", b".5", b"1.", b"1_000", b'""', b'" "', b'"\\u0000"',
    b'"a\\u0000b"', b'"\\ud800"', b'"\\udfff\\ud800"', b'"\\ud83d\\ude00"', '"\u202eevil"'.encode(),
    '"e\u0301"'.encode(), ('"a' + "\u0301" * 100_000 + "\u0323" * 100_000 + '"').encode(),
    b'"\xff\xfe"', b'"\xed\xa0\x80"', b'"\xf0\x9f"', b'"NaN"', b'"inf"', b'"1e5"',
    b'"1e999999999"', b'"-1e-999999999"', b'"' + b"9" * 5_000 + b'"', b'"1' + b"0" * 200_000 + b'"', b'"0x1F"',
    '"\u0661\u0662"'.encode(), '"\uff11"'.encode(), b'"1_0"', b'" 1 "', b'"1\\n"', b'"insert"', b'"INSERT"',
    b'"delete"', b'"upsert"', b'"__class__"', b'"%s%n{0}"', b'"\\"; DROP TABLE"', b'"' + CANARY.encode() + b'"',
    b'"' + CANARY.encode() * 30_000 + b'"', b'"' + b"x" * 256 + b'"', b'"' + b"x" * 257 + b'"', b'"\\t\\r\\n"',
    b'"0000-00-00T00:00:00"', b'"9999-12-31T23:59:59"', b'"9999-12-31T23:59:59-23:59"',
    b'"0001-01-01T00:00:00+23:59"', b'"2020-02-30T00:00:00"', b'"2020-01-01T24:00:00"', b'"2020-01-01T23:59:60"',
    b'"2020-01-01T00:00:00+99:99"', b'"2020-W01-1"', b'"20200101T000000"', b'"2020-01-01T00:00:00.0000000001"',
    '"2020-01-01T00:00:0\u0661"'.encode(), b'"31.02.2020 00:00:00"', b'"1.1.20 0:0:0"', b'"01.01.9999 00:00:00"',
    b"[]", b"{}", b"[null]", b'[{"a":[]}]', b"[" * 1_000 + b"]" * 1_000, b"[" * 100_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b'{"":0}', b"", b",", b"}", b"]", b'"', b'"\\', b'"\\x00"', b'"\\u12"',
    b"\x00", b"\xef\xbb\xbf1", b"/**/1", b"1 1", b"tru", b"nul", b"1e", b"-", b"--1",
)  # fmt: skip


SHORT_ATOMS = tuple(atom for atom in ATOMS if len(atom) < 1_000)


def whole_records(spec: SourceSpec) -> dict[str, bytes | None]:
    """Records that are wrong as a whole, each by what is wrong."""
    event = good_event(spec, user=CANARY)
    value = written(event)
    limit = spec.max_value_bytes
    padding = {"padding": "x" * (limit - len(written({**event, "padding": ""})))}
    return {
        "no value": None,
        "empty": b"",
        "blank": b" \n\t ",
        "text": CANARY.encode(),
        "quoted": b'"' + CANARY.encode() + b'"',
        "list": b"[" + value + b"]",
        "number": b"17",
        "null": b"null",
        "nothing in it": b"{}",
        "cut": value[:-1],
        "half": value[: len(value) // 2],
        "two": value + value,
        "two lines": value + b"\n" + value,
        "joined": value + b"," + value,
        "byte order mark": b"\xef\xbb\xbf" + value,
        "utf-16": value.decode().encode("utf-16"),
        "utf-32": value.decode().encode("utf-32"),
        "latin-1": b'{"\xe9":1}',
        "nul behind": value + b"\x00",
        "gzip": b"\x1f\x8b\x08\x00" + value,
        "avro": b"\x00\x00\x00\x00\x01" + value,
        "at the limit": written({**event, **padding}),
        "above the limit": written({**event, "padding": padding["padding"] + "x"}),
        "deep": b"[" * 200_000,
        "deep and closed": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        "many fields": b"{" + b",".join(b'"%d":0' % number for number in range(50_000)) + b"}",
        "a field twice": value[:-1] + b"," + value[1:],
        "unknown fields": written({**event, CANARY: CANARY, "": None, "\x00": [], "constructor": {}}),
        "fields in other letters": written({name.upper(): each for name, each in event.items()}),
    }


def hostile_records(spec: SourceSpec) -> dict[tuple[str, str], bytes | None]:
    """(what is wrong, configured field or "") -> value: every atom at every field, and `whole_records`."""
    event = good_event(spec, user=CANARY)
    found: dict[tuple[str, str], bytes | None] = {(what, ""): value for what, value in whole_records(spec).items()}
    for name in spec.fields.names:
        found["absent", name] = written({other: each for other, each in event.items() if other != name})
        for number, atom in enumerate(ATOMS):
            found[f"atom {number}", name] = written(event, **{name: atom})
    return found


TICKS: tuple[bytes | None, ...] = (
    None, b"", b"nonsense", b"{}", b"[]", b"null", b"3", b'"3"', b"{" * 10_000, b"\xff",
    b'{"row":0,"source":"s","step":true,"version":1}', b'{"row":0,"source":"s","step":1.0,"version":1}',
    b'{"row":0,"source":"s","step":"1","version":1}', b'{"row":0,"source":"s","step":-2,"version":1}',
    b'{"row":0,"source":"s","step":null,"version":1}', b'{"row":0,"source":"s","step":1,"version":2}',
    b'{"row":null,"source":"s","step":1,"version":1}', b'{"row":0,"step":1,"version":1}',
    b'{"row":0,"source":"s","version":1}', b'{"row":0,"source":"s","step":' + b"9" * 30 + b',"version":1}',
    encode_tick(1 << 62, row=0, source=CANARY), encode_tick(20_000, row=0, source="far"),
    b'{"row":0,"source":"s","step":1,"version":1,"live_from":null}', b'{"row":0,"step":1,"version":1,"live_from":1}',
    b'{"row":0,"source":"s","step":1,"version":1,"live_from":true}',
    b'{"row":0,"source":"s","step":1,"version":1,"live_from":-1}',
    encode_going_live(STEP_LIMIT, live_from=0, row=0, source=""),
    b'{"row":0,"source":"s","step":1,"version":1,"live_from":3}', b'{"row":0,"source":"s","step":1,"version":[2]}',
    encode_going_live(1 << 62, live_from=0, row=0, source=CANARY),
    encode_going_live(30_000, live_from=20_000, row=0, source="far"),
)  # fmt: skip
"""Header values that are no tick of a replay."""

Headers = tuple[tuple[str, bytes | None], ...]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.just(CANARY),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def values(draw: st.DrawFn, spec: SourceSpec) -> bytes | None:
    """One hostile value."""
    event = good_event(spec, user=draw(st.sampled_from([CANARY, "eve", "mallory"])))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        whole = whole_records(spec).values()
        return draw(st.sampled_from([value for value in whole if value is None or len(value) < 1_000]))
    if kind == 1:
        return draw(st.binary(max_size=60))
    if kind == 2:
        return json.dumps(draw(JSON)).encode()
    raw: dict[str, bytes] = {}
    for name in draw(st.lists(st.sampled_from(spec.fields.names), min_size=1, max_size=3, unique=True)):
        raw[name] = draw(st.sampled_from(SHORT_ATOMS) | JSON.map(lambda each: json.dumps(each).encode()))
    value = written(event, **raw)
    if kind == 3:
        place = draw(st.integers(0, len(value)))
        return value[:place] + draw(st.binary(max_size=4)) + value[place + draw(st.integers(0, 4)) :]
    return value


def headers(spec: SourceSpec) -> st.SearchStrategy[Headers]:
    """Mostly none, or of strangers; now and then what claims to be a tick."""
    other = st.tuples(st.text(max_size=8).filter(lambda name: name != TICK_HEADER), st.none() | st.binary(max_size=8))
    tick = st.tuples(st.just(TICK_HEADER), st.sampled_from(TICKS) | st.binary(max_size=20))
    lists = st.lists(other, max_size=2), st.lists(tick, max_size=2)
    return st.one_of(st.just(()), st.tuples(*lists).map(lambda both: (*both[0], *both[1])))


TIMESTAMPS = st.sampled_from((-1, 0, 1, START_MS, 2**53, 2**63 - 1, -(2**63))) | st.integers(-(2**63), 2**63 - 1)
KEYS = st.none() | st.binary(max_size=10) | st.just(CANARY.encode())


@st.composite
def records(draw: st.DrawFn, spec: SourceSpec) -> list[RawRecord]:
    """Hostile records at offsets with gaps between them: what Kafka leaves of aborted transactions."""
    found = []
    offset = 0
    for _ in range(draw(st.integers(1, 8))):
        offset += draw(st.integers(1, 3))
        found.append(RawRecord(offset, draw(TIMESTAMPS), draw(KEYS), draw(values(spec)), draw(headers(spec))))
    return found
