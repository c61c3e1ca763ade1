"""A file without the columns that a stream reads is refused before anything comes of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agents.offline.columns import check_columns
from agents.offline.files import FileError, open_rows
from schemas.config import load_config

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
    check_columns(open_rows(write(tmp_path, ending, (*COLUMNS, "more"))), stream)
    file = open_rows(write(tmp_path, ending, ("pickup_datetime", "pickup_longitud", "lat")))
    with pytest.raises(FileError) as refused:
        check_columns(file, stream)
    text = str(refused.value)
    assert "pickup_longitude ([streams.domain] x), which has pickup_longitud" in text
    assert "pickup_latitude ([streams.domain] y)" in text
    assert "pickup_datetime" not in text


def test_users_and_times_are_asked_for_where_they_are_read(tmp_path: Path) -> None:
    stream = load_config(TAXI).streams[0]
    file = open_rows(write(tmp_path, "csv", COLUMNS))
    with pytest.raises(FileError, match=r"driver \(--user-field\)"):
        check_columns(file, stream, user_field="driver")
    untimed = open_rows(write(tmp_path, "csv", COLUMNS[1:]))
    check_columns(untimed, stream, timed=False)
    with pytest.raises(FileError, match="pickup_datetime"):
        check_columns(untimed, stream)


def test_rows_that_name_their_own_fields_and_empty_files_are_let_through(tmp_path: Path) -> None:
    stream = load_config(TAXI).streams[0]
    check_columns(open_rows(write(tmp_path, "jsonl", ("other",))), stream)
    empty = tmp_path / "empty.csv"
    empty.write_bytes(b"")
    check_columns(open_rows(empty), stream)
