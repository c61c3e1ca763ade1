"""`privstream query`: counts with standard errors, from what was measured."""

from __future__ import annotations

import asyncio
import csv
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import (
    AsJson,
    Bars,
    ConfigFile,
    StreamName,
    chosen_stream,
    config_of,
    print_json,
    print_table,
    say,
    say_compacted,
)
from agents.show.text import value_text
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from agents.readers.query.run import Answered, Queried

FEW_PENDING = 0.005


@manual(
    Example("privstream query job.toml", "how many events were counted in all, and how sure that is"),
    Example("privstream query job.toml --every 30 --csv", "a trend: a row for each 30 steps"),
    Example("privstream query job.toml --top 20", "of a stream of keys: those that most people have"),
    Example("privstream query job.toml --region harbour.geojson --steps 2024-01-01..", "in a place, since a day"),
)
def query(
    config: ConfigFile,
    where: Annotated[
        str | None,
        typer.Argument(metavar="WHERE", help="A condition as in SQL, such as \"zone = 'harbour'\"; all, if not given."),
    ] = None,
    box: Annotated[
        str | None, typer.Option(metavar="XMIN,YMIN,XMAX,YMAX", help="Only within this box, in the fields' units.")
    ] = None,
    region: Annotated[
        str | None, typer.Option(metavar="FILE|WKT", help="Only within these polygons: GeoJSON or WKT.")
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(metavar="FIRST..LAST", help="Steps or times; either end may be left out. All, if not given."),
    ] = None,
    every: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="A row for each N steps, in place of one for all.")
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Of engine keys: the N keys that most people have.")
    ] = None,
    series: Annotated[str | None, typer.Option(help="Which number, where a step has several.")] = None,
    stream: StreamName = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: AsJson = False,
) -> None:
    """Count events by place, attribute and time from the measurements of the engine, with standard errors.

    Not by counting synthetic points: a measurement says how large its noise is. Events are counted as the engine saw
    them, after the bounds on users, inserts less deletes. Reads public topics only, and costs no privacy.
    """
    if as_csv and as_json:
        raise PrivstreamError("--csv and --json are two forms of one output. Fix: leave one out.")
    if box is not None and region is not None:
        raise PrivstreamError("--box and --region both say where. Fix: leave one out.")
    loaded = config_of(config)
    chosen = chosen_stream(loaded, stream)
    from agents.readers.query.run import Ask, region_of_box, region_of_text
    from agents.readers.query.run import query as run

    place = region_of_box(box) if box is not None else region_of_text(region) if region is not None else None
    with Bars(quiet=as_json) as bars:
        progress = partial(bars, f"read {chosen.name}")
        done = asyncio.run(run(loaded, chosen, Ask(where, place, series, steps, every, top), progress=progress))
    lines = [_line(each) for each in done.answers]
    if as_json:
        print_json({"ok": True, **asdict(done), "answers": lines})
    elif not lines:
        say("no key is listed that meets this")
    elif as_csv:
        _write_csv(lines)
    else:
        _show(lines)
    if not as_json:
        _remarks(lines, done)


def _line(each: Answered) -> dict[str, Any]:
    told = asdict(each.answer)
    del told["since"]
    key = {} if each.key is None else {"key": dict(each.key.fields), "found": each.key.found}
    return {**key, "first": each.first, "last": each.last, "start": each.start, "end": each.end, **told}


def _write_csv(lines: list[dict[str, Any]]) -> None:
    """Fields of a key are columns of their own: one may have the name of another column."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    rows = [(line.get("key", {}), {name: value for name, value in line.items() if name != "key"}) for line in lines]
    writer.writerow([*rows[0][0], *rows[0][1]])
    writer.writerows([*key.values(), *rest.values()] for key, rest in rows)


def _show(lines: list[dict[str, Any]]) -> None:
    key = [*lines[0]["key"], "found in step"] if "key" in lines[0] else []
    head = [*key, "steps", "from", "until", "estimate", "standard error", "95 % interval", "of it cut"]
    rows = [
        [
            *([*map(value_text, line["key"].values()), str(line["found"])] if key else []),
            str(line["first"]) if line["first"] == line["last"] else f"{line['first']} to {line['last']}",
            line["start"].removesuffix("+00:00"),
            line["end"].removesuffix("+00:00"),
            "unknown" if line["estimate"] is None else number(line["estimate"]),
            "-" if line["standard_error"] is None else number(line["standard_error"]),
            interval(line["low"], line["high"]),
            number(line["cut"]) if line["cut"] else "",
            f"{line['pending']:.1%}" if line["pending"] > FEW_PENDING else "",
        ]
        for line in lines
    ]
    print_table([*head, "not measured yet"], rows)


def interval(low: float | None, high: float | None) -> str:
    """
    >>> interval(1.0, 2.0), interval(1.0, None), interval(None, None)
    ('1 to 2', '1 or more', 'unknown')
    """
    if low is None:
        return "unknown" if high is None else f"{number(high)} or less"
    return f"{number(low)} {'or more' if high is None else 'to ' + number(high)}"


def number(value: float) -> str:
    """Return a number with as many digits as are of use beside an error of some percent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _remarks(lines: list[dict[str, Any]], done: Queried) -> None:
    """Say what whoever reads the answers must know of them; what holds of all of them comes last."""
    unsure = any(line["standard_error"] is None and line["estimate"] is not None for line in lines)
    pending = any(line["pending"] > FEW_PENDING for line in lines)
    if done.note is not None:
        say(done.note)
        if unsure:
            say(
                "counts of keys that are just listed, or said as 0, are too large where they are added up, so there is "
                "no standard error: use the interval"
            )
        if pending:
            say("not measured yet: share of the keys asked for that are not listed, so no count of them is released")
    else:
        if unsure:
            say(
                "cut: counts of cells or steps that the question cuts; they are shared out, and the interval allows "
                "for any share. A standard error would allow for noise alone, so there is none: use the interval"
            )
        if pending:
            known = f"All up to step {done.settled} is measured" if done.settled >= 0 else "No step is measured wholly"
            say(
                f"not measured yet: share of region and steps of which no count is released; in no number here. {known}"
            )
    if (share := done.counted_share) is not None:
        say(f"events within the bounds on users only: {share[0]:.0%} to {share[1]:.0%} of all (90 %)")
    say_compacted(done.compacted, done.verified)
