"""The door of the library, its configurations, and batches in every form: what is refused is said by name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import engines
from agents.local.library.release import Taken
from engines import configure
from schemas.errors import BatchError, ConfigError
from tests.library.tables import START, TABLES, rows

pytestmark = pytest.mark.seconds(0.2)

# --- The door -----------------------------------------------------------------------------------------------------


def test_the_door_has_what_it_names_and_nothing_else() -> None:
    for name in engines.__all__:
        assert getattr(engines, name).__doc__, name
        assert engines._DOOR[name].startswith(("agents.local.library.", "schemas.errors:"))
    assert set(engines.__all__) <= set(dir(engines))
    with pytest.raises(AttributeError, match="no attribute 'confgure'"):
        _ = engines.confgure


def test_engines_load_no_library_and_the_library_loads_no_kafka() -> None:
    code = (
        "import sys; import engines.core.noise; print(any(m.startswith('agents') for m in sys.modules));"
        "from engines import configure;"
        "print([m for m in ('faust', 'aiokafka', 'rocksdict', 'matplotlib', 'typer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["False", "[]"]


# --- Batches ------------------------------------------------------------------------------------------------------


class Capsule:
    """A frame that can nothing but Arrow's PyCapsules, as polars and duckdb."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, schema: object = None) -> Any:
        return self._table.__arrow_c_stream__(schema)


FORMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "numpy": lambda columns: columns,
    "lists": lambda columns: {name: list(column) for name, column in columns.items()},
    "pandas": pd.DataFrame,
    "pandas with an index": lambda columns: pd.DataFrame(columns).assign(more="?").set_index("more"),
    "zoned": lambda columns: pd.DataFrame({**columns, "at": pd.Series(columns["at"]).dt.tz_localize("UTC")}),
    "table": pa.table,
    "record batch": pa.RecordBatch.from_pydict,
    "reader": lambda columns: pa.table(columns).to_reader(),
    "capsule": lambda columns: Capsule(pa.table(columns)),
    "dicts": lambda columns: pa.table(columns).to_pylist(),
    "categories": lambda columns: pd.DataFrame(columns).astype({"who": "string"}).astype({"who": "category"}),
}


@pytest.fixture(scope="module")
def as_numpy() -> str:
    return str(configure(TABLES, insecure_seed=1).step(rows(0)).ledger["digest"])


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_is_the_same_in_every_form(form: str, as_numpy: str) -> None:
    released = configure(TABLES, insecure_seed=1).step(FORMS[form](rows(0)))
    assert released.taken.accepted == 40
    assert released.ledger["digest"] == as_numpy


@pytest.mark.parametrize("written", ["iso", "s", "ms", "us", "ns", "%d.%m.%Y %H:%M:%S"])
def test_times_are_written_as_the_configuration_says(written: str) -> None:
    zone = {**TABLES["time"], "format": written, "timezone": "America/New_York"}
    stream = configure(TABLES, time=zone, insecure_seed=1)
    one = stream.step({**rows(1, users=1), "at": [datetime(2024, 1, 1, 0, 59, 59)]})
    two = stream.step([{"who": "v", "at": pd.Timestamp("2024-01-01T06:30Z"), "x": 0.5, "y": 0.5}])
    assert (one.taken.accepted, one.taken.waiting, two.taken.accepted, two.taken.late) == (1, 0, 1, 0)


class Lost(tzinfo):
    """A zone whose own code fails."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        raise LookupError("no such zone")


class Nowhere(tzinfo):
    """A zone that has no offset."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None


@pytest.mark.parametrize("where", [list, lambda rows: {name: [row[name] for row in rows] for name in rows[0]}])
@pytest.mark.parametrize("column", ["who", "at", "x"])
def test_what_only_python_can_hold_costs_its_row_alone(column: str, where: Callable[[Any], Any]) -> None:
    """A zone that fails in any column ended the process, and a whole number of thousands of digits the call."""
    cells = [datetime(2024, 1, 1, tzinfo=zone()) for zone in (Lost, Nowhere)] + [10**5000, -(10**5000)]  # type: ignore[abstract]
    good = {"who": "ann", "at": START, "x": 0.5, "y": 0.5}
    with pytest.warns(UserWarning, match="refused many of the rows"):
        taken = configure(TABLES).add(where([good, *({**good, column: cell} for cell in cells)]))
    used = 1 + (column != "x") * 1  # a time without an offset is one, and a text that names somebody
    assert (taken.rows, taken.accepted, sum(taken.refused.values())) == (5, used, 5 - used)


@pytest.mark.parametrize("written", ["iso", "s", "%Y-%m-%d %H:%M:%S"])
def test_a_time_that_no_calendar_has_costs_its_row_alone(written: str) -> None:
    """Where another zone is, the first and the last hours of the calendar are in no year."""
    moments = [
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        pd.NaT,
        np.datetime64("NaT"),
        datetime(2024, 1, 1, tzinfo=Lost()),  # type: ignore[abstract]
        datetime.fromisoformat(START),
    ]
    batch = [{"who": 1, "at": at, "x": 0.5, "y": 0.5} for at in moments]
    with pytest.warns(UserWarning, match="refused many of the rows"):
        released = configure({**TABLES, "time": {**TABLES["time"], "format": written}}).step(batch)
    assert released.taken.rows == 6
    assert released.taken.accepted == 1
    assert sum(released.taken.refused.values()) == 5


