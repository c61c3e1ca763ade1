"""A configuration that does not fit the events says so at once, by field and reason, on the real broker."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from agents.kafka.status import status
from agents.kafka.topics import create_topics
from agents.readers.operator.doctor import cluster_findings
from agents.readers.watch.operator import StreamTruth
from agents.worker.ingest.counters import IngestMetrics
from tests.kafka.ingest_support import Bench, event
from tests.kafka.support import until

WRONG = {
    "misspelt": ("MISSING_FIELD", "X"),
    "format": ("BEFORE_START", "at"),
    "partitioner": ("WRONG_PARTITION", "user"),
    "swapped": ("OUTSIDE_DOMAIN", "y and x"),
}
EVENTS = 40
PLACE = (10.25, 0.75)


def misconfigured(bench: Bench) -> Bench:
    """Streams over one source, each with a mistake of its own, and one without."""
    box = {"bounds": [10.0, 0.0, 11.0, 1.0]}
    streams = [
        bench.stream("right", domain=box),
        bench.stream("misspelt", domain={**box, "x": "X"}),
        bench.stream("format", domain=box, time={"format": "ms"}),
        bench.stream("partitioner", domain=box, partitioner="crc32"),
        bench.stream("swapped", domain={**box, "x": "y", "y": "x"}),
    ]
    return dataclasses.replace(bench, streams=streams)


async def test_four_wrong_configurations(bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = misconfigured(Bench(bootstrap, tmp_path, partitions=8))
    await create_topics(bench.config, source_partitions=bench.partitions)
    # Nobody is at the same partition under both partitioners.
    await bench.send([event(user, 0, *PLACE) for user in ("u1", "u2", "u3") for _ in range(EVENTS)])
    caplog.set_level(logging.WARNING)
    async with bench.running() as service:
        await until(lambda: len([line for line in caplog.messages if "refused" in line]) >= len(WRONG))
        # And once more those of "partitioner", which the other partitioner has put there.
        await until(lambda: sum(service.counters.records.values()) == (len(bench.streams) + 1) * 3 * EVENTS)
        shown = CollectorRegistry()
        shown.register(IngestMetrics(service.counters))
        metrics = generate_latest(shown).decode()
    findings = {finding.what: finding for finding in await cluster_findings(bench.config)}
    states = {state.stream: state for state in await status(bench.config)}
    letters = {(letter.stream, letter.reason.name, letter.field) for letter in await bench.letters()}
    for name, (reason, field) in WRONG.items():
        stream = f"{bench.job}-{name}"
        [line] = [line for line in caplog.messages if f"stream {stream}:" in line]
        assert f"100% refused: {reason} of {field} 100%" in line
        assert "What to do: " in line
        assert f'{{field="{field}",reason="{reason}",role="blocks",stream="{stream}"}}' in metrics
        beside = {"PLACED_BY_MURMUR2": {"": 3 * EVENTS}} if name == "partitioner" else {}
        assert set(states[stream].recent) == {reason, *beside}
        assert states[stream].refusing is not None
        assert states[stream].totals == {reason: {field: 3 * EVENTS}} | beside
        assert states[stream].producers == ("murmur2" if beside else None)
        assert findings[f"events of {stream}"].verdict == "problem"
        assert f"{reason} of {field} 100%" in findings[f"events of {stream}"].detail
        assert findings[f"refused records of {stream}"].verdict == "warning"
        assert (stream, reason, field) in letters
    found = "0 are where murmur2 puts their user, as Java and aiokafka do"
    [line] = [line for line in caplog.messages if f"stream {bench.job}-partitioner:" in line]
    operators = StreamTruth(bench.config.stream(f"{bench.job}-partitioner"))
    operators.on_status(states[f"{bench.job}-partitioner"])
    page = operators.summary()["status"]
    assert [row[:2] for row in page["refusals"]] == [["WRONG_PARTITION", "user"]]
    fixes = [findings[f"{what} of {bench.job}-partitioner"].fix for what in ("events", "refused records")]
    assert all(found in told for told in (line, *fixes, *page["advice"]))
    assert findings[f"events of {bench.job}-right"].verdict == "ok"
    assert states[f"{bench.job}-right"].refusing is None
    assert states[f"{bench.job}-right"].totals == {"ACCEPTED": {"": 9}, "OVER_BOUND": {"": 111}}
    said = " ".join([*caplog.messages, metrics, *map(str, findings.values()), *map(str, states.values())])
    assert not any(value in said for value in ("10.25", "0.75", "u1", "1577836830"))
