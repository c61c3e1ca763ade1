"""What an earlier version makes of a source that goes live, in a rolling upgrade: it refuses, and gives nobody a second
step.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from schemas.blocks import Block
from tests.protocol.ingest_runs import SPEC, Outcome, body, live_header, tick_header
from tests.upgrade.earlier import earlier_tree

EARLIER = """
import json, sys
from agents.protocol.ingest_events import RawRecord
from agents.protocol.partition_ingest import PartitionIngest
from agents.protocol.replay_plan import ReplayError, progress_of
from schemas.blocks import Block
from schemas.errors import WireError
from tests.protocol.ingest_runs import SPEC

given = json.loads(sys.stdin.read())
records = [
    RawRecord(offset, stamp, None, value and value.encode(), tuple((name, tick.encode()) for name, tick in headers))
    for offset, stamp, _, value, headers in given["records"]
]
machine = PartitionIngest(SPEC, 0)
machine.take(records)
block, letters = machine.seal()
told = {"block": block.encode().hex(), "tick": block.tick, "counts": dict(block.counts)}
ticks = [headers[0][1].encode() for *_, headers in given["records"] if headers]
for name, call, error in (
    ("live", lambda: Block.decode(bytes.fromhex(given["live"])), WireError),
    ("replay", lambda: progress_of(ticks[-1:]), ReplayError),
):
    try:
        call()
        told[name] = ""
    except error as refused:
        told[name] = str(refused)
print(json.dumps(told))
"""


def test_an_earlier_version_refuses_it_and_what_follows_goes_on_where_it_was(tmp_path: Path) -> None:
    records = [
        RawRecord(0, -1, None, body(t=0.5)),
        RawRecord(1, -1, None, None, tick_header(0)),
        RawRecord(2, 901_000, None, body(t=900.5, u="bob")),  # of a live producer
        RawRecord(3, -1, None, None, live_header(900, 1)),
        RawRecord(4, -1, None, body(t=1.5)),
    ]
    live = Block("s", 0, 0, 1, 900, {}, live_from=1).encode().hex()
    told = json.loads(
        subprocess.run(
            [sys.executable, "-c", EARLIER],
            input=json.dumps({"live": live, "records": records}, default=bytes.decode),
            capture_output=True,
            text=True,
            check=True,
            cwd=earlier_tree(tmp_path / "earlier"),
        ).stdout
    )
    assert (told["tick"], told["counts"]) == (0, {"ACCEPTED": 2, "TOO_FAR_AHEAD": 1, "BAD_TICK": 1})
    assert "BLOCK record of format version 2; this release reads 1" in told["live"], "it stops, and says so"
    assert "a tick in the source topics cannot be read" in told["replay"], "and replays nothing behind it"
    # This version takes over behind the earlier one's block: not live, and so again once the command is run again.
    earlier = Block.decode(bytes.fromhex(told["block"]))
    machine, outcome = PartitionIngest(SPEC, 0), Outcome()
    machine.apply(earlier)
    outcome.add(earlier)
    assert (machine.live, machine.ticked, machine.next_offset) == (False, 0, 5)
    machine.take([RawRecord(5, 902_000, None, body(t=901.5)), RawRecord(6, -1, None, None, live_header(902, 1))])
    block, _ = machine.seal()
    assert block is not None
    outcome.add(block)
    assert machine.live
    assert {step: sum(cells.values()) for step, cells in outcome.steps.items()} == {0: 1, 1: 1, 901: 1}
