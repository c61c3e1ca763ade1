"""`privstream replay`: a file into a stream's source topic."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import (
    AllowRefused,
    AsJson,
    Bars,
    ConfigFile,
    RowsFile,
    Speed,
    StreamName,
    chosen_stream,
    config_of,
    print_json,
    say,
    say_refused,
    warn,
)

if TYPE_CHECKING:
    from agents.local.offline.replay import Prospect
    from agents.local.offline.seen import RowsSeen


@manual(
    Example("privstream replay job.toml history.parquet", "all of it, as fast as possible; again goes on where it was"),
    Example("privstream replay job.toml history.csv --speed 3600", "an hour each second"),
    Example("privstream replay job.toml history.csv --until 2026-02-01T00:00:00 --then-live", "history, then live"),
)
def replay(
    config: ConfigFile,
    file: RowsFile,
    stream: StreamName = None,
    speed: Speed = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help="Only the file's first rows. The step of the last one stays open for a later run."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Public end: a local time of the stream at which a step begins, as 2016-02-01T00:00:00. Rows from "
            "then on are left out, every step before is closed. Without it, the end of the file is taken as public.",
        ),
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Write this file after another one that is in the topic already.")
    ] = False,
    then_live: Annotated[
        bool,
        typer.Option(
            "--then-live",
            help="Behind the file the source goes live, for good: from then on steps end by the wall clock, with the "
            "same stream and budget. Nothing can be replayed there any more.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Go live also where very many steps are over, or the horizon is.")
    ] = False,
    allow_refused: AllowRefused = False,
    as_json: AsJson = False,
) -> None:
    """Write a file to a stream's source topic (and its audit topic), each row exactly once, and close its steps.

    Rows become JSON objects with the file's column names. Where a public step ends, every partition gets a tick. A row
    whose step is closed by then is refused: in another step it would show in other people's counts.
    --then-live: behind the file, live events of the same topic go on where the history ended, in the same stream.
    Interrupted? Run the same command again: it goes on behind the last commit, and never writes a row twice.
    """
    loaded = config_of(config)
    chosen = chosen_stream(loaded, stream, as_configured=True)
    from agents.local.offline.replay import replay as write

    def looked(seen: RowsSeen) -> None:
        if seen.refused:
            say(f"of the next {seen.rows:,} rows:")
            say_refused(chosen.name, seen.refused, share=seen.seen.share)

    with Bars(quiet=as_json) as bars:
        done = asyncio.run(
            write(
                loaded,
                chosen,
                file,
                speed=speed,
                limit=limit,
                until=until,
                append=append,
                then_live=then_live,
                yes=yes,
                allow_refused=allow_refused,
                progress=partial(bars, f"replay {chosen.name}"),
                on_prospect=_warn,
                on_rows_seen=looked,
                on_unstarted=_say_unstarted,
            )
        )
    if as_json:
        print_json({"ok": True, **asdict(done)})
        return
    over = f"steps to {done.step} are over"
    if not done.rows:
        say(f"{chosen.name}: no row to write, {done.rows_before:,} are in {chosen.source} already; {over}")
    else:
        rate = done.rows / max(done.seconds, 1e-9)
        before = f" ({done.rows_before:,} were there before)" if done.rows_before else ""
        say(f"{chosen.name}: {done.rows:,} rows to {chosen.source}{before}, {rate:,.0f} a second; {over}")
    if done.left_out:
        say(f"{done.left_out:,} rows from {until} on are left out")
    if done.live_from is not None:
        say(
            f"{chosen.source} is live: steps after {done.step} end by the wall clock; --then-live again changes nothing"
        )


def _say_unstarted(streams: tuple[str, ...]) -> None:
    say(
        f"{' and '.join(streams)}: no worker has started it yet, so this configuration and this machine's time zones "
        "are compared with nothing: for a worker that starts with others, rows are late or in another step. Fix: "
        "privstream run CONFIG first, or run it with this very configuration and version"
    )


def _warn(prospect: Prospect) -> None:
    warn(str(prospect))
    for doubt in prospect.doubts:
        warn(doubt)
