"""Each row of a batch or a file is read by itself; and what is refused is said without a value, down to the last cause.

The relation of `tests/protocol/test_each_record_by_itself.py` where no topic is read: a row is the same record beside
others as alone.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import gzip
import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest

from agents.local.library.batches import BatchReader
from agents.local.offline.files import _KINDS, open_rows, rows_for
from agents.local.offline.seen import check_fit
from agents.local.start.sample import fields_of_file
from agents.protocol.replay import clock_of, steps_of, times_of
from engines import configure
from engines.checks.contract_case import contract_case
from schemas.config import ENGINES, Stream
from schemas.errors import PrivstreamError
from tests.library.tables import TABLES
from tests.protocol.hostile import CANARY, SPECS
from tests.protocol.sources import IDS, TIMES

Row = dict[str, Any]
NOW = datetime.datetime(2020, 1, 1, 0, 1)
CELLS: tuple[Any, ...] = (
    *IDS, *TIMES, None, True, 0.5, 1.5, float("nan"), float("inf"), -0.0, 1e308, 2**70, "0.5", "1e5", "NaN", "", b"\0",
    [1], {"a": 1}, decimal.Decimal("0.5"), NOW, NOW.replace(tzinfo=datetime.UTC), NOW.date(), pd.NaT, pd.NA, object(),
    NOW.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=14))), datetime.datetime.min, np.datetime64("NaT"),
    np.datetime64("2020-01-01T00:01:00.000000001"), np.int64(7), np.float32(0.1), np.bool_(True), np.str_("ann"),
    pd.Timestamp(NOW),
)  # fmt: skip
STREAMS = {name: contract_case(name).stream("default") for name in ENGINES}


def rows_of(names: Sequence[str], most: int) -> list[Row]:
    chance = random.Random(str(names))
    return [{name: chance.choice(CELLS) for name in names} for _ in range(most)]


# --- Batches ------------------------------------------------------------------------------------------------------


def in_lists(rows: Sequence[Row]) -> Any:
    return {name: [row[name] for row in rows] for name in rows[0]}


def in_objects(rows: Sequence[Row]) -> Any:
    columns = {name: np.empty(len(rows), object) for name in rows[0]}
    for name, column in columns.items():
        column[:] = [row[name] for row in rows]
    return columns


FORMS: Mapping[str, Callable[[Sequence[Row]], Any]] = {
    "dicts": list,
    "lists": in_lists,
    "objects": in_objects,
    "pandas": lambda rows: pd.DataFrame(in_objects(rows), dtype=object),
    "index": lambda rows: pd.DataFrame(in_objects(rows), dtype=object).set_index(next(iter(rows[0]))),
}
TYPED: Mapping[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "reader": lambda table: table.to_reader(),
    "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "columns": lambda table: {name: table.column(name) for name in table.column_names},
}
CANDIDATES: tuple[pa.Array, ...] = (
    pa.array([7, 8, None, -(2**63)]), pa.array([0.5, float("nan"), None, 1e308]), pa.array(["ann", "Ann", "", None]),
    pa.array([True, False, None, True]), pa.array([0, 2**63 - 1, None, 1577836860 * 10**9], pa.timestamp("ns")),
    pa.array([0, -(2**63), None, 1577836860], pa.timestamp("s", "+14:00")),
    pa.array(["ann", None, "b", "Ann"]).dictionary_encode(),
)  # fmt: skip
"""Columns with types of their own."""


def check_batches(stream: Stream, make: Callable[[Any], Any], rows: Sequence[Any]) -> None:
    """Args: rows: of which slices are made into batches."""
    reader = BatchReader(stream, next(spec for name, spec in SPECS.items() if name.startswith(stream.engine)))
    together = reader.read(make(rows))
    for at in range(len(rows)):
        alone = reader.read(make(rows[at : at + 1]))
        assert alone.records == [together.records[at]], f"row {at}"
        assert list(map(repr, alone.times)) == [repr(together.times[at])], f"row {at}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_of_objects_is_read_by_itself(engine: str, form: str) -> None:
    fields = SPECS[next(name for name in SPECS if name.startswith(engine))].fields
    rows = rows_of(fields.names, 120)
    if isinstance(batch := FORMS[form](rows), pd.DataFrame):  # its columns and index keep their types in a slice
        check_batches(STREAMS[engine], lambda part: part, batch)
    else:
        check_batches(STREAMS[engine], FORMS[form], rows)


@pytest.mark.parametrize("form", TYPED)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_of_typed_columns_is_read_by_itself(engine: str, form: str) -> None:
    names = SPECS[next(name for name in SPECS if name.startswith(engine))].fields.names
    for first in range(len(CANDIDATES)):
        columns = itertools.islice(itertools.cycle(CANDIDATES), first, first + len(names))
        check_batches(STREAMS[engine], TYPED[form], pa.table(dict(zip(names, columns, strict=True))))


@pytest.mark.parametrize("form", FORMS)
def test_whose_type_the_others_had(form: str) -> None:
    """A column that got one type: an id of 7.5 made a float of 7, a time without a zone took the other's away."""
    reader = BatchReader(STREAMS["spatial"], SPECS["spatial-0-replay"])
    good = {"lon": 0.5, "lat": 40.5}
    rows: list[Row] = [
        {"t": NOW, "u": 7, **good},
        {"t": NOW.astimezone(datetime.timezone(datetime.timedelta(hours=2))), "u": 7.5, **good},
    ]
    read = [json.loads(record) for record in reader.read(FORMS[form](rows)).records]
    assert [record["u"] for record in read] == [7, 7.5]
    assert read[1]["t"] == int(rows[1]["t"].timestamp())


# --- Files --------------------------------------------------------------------------------------------------------


