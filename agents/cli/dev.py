"""`privstream dev`: a configuration with everything around it, on this machine, in one command."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import (
    AllowRefused,
    Bars,
    NoPage,
    Speed,
    StreamName,
    chosen_stream,
    say,
    say_refused,
    warn,
)
from agents.show.text import number_of
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from agents.kafka.lifecycle.refusals import Seen
    from agents.local.dev import DevRun, StreamOutcome
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

    Says what is refused, by reason and field, as it comes, and at the end what became of all records. These counts are
    NOT private: for whoever may see the events.
    """
    from agents.local.dev import DevOptions, Played, without_settings
    from agents.local.dev import dev as run
    from schemas.config import load_config

    if exit_when_done and file is None:
        raise PrivstreamError("--exit-when-done has no file to wait for. Fix: name a FILE, or leave it out.")
    loaded = load_config(config, without_settings(os.environ), offline=True)
    files = {} if file is None else {chosen_stream(loaded, stream, as_configured=True).name: Played(file, speed)}
    options = DevOptions(files=files, exit_when_done=exit_when_done, allow_refused=allow_refused, page=not no_page)
    screen = Screen()
    try:
        run(config.read_text(encoding="utf-8"), loaded, options, screen)
    except KeyboardInterrupt:
        if not screen.is_up:
            raise
    finally:
        screen.bars.close()
    say("stopped; nothing is left behind")


class Screen:
    """Lines, and bars for the rows where there is a terminal."""

    def __init__(self) -> None:
        self.bars = Bars()
        self.is_up = False
        self._parts: set[str] = set()
        self._refused: dict[str, Counter[tuple[str, str]]] = {}
        self._advised: set[tuple[str, str, str | None]] = set()

    def say(self, line: str) -> None:
        self.bars.echo(line, err=True)

    def starting(self, what: str, done: int, total: int) -> None:
        if not sys.stderr.isatty() and what not in self._parts:
            self._parts.add(what)
            say(f"  {what}")
        self.bars(what, done, total)

    def up(self, running: DevRun) -> None:
        from agents.local.producers import LINES, lines_hold, producers, written_as

        self.bars.close()
        self.is_up = True
        bootstrap = running.config.kafka.bootstrap
        say("")
        if running.page is not None:
            say(f"page       {running.page.public}")
            if running.page.operator is not None:
                say(f"operators  {running.page.operator}   NOT private")
        say(f"Kafka      {bootstrap}")
        say(f"metrics    {running.metrics}   NOT private")
        say(f"worker     {running.log}")
        for stream in running.config.streams:
            say(f"stream {stream.name}: write {written_as(stream)} to {stream.source}")
            for client, line in producers(stream, bootstrap).items():
                say(f"  {client:<15}  {line}")
            if line := lines_hold(stream):
                say(f"  A line of {LINES} is {line}.")
            say("and read")
            for topic in (f"{stream.name}.synthetic", f"{stream.name}.ledger"):
                say(f"  kcat -C -b {bootstrap} -X isolation.level=read_committed -t {topic}")
        say(f"status     privstream status {running.path}")
        say("")

    def records(self, stream: str, records: Seen) -> None:
        refused = records.refused
        if refused == self._refused.get(stream, Counter()):
            return
        self._refused[stream] = refused
        self.say(f"{stream}: {counted(records)}")
        for reason, _ in refused:
            # What is to be done about it changes once whose partitioner it is can be told.
            producers = records.producers if reason == "WRONG_PARTITION" else None
            if (advice := (stream, reason, producers)) not in self._advised:
                self._advised.add(advice)
                self.say(f"  What to do about {reason}: {records.fix(reason)}")

    def step(self, stream: str, entry: Mapping[str, Any]) -> None:
        gathered = "  gathered: no data is released yet" if entry.get("gathered") else ""
        self.bars.echo(
            f"{stream}: step {entry['step']} until {entry['end']}  "
            f"{number_of(entry['synthetic_records'], 'synthetic record')}  "
            f"epsilon {entry['epsilon_spent']:g} of {entry['epsilon']:g}{gathered}"
        )

    def measured(self, stream: str, utility: Mapping[str, Any]) -> None:
        """Errors are for the operators' page, not for a terminal whose lines are public."""

    def looked(self, stream: str, seen: RowsSeen) -> None:
        if seen.refused:
            self.bars.close()
            say(f"{stream}: of the next {seen.rows:,} rows:")
            say_refused("", seen.refused, share=seen.seen.share)

    def rows(self, stream: str, done: int, total: int) -> None:
        self.bars(f"rows of {stream} replayed", done, total)

    def replayed(self, done: Replayed) -> None:
        self.bars.close()
        say(f"{done.stream}: {done.rows:,} rows are replayed; steps to {done.step} are over")
        if done.step < 0:
            warn("no step is over: all rows lie in the first one, or before it")

    def done(self) -> None:
        """Steps go on where producers write."""

    def ended(self, outcome: StreamOutcome) -> None:
        self.bars.close()
        say(
            f"{outcome.stream}: in all {counted(outcome.records)}; "
            f"{number_of(outcome.steps, 'step')} published {number_of(outcome.added, 'synthetic record')} and withdrew "
            f"{outcome.removed:,}"
        )


def counted(records: Seen) -> str:
    """Say what became of records, by reason and field."""
    from agents.kafka.lifecycle.refusals import UNUSED
    from schemas.events import Reason

    texts = [f"{number_of(records.read, 'record')} read", f"{records.count(Reason.ACCEPTED):,} accepted"]
    for reason, said in UNUSED.items():
        count = records.count(Reason[reason])
        if count or reason == "OVER_BOUND":
            texts.append(f"{count:,} {said}")
    refused = records.refused
    named = [f"{reason} of {name} {n:,}" if name else f"{reason} {n:,}" for (reason, name), n in refused.most_common()]
    texts.append(f"{refused.total():,} refused{': ' if named else ''}{', '.join(named)}")
    return ", ".join(texts)
