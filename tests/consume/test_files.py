"""Exported files as other programs read them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
import shapely

from agents.readers.consume.columns import column
from agents.readers.consume.export import (
    FORMATS,
    check_free,
    ledger_table,
    measurement_table,
    places_of,
    synthetic_table,
    with_times,
    write,
)
from agents.readers.consume.ledger import Ledger
from agents.readers.consume.reader import measurements_of
from schemas.config import ENGINES, Stream
from schemas.errors import PrivstreamError
from schemas.releases import Candidate
from tests.consume.runs import RUNS, WEIGHTED, case_run, records_of
from tests.consume.test_fold import SPATIAL, folded


def table_of(engine: str) -> tuple[Stream, pa.Table]:
    stream, candidates = case_run(engine)
    return stream, synthetic_table(folded(candidates), (stream.time.field, *stream.record_fields))


def measured(candidates: tuple[Candidate, ...]) -> list[tuple[int, Mapping[str, Any]]]:
    return [(each.step, told) for each in candidates for told in measurements_of(records_of(each, "measurements"))]


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("iso", ["2020-01-01T01:00:00", "2020-07-01T00:00:00.000001+00:00"]),
        ("ms", [1577836800000, 1593561600000.001]),
        ("%d.%m.%Y %H:%M:%S.%f", ["01.01.2020 01:00:00.0", "01.07.2020 02:00:00.000001"]),
    ],
)
def test_times_are_timestamps_in_parquet(form: str, written: list[Any], tmp_path: Path) -> None:
    stream, _ = case_run("tabular")
    timing = stream.time.model_copy(update={"field": "at", "format": form, "timezone": "Europe/Berlin"})
    table = pa.table({"id": ["a", "b"], "at": column(written)})
    write(with_times(table, timing), tmp_path / "t.parquet", file_format="parquet", places=None)
    read = pa_parquet.read_table(tmp_path / "t.parquet")
    assert read.schema.field("at").type == pa.timestamp("us", "UTC")
    assert [each.isoformat() for each in read.column("at").to_pylist()] == [
        "2020-01-01T00:00:00+00:00",
        "2020-07-01T00:00:00.000001+00:00",
    ]
    assert read.column_names == table.column_names
    for odd in (["soon", "later"], ["2020-01-01T01:00:00", None]):
        kept = pa.table({"id": ["a", "b"], "at": odd})
        assert with_times(kept, timing) is kept


@pytest.mark.parametrize("engine", RUNS)
@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_every_engine_can_be_exported(engine: str, file_format: str, tmp_path: Path) -> None:
    stream, table = table_of(engine)
    _, candidates = case_run(engine)
    entries = Ledger.of(stream.name, [candidate.ledger for candidate in candidates]).entries
    for number, each in enumerate((table, measurement_table(measured(candidates)), ledger_table(entries))):
        path = tmp_path / f"{number}.{file_format}"
        write(each, path, file_format=file_format, places=places_of(stream, each))
        if file_format == "parquet":
            assert pa_parquet.read_table(path).equals(each)
        else:
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            assert len(rows) == each.num_rows > 0
            assert list(rows[0]) == each.column_names
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert table.column_names == ["synthetic_id", "added_step", stream.time.field, *stream.record_fields]
    alive = {key for key, _, _ in folded(candidates).records()}
    assert set(table.column("synthetic_id").to_pylist()) == alive


@pytest.mark.parametrize("engine", [name for name in ENGINES if {"box", "trips"} & set(ENGINES[name].domains)])
def test_points_are_where_their_fields_say(engine: str, tmp_path: Path) -> None:
    stream, table = table_of(engine)
    assert stream.domain.coordinates is not None
    x, y = (np.array(table.column(field).to_pylist()) for field in stream.domain.coordinates)
    places = places_of(stream, table)
    write(table, tmp_path / "a.parquet", file_format="geoparquet", places=places)
    read = pa_parquet.read_table(tmp_path / "a.parquet")
    shapes = shapely.from_wkb(read.column("geometry").to_pylist())
    assert np.array_equal(shapely.get_x(shapes), x)
    assert np.array_equal(shapely.get_y(shapes), y)
    geo = json.loads(read.schema.metadata[b"geo"])
    assert geo["version"] == "1.1.0"
    assert geo["primary_column"] == "geometry"
    told = geo["columns"]["geometry"]
    assert (told["encoding"], told["geometry_types"]) == ("WKB", ["Point"])
    assert told["bbox"] == [x.min(), y.min(), x.max(), y.max()]
    assert ("crs" not in told) == stream.domain.in_degrees, "without one it is longitude and latitude"
    if not stream.domain.in_degrees:
        with pytest.raises(PrivstreamError, match="--format geoparquet"):
            write(table, tmp_path / "a.geojson", file_format="geojson", places=places)
        return
    write(table, tmp_path / "a.geojson", file_format="geojson", places=places)
    found = json.loads((tmp_path / "a.geojson").read_text())
    assert [feature["geometry"]["coordinates"] for feature in found["features"]] == [
        list(at) for at in zip(x, y, strict=True)
    ]
    assert set(found["features"][0]["properties"]) == set(table.column_names) - set(stream.domain.coordinates)


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_weighted_export_is_made_into_one_row_for_each_event_as_the_manual_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, table = table_of(name)
    monkeypatch.chdir(tmp_path)
    write(table, Path("rides.parquet"), file_format="parquet", places=None)
    manual = (ROOT / "docs" / "consumers.md").read_text()
    [program] = re.findall(r"^```python weighted\n(.*?)```$", manual, re.MULTILINE | re.DOTALL)
    named: dict[str, Any] = {}
    exec(program, named)
    events, ids = named["events"], table.column("synthetic_id").to_pylist()
    counted = dict(events.group_by("synthetic_id").len().iter_rows())
    assert counted == dict(zip(ids, table.column("weight").to_pylist(), strict=True))
    assert events.columns == [column for column in table.column_names if column != "weight"]


def test_measured_cells_are_rectangles(tmp_path: Path) -> None:
    stream, candidates = case_run(SPATIAL)
    table = measurement_table(measured(candidates))
    write(table, tmp_path / "cells.geojson", file_format="geojson", places=places_of(stream, table))
    features = json.loads((tmp_path / "cells.geojson").read_text())["features"]
    for feature, cell in zip(features, table.column("cell").to_pylist(), strict=True):
        assert shapely.geometry.shape(feature["geometry"]).bounds == tuple(cell)
        assert {"increment", "variance", "since", "step"} <= set(feature["properties"])


def metres(stream: Stream) -> Stream:
    document = stream.model_dump(exclude_unset=True)
    document["domain"] = {"kind": "box", "x": "x", "y": "y", "bounds": [583_000.0, 4_507_000.0, 599_000.0, 4_527_000.0]}
    return Stream.model_validate(document)


def test_units_that_are_unknown_are_not_called_degrees(tmp_path: Path) -> None:
    stream, _ = case_run(SPATIAL)
    places = places_of(metres(stream), pa.table({"x": [590_000.0, None], "y": [4_510_000.0, 1.0]}))
    assert places is not None
    table = pa.table({"x": [590_000.0, None], "y": [4_510_000.0, 1.0]})
    write(table, tmp_path / "a.parquet", file_format="geoparquet", places=places)
    read = pa_parquet.read_table(tmp_path / "a.parquet")
    assert json.loads(read.schema.metadata[b"geo"])["columns"]["geometry"]["crs"] is None
    assert read.column("geometry").to_pylist()[1] is None
    with pytest.raises(PrivstreamError, match="--format geoparquet"):
        write(table, tmp_path / "a.geojson", file_format="geojson", places=places)
    assert not (tmp_path / "a.geojson").exists()


@pytest.mark.parametrize("file_format", ["geojson", "geoparquet"])
def test_rows_without_a_place_are_no_map(file_format: str, tmp_path: Path) -> None:
    with pytest.raises(PrivstreamError, match="--format csv or parquet"):
        write(pa.table({"a": [1]}), tmp_path / "a", file_format=file_format, places=None)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    check_free(path, overwrite=False)
    path.write_text("mine")
    with pytest.raises(PrivstreamError, match="--overwrite"):
        check_free(path, overwrite=False)
    check_free(path, overwrite=True)
    for bad in (tmp_path, tmp_path / "no" / "a.csv"):
        with pytest.raises(PrivstreamError, match="Fix: "):
            check_free(bad, overwrite=True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5, None], [1.0, 2.5, None]),
        ([1, "other", True], ["1", "other", "true"]),
        ([2**70, 1], [str(2**70), "1"]),
        ([[1, 2], None], [[1, 2], None]),
        ([[1, "a"], [2]], ['[1,"a"]', "[2]"]),
        ([{"a": None}], ['{"a":null}']),
        ([None, None], [None, None]),
        ([False, None], [False, None]),
    ],
)
def test_a_column_holds_what_json_held(values: list[Any], expected: list[Any]) -> None:
    assert column(values).to_pylist() == expected


def test_a_field_of_the_records_keeps_its_name() -> None:
    _, candidates = case_run(SPATIAL)
    table = folded(candidates)
    table.rows = {key: (step, b'{"synthetic_id":7}') for key, (step, _) in table.rows.items()}
    named = synthetic_table(table, ()).column_names
    assert named == ["_synthetic_id", "added_step", "synthetic_id"]


def test_formats_are_those_of_the_command() -> None:
    from agents.cli import export as command
    from agents.readers.consume import export

    assert get_args(command.Format) == tuple(FORMATS)
    assert command.What == export.What
