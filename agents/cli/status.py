"""`privstream status`: how far each stream has come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import AsJson, ConfigFile, config_of, print_json, print_table, say, warn, working

if TYPE_CHECKING:
    from agents.kafka.status import StreamStatus


@manual(
    Example("privstream status job.toml", "steps, cost, lag, and what is wrong with each stream"),
    Example("privstream status job.toml --json", "the same for a monitor"),
)
def status(config: ConfigFile, as_json: AsJson = False) -> None:
    """Show each stream's last public step, what it cost, and how far ingest and engine lag behind.

    OPERATOR ONLY: lag is a count of private events. Reads committed records; no worker needs to be up.
    """
    loaded = config_of(config)
    from agents.kafka.broker_clock import WHAT_TO_DO, worker_clocks
    from agents.kafka.status import registry_doubts
    from agents.kafka.status import status as ask
    from agents.kafka.witness.streams import UNCONFIGURED

    async def seen() -> tuple[Sequence[StreamStatus], Mapping[str, float]]:
        streams = await registry_doubts(loaded, await ask(loaded))
        by_clock = any(each.clock != "replay" for each in streams)
        return streams, await worker_clocks(loaded) if by_clock else {}

    with working("asking the cluster", quiet=as_json):
        streams, clocks = asyncio.run(seen())
    if as_json:
        told = [{**asdict(each), "health": each.health, "producers": each.producers} for each in streams]
        print_json({"ok": True, "streams": told, "clocks_ahead_s": clocks})
        return
    rows = [
        [
            each.stream,
            each.health,
            each.clock,
            "none" if each.published < 0 else str(each.published),
            each.published_at or "",
            f"{each.records:,}",
            f"{each.epsilon_spent:g} of {each.epsilon:g}" + ("" if each.private else " NOT PRIVATE"),
            f"{each.ingest_lag:,}",
            f"{each.waiting:,}",
        ]
        for each in streams
    ]
    head = ["stream", "health", "clock", "public step", "until", "synthetic", "epsilon spent"]
    print_table([*head, "records to ingest", "steps to publish"], rows)
    for each in streams:
        for remark in _remarks(each):
            warn(f"stream {each.stream}: {remark}")
    for worker, ahead_s in clocks.items():
        if abs(ahead_s) > loaded.job.max_clock_skew_us / 1e6:
            warn(f"the clock of worker {worker} is {ahead_s:+.1f} s from the brokers'. What to do: {WHAT_TO_DO}")
    for each in streams:
        for stop in each.stopped:
            typer.echo(f"\nSTOPPED: {stop}")
    for each in streams:
        if each.witness is not None:
            say(f"witness of {each.stream}: {each.witness}")
    if loaded.job.witness is None:
        say(f"no [job] witness is configured: {UNCONFIGURED}")
    say(
        "operator only: lag is a count of private events. Records to ingest have ticks among them; where they are very "
        "many, markers of transactions are counted, too"
    )


def _remarks(stream: StreamStatus) -> Iterator[str]:
    """Yield what an operator should know beyond the table."""
    from agents.kafka.lifecycle.refusals import Seen

    if stream.doubt is not None:
        yield stream.doubt.detail
    if stream.source_problem:
        yield stream.source_problem
    if stream.live and stream.live < stream.partitions:
        yield (
            f"{stream.live} of {stream.partitions} source partitions are live, and no step ends before all are. Where "
            'that lasts, run the same privstream replay --then-live again (docs/operations.md, "From history to live")'
        )
    if stream.unrouted:
        yield f"{stream.unrouted:,} of the records to ingest are not yet routed to the partitions of their users"
    if stream.lost:
        yield f"{stream.lost:,} source offsets were deleted before they were read; keep the source for longer"
    for what, tally in (("the last", stream.recent), ("all", stream.totals)):
        seen = Seen.of(tally)
        if seen.refused or seen.dropped:
            yield f"of {what} {seen.records:,} records {seen.sentence()}"
        for doubted in seen.doubted:
            yield f"of {what} {seen.records:,} records {doubted}"
    if (refusing := stream.refusing) is not None:
        lines = "".join(f"\n    {line}" for line in refusing.advice())
        yield f'steps go on without what is refused (docs/operations.md, "Many records are refused"):{lines}'
