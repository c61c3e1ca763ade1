"""A simulation of the committed taxi sample: the job's own code, outputs that agree, no run repeated by accident."""

from __future__ import annotations

import csv
import hashlib
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from agents.local.offline.simulate import INSECURE, Simulated, seed_of, simulate
from agents.show.report import WARNING
from agents.worker.job import Job
from engines.core.contract import Columns
from engines.core.registry import build_domain
from schemas.config import Config, load_config, with_overrides
from schemas.config.engines.series import OF_HISTOGRAM, SUFFIXES
from tests.commands import call
from tests.kafka.support import job_config, stream_table

pytestmark = pytest.mark.seconds(1.5)

EXAMPLES = Path(__file__).parents[2] / "examples"
TAXI = EXAMPLES / "nyc_taxi" / "taxi_2016_01_sample_20k.csv.gz"


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(EXAMPLES / "taxi.toml")


def run(config: Config, path: Path, out: Path, **options: Any) -> Simulated:
    (done,) = simulate(config, path, out, **options)
    return done


def steps_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "steps.csv").open() as file:
        return list(csv.DictReader(file))


def ledger_of(folder: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (folder / "ledger.jsonl").read_bytes().splitlines()]


def published(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (folder / "ledger.jsonl", folder / "steps.csv", folder / "synthetic.csv")
    }


def test_records_with_weights_are_weighed_as_single_ones_are_counted(tmp_path: Path) -> None:
    """Of the same noise the report says the same of zones, and of how many events there are."""
    table = stream_table("zones", domain={"kind": "zones", "field": "zone", "zones": [*"abcdefgh"]}, options={})
    file = tmp_path / "rows.csv"
    lines = [f"u{row},{1_577_836_800 + row // 3},{'aabbbcdh'[row % 8]}" for row in range(1200)]
    file.write_text("\n".join(["user,at,zone", *lines]) + "\n")
    found = {}
    for form in ("single", "weighted"):
        config = job_config("localhost:9092", tmp_path, streams=[{**table, "records": {"form": form}}])
        found[form] = run(config, file, tmp_path / form, seed=5)
    single, weighted = found["single"], found["weighted"]
    assert steps_of(tmp_path / "single") == steps_of(tmp_path / "weighted")
    assert single.metrics == weighted.metrics
    assert single.verdict == weighted.verdict
    assert weighted.records <= 8 < single.records
    with (tmp_path / "weighted" / "synthetic.csv").open() as alive:
        assert sum(int(row["weight"]) for row in csv.DictReader(alive)) == single.records


