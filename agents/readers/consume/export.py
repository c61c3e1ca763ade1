"""What `privstream export` does: public topics to a file (CSV, Parquet, GeoJSON, GeoParquet), checked on the way.

Names and values are as they were published. A column's type is that of its values: numbers, texts, booleans, lists.
Where JSON mixes them, as a number and the word for "other", the column is text. Times are the raw events' time field as
it is written, but in Parquet, which has a type for them. Rows with a place are points of synthetic records, or
rectangles of measured cells. Source: the GeoParquet 1.1.0 and GeoJSON (RFC 7946) specifications.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import shapely

from agents.protocol.ingest.times import TimeParser
from agents.protocol.release.record_formats import record_format
from agents.readers.consume.columns import table_of
from agents.readers.consume.ledger import FoldedTable
from agents.readers.consume.reader import ReadingProgress, read_ledger, read_steps
from schemas.config import Config, Stream
from schemas.config.timing import Timing
from schemas.errors import PrivstreamError
from schemas.ledger import LedgerEntry

COLUMN = "geometry"


@dataclass(frozen=True, slots=True)
class Placing:
    """How rows are placed.

    Attributes:
        fields: x and y of points, or the one field with a rectangle `[xmin, ymin, xmax, ymax]`.
        in_degrees: longitudes and latitudes on WGS 84; else the units are the stream's own, and unknown here.
    """

    fields: tuple[str, ...]
    in_degrees: bool

    def of(self, table: pa.Table) -> np.ndarray:
        """Return `(rows,)` shapely geometries; None where a row has no place."""
        columns = [table.column(field).to_pylist() for field in self.fields]
        if len(columns) == 2:
            x, y = (np.array([np.nan if v is None else v for v in column], np.float64) for column in columns)
            points: np.ndarray = shapely.points(x, y)
            points[np.isnan(x) | np.isnan(y)] = None
            return points
        return np.array([None if cell is None else rectangle(cell) for cell in columns[0]], object)


def rectangle(cell: Sequence[float]) -> Any:
    """Return a cell as a polygon; as two where it crosses the antimeridian, its west above its east (RFC 7946, 5.2).

    >>> rectangle([0.0, 0.0, 2.0, 1.0]).area, rectangle([170.0, 0.0, -170.0, 1.0]).area
    (2.0, 20.0)
    """
    west, south, east, north = cell
    if west <= east:
        return shapely.box(west, south, east, north)
    return shapely.MultiPolygon([shapely.box(west, south, 180.0, north), shapely.box(-180.0, south, east, north)])


def geoparquet(table: pa.Table, places: Placing) -> pa.Table:
    """Return the table with a column of WKB and the metadata `geo` of GeoParquet 1.1.0."""
    shapes = places.of(table)
    there = shapes[[shape is not None for shape in shapes]]
    named = sorted({shape.geom_type for shape in there})
    column: dict[str, Any] = {"encoding": "WKB", "geometry_types": named}
    if not places.in_degrees:
        column["crs"] = None  # undefined; left out it would be OGC:CRS84
    if len(there):
        column["bbox"] = shapely.total_bounds(there).tolist()
    geo = {"version": "1.1.0", "primary_column": COLUMN, "columns": {COLUMN: column}}
    wkb = pa.array([None if shape is None else shape.wkb for shape in shapes], pa.binary())
    return table.append_column(COLUMN, wkb).replace_schema_metadata({"geo": orjson.dumps(geo)})


def geojson(table: pa.Table, places: Placing) -> bytes:
    """Return a FeatureCollection: all columns but those of the place are properties.

    Raises: PrivstreamError where coordinates are not degrees, which is all that GeoJSON knows.
    """
    if not places.in_degrees:
        raise PrivstreamError(
            "GeoJSON holds longitudes and latitudes alone (RFC 7946), and neither the names nor the bounds of this "
            "domain's fields say that these are. Fix: --format geoparquet, and tell your program the coordinate system."
        )
    kept = [name for name in table.column_names if name not in places.fields]
    shapes = places.of(table)
    rows = table.select(kept).to_pylist() if kept else [{} for _ in shapes]
    features = [
        {"type": "Feature", "geometry": None if shape is None else shapely.geometry.mapping(shape), "properties": row}
        for shape, row in zip(shapes, rows, strict=True)
    ]
    return orjson.dumps({"type": "FeatureCollection", "features": features}, option=orjson.OPT_APPEND_NEWLINE)


ID = "synthetic_id"
"""Column of the record's key."""
ADDED = "added_step"
"""Column of the step that added the record."""


def synthetic_table(table: FoldedTable, fields: Sequence[str]) -> pa.Table:
    """Return one row for each synthetic record alive, in the order in which they were added; `fields` come first."""
    told = table_of((record for _, _, record in table.records()), fields)
    own = {
        _free(ID, told.column_names): pa.array([key.decode() for key in table.rows], pa.string()),
        _free(ADDED, told.column_names): pa.array([step for step, _ in table.rows.values()], pa.int64()),
    }
    return pa.table(own | dict(zip(told.column_names, told.columns, strict=True)))


def with_times(table: pa.Table, timing: Timing) -> pa.Table:
    """Return the table with its time field as timestamps in UTC, to the microsecond; as it is where one is no time."""
    at = table.column_names.index(timing.field) if timing.field in table.column_names else -1
    values = table.column(at).to_pylist() if at >= 0 else [None]
    if None in values:
        return table
    times, usable, _ = TimeParser(timing.format, timing.zone).parse(values)
    if not usable.all():
        return table
    return table.set_column(at, timing.field, pa.array(times, pa.timestamp("us", "UTC")))


