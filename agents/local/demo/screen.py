"""What the demo shows: progress bars, and one line for each step with what came out and how far it is from the
truth.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from agents.readers.watch import LivePage
from agents.show.view import Metric, metrics_of, tiles
from schemas.config import Stream

ROWS_SHOWN = 10
METRICS_SHOWN = 2
SCALES = ("small", "medium", "large")
AREAS = ("0.01-0.1 %", "0.1-1 %", "1-10 %")
CAPTION = (
    "small, medium, large: by how much the counts in random rectangles of 0.01-0.1 %, 0.1-1 % and 1-10 % of the map "
    "are off, on average, against the held-out truth; less is better"
)


@dataclass(slots=True)
class StepSeen:
    """One step as the public ledger and the operator's utility topic tell of it."""

    step: int
    ledger: Mapping[str, Any]
    utility: Mapping[str, Any]

    @property
    def gathered(self) -> bool:
        return bool(self.ledger["gathered"])

    def error(self, scale: str) -> float | None:
        value = self.utility["metrics"].get(f"error_{scale}")
        return None if value is None else float(value)


@dataclass(slots=True)
class StepsSeen:
    """All steps so far, and what the final table is made of."""

    steps: list[StepSeen] = field(default_factory=list)

    def mean_error(self, scale: str) -> float:
        """Mean over the released steps."""
        errors = [error for step in self.steps if (error := step.error(scale)) is not None]
        return sum(errors) / len(errors) if errors else float("nan")

    @property
    def events(self) -> int:
        return int(self.steps[-1].utility["events_total"]) if self.steps else 0

    @property
    def synthetic_points(self) -> int:
        return int(self.steps[-1].utility["synthetic_points"]) if self.steps else 0

    @property
    def epsilon_spent(self) -> float:
        return float(self.steps[-1].ledger["epsilon_spent"]) if self.steps else 0.0


@dataclass(slots=True)
class Other:
    """A stream that has one line: its last step."""

    stream: Stream
    last: StepSeen | None = None
    metrics: Sequence[Metric] = ()

    def __post_init__(self) -> None:
        self.metrics = [metric for metric in metrics_of(self.stream) if metric.tile][:METRICS_SHOWN]

    def errors(self) -> Sequence[tuple[str, str]]:
        metrics = self.last.utility["metrics"] if self.last is not None else {}
        return tiles(self.metrics, metrics) if metrics else ()

    def cells(self) -> tuple[str, str, str, str, str, str]:
        """Engine, step, events, records, errors and epsilon, as texts."""
        if self.last is None:
            return (self.stream.engine, "-", "-", "-", "-", "-")
        step = self.last
        return (
            self.stream.engine,
            str(step.step),
            f"{step.utility['events_total']:,}",
            f"{step.utility['synthetic_points']:,}",
            ", ".join(f"{name} {text}" for name, text in self.errors()),
            f"{step.ledger['epsilon_spent']:g} of {float(self.stream.privacy.epsilon):g}",
        )

    def as_json(self) -> dict[str, Any]:
        if self.last is None:
            return {"engine": self.stream.engine, "steps": 0}
        return {
            "engine": self.stream.engine,
            "mode": self.stream.mode,
            "steps": self.last.step + 1,
            "events": self.last.utility["events_total"],
            "synthetic_records": self.last.utility["synthetic_points"],
            "metrics": self.last.utility["metrics"],
            "epsilon": self.last.ledger["epsilon_spent"],
        }


