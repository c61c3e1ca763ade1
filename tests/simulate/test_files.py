"""Rows of every format, and that a row's JSON depends on nothing but the row."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.local.offline.files import LOOKED_AT, BrokenLine, FileError, _Utf8, open_rows, rows_for
from agents.protocol.formats.values import NOT_FINITE
from schemas.config import Stream, load_config
from schemas.config.formats import CsvSection

ROWS: list[dict[str, Any]] = [
    {"user": "007", "n": 1, "x": -73.9, "note": "a,b"},
    {"user": 12, "n": None, "x": 40.0, "note": 'say "no"'},
    {"user": "A9", "n": 3, "x": 1e-7, "note": "two\nlines"},
]
CSV = 'user,n,x,note\n007,1,-73.9,"a,b"\n12,,40.0,"say ""no"""\nA9,3,1e-07,"two\nlines"\n'


def write(folder: Path, name: str) -> Path:
    path = folder / name
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    text = {"csv": CSV, "jsonl": lines, "ndjson": lines}.get(name.removesuffix(".gz").split(".")[-1])
    if text is None:
        pq.write_table(pa.Table.from_pylist([{**row, "user": str(row["user"])} for row in ROWS]), path)
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, *, skip: int = 0, batch_rows: int = 2) -> list[Any]:
    batches = list(open_rows(path).batches(skip=skip, batch_rows=batch_rows))
    assert all(0 < len(batch) <= batch_rows for batch in batches)
    return [row for batch in batches for row in batch]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "A.JSONL", "a.jsonl.gz", "a.ndjson", "a.ndjson.gz", "a.parquet"])
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name if name != "A.JSONL" else "a.jsonl")
    if name == "A.JSONL":
        path = path.rename(tmp_path / name)
    expected = ROWS if "parquet" not in name else [{**row, "user": str(row["user"])} for row in ROWS]
    assert read(path) == expected
    assert [type(row["n"]) for row in read(path)] == [int, type(None), int]
    assert read(path, skip=2, batch_rows=1) == expected[2:]
    assert read(path, skip=3) == []
    summary = open_rows(path).summary()
    assert summary.rows == 3 + (".csv" in name)  # the cell with a line break counts as two: an estimate, and too high


def test_the_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    one, two = write(tmp_path, "a.jsonl"), write(tmp_path, "b.jsonl")
    assert open_rows(one).summary().digest == open_rows(two).summary().digest
    two.write_text(two.read_text() + "{}\n")
    assert open_rows(one).summary().digest != open_rows(two).summary().digest


cells = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=True).map(repr),
    st.sampled_from(
        ["", "007", "-0", "1e400", "-", ".5", "5.", "+1", "0x1", "true", "NaN", "1E+2", "9" * 18, "9" * 19]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=5),
)


def by_hand(text: str) -> Any:
    """The slow obvious twin: JSON's own reading of the cell, where it is a number that 64 bits hold exactly."""
    try:
        value = json.loads(text)
    except ValueError:
        return text or None
    if isinstance(value, bool) or not isinstance(value, int | float) or text != text.strip() or not text.isascii():
        return text
    if len(text.lstrip("-").split(".")[0].lower().split("e")[0]) > 18 or value in (float("inf"), float("-inf")):
        return text
    return None if value != value else value


@given(
    table=st.lists(st.tuples(cells, cells), min_size=1, max_size=12), batch=st.integers(1, 5), skip=st.integers(0, 5)
)
def test_a_cell_is_read_by_its_own_text_alone(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, str]], batch: int, skip: int
) -> None:
    path = tmp_path_factory.mktemp("cells") / "a.csv"
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows([("a", "b", "last"), *((*row, "x") for row in table)])
    path.write_text(target.getvalue(), encoding="utf-8")
    rows = read(path, batch_rows=batch, skip=skip)
    expected = [
        [text if text in ("NaN", "Infinity", "-Infinity") else by_hand(text) for text in row] for row in table[skip:]
    ]
    assert [[row["a"], row["b"]] for row in rows] == expected
    assert [[type(row["a"]), type(row["b"])] for row in rows] == [[type(a), type(b)] for a, b in expected]