def measurement_table(measured: Iterable[tuple[int, Mapping[str, Any]]]) -> pa.Table:
    """Return one row for each measurement, with its step; lists are lists, objects are texts of JSON."""
    return table_of({"step": step, **told} for step, told in measured)


def ledger_table(entries: Iterable[LedgerEntry]) -> pa.Table:
    """Return one row for each step; objects, as the guarantee, are texts of JSON."""
    return table_of((entry.as_json() for entry in entries), first=("step", "start", "end"))


def _free(name: str, taken: Iterable[str]) -> str:
    """Return a column name that no field of the records has."""
    while name in taken:
        name = f"_{name}"
    return name


def flat(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield the columns for a format that has no lists: those are texts of JSON."""
    for name in table.column_names:
        values = table.column(name)
        if pa.types.is_list(values.type):
            values = pa.array([None if each is None else orjson.dumps(each).decode() for each in values.to_pylist()])
        yield name, values


FORMATS: Mapping[str, str] = {
    "csv": "csv",
    "parquet": "parquet",
    "geojson": "geojson",
    "geoparquet": "geo.parquet",
}
"""Name of a format -> how its files end."""
TIMED = ("parquet", "geoparquet")
"""Formats with a type for times."""


def check_free(path: Path, *, overwrite: bool) -> None:
    """Check a path before anything is read. Raises: PrivstreamError where the file is there, or its folder is not."""
    if path.exists() and not overwrite:
        raise PrivstreamError(f"{path}: is there already. Fix: name another file, or say --overwrite.")
    if path.is_dir():
        raise PrivstreamError(f"{path}: is a folder. Fix: name a file.")
    if not path.absolute().parent.is_dir():
        raise PrivstreamError(f"{path.parent}: no such folder. Fix: make it, or name another file.")


def write(table: pa.Table, path: Path, *, file_format: str, places: Placing | None) -> None:
    """Write a table to a file, which is there as a whole or not at all.

    Raises: PrivstreamError where rows have no place and the format wants one, or the file cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        if file_format == "csv":
            pa_csv.write_csv(pa.table(dict(flat(table))), part, pa_csv.WriteOptions(quoting_style="needed"))
        elif file_format == "parquet":
            pa_parquet.write_table(table, part)
        elif places is None:
            raise PrivstreamError(
                "these rows have no place: the domain names no coordinates. Fix: --format csv or parquet; of a domain "
                "of zones, x and y in [streams.domain] place each record in its zone."
            )
        elif file_format == "geojson":
            part.write_bytes(geojson(table, places))
        else:
            pa_parquet.write_table(geoparquet(table, places), part)
        part.replace(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise PrivstreamError(f"{path}: {reason}. Fix: name a file that this user may write.") from None
    finally:
        part.unlink(missing_ok=True)


What = Literal["synthetic", "measurements", "ledger"]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: up to which step, and how many steps' digests were checked, or could not be, since they were
    there in part only.
    """

    stream: str
    what: What
    path: Path
    rows: int
    columns: tuple[str, ...]
    step: int
    until: str
    verified: int
    compacted: int


async def export(
    config: Config,
    stream: Stream,
    *,
    what: What,
    file_format: str,
    at: str | None,
    path: Path | None,
    overwrite: bool,
    progress: ReadingProgress = lambda done, total: None,
) -> Exported:
    """Write what is public of a stream after a step.

    Args:
        at: a step, or a time by which it ended; None: the last one.
        path: None names the file by stream and step, in the working folder.
    Raises: PrivstreamError: the topics are not those of the ledger, the step is not there whole, or the file is.
    """
    if path is not None:
        check_free(path, overwrite=overwrite)
    ledger = await read_ledger(config.kafka, stream.name)
    entry = ledger.at(at)
    if path is None:
        ending = FORMATS[file_format]
        path = Path(f"{stream.name}{'' if what == 'synthetic' else '.' + what}-step-{entry.step:06d}.{ending}")
        check_free(path, overwrite=overwrite)
    folded = await read_steps(
        config.kafka,
        ledger,
        until=entry.step,
        read=record_format(stream).read,
        measured=what == "measurements",
        progress=progress,
    )
    if what == "synthetic":
        folded.whole(entry)
        table = synthetic_table(folded, (stream.time.field, *stream.record_fields) if entry.synthetic_records else ())
        if file_format in TIMED:
            table = with_times(table, stream.time)
    elif what == "measurements":
        table = measurement_table(folded.measured)
    else:
        table = ledger_table(ledger.entries[: entry.step + 1])
    write(table, path, file_format=file_format, places=places_of(stream, table))
    return Exported(
        stream=stream.name,
        what=what,
        path=path,
        rows=table.num_rows,
        columns=tuple(table.column_names),
        step=entry.step,
        until=entry.ends.isoformat(),
        verified=folded.verified,
        compacted=len(folded.compacted),
    )


def places_of(stream: Stream, table: pa.Table) -> Placing | None:
    """Return where rows are: at the coordinates of the domain, or in the `cell` that was measured."""
    domain = stream.domain
    fields = domain.coordinates
    if fields is not None and set(fields) <= set(table.column_names):
        return Placing(fields, domain.in_degrees)
    return Placing(("cell",), domain.in_degrees) if "cell" in table.column_names else None
