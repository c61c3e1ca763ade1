"""How far something is that takes longer than a moment: on standard error, where that is a terminal, else nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


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
