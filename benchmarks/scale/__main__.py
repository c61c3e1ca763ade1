"""The command: `python -m benchmarks.scale`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape

import benchmarks.scale
from benchmarks.scale import latency, projection
from benchmarks.scale.backpressure import pressed
from benchmarks.scale.replay import PARTITIONS, WIDE_PARTITIONS, crashed, replayed, undated, weighed, widened
from benchmarks.scale.results import PARTS, Progressing, Row, Run, table, write
from benchmarks.size import QUICK, SMALLEST, sized
from schemas.errors import PrivstreamError

EVENTS = {False: 10**7, True: sized(10**6, smallest=2_000)}
WIDE_EVENTS = {False: 3 * 10**6, True: sized(10**6, smallest=2_000)}
WIDE_WORKERS: dict[bool, tuple[int, ...]] = {False: (1, 2, 4), True: sized((2,), smallest=())}
"""At the smallest size none: large steps with weights are replayed in the same way."""
PRESSURE_EVENTS = {False: 5 * 10**6, True: sized(10**6, smallest=2_000)}
CASE_S = 18.0
"""What a case takes beside what is measured, with its broker; for the progress bar."""
EXPECTED_S = {
    False: {
        "beside": 400.0,
        "wide": 300.0,
        "weighted": 150.0,
        "replay": 150.0,
        "undated": 150.0,
        "crash": 150.0,
        "backpressure": 120.0,
    },
    True: {"wide": 45.0, "replay": 35.0, "crash": 45.0, "backpressure": 40.0},
}


async def run(parts: list[str], *, quick: bool, console: Console, only: str = "") -> Run:
    """All parts, one after the other; what is measured is written at once.

    Args: only: cases of latency whose name has it.
    """
    cases = [each for each in latency.cases(quick=quick) if only in str(each)] if "latency" in parts else []
    expected_s = sum(CASE_S + case.settle_s + case.seconds for case in cases) + sum(
        EXPECTED_S[quick].get(part, 0.0) for part in parts
    )
    done = Run()
    with Progressing(console, expected_s=expected_s) as progress:
        for case in cases:
            with _told(done, console, str(case), quick=quick):
                figures = await latency.measured(case, progress)
                done.rows.append(Row("latency", case.workers, case.partitions, case.streams, figures))
        if "beside" in parts and not quick:
            many, _ = latency.neighbours()
            with _told(done, console, "beside", quick=quick):
                figures = await latency.beside(progress)
                done.rows.append(Row("beside", many.workers, many.partitions, many.streams, figures))
        for workers in WIDE_WORKERS[quick] if "wide" in parts else ():
            with _told(done, console, f"wide, {workers} workers", quick=quick):
                figures = await widened(WIDE_EVENTS[quick], workers, progress)
                done.rows.append(Row("wide", workers, WIDE_PARTITIONS, 1, figures))
        if "weighted" in parts and (SMALLEST or not quick):
            with _told(done, console, "weighted", quick=quick):
                done.rows.append(Row("weighted", 1, PARTITIONS, 1, await weighed(progress)))
        if "replay" in parts:
            with _told(done, console, "replay", quick=quick):
                figures, curves = await replayed(EVENTS[quick], progress)
                done.rows.append(Row("replay", 1, PARTITIONS, 1, figures))
                done.curves |= curves
        if "undated" in parts and not quick:
            with _told(done, console, "undated", quick=quick):
                done.rows.append(Row("undated", 1, PARTITIONS, 1, await undated(EVENTS[quick], progress)))
        if "crash" in parts:
            with _told(done, console, "crash", quick=quick):
                done.rows.append(Row("crash", 1, PARTITIONS, 1, await crashed(EVENTS[quick], progress)))
        if "backpressure" in parts:
            with _told(done, console, "backpressure", quick=quick):
                figures, curves = await pressed(PRESSURE_EVENTS[quick], progress)
                done.rows.append(Row("backpressure", 1, PARTITIONS, 1, figures))
                done.curves |= curves
    return done


@contextlib.contextmanager
def _told(done: Run, console: Console, what: str, *, quick: bool) -> Iterator[None]:
    """One that fails is named, and the others are measured."""
    try:
        yield
    except (TimeoutError, RuntimeError, PrivstreamError) as error:
        done.failed.append(what)
        console.print(f"[red]FAILED[/] {what}: {escape(str(error))}")
    write(done, quick=quick)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=benchmarks.scale.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", default=QUICK, help="two minutes")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part, or these")
    parser.add_argument(
        "--case", default="", help="of latency, those whose name has this, as '4 partitions, 1 streams'"
    )
    parser.add_argument("--project", action="store_true", help="count on from the last figures, into docs/scale.md")
    given = parser.parse_args()
    console = Console(stderr=True)
    console.width = max(console.width, 110)
    if given.project:
        made = projection.page(projection.figures())
        projection.DOCS.write_text(projection.update(projection.DOCS.read_text(), made))
        sys.stdout.write(made)
        return
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # new topics have no leader for a moment, and it says so
    done = asyncio.run(run(list(given.only or PARTS), quick=given.quick, console=console, only=given.case))
    found = write(done, quick=given.quick)
    console.print(table(done))
    print(json.dumps({**found, "quick": given.quick, "failed": done.failed}))
    sys.exit(bool(done.failed))


if __name__ == "__main__":
    main()