def test_parquet_values_become_json(tmp_path: Path) -> None:
    moment = datetime.datetime(2016, 1, 1, 12, 30)
    table = pa.table(
        {
            "at": pa.array([moment], pa.timestamp("us")),
            "zoned": pa.array([moment], pa.timestamp("us", tz="UTC")),
            "day": pa.array([moment.date()]),
            "price": pa.array([Decimal("1.50")]),
            "nan": pa.array([float("nan")]),
            "null": pa.array([None], pa.float64()),
            "whole": pa.array([Decimal(7)], pa.decimal128(38, 0)),
            "kind": pa.array(["a"]).dictionary_encode(),
            "tags": pa.array([[1, 2]]),
            "ok": pa.array([True]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    (row,) = read(tmp_path / "a.parquet")
    assert row == {
        "at": "2016-01-01T12:30:00",
        "zoned": "2016-01-01T12:30:00+00:00",
        "day": "2016-01-01",
        "price": 1.5,
        "nan": NOT_FINITE,
        "null": None,
        "whole": 7,
        "kind": "a",
        "tags": [1, 2],
        "ok": True,
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"", "format is not known"),
        ("a.csv", b"a,b\n1,2\nsecret\n", "line 3: another number of cells"),
        ("a.csv", b'a,b\n"1\n1",2\n\n\n"\n","\n"\n1,2\nsecret\n', "line 10: another number of cells"),
        ("a.csv", b"sep=,\na,b\n1,2\n", "line 1: a comment, or the separator for a spreadsheet.*remove the line"),
        ("a.csv", b"# of March\na,b\n1,2\n", "line 1: a comment, or the separator for a spreadsheet"),
        ("a.csv", b"a,a\n1,2\n", "same name"),
        ("a.csv", b"a,b\n1,\xff\xfe\n", "line 2, byte 3: not UTF-8"),
        (
            "a.csv",
            b"a,b\n" + b"1,%s\n" % (b"2" * 200) * 9_000 + "Zürich,2\n".encode("latin-1"),
            "line 9002, byte 2: not UTF-8",
        ),
        ("a.csv.gz", gzip.compress(b"a,b\n1,\xff\n", mtime=0), "line 2, byte 3: not UTF-8"),
        ("a.csv", "größe,b\n1,2\n".encode("latin-1"), "line 1, byte 3: not UTF-8.*LATIN1"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16"), "line 1, byte 1: not UTF-8.*iconv -f UTF-16"),
        ("a.csv", b"a,b\n1,2\nsecret\xe9,1,2\n", "line 3: another number of cells"),
        ("a.jsonl", b'{"a": "secret\xe9"}\n' * 9, "line 1, byte 14: not UTF-8"),
        ("a.jsonl", '{"a": 1}\n'.encode("utf-16"), "line 1, byte 1: not UTF-8.*iconv -f UTF-16"),
        ("a.csv", b"a;b\n1;2\n", "line 1: one column, in whose name there is a semicolon"),
        ("a.jsonl", b'\n{"a": secret\n', "line 2: not a JSON object, and none of the first lines is one"),
        ("a.jsonl", b"at,who\n" * 2 * LOOKED_AT, "line 1: not a JSON object, and none of the first"),
        ("a.jsonl", b'[\n{"a":\n1}\n]\n', "line 1: not a JSON object, and none of the first"),
        ("a.csv.gz", gzip.compress(CSV.encode() * 100, mtime=0)[:-20], "gzip that is damaged or cut off"),
        ("a.csv.gz", CSV.encode(), "not gzip, as its name says. Fix: rename it"),
        ("a.parquet", b"PAR1 and nothing else", "cannot be read"),
    ],
)
def test_what_cannot_be_read_says_where_and_repeats_nothing(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FileError, match=message) as caught:
        read(path)
    assert "secret" not in str(caught.value)
    assert "Fix: " in str(caught.value)


def test_lines_may_end_as_they_did_on_an_old_mac(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\r1,2\r3,4\r")
    assert (open_rows(path).count(), read(path)) == (2, [{"a": 1, "b": 2}, {"a": 3, "b": 4}])


@given(
    lines=st.lists(st.sampled_from([b'{"a": 1}', b'{"a": 2}', b"", b"[1]", b'{"a": ', b"\xff", b"null", b"1"])),
    batch=st.integers(1, 9),
    skip=st.integers(0, 5),
)
def test_a_line_that_is_no_object_stays_a_row_with_its_number(lines: list[bytes], batch: int, skip: int) -> None:
    lines = [b'\xef\xbb\xbf{"a": 0}', *lines]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_bytes(b"\n".join(lines))
        rows = [row for part in open_rows(path).batches(batch_rows=batch, skip=skip) for row in part]
        there = [(number, line) for number, line in enumerate(lines, 1) if line][skip:]
        assert len(rows) == len(there)
        for row, (number, line) in zip(rows, there, strict=True):
            if isinstance(row, BrokenLine):
                assert (row, row.number) == (line, number)
                assert not line.endswith(b"}")
            else:
                assert row == json.loads(line.decode("utf-8-sig"))
        if any(isinstance(row, BrokenLine) for row in rows):
            with pytest.raises(FileError, match=r"line \d+: not a JSON object\. Fix: correct or remove the line"):
                list(open_rows(path).objects())


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such file"):
        open_rows(tmp_path / "a.csv")


def test_binary_columns_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"raw": pa.array([b"\xff"])}), tmp_path / "a.parquet")
    with pytest.raises(FileError, match="column raw"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"a,b"])