def test_the_whole_sample(config: Config, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    (done,) = simulate(config, TAXI, tmp_path, progress=lambda *said: seen.append(said))
    assert done.rows == 20_000
    assert seen[-3:] == [("simulate taxi", 20_000, 20_000), *(("draw the report of taxi", n, 1) for n in (0, 1))]
    steps = steps_of(tmp_path)
    head = "step time events released_total error_small error_medium error_large"
    assert list(steps[0]) == head.split()
    assert [int(row["step"]) for row in steps] == list(range(done.steps))
    ledger = ledger_of(tmp_path)
    accepted = sum(int(row["events"]) for row in steps)
    assert accepted == done.events
    assert accepted == 19_756
    assert [entry["step"] for entry in ledger] == list(range(done.steps))
    limit = float(config.streams[0].privacy.epsilon)
    assert all(entry["epsilon_spent"] <= entry["epsilon"] <= limit for entry in ledger)
    assert ledger[-1]["epsilon_spent"] == limit
    assert all(entry["guarantee"]["private"] for entry in ledger)
    assert all(later["previous_chain"] == earlier["chain"] for earlier, later in pairwise(ledger))
    for row, entry in zip(steps, ledger, strict=True):
        assert int(row["released_total"]) == entry["synthetic_records"]
        assert (row["error_small"] == "") == entry["gathered"]
    # A synthetic month of about as many trips as the true one; 200 is far beyond the noise of one root count.
    assert abs(done.records - accepted) < 2_000
    with (tmp_path / "synthetic.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == done.records
    assert list(rows[0]) == ["pickup_datetime", "pickup_longitude", "pickup_latitude"]
    numbers = {name: np.array([float(row[name]) for row in rows]) for name in list(rows[0])[1:]}
    _, reasons = build_domain(config.streams[0]).encode(Columns(numbers, {}, np.ones(len(rows), np.int8)))
    assert not reasons.any(), "a synthetic pickup lies in the water"


def test_the_table_of_histograms_has_what_is_released_and_no_column_of_the_raw_field(tmp_path: Path) -> None:
    edges = "edges = { from = 0, to = 100, bins = 4 }"
    (tmp_path / "my.toml").write_text(
        '[kafka]\nbootstrap = "k:9092"\n[[streams]]\nname = "s"\nengine = "series"\nsource = "raw.s"\n'
        '[streams.privacy]\nepsilon = 1.0\nunit = "event"\n'
        '[streams.time]\nfield = "t"\nformat = "s"\nstart = "1970-01-01T00:00:00"\nstep = "1h"\nclock = "replay"\n'
        '[streams.domain]\nkind = "series"\nby = "place"\nvalues = ["a", "b"]\n'
        f'fields = [{{ name = "ms", of = "histogram", {edges} }}]\n'
    )
    rows = "".join(f"{second},{second % 100},{'ab'[second % 2]}\n" for second in range(900))
    (tmp_path / "rows.csv").write_text(f"t,ms,place\n{rows}")
    run(load_config(tmp_path / "my.toml"), tmp_path / "rows.csv", tmp_path / "out")
    with (tmp_path / "out" / "synthetic.csv").open() as file:
        rows_written = list(csv.DictReader(file))
    assert [row["place"] for row in rows_written] == ["a", "b"]
    numbers = [f"ms_{what}{part}" for what in OF_HISTOGRAM for part in SUFFIXES]
    assert list(rows_written[0]) == ["t", "step", "place", *numbers]
    assert all(value for row in rows_written for value in row.values())


def test_noise_that_is_larger_than_the_stream_is_said(config: Config, few_trips: Path, tmp_path: Path) -> None:
    well = run(config, few_trips, tmp_path / "well")
    assert well.warning is None
    drowned = run(with_overrides(config, epsilon="0.0001"), few_trips, tmp_path / "drowned")
    assert drowned.warning is not None
    assert "noise alone is larger than all" in drowned.warning
    assert "one leaf ±" in drowned.warning


def test_where_no_row_fits_epsilon_is_not_blamed(few_trips: Path, tmp_path: Path) -> None:
    header, *rows = few_trips.read_text().splitlines()
    at = header.split(",").index("pickup_longitude")
    texts = [",".join(["n/a" if i == at else cell for i, cell in enumerate(row.split(","))]) for row in rows]
    (tmp_path / "texts.csv").write_text("\n".join([header, *texts]) + "\n")
    done = call("simulate", EXAMPLES / "taxi.toml", tmp_path / "texts.csv", "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "refused: WRONG_TYPE of pickup_longitude" in done.output
    assert "a number must be one" in done.output
    for other in ("noise alone", "after the last step", "Raise epsilon"):
        assert other not in done.output


@pytest.mark.usefixtures("drawn")
def test_the_report_stands_alone_and_warns(config: Config, few_trips: Path, tmp_path: Path) -> None:
    run(config, few_trips, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert WARNING in page
    assert page.count("data:image/png;base64,") == 4  # true and synthetic map, their difference, and all over time
    assert page.count("data:image/svg+xml;base64,") == 3  # errors by size of area and over time, counts
    assert not re.search(r"(src|href)=[\"']?(?![\"']?(data:|#))", page)  # nothing is fetched
    assert 'name="viewport"' in page
    assert "Laplace" in page  # the table of mechanisms
    assert tmp_path.stat().st_mode & 0o077 == 0


def test_a_seeded_run_repeats_and_says_that_it_is_not_private(config: Config, few_trips: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(config, few_trips, tmp_path / name, seed=7)
    run(config, few_trips, tmp_path / "c", seed=8)
    a, b, c = (published(tmp_path / name) for name in "abc")
    assert a == b
    assert a != c
    assert not any(entry["guarantee"]["private"] for entry in ledger_of(tmp_path / "a"))
    assert INSECURE in (tmp_path / "a" / "report.html").read_text()


def test_unseeded_runs_differ(config: Config, few_trips: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(config, few_trips, tmp_path / name)
    digests = [[entry["digest"] for entry in ledger_of(tmp_path / name)] for name in "ab"]
    assert digests[0] != digests[1]


def test_a_seed_is_that_of_the_job(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run --insecure-seed N` and `simulate --insecure-seed N` agree, so one checks the other."""
    job = Job(config, {}, insecure_seed=3)
    seeds = [seed_of(config.streams[0], step, 3) for step in range(3)]
    assert seeds == [job.draw_seed("taxi", step) for step in range(3)]


def test_overrides_reach_the_ledger(config: Config, few_trips: Path, tmp_path: Path) -> None:
    run(with_overrides(config, epsilon="0.25", mode="paper"), few_trips, tmp_path)
    last = ledger_of(tmp_path)[-1]
    assert (last["epsilon"], last["mode"]) == (0.25, "paper")


def test_bounds_hold_a_wall_clock_becomes_the_file_s_and_each_stream_has_its_folder(tmp_path: Path) -> None:
    rows = [{"user": f"u{i % 10}", "at": 1_000_000 + i, "x": 0.5, "y": 0.5} for i in range(100)]
    (tmp_path / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    time = {"field": "at", "format": "s", "start": "now", "step": "10s"}
    privacy = {"epsilon": 2.0, "user": "user"}
    tables = [
        stream_table(name, source="raw.one", privacy={**privacy, "max_contributions": most}, time=time, options={})
        for name, most in (("one", 2), ("two", 50))
    ]
    config = job_config("localhost:9092", tmp_path / "unused", streams=tables)
    done = simulate(config, tmp_path / "rows.jsonl", tmp_path / "out")
    assert [(each.stream, each.events, each.steps) for each in done] == [("one", 20, 10), ("two", 100, 10)]
    assert [each.folder for each in done] == [tmp_path / "out" / "one", tmp_path / "out" / "two"]
    assert ledger_of(done[0].folder)[-1]["epsilon_spent"] == 2.0
    (only,) = simulate(config, tmp_path / "rows.jsonl", tmp_path / "two", stream="two")
    assert (only.stream, only.folder) == ("two", tmp_path / "two")
