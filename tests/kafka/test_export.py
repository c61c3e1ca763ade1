"""What a real worker has published, read by `privstream export` and `query`; and what somebody else has written to such
topics.
"""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pa_parquet
import pytest
import tomli_w

from schemas.config import Config
from schemas.releases import STEP_HEADER
from schemas.topics import Topics
from tests.commands import invoked
from tests.consume.runs import case_run, kept_by_compaction
from tests.consume.test_fold import SPATIAL
from tests.kafka.public_run import alive, places, publish, published_stream
from tests.kafka.support import job_config, producing

STEPS = 4
ROOT = Path(__file__).parents[2]


def call(*arguments: object, code: int = 0, command: str = "export") -> Any:
    result = invoked(command, *arguments, "--json")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


EVENTS = places(STEPS, 400)


@pytest.fixture(scope="module")
def published(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    """A stream of `EVENTS`, all of it public. Returns its configuration, and as a file."""
    domain = {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0], "ttl": "2m"}
    options, folder = {"depth": 8, "initial_steps": 1}, tmp_path_factory.mktemp("published")
    return asyncio.run(published_stream(bootstrap, folder, EVENTS, domain=domain, options=options))


@pytest.mark.seconds(15)
def test_what_a_worker_published_comes_out_as_a_file(published: tuple[Config, Path], tmp_path: Path) -> None:
    config, path = published
    out = tmp_path / "out.csv"
    said = call(path, "--out", out)
    expected = asyncio.run(alive(config, STEPS - 1))
    assert (said["rows"], said["step"], said["verified"], said["compacted"]) == (len(expected), STEPS - 1, STEPS, 0)
    with out.open(newline="") as file:
        rows = {row.pop("synthetic_id"): row for row in csv.DictReader(file)}
    assert {key: (float(row["x"]), float(row["y"])) for key, row in rows.items()} == {
        key: (record["x"], record["y"]) for key, record in expected.items()
    }
    assert "--overwrite" in call(path, "--out", out, code=2)["problems"][0]["fix"]
    before = asyncio.run(alive(config, 1))
    assert set(before) - set(expected)  # something was withdrawn meanwhile
    for at in ("1", "2020-01-01T00:02:30"):
        call(path, "--out", out, "--overwrite", "--format", "geoparquet", "--at", at)
        assert set(pa_parquet.read_table(out).column("synthetic_id").to_pylist()) == set(before)
    assert "0 to 3" in call(path, "--at", 9, code=2)["problems"][0]["fix"]
    cells = tmp_path / "cells.parquet"
    said = call(path, "--out", cells, "--what", "measurements", "--format", "geoparquet")
    assert pa_parquet.read_metadata(cells).num_rows == said["rows"] > 0
    refused = call(path, "--out", cells, "--overwrite", "--what", "measurements", "--format", "geojson", code=2)
    assert "geoparquet" in refused["problems"][0]["fix"], "x and y of a unit square are no longitudes and latitudes"
    ask_for_counts(path, EVENTS)
    # Somebody else writes to the topic: a record of the job's form, then one of no form.
    for headers, reason in (([(STEP_HEADER, b"3")], "step 3 are not those"), ([], "names no step")):
        asyncio.run(one_more(config, headers))
        assert reason in call(path, "--out", out, "--overwrite", code=2)["problems"][0]["reason"]
    assert set(pa_parquet.read_table(out).column("synthetic_id").to_pylist()) == set(before)  # the file is left alone


def ask_for_counts(path: Path, events: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """`privstream query` of the same topics."""
    (answer,) = call(path, "--steps", 0, command="query")["answers"]
    assert abs(answer["estimate"] - len(events[0])) < 8 * answer["standard_error"]
    assert answer["low"] < answer["estimate"] < answer["high"]  # of the true count that is so in 95 % of runs only
    trend = call(path, "x < 0.5", "--every", 1, "--steps", "0..3", command="query")
    assert [line["first"] for line in trend["answers"]] == [0, 1, 2, 3]
    few = call(path, "--region", "POLYGON((0.8 0.8, 1 0.8, 1 1, 0.8 1, 0.8 0.8))", "--steps", "0..0", command="query")
    assert few["answers"][0]["estimate"] < answer["estimate"] / 2
    assert "one of x, y" in call(path, "z = 1", code=2, command="query")["problems"][0]["fix"]
    shown = invoked("query", path, "x < 0.3", "--csv", "--steps", "0..2")
    (line,) = csv.DictReader(shown.stdout.splitlines())
    assert float(line["low"]) <= float(line["estimate"])


async def one_more(config: Config, headers: list[tuple[str, bytes]]) -> None:
    async with producing(config.kafka.bootstrap) as producer:
        topic = Topics.synthetic(config.streams[0].name)
        await producer.send_and_wait(topic, b"{}", key=b"another", partition=0, headers=headers)


def test_a_compacted_topic_gives_its_last_table_and_refuses_earlier_ones(bootstrap: str, tmp_path: Path) -> None:
    """What Kafka's cleaner leaves, written as it leaves it: the last record of each key."""
    stream, candidates = case_run(SPATIAL)
    document = stream.model_dump(exclude_unset=True, mode="json") | {"source": "raw.compacted"}
    config = job_config(bootstrap, tmp_path, streams=[document])
    asyncio.run(publish(config, candidates, kept_by_compaction(list(candidates))))
    path = tmp_path / "my.toml"
    kafka = {"bootstrap": bootstrap, "partitions": 2}
    path.write_bytes(tomli_w.dumps({"job": {"name": config.job.name}, "kafka": kafka, "streams": [document]}).encode())
    said = call(path, "--out", tmp_path / "last.csv")
    assert said["verified"] + said["compacted"] == len(candidates)
    assert 0 < said["compacted"] < len(candidates)
    refused = call(path, "--out", tmp_path / "first.csv", "--at", 2, code=2)["problems"][0]
    assert "no longer there whole" in refused["reason"]
    assert "min.cleanable.dirty.ratio=1" in refused["fix"]
    assert not (tmp_path / "first.csv").exists()


def test_a_stream_without_topics_is_told_what_to_do(bootstrap: str, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    text = (ROOT / "examples" / "evictions.toml").read_text()
    path.write_text(text.replace('"localhost:9092"', f'"{bootstrap}"').replace('"evictions"', '"never-made"'))
    (problem,) = call(path, code=2)["problems"]
    assert "never-made.ledger" in problem["reason"]
    assert "privstream topics" in problem["fix"]
