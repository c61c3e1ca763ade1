"""The same record, whoever wrote it, is the same event or is refused for the same reason: in a topic of every format
that is registered, in every kind of file, and in a frame.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import msgspec
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.local.library.batches import BatchReader
from agents.local.offline import files
from agents.local.offline.files import _KINDS, rows_for
from agents.protocol.formats.build import InputFormat
from agents.protocol.ingest.decode import FormatDecoder
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.replay import times_of
from engines.core.registry import build_domain
from schemas.config import Stream
from schemas.config.formats import CsvSection, SourceFormat
from schemas.config.timing import NUMERIC_FORMATS
from tests.examples import examples
from tests.protocol.ingest_runs import KEY, taken
from tests.protocol.sources import BOOK, WRITERS

Event = Mapping[str, Any]
DAY = 1_577_836_800
"""2020-01-01, the first step."""


def stream(form: str) -> Stream:
    return Stream.model_validate({
        "name": "s",
        "engine": "tabular",
        "source": "raw.s",
        "privacy": {"epsilon": 1, "user": "who", "max_contributions": 2},
        "time": {"field": "at", "format": form, "start": "2020-01-01", "step": "1h", "clock": "replay"},
        "domain": {
            "kind": "table",
            "attributes": [
                {"field": "km", "edges": [0, 5, 10, 1000], "missing": True},
                {"field": "flag", "values": [True, False]},
                {"field": "code", "values": ["4.0", "7", "a"], "missing": True},
            ],
        },
    })  # fmt: skip


STREAMS = {form: stream(form) for form in ("s", "us", "ns", "iso", "%Y%m%d")}
SPECS = {
    form: SourceSpec.from_stream(each, build_domain(each), key=KEY, partitions=1) for form, each in STREAMS.items()
}

# What CSV cannot tell apart is not asked for: numbers with a fraction, and booleans, where a text can stand.
TEXTS = st.sampled_from(["ann", "007", " 7", "7", "a", "4.0", "naïve", "NaN", "1e5", "true"])
NUMBERS = st.one_of(
    st.integers(-3, 2000), st.integers(-(2**63), 2**63 - 1), st.floats(-1, 1001), st.floats(),
    st.decimals(-1, 1001, places=2).map(str), st.floats(0, 1000).map(repr),
    st.sampled_from([" 7", "007", "+.5", "4.", "1e2", "1e400", "-1e999999", "inf", "-Infinity", "nan", "NaN", "n/a"]),
)  # fmt: skip
SECONDS = st.one_of(
    st.integers(DAY - 10, DAY + 40_000), st.floats(DAY - 10, DAY + 40_000), st.floats(),
    st.integers(DAY * 10**6, (DAY + 7200) * 10**6), st.integers((DAY + 3600) * 10**9 - 2, (DAY + 3600) * 10**9 + 2),
    st.decimals(DAY - 1, DAY + 40_000, places=9).map(str),
    st.integers((DAY + 3599) * 10**9, (DAY + 3601) * 10**9).map(lambda ns: f"{ns // 10**9}.{ns % 10**9:09d}"),
    st.sampled_from(["soon", " 1577836800", "1577836800.", "1.5778368e9", "1e400", "1e999999", "nan", "-"]),
)  # fmt: skip
DATES = st.one_of(
    st.integers(20191230, 20200103), st.integers(20191230, 20200103).map(str), st.integers(0, 10**9),
    st.sampled_from(["2020-01-01", "2020-01-01T01:30:00", "2020-01-01T01:59:59.999999999", "soon"]),
)  # fmt: skip


def events(form: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({
        "at": SECONDS if form in NUMERIC_FORMATS else DATES,
        "who": st.one_of(TEXTS, st.integers(-9, 2**63 - 1)),
        "km": st.one_of(NUMBERS, st.none(), st.just("")),
        "flag": st.sampled_from([True, False, "True", "FALSE", "yes", None, ""]),
        "code": st.one_of(TEXTS, st.none(), st.integers(0, 9)),
    })  # fmt: skip


# --- Writing, and reading back ------------------------------------------------------------------------------------


def fate(spec: SourceSpec, value: bytes) -> tuple[Any, ...]:
    """What becomes of a record: its block, with step, key and user's hash; and why it is refused."""
    block, letters = taken(spec, [RawRecord(0, -1, None, value)])
    return block.encode(), [(letter.reason.name, letter.field) for letter in letters]


def written_by_topics() -> Iterator[tuple[str, str, Callable[[Event], bytes]]]:
    for number, (form, name) in enumerate((form, name) for form in STREAMS for name in get_args(SourceFormat)):
        fields = SPECS[form].fields
        yield form, name, WRITERS[name](5000 + 10 * number, SPECS[form], list(fields.names))


TOPICS = {(form, name): write for form, name, write in written_by_topics()}


def of_topic(form: str, name: str, event: Event) -> tuple[Any, ...] | None:
    try:
        value = TOPICS[form, name](event)
    except Exception:
        return None  # its library cannot write this record
    made = InputFormat(name, csv=CsvSection() if name == "csv" else None)
    return fate(replace(SPECS[form], input=made, schemas=BOOK), value)


