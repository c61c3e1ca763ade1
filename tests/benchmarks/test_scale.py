"""What `make bench-scale` makes of its runs, what it feeds to its workers, and what its figures come to."""

from __future__ import annotations

import io
import json
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from rich.console import Console

from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from benchmarks.scale import __main__ as command
from benchmarks.scale import latency, projection, replay, results
from benchmarks.scale.latency import Case, cases, neighbours
from benchmarks.scale.profile import between
from benchmarks.scale.results import Progressing, Row, Run, read, summary, write
from benchmarks.scale.statistics import flatness, growth, quantile, step_times
from benchmarks.scale.streams import ENGINES, MAIN, START, START_MS, MainEvents, job, main_stream, side_events
from benchmarks.scale.streams import side_stream as side
from benchmarks.scale.workers import phases, total
from engines.core.registry import build_domain
from schemas.config.load import config_from_mapping

PARTITIONS = 4


# --- Figures ----------------------------------------------------------------------------------------------------------


def test_a_quantile_is_one_of_the_values() -> None:
    assert quantile(range(1, 101), 0.99) == 99
    assert quantile([3.0, 1.0], 0.99) == 3.0
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0


def test_steps_that_come_together_share_their_time() -> None:
    assert step_times({2: 13.0, 0: 10.0, 1: 11.0, 3: 13.0, 4: 13.5}) == [1.0, 1.0, 1.0, 0.5]


def test_flatness_compares_the_last_tenth_with_the_first_behind_the_warm_up() -> None:
    times = [9.0] * 2 + [1.0] * 50 + [2.0] * 48
    assert flatness(times) == 2.0
    assert flatness([1.0] * 100) == 1.0


def test_growth_is_over_what_a_tenth_has_taken() -> None:
    assert growth([(0.0, 1.0), (0.09, 80.0), (0.1, 100.0), (0.5, 200.0), (1.0, 110.0)]) == pytest.approx(1.1)


def test_a_profile_takes_each_part_by_itself() -> None:
    found = between({0: (1.0, 1.1, 1.3, 1.6, 2.0), 1: (3.0, 3.1, 3.3, 3.6, 4.0)})
    assert list(found.values()) == [pytest.approx(each) for each in (100, 200, 300, 400)]


def test_metrics_are_added_up_over_other_labels() -> None:
    name = "privstream_release_phase_seconds"

    def look(seconds: float, count: float) -> dict[Any, float]:
        labels = (("phase", "compute"), ("stream", "main"))
        return {(f"{name}_sum", labels): seconds, (f"{name}_count", labels): count}

    other = {(f"{name}_sum", (("phase", "compute"), ("stream", "other"))): 99.0}
    assert phases(look(1.0, 2), look(4.0, 8) | other, "main") == {"compute": 500.0}
    assert total(look(1.0, 2) | other, f"{name}_sum", phase="compute") == 100.0


# --- What workers are fed ---------------------------------------------------------------------------------------------


def test_the_widest_job_is_a_configuration(tmp_path: Path) -> None:
    widest = max(cases(quick=False), key=lambda case: case.streams)
    engines = [ENGINES[at % len(ENGINES)] for at in range(widest.streams - 1)]
    streams = [main_stream(MAIN, step="2s", clock="wall")]
    streams += [side(f"side{at}", engine, step="10s", start=START) for at, engine in enumerate(engines)]
    made = job("scale", "localhost:1", tmp_path, streams=streams, partitions=16, source_partitions=16)
    table = tomllib.loads(tomli_w.dumps(made.table))
    assert table == made.table
    assert {stream.engine for stream in config_from_mapping(table).streams} == set(ENGINES)


def test_the_cases_are_those_that_were_asked_for() -> None:
    every = {(case.workers, case.partitions) for case in cases(quick=False) if case.streams == 1}
    assert every == {(1, 4), (1, 16), (2, 4)}
    wide = {(case.streams, case.workers, case.side_step_s) for case in cases(quick=False) if case.streams > 1}
    assert wide == {(20, 1, 10), (200, 1, 10), (200, 2, 10), (200, 4, 10), (1000, 1, 60)}
    assert cases(quick=False)[0] == Case(1, 4, 1, 120.0, profile=True)
    many, few = neighbours()
    assert (many.streams, many.events, many) == (51, 10**6, replace(few, events=10**6))


