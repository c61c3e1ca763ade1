"""A file without the columns that a stream reads is refused before anything comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agents.local.offline.files import FileError, rows_for
from schemas.config import Stream, load_config

TAXI = Path(__file__).parents[2] / "examples" / "taxi.toml"
COLUMNS = ("pickup_datetime", "pickup_longitude", "pickup_latitude")


def write(folder: Path, ending: str, columns: tuple[str, ...]) -> Path:
    path = folder / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(pa.table({name: ["1"] for name in columns}), path)
    elif ending == "csv":
        path.write_text(",".join(columns) + "\n" + ",".join("1" for _ in columns) + "\n", encoding="utf-8")
    else:
        path.write_text("{" + ", ".join(f'"{name}": 1' for name in columns) + "}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_missing_columns_are_named_with_their_keys_and_what_is_like_them(tmp_path: Path, ending: str) -> None:
    stream = load_config(TAXI).streams[0]
    rows_for(write(tmp_path, ending, (*COLUMNS, "more")), stream)
    file = write(tmp_path, ending, ("pickup_datetime", "pickup_longitud", "lat"))
    with pytest.raises(FileError) as refused:
        rows_for(file, stream)
    text = str(refused.value)
    assert "pickup_longitude ([streams.domain] x); is it pickup_longitud?" in text
    assert "pickup_latitude ([streams.domain] y)" in text
    assert "pickup_datetime" not in text


def test_the_time_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="pickup_datetime"):
        rows_for(write(tmp_path, "csv", COLUMNS[1:]), load_config(TAXI).streams[0])


def test_rows_that_name_their_own_fields_and_empty_files_are_let_through(tmp_path: Path) -> None:
    stream = load_config(TAXI).streams[0]
    rows_for(write(tmp_path, "jsonl", ("other",)), stream)
    empty = tmp_path / "empty.csv"
    empty.write_bytes(b"")
    rows_for(empty, stream)


def table(folder: Path, attributes: str, **sections: str) -> Stream:
    """A stream of rows with these attributes."""
    path = folder / "table.toml"
    path.write_text(
        f"""
        [job]
        name = "typed"
        [kafka]
        bootstrap = "nowhere:9092"
        [[streams]]
        name = "s"
        engine = "tabular"
        source = "raw.s"
        privacy = {{ epsilon = 1.0, unit = "event" }}
        [streams.time]
        field = "at"
        format = "{sections.get("format", "%Y%m%d")}"
        start = "2016-01-01T00:00:00"
        step = "1d"
        clock = "replay"
        [streams.domain]
        kind = "table"
        attributes = [{attributes}]
        """
    )
    return load_config(path).streams[0]


def read(folder: Path, stream: Stream, text: str) -> list[dict[str, Any]]:
    path = folder / "typed.csv"
    path.write_text(text, encoding="utf-8")
    return [row for rows in rows_for(path, stream).batches(batch_rows=1) for row in rows]


def test_a_cell_is_what_the_values_of_its_attribute_can_be(tmp_path: Path) -> None:
    stream = table(
        tmp_path,
        '{ field = "text", values = ["4.0", "7"] }, { field = "flag", values = [true, false] }, '
        '{ field = "number", values = [4, 7] }, { field = "bin", edges = [0.0, 10.0] }, '
        '{ field = "both", values = ["a", 1] }',
    )
    rows = read(
        tmp_path,
        stream,
        "at,text,flag,number,bin,both,other\n20160101,4.0,true,4.0, 7.5,1,4.0\n20160102,7,False,007,.5,a,007\n",
    )
    assert rows == [
        {"at": "20160101", "text": "4.0", "flag": True, "number": 4.0, "bin": 7.5, "both": 1, "other": 4.0},
        {"at": "20160102", "text": "7", "flag": False, "number": 7, "bin": 0.5, "both": "a", "other": "007"},
    ]
    # What is none of these stays the text that it is, to be refused by field and reason.
    [row] = read(tmp_path, stream, 'at,text,flag,number,bin,both\n20160101,7,yes,four,"7,5",\n')
    assert row == {"at": "20160101", "text": "7", "flag": "yes", "number": "four", "bin": "7,5", "both": None}
    assert (
        type(read(tmp_path, table(tmp_path, '{ field = "a", values = ["x"] }', format="s"), "at,a\n07,x\n")[0]["at"])
        is int
    )
