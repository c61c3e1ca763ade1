"""`privstream dev`: a configuration with everything around it, on this machine, in one command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import AllowRefused, NoPage, PartsProgress, Speed, StreamName, say, say_refused, warn
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from agents.local.dev import DevRun
    from agents.local.offline.replay import Replayed
    from agents.local.offline.seen import RowsSeen


@manual(
    Example("privstream dev job.toml history.csv", "replay a file, and watch its steps come out"),
    Example("privstream dev job.toml", "an empty source topic, for producers of your own"),
    Example("privstream dev job.toml old.csv --speed 86400 --exit-when-done", "a day each second, and then the end"),
    exits={0: "stopped by Ctrl-C or SIGTERM once it was up, or the file is through"},
)
def dev(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The TOML file of the job.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Rows sorted by time, to be replayed: .csv, .csv.gz, .parquet, .jsonl, .jsonl.gz."
        ),
    ] = None,
    stream: StreamName = None,
    speed: Speed = None,
    exit_when_done: Annotated[
        bool, typer.Option("--exit-when-done", help="End when all steps that the file closes are public.")
    ] = False,
    no_page: NoPage = False,
    allow_refused: AllowRefused = False,
) -> None:
    """Run any configuration on this machine: a Kafka of its own, topics, a worker, a replayed file and the live page.

    Stays up until Ctrl-C and leaves nothing behind. The configured cluster, its secrets, the collector of metrics and
    the state folder are not used: what comes in stays here. There is no schema registry, so avro and protobuf are
    refused. Needs the extra `demo`, which brings Java.

    With FILE its times say when a step is over, whatever clock the stream has. What is released here was drawn with
    noise of its own: show nobody both this and what the real job releases of the same events, their costs add up.
    """
    from agents.local.dev import DevOptions
    from agents.local.dev import dev as run

    if exit_when_done and file is None:
        raise PrivstreamError("--exit-when-done has no file to wait for. Fix: name a FILE, or leave it out.")
    options = DevOptions(
        file=file, stream=stream, speed=speed, exit_when_done=exit_when_done, allow_refused=allow_refused,
        page=not no_page,
    )  # fmt: skip
    screen = _Screen()
    try:
        run(config, os.environ, options, screen)
    except KeyboardInterrupt:
        if not screen.is_up:
            raise
    finally:
        screen.bar.close()
    say("stopped; nothing is left behind")


class _Screen:
    """Lines, and a bar for the rows where there is a terminal."""

    def __init__(self) -> None:
        self.bar = PartsProgress()
        self.is_up = False
        self._parts: set[str] = set()
        self._rows = 0

    def say(self, line: str) -> None:
        self.bar.echo(line, err=True)

    def starting(self, what: str, done: int, total: int) -> None:
        if not sys.stderr.isatty() and what not in self._parts:
            self._parts.add(what)
            say(f"  {what}")
        self.bar.at(what, done, total)

    def up(self, running: DevRun) -> None:
        from agents.local.dev import written_as

        self.bar.close()
        self.is_up = True
        bootstrap = running.config.kafka.bootstrap
        say("")
        if running.page is not None:
            say(f"page       {running.page.public}")
            if running.page.operator is not None:
                say(f"operators  {running.page.operator}   NOT private")
        say(f"Kafka      {bootstrap}")
        say(f"worker     {running.log}")
        for stream in running.config.streams:
            say(f"stream {stream.name}: write {written_as(stream)} to {stream.source}; read")
            for topic in (f"{stream.name}.synthetic", f"{stream.name}.ledger"):
                say(f"  kcat -C -b {bootstrap} -X isolation.level=read_committed -t {topic}")
        say(f"status     privstream status {running.path}")
        say("")

    def step(self, stream: str, entry: Mapping[str, Any]) -> None:
        gathered = "  gathered: no data is released yet" if entry.get("gathered") else ""
        self.bar.echo(
            f"{stream}: step {entry['step']} until {entry['end']}  {entry['synthetic_records']:,} synthetic records  "
            f"epsilon {entry['epsilon_spent']:g} of {entry['epsilon']:g}{gathered}"
        )

    def looked(self, seen: RowsSeen) -> None:
        if seen.refused:
            self.bar.close()
            say(f"of the next {seen.rows:,} rows:")
            say_refused("", seen.refused, share=seen.seen.share)

    def begun(self, rows: int, before: int) -> None:
        self._rows = rows
        self.rows(before)

    def rows(self, row: int) -> None:
        self.bar.at("rows replayed", row, self._rows)

    def replayed(self, done: Replayed) -> None:
        self.bar.close()
        say(f"{done.stream}: {done.rows:,} rows are replayed; steps to {done.step} are over")
        if done.step < 0:
            warn("no step is over: all rows lie in the first one, or before it")