@pytest.mark.parametrize("engine", ENGINES)
def test_events_of_every_engine_are_accepted(engine: str, tmp_path: Path) -> None:
    streams = [side("s", engine, step="10s", start=START)]
    made = job("scale", "x:1", tmp_path, streams=streams, partitions=1, source_partitions=1)
    (stream,) = config_from_mapping(made.table).streams
    ingest = PartitionIngest(SourceSpec.from_stream(stream, build_domain(stream), key=b"k" * 16, partitions=1), 0)
    values = side_events(engine, np.random.default_rng(1), 10, START_MS + 5, 0)
    ingest.take([RawRecord(at, START_MS + 5, None, value) for at, value in enumerate(values)])
    block = ingest.seal()[0]
    assert block is not None
    # A markov user is in one state a step, a series user counts twice: the pool is small, as the bounds are.
    assert set(block.counts) <= {"ACCEPTED", "OVER_BOUND"}
    assert block.counts["ACCEPTED"] >= 4


@pytest.mark.parametrize("new", [False, True])
def test_events_of_the_main_stream_are_where_they_belong(new: bool, tmp_path: Path) -> None:
    made = job(
        "scale",
        "x:1",
        tmp_path,
        streams=[main_stream(MAIN, step="60s", clock="replay")],
        partitions=1,
        source_partitions=PARTITIONS,
    )
    (stream,) = config_from_mapping(made.table).streams
    events = MainEvents(PARTITIONS)
    taken = (events.take_new if new else events.take)(10, 1000, START_MS)
    assert sum(map(len, taken)) == 1000
    users = Counter(json.loads(value)["user"] for values in taken for value in values)
    assert len(users) == 1000
    for partition, values in enumerate(taken):
        spec = SourceSpec.from_stream(stream, build_domain(stream), key=b"k" * 16, partitions=PARTITIONS)
        ingest = PartitionIngest(spec, partition)
        ingest.take([RawRecord(at, START_MS, None, value) for at, value in enumerate(values)])
        block = ingest.seal()[0]
        assert block is not None
        assert block.counts == {"ACCEPTED": len(values)}


# --- On disk, and counted on ------------------------------------------------------------------------------------------

LATENCY = {
    "main_median_ms": 100.0,
    "main_p99_ms": 300.0,
    "rss_mb": 900.0,
    "rss_cold_mb": 200.0,
    "ready_s": 4.0,
    "first_release_s": 5.0,
    "all_released_s": 6.0,
    "tick_to_block_ms": 50.0,
    "others_p99_ms": 2000.0,
    **{f"{phase}_ms": 1.0 for phase in ("seed", "compute", "candidate", "publish")},
}


async def test_parts_that_the_smallest_size_leaves_out_run_what_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measured(case: Case, _: Progressing) -> dict[str, float]:
        return {**latency._of("main", [case.events]), **latency._of("others", [case.events])}

    async def replayed(events: int, _: Progressing, *, records: str) -> tuple[dict[str, float], dict[str, Any]]:
        assert (events, records) == (10**7, "released")
        return next(row.figures for row in read().rows if row.part == "replay"), {}

    monkeypatch.setattr(latency, "measured", measured)
    monkeypatch.setattr(replay, "replayed", replayed)
    monkeypatch.setattr(command, "write", lambda done, quick: None)
    done = await command.run(["beside", "undated"], quick=False, console=Console(file=io.StringIO()))
    many, few = (float(case.events) for case in neighbours())
    assert (many, few) == (1e6, 1e3)
    beside, undated = done.rows
    assert (beside.part, beside.workers, beside.partitions, beside.streams) == ("beside", 1, 4, 51)
    assert beside.figures == {
        "many_events": many,
        "beside_main_p99_ms": many,
        **dict.fromkeys(("beside_many_median_ms", "beside_many_p99_ms"), many),
        **dict.fromkeys(("beside_few_median_ms", "beside_few_p99_ms"), few),
    }
    assert undated.part == "undated"
    assert set(undated.figures) == {
        f"undated_{name}" for name in ("flatness", "rss_growth", "events_per_s", "cpu_s_per_1e6")
    }
    assert done.failed == []


