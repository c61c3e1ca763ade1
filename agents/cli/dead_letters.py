"""`privstream dead-letters`: which source records were refused, and why."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import (
    AsJson,
    Bars,
    ConfigFile,
    OnlyStream,
    chosen_stream,
    config_of,
    print_json,
    print_table,
    say,
    warn,
)
from schemas.errors import PrivstreamError
from schemas.events import Reason

if TYPE_CHECKING:
    from agents.protocol.ingest.dead_letters import DeadLetter
    from schemas.config import Config

MOST_SHOWN = 2_000
"""Bytes of a raw record."""


@manual(
    Example("privstream dead-letters job.toml --reason WRONG_TYPE --last 5 --show", "the records themselves: PRIVATE"),
    Example("privstream dead-letters job.toml --stream taxi --follow --json", "what comes, for machines"),
)
def dead_letters(
    config: ConfigFile,
    stream: OnlyStream = None,
    reason: Annotated[str | None, typer.Option(metavar="REASON", help="Only this reason, such as WRONG_TYPE.")] = None,
    last: Annotated[int, typer.Option(min=0, metavar="N", help="Positions to list, the last ones.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until interrupted.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Read the raw records from the source and print them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which source records were refused: counts by stream, reason and field, then positions.

    OPERATOR ONLY: positions of private records. A letter never holds what was in a record; --show reads that from the
    source, for whoever may, and prints PRIVATE data.
    """
    loaded = config_of(config)
    name = None if stream is None else chosen_stream(loaded, stream).name
    wanted_reason = None if reason is None else _reason(reason)

    def wanted(letter: DeadLetter) -> bool:
        return (name is None or letter.stream == name) and (wanted_reason is None or letter.reason == wanted_reason)

    asyncio.run(_tell(loaded, wanted, last=last, going_on=follow, show=show, as_json=as_json))


def _reason(text: str) -> Reason:
    from agents.protocol.ingest.dead_letters import UNLETTERED

    lettered = [each for each in Reason if each not in UNLETTERED]
    found = next((each for each in lettered if each.name == text.upper().replace("-", "_").replace(" ", "_")), None)
    if found is None:
        names = ", ".join(each.name for each in lettered)
        raise PrivstreamError(f"no record is dead-lettered for {text!r}. Fix: --reason is one of {names}.")
    return found


async def _tell(config: Config, wanted: Any, *, last: int, going_on: bool, show: bool, as_json: bool) -> None:
    from agents.readers.operator import dead_letters as letters

    with Bars() as bars:
        found = await letters.dead_letters(config, wanted, most=last, read=partial(bars, "letters"))
    async with letters.raw_records(config) as ask:
        readings = letters.Readings(config)

        async def entry_of(letter: DeadLetter) -> dict[str, Any]:
            if not show:
                return _entry(letter)
            record = await ask(letter)
            return _entry(letter) | _shown(record, await readings.values(letter.stream, record))

        shown = [await entry_of(letter) for letter in found.newest]
        if as_json:
            counts = [
                {"stream": stream, "reason": reason, "field": field, "records": records}
                for (stream, reason, field), records in sorted(found.counts.items())
            ]
            print_json({"ok": True, "private": show, "counts": counts, "last": shown, "unreadable": found.unreadable})
        else:
            _print(found, shown)
        if readings.problem is not None:
            warn(readings.problem)
        if show:
            warn("these are raw records, PRIVATE as they stand: do not send or commit them")
        if going_on:
            async for letter in letters.follow(config, wanted, found):
                entry = await entry_of(letter)
                print_json(entry) if as_json else typer.echo(_line(entry))


def _print(found: Any, shown: list[dict[str, Any]]) -> None:
    from agents.kafka.lifecycle.refusals import WHAT_TO_DO

    if not found.counts:
        typer.echo("no dead letters: no record was refused, or the letters of those that were are gone")
    else:
        rows = [
            [stream, reason, field or "-", f"{count:,}"]
            for (stream, reason, field), count in sorted(found.counts.items(), key=lambda item: -item[1])
        ]
        print_table(["stream", "reason", "field", "records"], rows)
        for reason in dict.fromkeys(row[1] for row in rows):
            if reason in WHAT_TO_DO:
                say(f"{reason}: {WHAT_TO_DO[reason]}")
    if shown:
        typer.echo("")
    for entry in shown:
        typer.echo(_line(entry))
    if found.unreadable:
        warn(f"{found.unreadable:,} letters cannot be read: another program or a later version wrote them")
    say("operator only: positions of private records")


def _entry(letter: DeadLetter) -> dict[str, Any]:
    return {**letter._asdict(), "reason": letter.reason.name}


def _shown(record: Any, values: list[Any] | None) -> dict[str, Any]:
    """Return what `--show` adds. Args: values: of a record that is no text."""
    read = None if values is None else json.loads(json.dumps(values, default=_not_json))
    return {"raw": None if record is None else _text(record.value), "read": read, "there": record is not None}


def _not_json(value: Any) -> str:
    """Return what stands for a value that JSON does not have: bytes, and numbers that are none."""
    return f"bytes {_text(value)}" if isinstance(value, bytes) else "NaN"


def _line(entry: dict[str, Any]) -> str:
    of = f" of {entry['field']}" if entry["field"] else ""
    place = f"{entry['topic']}-{entry['partition']} offset {entry['offset']:,}"
    line = f"{entry['stream']}: {entry['reason']}{of}, {place}"
    if "raw" not in entry:
        return line
    if not entry["there"]:
        return f"{line}\n    no longer in the source"
    if entry["read"] is None:
        return f"{line}\n    {entry['raw']}"
    return line + "".join(f"\n    {_text(json.dumps(each, ensure_ascii=False).encode())}" for each in entry["read"])


def _text(value: bytes | None) -> str:
    """Return a raw value as a line that no terminal obeys."""
    if value is None:
        return "null (a tombstone)"
    text = value[:MOST_SHOWN].decode("utf-8", errors="backslashreplace")
    more = f" ... {len(value):,} bytes in all" if len(value) > MOST_SHOWN else ""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text) + more