def test_times_in_doubt_are_counted() -> None:
    timing = {**TABLES["time"], "timezone": "Europe/Berlin", "step": "1d", "max_ahead": 400}
    moments = [datetime(2024, 3, 31, 2, 30), datetime(2024, 10, 27, 2, 30), datetime(2024, 10, 27, 3)]
    batch = [{"who": who, "at": at, "x": 0.5, "y": 0.5} for who, at in enumerate(moments)]
    taken = configure({**TABLES, "time": timing}).add(batch)
    assert taken == Taken(rows=3, accepted=3, waiting=3, ambiguous=1, nonexistent=1)


def test_what_is_refused_is_counted_by_reason_and_column() -> None:
    bad = [
        {"who": "a", "at": START, "x": 0.5, "y": 0.5},
        {"who": "a", "at": START, "x": 0.5, "y": 0.5},
        {"who": "a", "at": START, "x": 0.5, "y": 0.5},
        {"who": "b", "at": START, "x": 7.0, "y": 0.5},
        {"who": "b", "at": START, "x": None, "y": 0.5},
        {"who": "b", "at": START, "x": float("nan"), "y": 0.5},
        {"who": None, "at": START, "x": 0.5, "y": 0.5},
        {"who": "c", "at": "soon", "x": 0.5, "y": 0.5},
        {"who": "c", "at": "2023-12-31T23:59:59", "x": 0.5, "y": 0.5},
        {"who": "c", "at": "2025-01-01T00:00:00", "x": 0.5, "y": 0.5},
        {"who": "c", "at": START, "y": 0.5},
        {"who": "c", "at": START, "x": object(), "y": 0.5},
    ]
    with pytest.warns(UserWarning, match="refused many of the rows") as told:
        taken = configure(TABLES).step(bad).taken
    assert not any(character.isdigit() for character in str(told[0].message))
    assert (taken.rows, taken.accepted, taken.over_bound) == (12, 2, 1)
    assert dict(taken.refused) == {
        ("OUTSIDE_DOMAIN", "x"): 1,
        ("WRONG_TYPE", "x"): 2,
        ("BAD_USER", "who"): 1,
        ("BAD_TIME", "at"): 1,
        ("BEFORE_START", "at"): 1,
        ("TOO_FAR_AHEAD", "at"): 1,
        ("MISSING_FIELD", "x"): 1,
        ("NOT_JSON", ""): 1,
    }
    assert taken.rows == taken.accepted + taken.over_bound + sum(taken.refused.values())
    assert any(line.startswith("WRONG_TYPE of x, 2 rows: ") for line in taken.advice())


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({**rows(0), "lon": rows(0)["x"], "x": None}, "could not be read as columns"),
        ({"who": [1], "at": [START], "xx": [0.5], "y": [0.5]}, r"x \(\[streams.domain\] x\); is it xx\?"),
        ({"who": [1], "at": [START], "x": [0.5], "y": pa.array([b"\0"])}, "column y is of type binary"),
        ({"who": [1, 2], "at": [START], "x": [0.5], "y": [0.5]}, "could not be read as columns"),
        (pa.table([[1], [2]], names=["x", "x"]), "two columns of the batch have one name"),
        ([1, 2], "a list of int is no batch"),
        (7, "a batch cannot be of type int"),
        ("rows.csv", "a batch cannot be of type str"),
    ],
)
def test_what_is_no_batch_is_refused_as_a_whole(batch: Any, said: str) -> None:
    stream = configure(TABLES)
    with pytest.raises(BatchError, match=said):
        stream.step(batch)
    assert stream.next_step == 0
    assert stream.last is None


def test_a_first_row_in_place_of_names_is_not_repeated() -> None:
    """As pandas reads a file without a header."""
    frame = pd.DataFrame(
        [["who else", "2024-01-01T01:00:00", 0.5]], columns=["who is Ann", "2024-01-01T00:00:00", "0.25"]
    )
    with pytest.raises(BatchError, match=r"reads columns that the batch does not have: .*who \(") as refused:
        configure(TABLES).add(frame)
    assert "Ann" not in str(refused.value)


# --- Configuration ------------------------------------------------------------------------------------------------


def test_a_file_of_the_job_is_a_configuration() -> None:
    examples = Path(__file__).parents[2] / "examples"
    stream = configure(examples / "departures.toml")
    assert stream.name in repr(stream)
    assert json.loads(json.dumps(stream.guarantee().as_json()))["private"] is True


@pytest.mark.parametrize(
    ("arguments", "tables", "said"),
    [
        ((), {}, "streams"),
        ((TABLES,), {"privacy": {"epsilon": 1}}, "max_contributions"),
        ((TABLES,), {"time": {**TABLES["time"], "start": "now"}}, "the library has no clock"),
        (({"streams": [{**TABLES, "name": name, "source": "raw"} for name in "ab"]},), {}, "pass stream="),
        (("a.toml",), {"engine": "spatial"}, "is said beside a file"),
    ],
)
def test_a_configuration_is_refused_by_its_keys(arguments: Any, tables: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configure(*arguments, **tables)
