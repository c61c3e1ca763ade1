"""The audit's machine: a step is measured when it is over, public and read to its end; a checkpoint loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from agents.protocol.release.held_out import HeldOutAudit
from schemas.blocks import Block, Folded
from schemas.config import Stream
from schemas.errors import WireError
from tests.entries import entry_like
from tests.kafka.support import job_config, stream_table

EVENTS = 30


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return job_config("localhost:9092", tmp_path, streams=[stream_table("taxi", audit="audit.taxi")]).streams[0]


def block(step: int) -> Block:
    keys = np.arange(EVENTS, dtype=np.uint64).reshape(-1, 1) * np.uint64(2)
    folded = Folded.from_keys(keys)
    return Block("taxi", 0, step, step + 1, step, {step: folded}, counts={"ACCEPTED": EVENTS})


def entry(step: int, *, added: int, removed: int = 0, gathered: bool = False) -> bytes:
    end = "2020-01-01T00:00:00+00:00"
    return entry_like(step=step, end=end, added=added, removed=removed, gathered=gathered).encode()


def point(x: float) -> bytes:
    return orjson.dumps({"at": 0, "x": x, "y": x})


def measured(audit: HeldOutAudit) -> dict[str, Any]:
    assert audit.ready
    found: dict[str, Any] = orjson.loads(audit.measure())
    return found


def test_a_step_waits_for_its_truth_its_ledger_entry_and_its_last_record(stream: Stream) -> None:
    audit = HeldOutAudit(stream, 1)
    audit.on_ledger(entry(0, added=2))
    assert not audit.ready
    audit.fold(0, block(0))
    audit.on_synthetic(0, 0, b"a", point(0.1))
    assert not audit.ready  # the ledger's partition was faster than the synthetic one
    audit.on_synthetic(1, 0, b"b", point(0.2))
    found = measured(audit)
    assert (found["step"], found["events"], found["events_total"], found["synthetic_points"]) == (0, EVENTS, EVENTS, 2)
    assert set(found["metrics"]) == {"error_small", "error_medium", "error_large"}
    assert not audit.ready


def test_a_record_of_a_later_step_ends_the_waiting_and_is_not_applied_early(stream: Stream) -> None:
    audit = HeldOutAudit(stream, 1)
    for step in (0, 1):
        audit.fold(step, block(step))
        audit.on_ledger(entry(step, added=2))
    audit.on_synthetic(5, 0, b"b", point(0.2))  # "a" was compacted away: step 1 withdrew it
    audit.on_synthetic(6, 1, b"a", None)
    audit.on_synthetic(7, 1, b"c", point(0.3))
    assert measured(audit)["synthetic_points"] == 1
    assert measured(audit)["synthetic_points"] == 2
    assert audit.synthetic_offset == 8


def test_a_gathered_step_has_no_error(stream: Stream) -> None:
    audit = HeldOutAudit(stream, 1)
    audit.fold(0, block(0))
    audit.on_ledger(entry(0, added=0, gathered=True))
    found = measured(audit)
    assert found["gathered"]
    assert found["metrics"] == {}


def test_a_checkpoint_goes_on_as_if_nothing_had_been(stream: Stream) -> None:
    def play(audit: HeldOutAudit, steps: range) -> list[dict[str, Any]]:
        found = []
        for step in steps:
            audit.fold(step, block(step))
            audit.on_synthetic(step, step, b"%d" % step, point(step / 10))
            audit.on_ledger(entry(step, added=1))
            found.append(measured(audit))
        return found

    straight = play(HeldOutAudit(stream, 1), range(6))
    first = HeldOutAudit(stream, 1)
    before = play(first, range(3))
    second = HeldOutAudit(stream, 1)
    second.restore(first.encode())
    # Everything is delivered again; what is in the checkpoint is passed over.
    for step in range(3):
        second.fold(step, block(step))
        second.on_synthetic(step, step, b"%d" % step, point(step / 10))
        second.on_ledger(entry(step, added=1))
        assert not second.ready
    assert before + play(second, range(3, 6)) == straight


def test_a_checkpoint_of_another_stream_is_refused(stream: Stream) -> None:
    other = stream.model_copy(update={"name": "bikes"})
    with pytest.raises(WireError, match="bikes"):
        HeldOutAudit(stream, 1).restore(HeldOutAudit(other, 1).encode())


def test_events_leave_the_truth_when_their_life_is_over(tmp_path: Path) -> None:
    table = stream_table("taxi", audit="audit.taxi", privacy={"epsilon": 1.0, "unit": "event"})
    table["domain"] = {**table["domain"], "ttl": "120s"}
    audit = HeldOutAudit(job_config("localhost:9092", tmp_path, streams=[table]).streams[0], 1)
    alive = []
    for step in range(4):
        audit.fold(step, Block("taxi", 0, step, step + 1, step, {step: block(step).steps[step]} if step < 2 else {}))
        audit.on_ledger(entry(step, added=0))
        found = measured(audit)
        alive.append(audit._truth.total)
        assert found["events_alive"] == alive[-1]
    assert alive == [EVENTS, 2 * EVENTS, EVENTS, 0]
    assert found["events_total"] == 2 * EVENTS
