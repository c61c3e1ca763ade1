"""Metrics tell operators what became of records: by reason, never by content."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from agents.worker.ingest.counters import IngestCounters, IngestMetrics


def test_records_are_shown_by_stream_role_and_reason() -> None:
    counters = IngestCounters()
    counters.records["taxi", "blocks", "ACCEPTED", ""] += 5
    counters.records["taxi", "blocks", "WRONG_TYPE", "lat"] += 2
    counters.users["taxi", 3] = 7
    counters.blocks = 4
    registry = CollectorRegistry()
    registry.register(IngestMetrics(counters))
    text = generate_latest(registry).decode()
    assert 'privstream_ingest_records_total{field="lat",reason="WRONG_TYPE",role="blocks",stream="taxi"} 2.0' in text
    assert 'privstream_ingest_records_total{field="",reason="ACCEPTED",role="blocks",stream="taxi"} 5.0' in text
    assert 'privstream_bounded_users{partition="3",stream="taxi"} 7.0' in text
    assert "privstream_ingest_blocks_total 4.0" in text