@pytest.mark.parametrize("records", ["dated", "released"])
def test_a_replay_takes_records_of_both_kinds(records: str, tmp_path: Path) -> None:
    stream = main_stream(MAIN, step="60s", clock="replay")
    stream["time"]["records"] = records
    made = job("scale", "x:1", tmp_path, streams=[stream], partitions=1, source_partitions=1)
    assert config_from_mapping(made.table).streams[0].time.records == records


def a_run() -> Run:
    rows = [
        Row("latency", 1, 4, 1, LATENCY),
        Row("latency", 1, 4, 20, {**LATENCY, "rss_cold_mb": 240.0}),
        Row("latency", 1, 16, 1, {**LATENCY, "rss_cold_mb": 220.0}),
        Row("latency", 1, 16, 200, {**LATENCY, "rss_cold_mb": 618.0, "others_p99_ms": 900.0}),
        Row("latency", 2, 16, 200, {**LATENCY, "rss_cold_mb": 400.0}),
        Row("wide", 2, 16, 1, {"wide_events_per_s": 9.0}),
        Row("replay", 1, 4, 1, {"flatness": 1.1, "rss_growth": 1.0}),
    ]
    return Run(rows, {"replay_ms": [(float(at), 1.0) for at in range(1000)], "replay_rss": [(0.0, 1.0), (1.0, 2.0)]})


def test_a_summary_has_what_the_bars_are_of() -> None:
    found = summary(a_run())
    assert (found["p99_ms"], found["median_ms"], found["streams"]) == (300.0, 100.0, 200)
    assert found["rss_mb_by_streams"] == {1: 220.0, 200: 618.0}
    assert found["widest_others_p99_ms"] == 900.0  # of one worker
    assert found["wide"]["200 by 2"]["others_p99_ms"] == 2000.0
    assert found["wide_source"] == {2: {"wide_events_per_s": 9.0}}
    assert found["parts_ms"] == {"tick_to_block_ms": 50.0}


def test_a_part_that_is_run_again_takes_the_place_of_its_last_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Run] = []
    monkeypatch.setattr(results, "figure", lambda run, path: drawn.append(run))
    write(a_run(), folder=tmp_path)
    write(Run([Row("replay", 1, 4, 1, {"flatness": 2.0})]), folder=tmp_path)
    rows = read(tmp_path).rows
    assert [row.part for row in rows] == ["latency"] * 5 + ["wide", "replay"]
    assert rows[0].figures == LATENCY
    assert rows[-1].figures == {"flatness": 2.0}
    kept = json.loads((tmp_path / "scale.json").read_text())
    assert (kept["flatness"], kept["p99_ms"]) == (2.0, 300.0)
    assert len(read(tmp_path).curves["replay_ms"]) <= 250
    assert [row.part for row in drawn[-1].rows] == ["latency"] * 5 + ["wide", "replay"]
    assert write(a_run(), folder=tmp_path / "nowhere", quick=True)["p99_ms"] == 300.0


MEASURED = {
    "replay_cpu_s_per_1e6": 6.0,
    "replay_seed_ms": 10.0,
    "replay_compute_ms": 80.0,
    "replay_candidate_ms": 10.0,
    "bounds_bytes_per_user": 30.0,
    "event_bytes": 70.0,
    "rss_mb_by_streams": {"1": 200.0, "200": 598.0},
}


def test_costs_are_counted_on() -> None:
    assert projection.stream_limit(MEASURED) == pytest.approx(100_000)
    per_stream, first = projection.memory_of_streams(MEASURED)
    assert (per_stream, first) == (pytest.approx(2.0), 200.0)
    parts = projection.dollars(MEASURED)
    assert parts["cpu"] == pytest.approx(6000 / 3600 / 0.6 * 0.04)
    assert parts["memory"] == pytest.approx(30 * 1000 / 3600 * 0.005)
    assert parts["disk"] == pytest.approx(70 * 3 * 0.10 / 30)


def test_the_page_says_what_the_last_figures_come_to() -> None:
    """Where this fails, `python -m benchmarks.scale --project` brings the page up to date."""
    text = projection.DOCS.read_text(encoding="utf-8")
    assert projection.update(text, projection.page(projection.figures())) == text
    assert projection.update(text, "other") != text