def write_file(path: Path, kind: str, rows: Sequence[Row], table: pa.Table) -> None:
    if kind == "parquet":
        pa_parquet.write_table(table, path)
        return
    if kind == "csv":
        sink = pa.BufferOutputStream()
        pa_csv.write_csv(
            pa.Table.from_pylist([{name: _text(cell) for name, cell in row.items()} for row in rows]), sink
        )
        data = sink.getvalue().to_pybytes()
    else:
        data = b"".join(json.dumps(row, default=str).encode() + b"\n" for row in ({}, *rows))
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def _text(cell: Any) -> str | None:
    return None if cell is None else str(cell)


@pytest.mark.parametrize(("ending", "engine"), list(zip(_KINDS, itertools.cycle(ENGINES), strict=False)))
def test_a_row_of_a_file_is_read_by_itself(ending: str, engine: str, tmp_path: Path) -> None:
    stream, kind = STREAMS[engine], _KINDS[ending][0]
    names = SPECS[next(name for name in SPECS if name.startswith(engine))].fields.names
    rows = rows_of(names, 40)
    table = pa.table(dict(zip(names, itertools.cycle(CANDIDATES), strict=False)))

    def read(first: int, last: int) -> list[Any]:
        path = tmp_path / f"rows{ending}"
        write_file(path, kind, rows[first:last], table.slice(first, last - first))
        found = [row for batch in rows_for(path, stream).batches() for row in batch][kind == "jsonl" :]
        return list(zip(found, steps_of(clock_of(stream), times_of(stream).parse(found)), strict=True))

    count = table.num_rows if kind == "parquet" else len(rows)
    together = read(0, count)
    assert len(together) == count
    for at in range(count):
        assert repr(read(at, at + 1)) == repr([together[at]])


# --- What is refused is said without a value ----------------------------------------------------------------------


def said(error: BaseException | None) -> Iterator[str]:
    """All that an error says, and those behind it."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield from (str(each), repr(each), repr(each.args), repr(vars(each)), repr(getattr(each, "__notes__", [])))
        waiting += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]


REFUSED: Mapping[str, Callable[[], Any]] = {
    "a column that Arrow does not take": lambda: {"who": Broken(), "at": [1], "x": [1], "y": [1]},
    "no cells": lambda: {"who": None, CANARY: [CANARY], "at": [CANARY], "x": [1], "y": [1]},
    "lengths": lambda: {"who": [CANARY, CANARY], "at": [CANARY], "x": [1.0], "y": [1.0]},
    "bytes": lambda: {"who": pa.array([CANARY.encode()]), "at": [CANARY], "x": [1.0], "y": [1.0]},
    "complex": lambda: {"who": np.array([1j]), "at": [CANARY], "x": [1.0], "y": [1.0]},
    "a column missing": lambda: {"at": [CANARY], "x": [1.0], "y": [1.0]},
    "no rows": lambda: [CANARY],
    "a text": lambda: CANARY,
    "two of a name": lambda: pa.table([[CANARY]] * 4, names=["who", "at", "x", "x"]),
}


class Broken:
    """A column whose own code repeats its value."""

    def __arrow_array__(self, type: Any = None) -> Any:  # noqa: A002
        raise pa.ArrowInvalid(f"Could not convert {CANARY}")


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("call", ["step", "add", "run"])
def test_a_refusal_of_the_library_holds_no_value(what: str, call: str) -> None:
    arguments = {"until": 2} if call == "run" else {}
    with configure(TABLES) as stream, pytest.raises(PrivstreamError) as caught:
        getattr(stream, call)(REFUSED[what](), **arguments)
    assert not [text for text in said(caught.value) if CANARY in text]


BROKEN: Mapping[str, bytes] = {
    "cells": f"who,at,x,y\n{CANARY},{CANARY},1,2\n{CANARY},1\n".encode(),
    "quote": f'who,at,x,y\n"{CANARY},1,1,2\n'.encode(),
    "latin-1": f"who,at,x,y\n{CANARY}\xe9,1,1,2\n".encode("latin-1"),
    "header": f"{CANARY}@example.org,13.4\n{CANARY},1\n".encode(),
    "names twice": f"who,who,at,x,y\n{CANARY},1,1,2,3\n".encode(),
    "another format": CANARY.encode() * 40,
    "objects": f'{{"who": "{CANARY}"}}\n{{"who": {CANARY}\n'.encode(),
    "no object": f'["{CANARY}"]\n'.encode(),
    "gzip": gzip.compress(CANARY.encode() * 1000)[:-12],
    "nothing": b"",
}
USES: Mapping[str, Callable[[Path], Any]] = {
    "rows": lambda path: list(rows_for(path, configured()).batches()),
    "objects": lambda path: list(open_rows(path).objects()),
    "summary": lambda path: open_rows(path).summary(),
    "columns": lambda path: open_rows(path).columns(),
    "replay": lambda path: check_fit(configured(), rows_for(path, configured())),
    "init": fields_of_file,
}


def configured() -> Stream:
    time = {**TABLES["time"], "clock": "replay"}
    return Stream.model_validate({**TABLES, "name": "s", "source": "raw.s", "time": time})


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("ending", _KINDS)
def test_a_refusal_of_a_file_holds_no_value(ending: str, use: str, tmp_path: Path) -> None:
    path, refusals = tmp_path / f"rows{ending}", []
    for data in BROKEN.values():
        path.write_bytes(gzip.compress(data) if ending.endswith(".gz") and data[:1] != b"\x1f" else data)
        with contextlib.suppress(PrivstreamError):
            try:
                USES[use](path)
            except Exception as error:  # whatever it is: its words are looked at
                refusals.append(error)
                raise
    for refusal in refusals:
        assert not [text for text in said(refusal) if CANARY in text]
