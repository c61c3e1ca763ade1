"""What the measured costs come to at 10^6 events a second, 10^9 users and 1,000 streams: the arithmetic, shown.

`docs/scale.md` holds this page between two marks; `python -m benchmarks.scale --project` brings it up to date.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import linear_regression
from typing import Any

from benchmarks.scale.replay import PER_STEP
from benchmarks.size import RESULTS

DOCS = Path(__file__).resolve().parents[2] / "docs/scale.md"
BEGIN, END = "<!-- projection: python -m benchmarks.scale --project -->", "<!-- end of projection -->"

RATE = 10**6
"""Events a second."""
USERS = 10**9
STREAMS = 1000
BATCH = 10**9
"""Events whose price is counted."""
DAY_S = 86_400

# Assumptions, none of them measured.
BUSY = 0.6
"""Share of a core that is used: the rest is for bursts, and for the partitions of a worker that has ended."""
VCPU_HOUR = 0.04
GB_HOUR = 0.005
DISK_GB_MONTH = 0.10
COPIES = 3
MONTH_H = 730
WORKER_GB = 8
"""Memory of a worker."""
STREAM_STEP_S = 60
"""Step of each of many streams."""

Measured = Mapping[str, Any]


def figures(path: Path = RESULTS / "scale.json") -> Measured:
    """The last ones."""
    found: Measured = json.loads(path.read_text())
    return found


def page(given: Measured) -> str:
    """Markdown. Args: given: as in `benchmarks/results/scale.json`."""
    parts = (inputs, several, rate, users, streams, price)
    return "\n\n".join((assumptions(), *(part(given) for part in parts))) + "\n"


def update(text: str, made: str) -> str:
    """The text with the page between the marks."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{made}{END}{rest.split(END)[1]}"


def assumptions() -> str:
    return (
        f"Assumed, not measured: {BUSY:.0%} of a core in use; workers of {WORKER_GB} GB; ${VCPU_HOUR:.2f} for a vCPU "
        f"hour, ${GB_HOUR:.3f} for a GB of memory an hour, ${DISK_GB_MONTH:.2f} for a GB of disk a month; {COPIES} "
        f"copies of each topic; steps of {STREAM_STEP_S} s where there are many streams. Everything grows in "
        "proportion, which is what a projection assumes and no benchmark has shown at this size."
    )


def inputs(g: Measured) -> str:
    """What was measured, and by which command."""
    per_stream, first = memory_of_streams(g)
    events, streams = f"{PER_STEP:,} events", g["streams"]

    def found(*names: str, digits: int = 0) -> str:
        return "; ".join(f"{g[name]:,.{digits}f}" for name in names)

    rows = [
        ("replay", "events a second, one worker, spatial, to the public topics", found("replay_events_per_s")),
        ("replay", "processor seconds of the worker for 10^6 events", found("replay_cpu_s_per_1e6", digits=1)),
        ("replay", "bytes of an event: source; blocks", found("event_bytes", "block_bytes_per_event")),
        (
            "weighted",
            "processor seconds of the worker for 10^6 events in one step: records of events; with weights",
            found("single_cpu_s_per_1e6", "weighted_cpu_s_per_1e6", digits=1),
        ),
        (
            "weighted",
            "public bytes of such a step: records of events; with weights",
            found("single_public_bytes_per_step", "weighted_public_bytes_per_step"),
        ),
        ("replay", f"bytes: public topics, a step of {events}; state", found("public_bytes_per_step", "state_bytes")),
        ("replay", "last tenth over first: step time; memory", found("flatness", "rss_growth", digits=2)),
        ("undated", "the same without dates of records", found("undated_flatness", "undated_rss_growth", digits=2)),
        ("crash", "bytes of a user: memory; topic", found("bounds_bytes_per_user", "bounds_topic_bytes_per_user")),
        ("crash", f"s from SIGKILL to a release, {_large(g['crash_users'])} users", found("recover_s", digits=1)),
        ("latency", "MB of a worker: one stream; each one more", f"{first:.0f}; {per_stream:.2f}"),
        ("latency", f"s to start {streams} streams: ready; released", found("widest_ready_s", "widest_all_released_s")),
        ("latency", "ms from step end to release, 10^5 events a step: median; p99", found("median_ms", "p99_ms")),
        (
            "beside",
            "ms from step end to release, 50 small streams: median; p99, "
            f"beside one of {_large(g['many_events'])} events a step",
            found("beside_many_median_ms", "beside_many_p99_ms"),
        ),
        ("beside", "the same beside one more small one", found("beside_few_median_ms", "beside_few_p99_ms")),
        ("backpressure", "a slow engine: growth of memory", found("pressure_rss_growth", digits=2)),
        ("backpressure", "a slow engine: events lost", found("pressure_lost")),
    ]
    lines = [f"| {what} | {value} | `python -m benchmarks.scale --only {part}` |" for part, what, value in rows]
    return "\n".join(["### What was measured", "| what | figure | command |", "|---|---|---|", *lines])