def write_file(path: Path, kind: str, event: Event) -> None:
    if kind == "csv":
        target = io.StringIO()
        csv.writer(target).writerows([event.keys(), event.values()])
        path.write_text(target.getvalue(), encoding="utf-8")
    elif kind == "jsonl":
        path.write_bytes(json.dumps(event).encode())
    else:
        pa_parquet.write_table(pa.Table.from_pylist([dict(event)]), path)


def of_file(form: str, path: Path, event: Event, kind: str) -> tuple[Any, ...] | None:
    write_file(path, kind, event)
    [[row]] = rows_for(path, STREAMS[form]).batches()
    rows = SourceSpec.from_stream(STREAMS[form], build_domain(STREAMS[form]), key=KEY, partitions=1, rows=True)
    value = row if isinstance(row, bytes) else msgspec.json.encode(row)
    found = fate(rows, value)
    [time], [reason] = times_of(STREAMS[form]).parse([row]), found[1] or [("", "")]
    assert (time is None) == (reason == ("BAD_TIME", "at")) or reason[0] in ("NOT_FINITE", "MISSING_FIELD"), reason
    return found


def of_frame(form: str, event: Event) -> tuple[Any, ...] | None:
    if any(isinstance(each, float) and math.isnan(each) for each in event.values()):
        return None  # null, as numpy and pandas mean it
    spec = SPECS[form]
    [record] = BatchReader(STREAMS[form], spec).read([event]).records
    return fate(spec, record)


@settings(max_examples=examples(1.2), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_record_is_the_same_event_whoever_wrote_it(tmp_path: Path, data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(list(STREAMS)))
    check(form, tmp_path, data.draw(events(form)))


def check(form: str, folder: Path, event: Event) -> None:
    first = of_topic(form, "json", event)
    assert first is not None
    found = {name: of_topic(form, name, event) for name in get_args(SourceFormat)}
    if None in event.values():
        del found["protobuf"]  # it has no null: there the field is absent
    found |= {
        ending: of_file(form, folder / f"rows{ending}", event, kind)
        for ending, (kind, gzipped) in _KINDS.items()
        if not gzipped and ending != ".ndjson"
    }
    found["frame"] = of_frame(form, event)
    assert {name: each for name, each in found.items() if each not in (None, first)} == {}, first


@pytest.mark.parametrize("form", STREAMS)
@given(
    moment=st.datetimes(datetime(2019, 12, 31), datetime(2020, 1, 2)).map(lambda each: each.replace(fold=0)),
    zone=st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30))]),
)
def test_a_timestamp_is_written_as_the_stream_writes_times(form: str, moment: datetime, zone: tzinfo | None) -> None:
    """In a file as in frames; one without a zone is of the stream's."""
    event = EVENT | {"at": moment.replace(tzinfo=zone), "code": "7"}
    at = (moment.replace(tzinfo=zone or UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    expected = of_topic(form, "json", event | {"at": written(at, form)})
    table = pa.Table.from_pylist([event])
    with TemporaryDirectory() as folder:
        found = of_file(form, Path(folder) / "rows.parquet", event, "parquet")
    frames = [BatchReader(STREAMS[form], SPECS[form]).read(batch).records for batch in (table, [event])]
    assert [found, *(fate(SPECS[form], record) for [record] in frames)] == [expected] * 3


def written(at_us: int, form: str) -> Any:
    if form in NUMERIC_FORMATS:
        whole, rest = divmod(at_us * 1000, NUMERIC_FORMATS[form])
        return at_us * 1000 / NUMERIC_FORMATS[form] if rest else whole
    local = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    return local.isoformat() if form == "iso" else local.strftime(form)


EVENT = {"at": DAY, "who": "ann", "km": "12.50", "flag": "TRUE", "code": 7}


@pytest.mark.parametrize(
    ("form", "changes", "refused"),
    [
        ("s", {}, []),
        ("s", {"at": "1.5778368e9", "km": None, "code": ""}, [("OUTSIDE_DOMAIN", "code")]),
        ("ns", {"at": DAY * 10**9 + 123}, []),
        ("%Y%m%d", {"at": 20200101}, []),
        ("iso", {"at": "2020-01-01T00:00:00.123456789Z"}, []),
        *(("s", {"km": value}, [("NOT_FINITE", "km")]) for value in ("NaN", "1e400", "-inf", math.nan, math.inf)),
        ("s", {"at": math.nan}, [("BAD_TIME", "at")]),
        ("s", {"km": "1.5 km"}, [("WRONG_TYPE", "km")]),
    ],
)
def test_what_people_write(form: str, changes: Event, refused: list[tuple[str, str]]) -> None:
    assert fate(SPECS[form], json.dumps({**EVENT, **changes}).encode())[1] == refused


def nothing_is_read_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FormatDecoder, "_event", lambda decoder, found: msgspec.convert(found, decoder._strict))


def no_number_is_null(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(files, "plain", lambda value: None if value != value else value)


@pytest.mark.parametrize(
    ("fault", "changes"), [(nothing_is_read_again, {"km": "12.50"}), (no_number_is_null, {"km": math.nan})]
)
def test_a_planted_fault_is_found(fault: Any, changes: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event = {**EVENT, "flag": True, "code": "7", **changes}
    check("s", tmp_path, event)
    fault(monkeypatch)
    with pytest.raises((AssertionError, msgspec.ValidationError)):
        check("s", tmp_path, event)
