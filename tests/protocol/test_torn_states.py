"""What a transaction that was committed in part would leave: it is refused, and named for what it is.

No worker commits one in part (`agents.kafka.transactions`), so somebody else did, or records were lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from agents.protocol.ingest.bounds import BoundSpec
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.places import Places, Standing, Starts, starts
from agents.protocol.release.publisher import StreamPublisher
from agents.protocol.release.stepper import Stepper
from engines.checks.contract_case import contract_case
from schemas.blocks import Block
from schemas.errors import GapError
from schemas.releases import Channel, cut
from tests.protocol.ingest_runs import SPEC, body

# --- The publisher ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", ["synthetic", "measurements"])
def test_records_of_a_step_that_the_ledger_does_not_have_stop_the_stream(channel: Channel) -> None:
    publisher = StreamPublisher("s")
    publisher.check_end(channel, -1)
    with pytest.raises(
        GapError, match=f"records of step 0 are public \\({channel}\\), and the public ledger ends at step -1"
    ):
        publisher.check_end(channel, 0)


def test_half_a_candidate_is_none_and_is_written_again() -> None:
    """The engine: chunks that were committed without the rest; the same seed gives the same ones again."""
    stream = contract_case("spatial").stream("default")
    stepper = Stepper.of(stream, 1)
    stepper.fold(0, Block(stream.name, 0, 0, 1, 0, {}))
    chunks = cut(stepper.compute(bytes(32)).encode().release, stream=stream.name, step=0, chunk_bytes=300)
    assert len(chunks) > 3
    publisher = StreamPublisher(stream.name)
    log = [*chunks[:2], *chunks]
    found = [publisher.on_record(offset, chunk) for offset, chunk in enumerate(log)]
    assert [each is not None for each in found] == [False] * (len(log) - 1) + [True]


# --- The ingest ---------------------------------------------------------------------------------------------------


USERS, TRANSACTIONS = 4, 4
GENEROUS = replace(SPEC, bounds=BoundSpec(max_contributions=5))


def records(begin: int, end: int) -> list[RawRecord]:
    """Records of users who take turns."""
    return [RawRecord(at, -1, None, body(u=f"u{at % USERS}")) for at in range(begin, end)]


@dataclass
class Written:
    """What some transactions of one partition hold, each one record of every user."""

    blocks: list[Block]
    snapshots: list[list[bytes]]

    def first(self, transactions: int) -> list[bytes]:
        """Their snapshots, the latest of a bucket last."""
        return [snapshot for each in self.snapshots[:transactions] for snapshot in each]


def written() -> Written:
    machine, found = PartitionIngest(GENEROUS, 0), Written([], [])
    for transaction in range(TRANSACTIONS):
        machine.take(records(transaction * USERS, (transaction + 1) * USERS))
        found.snapshots.append([snapshot.value for snapshot in machine.snapshots(1 << 20)])
        block, _ = machine.seal()
        assert block is not None
        found.blocks.append(Block.decode(block.encode()))
        machine.committed(at=transaction)
    assert found.snapshots[3]
    return found


def restored(blocks: list[Block], snapshots: list[bytes], *, trimmed_to: int = 0) -> PartitionIngest:
    machine = PartitionIngest(GENEROUS, 0)
    for snapshot in snapshots:
        machine.load(snapshot)
    for at, block in enumerate(blocks):
        if at >= trimmed_to:
            machine.apply(block, at=at, trimmed_to=trimmed_to)
    machine.check_restored(trimmed_to=trimmed_to)
    return machine


def start(committed: int, *machines: PartitionIngest) -> Starts:
    standings = [Standing(f"s{at}", each.has_history, each.next_offset) for at, each in enumerate(machines)]
    return starts(standings, committed=committed, places=Places(), beginning=0, where="raw-0", group="g")


def test_where_snapshots_were_cut_off_and_are_needed_it_is_refused() -> None:
    history = written()
    with pytest.raises(GapError, match="has lost snapshots"):
        restored(history.blocks, history.first(1), trimmed_to=2)


def test_of_two_streams_the_one_whose_block_the_group_does_not_know_is_refused() -> None:
    """One transaction was committed in part: the block of the first is there, that of the second and the offset not."""
    history = written()
    found = start(12, restored(history.blocks, []), restored(history.blocks[:3], []))
    assert (found.offsets, list(found.refused)) == ({"s1": 12}, ["s0"])


@pytest.mark.parametrize("committed", [0, 4, 8, 11, 12, 17])
def test_any_other_offset_is_refused(committed: int) -> None:
    found = start(committed, restored(written().blocks, []))
    assert isinstance(found.refused["s0"], GapError)
    assert "Somebody changed the offsets" in str(found.refused["s0"])


def test_a_snapshot_without_its_block_is_refused() -> None:
    """Going on would charge its users twice now, and forget some of them at the next start."""
    history = written()
    with pytest.raises(GapError, match="without its block"):
        restored(history.blocks[:3], history.first(4))


def test_a_snapshot_without_its_block_is_refused_later_too() -> None:
    """As where somebody went on, and cut the next block otherwise."""
    history = written()
    machine = restored(history.blocks[:3], history.first(3))
    machine.take(records(12, 18))
    block, _ = machine.seal()
    assert block is not None
    with pytest.raises(GapError, match="without its block"):
        restored([*history.blocks[:3], block], history.first(4))
