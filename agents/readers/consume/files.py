"""An exported table as a file: CSV, Parquet, GeoJSON or GeoParquet. Whole or not at all: it is renamed into place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from agents.readers.consume.geometry import Placing, geojson, geoparquet
from agents.readers.consume.table import flat
from schemas.errors import PrivstreamError

Write = Callable[[pa.Table, Placing | None, Path], None]


def _csv(table: pa.Table, places: Placing | None, path: Path) -> None:
    plain = pa.table(dict(flat(table)))
    pa_csv.write_csv(plain, path, pa_csv.WriteOptions(quoting_style="needed"))


def _parquet(table: pa.Table, places: Placing | None, path: Path) -> None:
    pa_parquet.write_table(table, path)


def _geoparquet(table: pa.Table, places: Placing | None, path: Path) -> None:
    pa_parquet.write_table(geoparquet(table, _placed(places)), path)


def _geojson(table: pa.Table, places: Placing | None, path: Path) -> None:
    path.write_bytes(geojson(table, _placed(places)))


FORMATS: Mapping[str, tuple[str, Write]] = {
    "csv": ("csv", _csv),
    "parquet": ("parquet", _parquet),
    "geojson": ("geojson", _geojson),
    "geoparquet": ("geo.parquet", _geoparquet),
}
"""Name of a format -> how its files end, and what writes one."""


def _placed(places: Placing | None) -> Placing:
    if places is None:
        raise PrivstreamError(
            "these rows have no place: the domain names no coordinates. Fix: --format csv or parquet; of a domain of "
            "zones, "
            "x and y in [streams.domain] place each record in its zone."
        )
    return places


def check_free(path: Path, *, overwrite: bool) -> None:
    """Before anything is read. Raises: PrivstreamError where the file is there, or its folder is not."""
    if path.exists() and not overwrite:
        raise PrivstreamError(f"{path}: is there already. Fix: name another file, or say --overwrite.")
    if path.is_dir():
        raise PrivstreamError(f"{path}: is a folder. Fix: name a file.")
    if not path.absolute().parent.is_dir():
        raise PrivstreamError(f"{path.parent}: no such folder. Fix: make it, or name another file.")


def write(table: pa.Table, path: Path, *, file_format: str, places: Placing | None) -> None:
    """Raises: PrivstreamError where rows have no place and the format wants one, or the file cannot be written."""
    part = path.with_name(f".{path.name}.part")
    try:
        FORMATS[file_format][1](table, places, part)
        part.replace(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise PrivstreamError(f"{path}: {reason}. Fix: name a file that this user may write.") from None
    finally:
        part.unlink(missing_ok=True)