def several(g: Measured) -> str:
    """What several workers on the same machine come to, by width."""

    def shown(figures: Measured, name: str, by: float = 1.0, digits: int = 1) -> str:
        return f"{figures[name] / by:.{digits}f}" if name in figures else ""

    wide = [
        f"| {where} | {shown(each, 'others_median_ms', 1e3)} | {shown(each, 'others_p99_ms', 1e3)} "
        f"| {shown(each, 'release_cpu_ms', digits=0)} | {shown(each, 'cpu_share', digits=2)} "
        f"| {shown(each, 'rss_mb', digits=0)} | {shown(each, 'ready_s')} | {shown(each, 'takeover_s')} |"
        for where, each in g["wide"].items()
    ]
    source = [
        f"| {workers} | {each['wide_events_per_s']:,.0f} | {each['wide_cpu_s_per_1e6']:.1f} |"
        for workers, each in g["wide_source"].items()
    ]
    return "\n".join(
        [
            "### Several workers",
            "The broker, the producer and all workers share two cores, so that more workers than one have less of them "
            "each. Steps are of ten seconds, of 1,000 streams of a minute. Takeover: from SIGKILL of a worker until "
            "each stream has released its next step.",
            "",
            "| streams by workers | median: s | p99: s | CPU ms a release | cores | MB each | ready: s | takeover: s |",
            "|---|---|---|---|---|---|---|---|",
            *wide,
            "",
            "One stream whose source has 16 partitions, replayed:",
            "",
            "| workers | events a second | CPU s of all for 10^6 events |",
            "|---|---|---|",
            *source,
        ]
    )


def rate(g: Measured) -> str:
    """Events a second."""
    cpu, engine, event = g["replay_cpu_s_per_1e6"], stream_limit(g), g["event_bytes"]
    workers = math.ceil(RATE / 1e6 * cpu / BUSY)
    source = RATE * DAY_S * event / 1e12
    public, block = g["public_bytes_per_step"], g["block_bytes_per_event"]
    return _table(
        f"{_power(RATE)} events a second",
        ("workers of one core", f"{RATE / 1e6:.0f} x {cpu:.1f} s / {BUSY}", f"{workers}"),
        ("partitions of sources", "two for each worker, a power of two", f"{2 ** math.ceil(math.log2(2 * workers))}"),
        (
            "events a second of ONE stream",
            f"its engine is one task: {PER_STEP:,} in {release_ms(g):.0f} ms of seed, compute and candidate",
            f"{engine:,.0f}",
        ),
        ("streams, at least", f"{RATE:,} / {engine:,.0f} / {BUSY}", f"{math.ceil(RATE / engine / BUSY)}"),
        (
            "sources on disk, a day",
            f"{_power(RATE)} x {DAY_S:,} s x {event:.0f} B, x {COPIES} copies",
            f"{source:.1f} TB, {COPIES * source:.1f} TB",
        ),
        (
            "public topics, a day",
            f"{RATE // PER_STEP} x {public / 1e3:,.0f} kB x {DAY_S:,} s; less where records are withdrawn",
            f"{RATE / PER_STEP * public * DAY_S / 1e12:.1f} TB",
        ),
        (
            "blocks written, a second",
            f"{_power(RATE)} x {block:.0f} B; deleted when their step is adopted",
            f"{RATE * block / 1e6:.0f} MB",
        ),
    )


def users(g: Measured) -> str:
    """Users in the bounds."""
    one, topic, back = g["bounds_bytes_per_user"], g["bounds_topic_bytes_per_user"], g["recover_s"]
    memory = USERS * one / 1e9
    workers = math.ceil(memory / (WORKER_GB / 2))
    longest = max(back, back / g["crash_users"] * USERS / workers)
    return _table(
        f"{_power(USERS)} users under a bound for life",
        ("memory of the bounds", f"{_power(USERS)} x {one:.0f} B", f"{memory:.0f} GB"),
        ("workers for it", f"half of {WORKER_GB} GB each: they take over from one another", f"{workers}"),
        (
            "topic of the bounds",
            f"{_power(USERS)} x {topic:.0f} B x {COPIES} copies, before compaction",
            f"{COPIES * USERS * topic / 1e9:.0f} GB",
        ),
        (
            "one worker comes back",
            f"{back:.1f} s / {_large(g['crash_users'])} x {USERS / workers:,.0f} users, as if all of it grew with them",
            f"{longest:.0f} s",
        ),
    )