class Screen:
    """Live on a terminal; plain lines where there is none. Everything goes to `console`, so that stdout can be JSON."""

    def __init__(self, console: Console, streams: Sequence[Stream]) -> None:
        self.console = console
        self.seen = StepsSeen()
        main, *others = streams
        self.others = {stream.name: Other(stream) for stream in others}
        self._main = main.name
        self._epsilon = float(main.privacy.epsilon)
        self._unit = "trip" if main.privacy.unit == "event" else main.privacy.unit
        self._zone = main.time.zone
        self._progress = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
        )
        self._status = Text("")
        self._live: Live | None = None

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live = Live(self._render(), console=self.console, refresh_per_second=8)
            self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._status = Text("")
            self._live.update(self._render(), refresh=True)
            self._live.__exit__(None, None, None)
            self._live = None

    def say(self, what: str) -> None:
        """One line on what happens now."""
        self._status = Text(what, style="dim")
        self._refresh(plain=what)

    def page(self, page: LivePage) -> None:
        """Where to look, once: the operator's address holds its token."""
        self.console.print("[bold]Look at it live[/] in a browser, as any consumer sees it, and as its operator does:")
        for address in (page.public, page.operator):
            self.console.print(f"  {address}", highlight=False, soft_wrap=True)

    def bar(self, description: str, total: int | None) -> TaskID:
        return self._progress.add_task(description, total=total)

    def advance(self, bar: TaskID, completed: int, total: int | None = None, *, description: str | None = None) -> None:
        self._progress.update(bar, completed=completed, total=total, description=description)
        self._refresh()

    def step(self, name: str, step: StepSeen) -> None:
        """A step is public and measured."""
        if name != self._main:
            self.others[name].last = step
            self._refresh()
            return
        self.seen.steps.append(step)
        errors = " ".join("-" if (e := step.error(scale)) is None else f"{e:.3f}" for scale in SCALES)
        self._refresh(
            plain=f"step {step.step:>4}  events {step.utility['events_total']:>7}  "
            f"synthetic {step.utility['synthetic_points']:>7}  error {errors}  "
            f"epsilon {step.ledger['epsilon_spent']:g} of {self._epsilon:g}"
        )

    def _refresh(self, *, plain: str = "") -> None:
        if self._live is not None:
            self._live.update(self._render())
        elif plain:
            self.console.print(plain, highlight=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        parts: list[RenderableType] = [self._progress]
        if self.seen.steps:
            parts.append(self._table())
        if any(other.last is not None for other in self.others.values()):
            parts.append(self._others())
        parts.append(self._status)
        return Group(*parts)

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 1), header_style="bold", caption=CAPTION, caption_justify="left")
        table.add_column("step", justify="right", no_wrap=True)
        table.add_column("until", no_wrap=True)
        for name in ("events in", "synthetic", *SCALES, "epsilon"):
            table.add_column(name, justify="right", no_wrap=True)
        for step in self.seen.steps[-ROWS_SHOWN:]:
            until = datetime.datetime.fromisoformat(step.ledger["end"]).astimezone(self._zone)
            errors = ["-" if step.gathered else f"{step.error(scale):.1%}" for scale in SCALES]
            table.add_row(
                str(step.step),
                until.strftime("%Y-%m-%d"),
                f"{step.utility['events_total']:,}",
                f"{step.utility['synthetic_points']:,}",
                *errors,
                f"{step.ledger['epsilon_spent']:g} of {self._epsilon:g}",
                style="dim" if step.gathered else "",
            )
        return table

    def _others(self) -> Table:
        """A line for each stream that is not the main one."""
        table = Table(box=None, padding=(0, 1), header_style="bold", title="the same job's other streams")
        table.title_justify, table.caption_justify = "left", "left"
        table.caption = "what these figures mean stands at the end"
        for name in ("stream", "engine", "step", "events in", "synthetic", "against the truth", "epsilon"):
            # Where the terminal is narrow, the errors are what breaks into lines, never a number.
            table.add_column(
                name,
                no_wrap=name != "against the truth",
                justify="right" if name in ("step", "events in", "synthetic") else "left",
            )
        for name, other in self.others.items():
            table.add_row(name, *other.cells())
        return table

    def explained(self) -> Sequence[str]:
        """What the figures of the table mean, a line each; the main stream's are explained below its own table."""
        named = {metric.name: metric for other in self.others.values() for metric in other.metrics}
        return [f"{metric.name}: {metric.explained}" for metric in named.values()]

    def summary(self, *, seconds: float, bootstrap: str, lines: list[str]) -> None:
        """The last thing a newcomer reads: what happened, and what to type next."""
        seen = self.seen
        released = [step for step in seen.steps if not step.gathered]
        table = Table(box=None, padding=(0, 2), show_header=False)
        table.add_column(style="bold")
        table.add_column()
        table.add_row("steps", f"{len(seen.steps)}, {len(released)} with a release")
        table.add_row("events in (private)", f"{seen.events:,}")
        table.add_row("synthetic points (public)", f"{seen.synthetic_points:,}")
        for scale, area in zip(SCALES, ("0.01-0.1 %", "0.1-1 %", "1-10 %"), strict=True):
            table.add_row(
                f"error, {scale} queries", f"{seen.mean_error(scale):.1%} [dim]mean over steps ({area} of the area)[/]"
            )
        table.add_row("privacy", f"epsilon = {self._epsilon:g} for one {self._unit}, whole stream")
        for name, other in self.others.items():
            engine, step, events, records, errors, _ = other.cells()
            table.add_row(
                f"stream {name}", f"{engine}: {events} events in, {records} records out, step {step}; {errors}"
            )
        table.add_row("time", f"{seconds:.0f} s, on Apache Kafka at {bootstrap}")
        self.console.print(Panel(table, title="privstream demo", title_align="left", expand=False))
        for meaning in self.explained():
            self.console.print(f" {meaning}", style="dim", highlight=False, soft_wrap=not self.console.is_terminal)
        for line in lines:
            self.console.print(line, highlight=False, soft_wrap=True)
