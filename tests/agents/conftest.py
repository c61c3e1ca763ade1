"""Partitions without Kafka, which tests of engines, publishers and audits share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.test_stream_stops_alone import Bench
from tests.agents.test_streams_of_others import Partition


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@pytest.fixture
def partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Partition:
    return Partition(tmp_path, monkeypatch)