def streams(g: Measured) -> str:
    """Streams in one job."""
    per_stream, first = memory_of_streams(g)
    release, seen, late = release_ms(g) / 1e3, g["streams"], g["widest_others_p99_ms"] / 1e3
    return _table(
        f"{STREAMS:,} streams in one job",
        (
            "memory, if one worker held all",
            f"{first:.0f} MB + {STREAMS:,} x {per_stream:.2f} MB",
            f"{(first + per_stream * STREAMS) / 1e3:.1f} GB",
        ),
        (
            "workers",
            f"{STREAMS:,} / {STREAM_STEP_S} s x {release:.2f} s of a release of {PER_STEP:,} events / {BUSY}",
            f"{math.ceil(STREAMS / STREAM_STEP_S * release / BUSY)}",
        ),
        (
            "the last release, where all steps end at once",
            f"{late:.1f} s (p99, one worker) / {seen} x {STREAMS:,}; divided by workers",
            f"{late / seen * STREAMS:.0f} s",
        ),
        (
            "cold start",
            f"{g['widest_ready_s']:.1f} s (one worker) / {seen} x {STREAMS:,}; divided by workers",
            f"{g['widest_ready_s'] / seen * STREAMS:.0f} s",
        ),
        ("topics", f"{STREAMS:,} x 4 and the job's 9, beside the sources", f"{4 * STREAMS + 9:,}"),
    )


def price(g: Measured) -> str:
    """Of 10^9 events."""
    parts = dollars(g)
    hours = BATCH / RATE / 3600
    gb = USERS * g["bounds_bytes_per_user"] / 1e9
    return _table(
        f"Dollars for {_power(BATCH)} events",
        (
            "workers' processors",
            f"{g['replay_cpu_s_per_1e6'] * BATCH / 1e6 / 3600:.1f} h / {BUSY} x ${VCPU_HOUR:.2f}",
            f"${parts['cpu']:.2f}",
        ),
        (
            f"memory of {_power(USERS)} users, {hours:.2f} h at {_power(RATE)} events a second",
            f"{gb:.0f} GB x {hours:.2f} h x ${GB_HOUR:.3f}",
            f"${parts['memory']:.2f}",
        ),
        (
            "sources kept for a day",
            f"{BATCH * g['event_bytes'] / 1e9:.0f} GB x {COPIES} x ${DISK_GB_MONTH:.2f} / 30",
            f"${parts['disk']:.2f}",
        ),
        ("all, brokers' processors apart", "", f"${sum(parts.values()):.2f}"),
    )


def _table(title: str, *rows: tuple[str, str, str]) -> str:
    lines = [f"| {what} | {arithmetic} | **{result}** |" for what, arithmetic, result in rows]
    return "\n".join([f"### {title}", "| what | arithmetic | comes to |", "|---|---|---|", *lines])


# --- Arithmetic -------------------------------------------------------------------------------------------------------


def dollars(g: Measured) -> dict[str, float]:
    """Of 10^9 events, by what they pay for."""
    return {
        "cpu": g["replay_cpu_s_per_1e6"] * BATCH / 1e6 / 3600 / BUSY * VCPU_HOUR,
        "memory": USERS * g["bounds_bytes_per_user"] / 1e9 * BATCH / RATE / 3600 * GB_HOUR,
        "disk": BATCH * g["event_bytes"] / 1e9 * COPIES * DISK_GB_MONTH / 30,
    }


def release_ms(g: Measured) -> float:
    """What a step keeps the engine's task of its partition busy: the replay's."""
    return float(sum(g[f"replay_{phase}_ms"] for phase in ("seed", "compute", "candidate")))


def stream_limit(g: Measured) -> float:
    """Events a second that the engine of one stream can take, in steps of that size."""
    return 1e3 * PER_STEP / release_ms(g)


def memory_of_streams(g: Measured) -> tuple[float, float]:
    """MB that a stream adds, and of a worker with one."""
    found = {int(streams): size for streams, size in g["rss_mb_by_streams"].items()}
    return linear_regression(list(map(float, found)), list(found.values())).slope, found[1]


def _power(number: int) -> str:
    return f"10^{round(math.log10(number))}"


def _large(number: float) -> str:
    return f"{number:,.0f}"
