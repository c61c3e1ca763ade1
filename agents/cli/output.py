"""How the command line speaks: results to standard output, all else to standard error, no traceback for our own errors.

Exit codes: 0 well, 1 a check found something, 2 refused with a reason, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

from schemas.errors import ConfigError, PrivstreamError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from agents.local.offline.seen import RefusedRows
    from schemas.config import Config, Stream

P = ParamSpec("P")
R = TypeVar("R")

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
    """The command, ending in one clean block and exit code 2 on any error that privstream raises on purpose."""

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
            _refuse(kafka_error(error), as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(REFUSED) from None

    return run


def kafka_error(error: Exception) -> PrivstreamError:
    """What a client library says of the cluster, without its text: that can repeat a record."""
    from schemas.errors import BrokerError

    return BrokerError(
        f"the Kafka cluster refused or did not answer: {type(error).__name__}. "
        "Fix: check bootstrap and security in [kafka], then run privstream doctor CONFIG."
    )


def _refuse(error: PrivstreamError, *, as_json: bool) -> None:
    problems = problems_of(error)
    if as_json:
        print_json({"ok": False, "error": type(error).__name__, "problems": problems})
        return
    if isinstance(error, ConfigError):
        count = len(problems)
        say_error(f"the configuration is refused: {count} {'problem' if count == 1 else 'problems'}")
        for problem in problems:
            line = f" (line {problem['line']})" if problem["line"] else ""
            typer.echo(f"\n  {problem['key']}{line}\n    {problem['reason']}\n    fix: {problem['fix']}", err=True)
        return
    (problem,) = problems
    say_error(problem["reason"])
    if problem["fix"]:
        typer.echo(f"  fix: {problem['fix']}", err=True)


def problems_of(error: PrivstreamError) -> list[dict[str, Any]]:
    """An error as key, reason, fix; our messages put the fix behind the word "Fix:"."""
    if isinstance(error, ConfigError):
        return [asdict(each) for each in error.problems]
    text = str(error)
    at = text.find("Fix: ")
    reason, fix = (text, "") if at < 0 else (text[:at], text[at + len("Fix: ") :])
    return [{"key": "", "reason": reason.strip(), "fix": fix.strip(), "line": None}]


def say(text: str) -> None:
    """A line for the person at the terminal."""
    typer.echo(text, err=True)


def say_error(text: str) -> None:
    typer.echo(typer.style("privstream: ", fg="red", bold=True) + text, err=True)


def warn(text: str) -> None:
    typer.echo(typer.style("ATTENTION: ", fg="yellow", bold=True) + text, err=True)


def say_refused(stream: str, refused: Sequence[RefusedRows], *, share: float) -> None:
    """By reason and field, with the first row of each; loudly, and with what to do, where it is much.

    Args: stream: its name; empty where that is plain.
    """
    from agents.kafka.lifecycle.refusals import MUCH, percent

    if share > MUCH:
        warn(f"{f'stream {stream}: ' if stream else ''}{percent(share)} of the rows are refused")
    for each in refused:
        say(f"  refused: {each}" + (f". What to do: {each.what_to_do}" if share > MUCH else ""))


def print_json(value: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(value, default=str))


def config_of(path: Path, *, offline: bool = False) -> Config:
    """The configuration with this process' environment. Raises: ConfigError.

    Args: offline: the command asks no cluster, so `[kafka]` may be missing.
    """
    from schemas.config import load_config

    return load_config(path, os.environ, offline=offline)


def chosen_stream(config: Config, name: str | None) -> Stream:
    """The stream called `name`, or the only one. Raises: PrivstreamError that lists what there is."""
    names = ", ".join(stream.name for stream in config.streams)
    if name is None:
        if len(config.streams) > 1:
            raise PrivstreamError(
                f"the configuration has {len(config.streams)} streams. Fix: add --stream, one of {names}."
            )
        return config.streams[0]
    try:
        return config.stream(name)
    except KeyError:
        raise PrivstreamError(f"the configuration has no stream {name!r}. Fix: --stream is one of {names}.") from None


class RowsProgress:
    """One bar over rows, or other things: done of total, rate, time left. On standard error, if that is a terminal."""

    def __init__(self, bar: Progress | None, what: str) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task(what, total=None)
        self._row = 0

    def begun(self, rows: int, before: int = 0) -> None:
        self._row = before
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, total=rows, completed=before)

    def now(self, what: str) -> None:
        """What is done at this moment."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=what)

    def at(self, row: int) -> None:
        self.advance(row - self._row)

    def advance(self, rows: int) -> None:
        self._row += rows
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, rows)


@contextlib.contextmanager
def rows_progress(what: str, *, quiet: bool, unit: str = "rows") -> Iterator[RowsProgress]:
    if quiet or not sys.stderr.isatty():
        yield RowsProgress(None, what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit), Rate())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        yield RowsProgress(bar, what)


@contextlib.contextmanager
def working(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Around what nobody can say the end of: a line that moves, with the seconds that it has taken."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(what, total=None)
        yield


class PartsProgress:
    """A bar for one thing after the other, each with what is done of it and the time that is left.

    Nothing is shown before the first of `at`, nor after `close`.
    """

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def at(self, what: str, done: int, total: int) -> None:
        """So much of it is done."""
        if not sys.stderr.isatty():
            return
        bar = self._opened()
        if what not in self._tasks:
            self._tasks[what] = bar.add_task(what, total=total)
        bar.update(self._tasks[what], completed=done, total=total)

    def echo(self, line: str, *, err: bool = False) -> None:
        """A whole line, which on a terminal stands above the bar."""
        if self._bar is not None and (err or sys.stdout.isatty()):
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            typer.echo(line, err=err)

    def close(self) -> None:
        """Lines that are said from now on stand below."""
        bar, self._bar = self._bar, None
        self._tasks = {}
        if bar is not None:
            bar.stop()

    def _opened(self) -> Progress:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bar = Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True))
            self._bar.start()
        return self._bar
