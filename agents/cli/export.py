"""`privstream export`: what is public after a step, as a file for other tools."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import (
    AsJson,
    Bars,
    ConfigFile,
    Overwrite,
    StreamName,
    chosen_stream,
    config_of,
    print_json,
    say_compacted,
)
from agents.show.text import number_of

Format = Literal["csv", "parquet", "geojson", "geoparquet"]
What = Literal["synthetic", "measurements", "ledger"]


@manual(
    Example("privstream export job.toml --format geoparquet", "the last step, for QGIS or GeoPandas"),
    Example("privstream export job.toml --at 2024-03-01T00:00:00 --out march.csv", "as it was public at a time"),
)
def export(
    config: ConfigFile,
    file_format: Annotated[Format, typer.Option("--format", help="Of the file.")] = "csv",
    at: Annotated[
        str | None,
        typer.Option(metavar="STEP", help="Number of a step, or a time by which it ended; the last one, if not given."),
    ] = None,
    what: Annotated[
        What, typer.Option(help="The synthetic records alive then, or all measurements or ledger entries up to then.")
    ] = "synthetic",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write.", show_default="STREAM-step-NUMBER, here")
    ] = None,
    stream: StreamName = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write the synthetic records alive after a step to a file: CSV, Parquet, GeoJSON or GeoParquet.

    Reads public topics only, as every consumer may, and checks each step's records against the digest in its ledger
    entry: what does not match is refused. Nothing is signed: only the cluster's ACLs keep others from writing there. A
    step of which Kafka has compacted records is not checked at all, its measurements neither.
    """
    loaded = config_of(config)
    chosen = chosen_stream(loaded, stream)
    from agents.readers.consume.export import export as run

    with Bars(quiet=as_json) as bars:
        done = asyncio.run(
            run(
                loaded,
                chosen,
                what=what,
                file_format=file_format,
                at=at,
                path=out,
                overwrite=overwrite,
                progress=partial(bars, f"read {chosen.name}"),
            )
        )
    if as_json:
        print_json({"ok": True, **asdict(done)})
        return
    typer.echo(
        f"{done.path}: {number_of(done.rows, 'row')} of stream {done.stream}, after "
        f"step {done.step} (until {done.until})"
    )
    typer.echo(f"  {done.verified:,} of {done.step + 1:,} steps are what the ledger's digests say")
    say_compacted(done.compacted, done.verified)
