"""`privstream status`: how far each stream has come."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import typer

from agents.cli.output import AsJson, ConfigFile, config_of, print_json, say, table


def status(config: ConfigFile, as_json: AsJson = False) -> None:
    """Show each stream's last public step, what it cost, and how far ingest and engine lag behind.

    OPERATOR ONLY: lag is a count of private events. Reads committed records; no worker needs to be up.
    """
    loaded = config_of(config)
    from agents.status import status as ask

    streams = asyncio.run(ask(loaded))
    if as_json:
        print_json({"ok": True, "streams": [asdict(each) for each in streams]})
        return
    rows = [
        [
            each.stream,
            "none" if each.published < 0 else str(each.published),
            each.published_at or "",
            f"{each.records:,}",
            f"{each.epsilon_spent:g} of {each.epsilon:g}" + ("" if each.private else " NOT PRIVATE"),
            f"{each.ingest_lag:,}",
            f"{each.waiting:,}",
        ]
        for each in streams
    ]
    head = ["stream", "public step", "until", "synthetic", "epsilon spent", "offsets to ingest", "steps to publish"]
    typer.echo(table(head, rows))
    for each in streams:
        for stop in each.stopped:
            typer.echo(f"\nSTOPPED: {stop}")
    say("operator only: lag is a count of private events")