def test_an_empty_file_has_no_rows(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert read(tmp_path / "a.csv") == []
    assert open_rows(tmp_path / "a.csv").summary().rows == 0


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b'"a\n""1"" ",b\r\n1,2\r\n', ('a\n"1" ', "b")),
        (b"\xef\xbb\xbfa,b\n1,2,3\n", ("a", "b")),
        (b"\n\r\na,b\r1,2\r", ("a", "b")),
    ],
)
def test_the_header_is_the_first_record_that_is_not_empty(tmp_path: Path, content: bytes, names: tuple[str]) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    assert open_rows(tmp_path / "a.csv").columns() == names


def test_no_thread_of_arrow_holds_a_function_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that drops it while the interpreter ends aborts the process: the message is printed, and the code is 134."""
    held: list[object] = []
    options = pa_csv.ParseOptions
    monkeypatch.setattr(
        pa_csv, "ParseOptions", lambda **told: held.append(told.get("invalid_row_handler")) or options(**told)
    )
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n3\n")
    with pytest.raises(FileError, match="line 3"):
        read(tmp_path / "a.csv")
    assert held
    assert not any(held)


MOMENTS = {
    "ns": (pa.timestamp("ns"), [1_577_836_800_000_000_123, -1, None]),
    "us": (pa.timestamp("us", "Asia/Tokyo"), [2**62, 0, 1_577_836_800_000_001]),
    "s": (pa.timestamp("s", "UTC"), [-(10**14), 0, 1]),
    "zone": (pa.timestamp("ms", "Nowhere/Atall"), [1, None, 0]),
    "offset": (pa.timestamp("ms", "-02:30"), [1, None, 0]),
    "lasts": (pa.duration("s"), [2**62, 1, None]),
    "lasts_ns": (pa.duration("ns"), [1_001, None, 0]),
    "day": (pa.date32(), [2**31 - 1, 0, None]),
    "hour": (pa.time64("ns"), [1_001, 0, None]),
    "listed": (pa.list_(pa.timestamp("ns")), [[1_001], [], None]),
    "inner": (pa.struct([("at", pa.timestamp("us"))]), [{"at": 2**62}, {"at": 0}, None]),
}


def test_times_that_no_calendar_has_are_null_with_pandas_or_without(tmp_path: Path) -> None:
    """Arrow ends with an error that repeats the value, and reads nanoseconds otherwise where pandas is there."""
    path = tmp_path / "moments.parquet"
    pq.write_table(
        pa.table({name: pa.array(values, kind) for name, (kind, values) in MOMENTS.items()}), path, version="2.6"
    )
    found = [row for rows in open_rows(path).batches() for row in rows]
    assert found == [
        {
            "ns": "2020-01-01T00:00:00", "us": None, "s": None, "zone": "1970-01-01T00:00:00.001000+00:00",
            "offset": "1970-01-01T00:00:00.001000+00:00", "lasts": None, "lasts_ns": 0.000001, "day": None,
            "hour": "00:00:00.000001", "listed": ["1970-01-01T00:00:00.000001"], "inner": None,
        },
        {
            "ns": "1969-12-31T23:59:59.999999", "us": "1970-01-01T00:00:00+00:00", "s": "1970-01-01T00:00:00+00:00",
            "zone": None, "offset": None, "lasts": 1.0, "lasts_ns": None, "day": "1970-01-01", "hour": "00:00:00",
            "listed": [], "inner": {"at": "1970-01-01T00:00:00"},
        },
        {
            "ns": None, "us": "2020-01-01T00:00:00.000001+00:00", "s": "1970-01-01T00:00:01+00:00",
            "zone": "1970-01-01T00:00:00+00:00", "offset": "1970-01-01T00:00:00+00:00", "lasts": None, "lasts_ns": 0.0,
            "day": None, "hour": None, "listed": None, "inner": None,
        },
    ]  # fmt: skip


# --- columns: a file without those that a stream reads is refused before anything comes of it ---


TAXI = Path(__file__).parents[2] / "examples" / "taxi.toml"
COLUMNS = ("pickup_datetime", "pickup_longitude", "pickup_latitude")


def write_columns(folder: Path, ending: str, columns: tuple[str, ...]) -> Path:
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
    rows_for(write_columns(tmp_path, ending, (*COLUMNS, "more")), stream)
    file = write_columns(tmp_path, ending, ("pickup_datetime", "pickup_longitud", "lat"))
    with pytest.raises(FileError) as refused:
        rows_for(file, stream)
    text = str(refused.value)
    assert "pickup_longitude ([streams.domain] x); is it pickup_longitud?" in text
    assert "pickup_latitude ([streams.domain] y)" in text
    assert "pickup_datetime" not in text
    file = write_columns(tmp_path, ending, ("pickup_datetime", " pickup_longitude", "Pickup_Latitude"))
    with pytest.raises(FileError, match=r'is it " pickup_longitude", with a space\?.*is it Pickup_Latitude\?'):
        rows_for(file, stream)


@pytest.mark.parametrize(
    "first",
    [
        "pickup_longitude of Ann,2026-03-04T05:06:07,-73.9,40.7",
        '{"pickup_longitude":"of Ann","pickup_datetime":"noon"}',
        "2026-03-04T05:06:07,pickup_longitude of Ann",
    ],
)
def test_a_first_row_in_place_of_a_header_is_not_repeated(tmp_path: Path, first: str) -> None:
    """What is like a field was named, and was a value: who the first row is about stood in the message."""
    (tmp_path / "rows.csv").write_text(f"{first}\n{first}\n")
    with pytest.raises(
        FileError, match=r"lacks pickup_longitude \(.*where the names of the columns should be"
    ) as refused:
        rows_for(tmp_path / "rows.csv", load_config(TAXI).streams[0])
    assert "Ann" not in str(refused.value)


def test_the_time_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="pickup_datetime"):
        rows_for(write_columns(tmp_path, "csv", COLUMNS[1:]), load_config(TAXI).streams[0])


def test_rows_that_name_their_own_fields_and_empty_files_are_let_through(tmp_path: Path) -> None:
    stream = load_config(TAXI).streams[0]
    rows_for(write_columns(tmp_path, "jsonl", ("other",)), stream)
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


def read_typed(folder: Path, stream: Stream, text: str) -> list[Any]:
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
    rows = read_typed(
        tmp_path,
        stream,
        "at,text,flag,number,bin,both,other\n20160101,4.0,true,4.0, 7.5,1,4.0\n20160102,7,False,007,.5,a,007\n",
    )
    assert rows == [
        {"at": "20160101", "text": "4.0", "flag": True, "number": 4.0, "bin": 7.5, "both": 1, "other": 4.0},
        {"at": "20160102", "text": "7", "flag": False, "number": 7, "bin": 0.5, "both": "a", "other": "007"},
    ]
    # What is none of these stays the text that it is, to be refused by field and reason.
    [row] = read_typed(tmp_path, stream, 'at,text,flag,number,bin,both\n20160101,7,yes,four,"7,5",\n')
    assert row == {"at": "20160101", "text": "7", "flag": "yes", "number": "four", "bin": "7,5", "both": None}
    [row] = read_typed(tmp_path, stream, 'at,text,flag,number,bin,both\n20160101,"",true,"",NaN,1e400\n')
    assert row == {"at": "20160101", "text": None, "flag": True, "number": None, "bin": NOT_FINITE, "both": "1e400"}
    numbers = table(tmp_path, '{ field = "a", values = ["x"] }', format="s")
    rows = read_typed(tmp_path, numbers, "at,a\n7,x\n07,x\n1577836800000000123,x\n0.1234567890123456789,x\n")
    assert [row["at"] for row in rows] == [7, "07", "1577836800000000123", "0.1234567890123456789"]


LAYOUT = CsvSection(delimiter=";", decimal=",", encoding="windows-1252")


@pytest.mark.parametrize("encoding", ["windows-1252", "utf-16", "utf-8"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_layout_of_its_own(tmp_path: Path, ending: str, encoding: str) -> None:
    stream = table(tmp_path, '{ field = "größe", edges = [0.0, 10.0] }, { field = "ort", values = ["Köln"] }')
    stream = stream.model_copy(update={"csv": LAYOUT.model_copy(update={"encoding": encoding})})
    text = 'at;größe;ort\n20160101;7,5;Köln\n20160102;"1.234,5";"a;b"\n20160103;;\n'
    path = tmp_path / f"rows.{ending}"
    path.write_bytes((gzip.compress if ending.endswith("gz") else bytes)(text.encode(encoding)))
    file = rows_for(path, stream)
    assert file.columns() == ("at", "größe", "ort")
    assert file.count() == 3
    assert [row for part in file.batches(batch_rows=2) for row in part] == [
        {"at": "20160101", "größe": 7.5, "ort": "Köln"},
        {"at": "20160102", "größe": [], "ort": "a;b"},
        {"at": "20160103", "größe": None, "ort": None},
    ]


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("shift_jis", b"at\nsecret \xff\xff\n"),
        ("utf-16", "at\nsecret".encode("utf-16") + b"x"),
        ("ascii", "at\nsecret é\n".encode()),
    ],
)
def test_a_file_that_is_not_of_its_encoding(tmp_path: Path, encoding: str, data: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    with pytest.raises(FileError, match=f"not {encoding}, as encoding") as refused:
        list(open_rows(path, CsvSection(encoding=encoding)).batches())
    assert "secret" not in str(refused.value)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["utf-16", "gb18030", "utf-8-sig"]))
def test_a_text_is_the_same_in_pieces_of_any_size(text: str, encoding: str) -> None:
    stream = _Utf8(io.BytesIO(text.encode(encoding)), encoding)
    assert b"".join(iter(lambda: stream.read(3) or b"", b"")).decode() == text
