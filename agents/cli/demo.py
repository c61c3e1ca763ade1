"""`privstream demo`: `privstream dev` over the examples, on a screen that says how far the steps are from the truth."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agents.cli.dev import Screen
from agents.cli.manual import Example, manual
from agents.cli.output import AsJson, NoPage, print_json, say
from agents.show.text import table
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from rich.console import Console

    from agents.kafka.lifecycle.refusals import Seen
    from agents.local.dev import DevRun, StreamOutcome
    from agents.local.offline.seen import RowsSeen
    from schemas.config import Stream

DAY = 86_400.0
SHOWN = (
    ("taxi.toml", "nyc_taxi/taxi_2016_01_sample_20k.csv.gz", 2 * DAY),
    ("departures.toml", "nyc_departures/departures_2013_01.csv.gz", 2 * DAY),
    ("evictions.toml", "sf_evictions/eviction_notices_2011_2015.csv.gz", 110 * DAY),
    ("trips.toml", "town/drives.csv.gz", DAY / 6),
    ("arrivals.toml", "town/arrivals.csv.gz", DAY / 6),
)
"""Examples: a configuration of one stream, the file that is replayed, and event seconds per second: fast, but slow
enough to be watched.
"""
STREAMS = "\n[[streams]]"
METRICS_SHOWN = 2
HEAD = ("stream", "engine", "steps", "events in", "synthetic", "epsilon")


@manual(
    Example("privstream demo", "real streams on a screen; stays up until Ctrl-C"),
    Example("privstream demo --exit-when-done --json", "for a pipeline: figures as one JSON object"),
    exits={0: "well, or stopped by Ctrl-C once the files were through"},
)
def demo(
    exit_when_done: Annotated[
        bool, typer.Option("--exit-when-done", help="End when the file is through, instead of staying up until Ctrl-C.")
    ] = False,
    no_page: NoPage = False,
    as_json: AsJson = False,
) -> None:
    """See the whole job run: a real Kafka, real streams, private synthetic ones out.

    Starts an embedded Apache Kafka (or uses PRIVSTREAM_BOOTSTRAP), creates the topics, starts a worker, replays taxi
    pickups, flights, eviction notices, drives and where they end, shows each step as it is released, and serves the
    live page of all. Stays up until Ctrl-C and leaves nothing behind.
    """
    from rich.console import Console

    play(Console(stderr=as_json), exit_when_done=exit_when_done, page=not no_page, as_json=as_json)


def play(console: Console, *, exit_when_done: bool, page: bool = False, as_json: bool = False) -> None:
    """Run the demo, and show it on a console. Raises: PrivstreamError; KeyboardInterrupt before the files are through.

    Args: as_json: print one JSON object to standard output once the files are through.
    """
    from agents.local.dev import DevOptions, Played, dev
    from schemas.config.load import parse_config

    text = together()
    config = parse_config(text, {}, folder=examples())
    files = {
        stream.name: Played(examples() / data, speed)
        for stream, (_, data, speed) in zip(config.streams, SHOWN, strict=True)
    }
    screen = DemoScreen(console, config.streams, stays=not exit_when_done, as_json=as_json)
    try:
        dev(text, config, DevOptions(files=files, exit_when_done=exit_when_done, page=page, own_broker=False), screen)
    except KeyboardInterrupt:
        if not screen.is_done:
            raise
        say("stopped; nothing is left behind")
    finally:
        screen.bars.close()


def examples() -> Path:
    """Return the folder of examples: beside the packages in a clone, inside `agents` in an installed wheel.

    Raises: PrivstreamError.
    """
    agents = Path(__file__).parents[1]
    for folder in (agents.parent / "examples", agents / "examples"):
        if (folder / SHOWN[0][0]).exists():
            return folder
    raise PrivstreamError("the examples are not installed. Fix: run make demo in a clone of the repository.")


def together() -> str:
    """Return the text of one configuration with the streams of all examples."""
    texts = [(examples() / name).read_text(encoding="utf-8") for name, _, _ in SHOWN]
    return texts[0][: texts[0].index(STREAMS)] + "\n".join(text[text.index(STREAMS) :] for text in texts)


class DemoScreen(Screen):
    """The screen of `dev`, whose lines say how far each step is from the truth, and a table at the end.

    The table goes to `console`; with `as_json` all lines go to standard error, and one JSON object to standard output.
    """

    def __init__(
        self, console: Console, streams: Sequence[Stream], *, stays: bool = False, as_json: bool = False
    ) -> None:
        from agents.show.view import metrics_of

        super().__init__()
        self.is_done = False
        self._console, self._stays, self._as_json = console, stays, as_json
        self._streams = {stream.name: stream for stream in streams}
        self._metrics = {
            stream.name: [metric for metric in metrics_of(stream) if metric.tile][:METRICS_SHOWN] for stream in streams
        }
        self._entries: dict[str, Mapping[str, Any]] = {}
        self._utilities: dict[str, Mapping[str, Any]] = {}
        self._bootstrap = ""
        self._begun = time.monotonic()

    def up(self, running: DevRun) -> None:
        self.bars.close()
        self.is_up, self._bootstrap = True, running.config.kafka.bootstrap
        if running.page is not None:
            say("Look at it live in a browser, as any consumer sees it, and as its operator does:")
            say(f"  {running.page.public}")
            say(f"  {running.page.operator}")

    def step(self, stream: str, entry: Mapping[str, Any]) -> None:
        self._entries[stream] = entry

    def measured(self, stream: str, utility: Mapping[str, Any]) -> None:
        self._utilities[stream] = utility
        self.bars.echo(
            f"{stream}: step {utility['step']}  {utility['events_total']:,} events in  "
            f"{utility['synthetic_points']:,} synthetic out  {', '.join(self._errors(stream))}",
            err=self._as_json,
        )

    def looked(self, stream: str, seen: RowsSeen) -> None:
        """Hundreds of refused rows of public files are no news."""

    def records(self, stream: str, records: Seen) -> None:
        """Refused records are no news either."""

    def ended(self, outcome: StreamOutcome) -> None:
        """The table has said it."""

    def done(self) -> None:
        from rich.padding import Padding
        from rich.panel import Panel
        from rich.text import Text

        self.bars.close()
        self.is_done = True
        seconds = time.monotonic() - self._begun
        tables = Text(f"{self.table()}\n\n{self.errors()}")
        self._console.print(Panel(tables, title="privstream demo", title_align="left", expand=False))
        for meaning in self.explained():
            if self._console.is_terminal:
                self._console.print(Padding(meaning, (0, 0, 0, 1)), style="dim", highlight=False)
            else:
                self._console.print(f" {meaning}", highlight=False, soft_wrap=True)
        self._console.print(f" {seconds:.0f} s, on Apache Kafka at {self._bootstrap}", style="dim", highlight=False)
        for line in next_lines(self._bootstrap, list(self._streams)) if self._stays else ():
            self._console.print(line, highlight=False, soft_wrap=True)
        if self._as_json:
            print_json(
                {"seconds": round(seconds, 1), "streams": {name: self._as_json_of(name) for name in self._streams}}
            )

    def table(self) -> str:
        """Return a row for each stream, of its last step."""
        rows = []
        for name, stream in self._streams.items():
            entry, utility = self._entries[name], self._utilities[name]
            counts = (utility["step"] + 1, utility["events_total"], utility["synthetic_points"])
            spent = f"{entry['epsilon_spent']:g} of {float(stream.privacy.epsilon):g}"
            rows.append([name, stream.engine, *(f"{count:,}" for count in counts), spent])
        return table(HEAD, rows)

    def errors(self) -> str:
        """Return how far the last step of each stream is from the truth, a row for each figure."""
        rows = [["" if row else name, error] for name in self._streams for row, error in enumerate(self._errors(name))]
        return table(("stream", "against the truth"), rows)

    def explained(self) -> Sequence[str]:
        """Return what the figures against the truth mean, a line each."""
        named = {metric.name: metric for metrics in self._metrics.values() for metric in metrics}
        return [f"{metric.name}: {metric.explained}" for metric in named.values()]

    def _errors(self, stream: str) -> list[str]:
        from agents.show.view import tiles

        metrics = self._utilities[stream]["metrics"]
        return [f"{name} {text}" for name, text in tiles(self._metrics[stream], metrics)] if metrics else []

    def _as_json_of(self, name: str) -> dict[str, Any]:
        entry, utility = self._entries[name], self._utilities[name]
        return {
            "engine": self._streams[name].engine,
            "mode": self._streams[name].mode,
            "steps": utility["step"] + 1,
            "events": utility["events_total"],
            "synthetic_records": utility["synthetic_points"],
            "metrics": utility["metrics"],
            "epsilon": entry["epsilon_spent"],
        }


def next_lines(bootstrap: str, streams: Sequence[str]) -> list[str]:
    """Return what to type next, in another terminal, while the demo stays up: in a clone, or where a wheel is
    installed.
    """
    in_clone = Path("examples/consume.py").is_file() and Path(".venv/bin/privstream").is_file()
    folder = Path("examples") if in_clone else examples()
    python = ".venv/bin/python" if in_clone else shlex.quote(sys.executable)
    command = ".venv/bin/privstream" if in_clone else f"{python} -m agents.cli"
    consume = f"  {python} {shlex.quote(str(folder / 'consume.py'))} {bootstrap}"
    return [
        "",
        f"[bold]It stays up until Ctrl-C.[/] In another terminal{', in this folder' if in_clone else ''}:",
        "  [dim]# the public stream, as any consumer reads it; and what each step cost:[/]",
        f"{consume} {streams[0]}.ledger",
        *(f"{consume} {name}.synthetic" for name in streams),
        f"  PRIVSTREAM_BOOTSTRAP={bootstrap} {command} status {shlex.quote(str(folder / SHOWN[0][0]))}",
        f"Then your own stream: [bold]{command} init --engine NAME --from[/] a file of its events.",
    ]
