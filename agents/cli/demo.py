"""`privstream demo`: the job on a real stream, on this machine, in a minute."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import AsJson, NoPage, print_json, say

if TYPE_CHECKING:
    from agents.local.demo.screen import Screen
    from schemas.config import Config, Stream


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
    pickups, flights, eviction notices and drives, shows each step as it is released, and serves the live page of all.
    Stays up until Ctrl-C and leaves nothing behind.
    """
    from rich.console import Console

    from agents.local.demo.run import demo_world
    from agents.local.demo.screen import Screen

    console = Console(stderr=as_json)

    def screen(streams: Sequence[Stream]) -> Screen:
        return Screen(console, streams)

    with demo_world(screen, exit_when_done=exit_when_done, page=not no_page) as (shown, result, config):
        lines = [] if exit_when_done else next_lines(config)
        shown.summary(seconds=result.seconds, bootstrap=config.kafka.bootstrap, lines=lines)
        if as_json:
            print_json(dataclasses.asdict(result))
    if not exit_when_done:
        say("stopped; nothing is left behind")


def next_lines(config: Config) -> list[str]:
    """What to type next, in another terminal, while the demo stays up: in a clone, or where a wheel is installed."""
    from agents.local.demo.run import examples

    bootstrap = config.kafka.bootstrap
    in_clone = Path("examples/consume.py").is_file() and Path(".venv/bin/privstream").is_file()
    folder = Path("examples") if in_clone else examples()
    python = ".venv/bin/python" if in_clone else shlex.quote(sys.executable)
    command = ".venv/bin/privstream" if in_clone else f"{python} -m agents.cli"
    consume = f"  {python} {shlex.quote(str(folder / 'consume.py'))} {bootstrap}"
    first, *others = config.streams
    return [
        "",
        f"[bold]It stays up until Ctrl-C.[/] In another terminal{', in this folder' if in_clone else ''}:",
        "  [dim]# the public stream, as any consumer reads it; and what each step cost:[/]",
        f"{consume} {first.name}.synthetic",
        f"{consume} {first.name}.ledger",
        *(f"{consume} {each.name}.synthetic" for each in others),
        f"  PRIVSTREAM_BOOTSTRAP={bootstrap} {command} status {shlex.quote(str(folder / 'taxi.toml'))}",
        f"Then your own stream: [bold]{command} init --engine NAME --from[/] a file of its events.",
    ]
