"""See the package."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agents.local.broker.embedded import broker_from_env
from agents.local.offline.processes import end_with
from benchmarks.environments import runs
from benchmarks.ingest.memory import least_bytes, memory
from benchmarks.ingest.parts import split_costs
from benchmarks.ingest.programs import (
    ENVIRONMENT,
    OTHERS,
    bare,
    faust_loop,
    held_back,
    ours,
    rate_of_other,
    rate_together,
    routed,
)
from benchmarks.ingest.source import CODECS, PARTITIONS, SMALL, fill, source_in
from benchmarks.ingest.stages import stages
from benchmarks.size import QUICK, RESULTS, SMALLEST

PROGRAMS = ("bare", "ours", "routed", "faust", "held", "memory")


@dataclass(frozen=True)
class Plan:
    """How much of everything.

    Attributes:
        events, small: of the topic that bare and ours read, and of that of the others.
        codec_events: of each codec's topic. users: how many are held, each in a process of its own.
        codecs: that are compared with none.
    """

    events: int
    small: int
    codec_events: int
    rounds: int
    users: Sequence[int]
    codecs: Sequence[str] = CODECS[1:]


FEW = Plan(events=800_000, small=20_000, codec_events=200_000, rounds=2, users=[100_000])
FULL = Plan(events=4_000_000, small=100_000, codec_events=2_000_000, rounds=5, users=[100_000, 5_000_000, 50_000_000])
LEAST = Plan(events=4_000, small=400, codec_events=400, rounds=1, users=[20_000], codecs=[])


def rate(program: str, bootstrap: str, folder: str, source: str, events: int) -> float:
    """Events a second of one of the programs, in a process of its own."""
    if program in OTHERS:
        return rate_of_other(program, bootstrap, folder, source, events)
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.ingest", "--program", program]
    command += ["--parent", str(os.getpid()), "--source", source]
    command += ["--bootstrap", bootstrap, "--folder", folder, "--events", str(events)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{program} failed:\n{done.stderr[-3000:]}")
    seen, seconds = json.loads(done.stdout.strip().splitlines()[-1])
    return float(seen / seconds)


def measured_memory(users: int) -> dict[str, float]:
    """`memory` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.ingest", "--program", "memory", "--events", str(users)]
    command += ["--parent", str(os.getpid())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def measure(plan: Plan) -> dict[str, Any]:
    """All of it. Returns: what is printed last, and what the table is made of."""
    small = ("faust", *(OTHERS if runs(ENVIRONMENT) else ()))
    run = str(os.getpid())  # topics of its own, on a broker that may be another's
    rates: dict[str, list[float]] = {name: [] for name in ("bare", "ours", "routed", *small)}
    by_codec: dict[str, list[tuple[float, float]]] = {codec: [] for codec in plan.codecs}
    processes: dict[int, list[float]] = {1: [], 2: []}
    console = Console(stderr=True)
    with Progress(console=console) as progress, tempfile.TemporaryDirectory() as folder, broker_from_env() as broker:
        at = broker.bootstrap
        few = f"{SMALL}.{run}"
        whole = source_in("none", run)
        size = asyncio.run(fill(at, whole, plan.events, progress))
        asyncio.run(fill(at, few, plan.small, progress, ticked=False))
        for codec in by_codec:
            asyncio.run(fill(at, source_in(codec, run), plan.codec_events, progress, codec=codec))
        steps = plan.rounds * (3 + len(small) + 2 * len(by_codec) + len(processes)) + len(plan.users)
        task = progress.add_task("measuring", total=steps)
        for _ in range(plan.rounds):
            for name in ("bare", "ours", "routed"):
                rates[name].append(rate(name, at, folder, whole, plan.events))
                progress.advance(task)
            for name in small:
                rates[name].append(rate(name, at, folder, few, plan.small))
                progress.advance(task)
            for codec, pairs in by_codec.items():
                source = source_in(codec, run)
                both = [rate(name, at, folder, source, plan.codec_events) for name in ("bare", "ours")]
                pairs.append((both[0], both[1]))
                progress.advance(task, 2)
            for count, found in processes.items():
                found.append(rate_together(count, at, folder, whole, plan.events))
                progress.advance(task)
        sizes = []
        for users in plan.users:
            sizes.append(measured_memory(users))
            progress.advance(task)
    console.print(_table(plan, size, rates, by_codec, processes, sizes))
    ratios = {name: median(_ratios(rates["ours"], rates[name])) for name in ("bare", *small)}
    largest = sizes[-1]
    return {
        "ratio_to_bare": round(ratios["bare"], 3),
        "ratio_to_faust": round(ratios["faust"], 1),
        **{f"ratio_to_{name}": round(ratios[name], 1) for name in OTHERS if name in ratios},
        "routed_to_ours": round(median(_ratios(rates["routed"], rates["ours"])), 2),
        "two_processes": round(median(_ratios(processes[2], processes[1])), 2),
        "bytes_per_user": round(max(each["bytes_per_user"] for each in sizes), 1),
        "least_bytes_per_user": round(least_bytes(int(largest["users"]) // PARTITIONS), 1),
        "users": int(largest["users"]),
        "slowest_batch_ms": round(max(each["slowest_batch_ms"] for each in sizes), 1),
        "ratio_to_bare_by_codec": {
            codec: round(median(our / plain for plain, our in pairs), 3) for codec, pairs in by_codec.items()
        },
        "events_per_second": {name: round(median(found)) for name, found in rates.items()},
        "event_bytes": round(size, 1),
        "memory": [{name: round(value, 1) for name, value in each.items()} for each in sizes],
    }


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def _table(
    plan: Plan,
    size: float,
    rates: Mapping[str, Sequence[float]],
    by_codec: Mapping[str, Sequence[tuple[float, float]]],
    processes: Mapping[int, Sequence[float]],
    sizes: Sequence[Mapping[str, float]],
) -> Table:
    table = Table("", "median", "rounds", title=f"ingest, {plan.events:,} events of {size:.0f} bytes")

    def line(name: str, values: Sequence[float], form: str) -> None:
        table.add_row(name, format(median(values), form), "  ".join(format(each, form) for each in values))

    for name, found in rates.items():
        line(f"{name}, events/s", found, ",.0f")
    for name in rates:
        if name != "ours":
            line(f"ours / {name}", _ratios(rates["ours"], rates[name]), ".2f")
    for codec, pairs in by_codec.items():
        line(f"ours / bare, {codec}", [our / plain for plain, our in pairs], ".2f")
    line("two processes / one", _ratios(processes[2], processes[1]), ".2f")
    for each in sizes:
        table.add_row(
            f"memory, {each['users']:,.0f} users",
            f"{each['bytes_per_user']:.1f} bytes a user",
            f"{each['rss_mb']:,.0f} MB resident, slowest batch {each['slowest_batch_ms']:.0f} ms",
        )
    return table


def _show(found: Sequence[tuple[str, float]]) -> Sequence[tuple[str, float]]:
    table = Table("", "ns an event", title="where the time goes")
    for name, ns in found:
        table.add_row(name, f"{ns:.0f}")
    Console(stderr=True).print(table)
    return found


def _program(given: argparse.Namespace) -> None:
    """One of the programs, in a process that `rate`, `measured_memory` or `rate_together` started."""
    if given.program == "memory":
        print(json.dumps(memory(given.events)))
    elif given.program == "faust":
        print(json.dumps(faust_loop(given.bootstrap, given.folder, given.events, given.source)), flush=True)
        os._exit(0)  # Faust's own shutdown takes seconds and is not measured
    elif given.program == "held":
        gate = Path(given.gate)
        asyncio.run(held_back(given.bootstrap, given.folder, given.source, given.job, given.processes, gate))
    else:
        program = {"bare": bare, "ours": ours, "routed": routed}[given.program]
        print(json.dumps(asyncio.run(program(given.bootstrap, given.folder, given.events, given.source))))


def main() -> None:
    """Run, or be one of the programs."""
    parser = argparse.ArgumentParser(description="ingest, events a second, as ratios in one run")
    parser.add_argument("--quick", action="store_true", default=QUICK, help="two minutes instead of half an hour")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--write", action="store_true", help="also into benchmarks/results/ingest.json")
    parser.add_argument("--stages", action="store_true", help="where the time goes, without a broker; a few seconds")
    parser.add_argument("--split", action="store_true", help="what a split stream costs, without a broker; seconds")
    parser.add_argument("--program", choices=PROGRAMS, help=argparse.SUPPRESS)
    for name in ("bootstrap", "folder", "source", "job", "gate"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    for name in ("events", "parent", "processes"):
        parser.add_argument(f"--{name}", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.parent is not None:
        end_with(given.parent)
    if given.program is not None:
        _program(given)
        return
    if given.stages:
        found = {name.strip(): round(ns) for name, ns in _show(stages())}
        print(json.dumps({"ns_per_event": found}))
        return
    if given.split:
        costs = split_costs()
        table = Table("", "CPU us an event", "rounds", title="a stream and its parts")
        for name, rounds in costs.items():
            table.add_row(name, f"{median(rounds):.2f}", "  ".join(f"{each:.2f}" for each in rounds))
        Console(stderr=True).print(table)
        print(json.dumps({"us_per_event": {name: round(median(rounds), 2) for name, rounds in costs.items()}}))
        return
    plan = LEAST if SMALLEST else FEW if given.quick else FULL
    if given.rounds is not None:
        plan = replace(plan, rounds=given.rounds)
    found = measure(plan)
    if given.write or SMALLEST:
        (RESULTS / "ingest.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
