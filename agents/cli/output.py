"""How the command line speaks: results to standard output, all else to standard error, no traceback for our own errors.

Exit codes: 0 well, 1 a check found something, 2 refused with a reason, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

from agents.show.text import number_of, table
from schemas import errors
from schemas.errors import BrokerError, ConfigError, PrivstreamError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from agents.local.offline.seen import RefusedRows
    from schemas.config import Config, Stream

P = ParamSpec("P")
R = TypeVar("R")

LINE_S = 10.0
"""Between plain lines of progress, where there is no terminal."""
REFUSED = 2
FOUND = 1
INTERRUPTED = 130

ConfigFile = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG", help="The TOML file of the job; PRIVSTREAM_* variables win over it.", exists=False
    ),
]
RowsFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Rows in time order: .csv, .csv.gz, .parquet, .jsonl, .jsonl.gz.")
]
StreamName = Annotated[str | None, typer.Option(help="Which stream, where there are several.")]
OnlyStream = Annotated[str | None, typer.Option("--stream", help="Only this stream; absent: all.")]
InsecureSeed = Annotated[
    int | None,
    typer.Option(help="Make the noise repeatable, for tests. NOT PRIVATE: every ledger entry will say so."),
]
Speed = Annotated[
    float | None,
    typer.Option(
        min=0.001, help="Event seconds per second: 3600 plays an hour each second. Default: as fast as possible."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
NoPage = Annotated[bool, typer.Option("--no-page", help="Do not serve the live page.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
AllowRefused = Annotated[
    bool, typer.Option("--allow-refused", help="Go on also where fewer than half of the rows can be used.")
]


def clean(command: Callable[P, R]) -> Callable[P, R]:
    """Let a command end in one clean block and exit code 2 on any error that privstream raises on purpose."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except PrivstreamError as error:
            _refuse(error, as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(REFUSED) from None
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if not type(error).__module__.startswith("aiokafka."):
                raise
            # Without the client's own text: that can repeat a record.
            refused = BrokerError(
                f"the Kafka cluster refused or did not answer: {type(error).__name__}. "
                "Fix: check bootstrap and security in [kafka], then run privstream doctor CONFIG."
            )
            _refuse(refused, as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(REFUSED) from None

    return run


def _refuse(error: PrivstreamError, *, as_json: bool) -> None:
    problems = problems_of(error)
    if as_json:
        print_json({"ok": False, "error": type(error).__name__, "problems": problems})
        return
    if isinstance(error, ConfigError):
        count = len(problems)
        say_error(f"the configuration is refused: {number_of(count, 'problem')}")
        for problem in problems:
            line = f" (line {problem['line']})" if problem["line"] else ""
            typer.echo(f"\n  {problem['key']}{line}\n    {problem['reason']}\n    fix: {problem['fix']}", err=True)
        return
    (problem,) = problems
    say_error(problem["reason"])
    if problem["fix"]:
        typer.echo(f"  fix: {problem['fix']}", err=True)


def problems_of(error: PrivstreamError) -> list[dict[str, Any]]:
    """Return an error as JSON shows it."""
    return [asdict(each) for each in errors.problems_of(error)]


def say(text: str) -> None:
    """Print a line for the person at the terminal."""
    typer.echo(text, err=True)


def say_error(text: str) -> None:
    typer.echo(typer.style("privstream: ", fg="red", bold=True) + text, err=True)


def warn(text: str) -> None:
    typer.echo(typer.style("ATTENTION: ", fg="yellow", bold=True) + text, err=True)


def say_compacted(compacted: int, verified: int) -> None:
    """Say how many steps could not be compared with the ledger: loudly only where none could.

    Kafka compacts withdrawn records of every stream, from its first minutes on; the alive ones are counted.
    """
    if compacted:
        text = (
            f"{compacted:,} steps could not be checked against the ledger: Kafka has compacted their withdrawn records"
        )
        if verified:
            say(f"{text}, as it does in every stream")
        else:
            warn(f"{text}, and no step is left that could be: nothing but the number of records speaks for this table")


def say_refused(stream: str, refused: Sequence[RefusedRows], *, share: float) -> None:
    """Print refused rows by reason and field, with the first of each; loudly, and with what to do, where it is much.

    Args: stream: its name; empty where that is plain.
    """
    from agents.kafka.lifecycle.refusals import MUCH, percent

    if share > MUCH:
        warn(f"{f'stream {stream}: ' if stream else ''}{percent(share)} of the rows are refused")
    advised = set[str]()
    for each in refused:
        advice = "" if share <= MUCH or each.what_to_do in advised else f". What to do: {each.what_to_do}"
        advised.add(each.what_to_do)
        say(f"  refused: {each}{advice}")


def terminal_width() -> int | None:
    """Return the columns of the terminal that results go to; None where they go elsewhere, and a line is a line."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns; on a terminal that is too narrow for them, some of them below the others."""
    typer.echo(table(head, rows, width=terminal_width()))


def print_json(value: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(value, default=str))


def config_of(path: Path, *, offline: bool = False) -> Config:
    """Return the configuration with this process' environment. Raises: ConfigError.

    Args: offline: the command asks no cluster, so `[kafka]` may be missing.
    """
    from schemas.config import load_config

    return load_config(path, os.environ, offline=offline)


def chosen_stream(config: Config, name: str | None, *, as_configured: bool = False) -> Stream:
    """Return the stream called `name`, or the only one. Raises: PrivstreamError that lists what there is.

    Args: as_configured: a split stream is one, by its name in the file too, and its first part stands for all.
    """
    streams: dict[str, Stream] = {}
    for stream in config.streams:
        streams.setdefault(stream.whole if as_configured else stream.name, stream)
        if as_configured and stream.name == name:
            name = stream.whole
    names = ", ".join(streams)
    if name is None:
        if len(streams) > 1:
            raise PrivstreamError(f"the configuration has {len(streams)} streams. Fix: add --stream, one of {names}.")
        return next(iter(streams.values()))
    if name not in streams:
        raise PrivstreamError(f"the configuration has no stream {name!r}. Fix: --stream is one of {names}.")
    return streams[name]


def working(what: str, *, quiet: bool = False) -> AbstractContextManager[object]:
    """Show a line that moves around what nobody can say the end of."""
    if quiet or not sys.stderr.isatty():
        return contextlib.nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(what)


class Bars(AbstractContextManager["Bars"]):
    """A bar for one thing after the other, with how much of it is done, how fast, and the time that is left.

    On standard error: bars where that is a terminal, elsewhere a plain line every `LINE_S` seconds of what takes that
    long. Nothing is shown before the first call, nor after `close`, which leaving it as a context does.
    """

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds; tests have their own."""
        self._quiet = quiet
        self._plain = not sys.stderr.isatty()
        self._clock = clock
        self._said_at = clock()
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that so much of it is done, of so much."""
        if self._quiet:
            return
        if self._plain:
            if (now := self._clock()) - self._said_at >= LINE_S:
                self._said_at = now
                say(f"{what}: {done:,} of {total:,}" + (f" ({done / total:.0%})" if total else ""))
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                ProgressColumn,
                TextColumn,
                TimeRemainingColumn,
            )
            from rich.text import Text

            class Rate(ProgressColumn):
                def render(self, task: Any) -> Text:
                    return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TextColumn("left"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
            self._bar.start()
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done, total=total)

    def echo(self, line: str, *, err: bool = False) -> None:
        """Print a whole line, which on a terminal stands above the bars."""
        if self._bar is not None and (err or sys.stdout.isatty()):
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            typer.echo(line, err=err)

    def close(self) -> None:
        """Let lines that are said from now on stand below."""
        bar, self._bar = self._bar, None
        self._tasks = {}
        if bar is not None:
            bar.stop()

    def __exit__(self, *error: object) -> None:
        self.close()
