"""What the operator's page shows of the utility topic, and compares only where that says something."""

from __future__ import annotations

import msgspec
import orjson
import pytest

from agents.protocol.release.held_out import HeldOutAudit
from agents.protocol.release.stepper import Stepper
from agents.readers.watch.operator import StreamTruth
from engines.checks.contract_case import contract_case
from engines.core.registry import build_evaluator
from schemas.blocks import Block
from schemas.config import ENGINES
from schemas.ledger import LedgerEntry
from tests.watch.test_seen import STREAM


def test_the_operators_rows_are_errors_named_as_in_the_report_and_a_repeated_step_overwrites_itself() -> None:
    truth = StreamTruth(STREAM)
    for events in (5, 7):
        metrics = {"error_small": 0.5, "error_large": None}
        row = {"step": 0, "events": events, "events_total": events, "synthetic_points": 6, "metrics": metrics}
        truth.take(orjson.dumps(row | {"events_alive": events - 1}))
    truth.take(b"not JSON")
    assert truth.rows(-1) == [
        [0, 7, 7, 6, 6, {"error in small areas": 0.5, "error in medium areas": None, "error in large areas": None}]
    ]
    assert truth.unreadable == 1
    truth.take(orjson.dumps(row | {"step": 1, "events_alive": None}))
    assert [each[3:5] for each in truth.rows(0)] == [[None, 6]]


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_true_events_are_compared_with_records_where_the_engine_says_that_they_can_be(engine: str) -> None:
    """What the audit measures is what the page draws."""
    stream = contract_case(engine).stream("default")
    audit, stepper, block = HeldOutAudit(stream, 1), Stepper.from_stream(stream, 1), Block(stream.name, 0, 0, 1, 0, {})
    audit.fold(0, block)
    stepper.fold(0, block)
    entry = LedgerEntry.decode(stepper.compute(bytes(32)).ledger, stream.name)
    audit.on_ledger(msgspec.structs.replace(entry, added=0, removed=0, gathered=True).encode())
    told = StreamTruth(stream)
    told.take(audit.measure())
    compared = build_evaluator(stream).scope == "alive"
    assert told.summary()["counted"] == compared
    assert (told.rows(-1)[0][3] is not None) == compared
