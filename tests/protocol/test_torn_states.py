"""What a transaction that was committed in part leaves: completed where nothing is lost, else named for what it is.

Earlier versions repeated a commit with the same epoch, and a late copy of it cut the next transaction in two. What
could be missing follows from the order in which one is sent: the publisher's ledger record comes last, the ingest's
offset behind its blocks and snapshots, and each partition has the head of what was sent to it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.ingest.bounds import BoundSpec
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.places import Places, Standing, Starts, starts
from agents.protocol.release.publisher import StreamPublisher
from agents.protocol.release.stepper import Stepper
from engines.contract_case import contract_case
from schemas.blocks import Block
from schemas.errors import ForkError, GapError, TornError
from schemas.releases import Candidate, PublicRecord, cut, frame_records, link, sha256, unframe_records
from tests.protocol.ingest_runs import SPEC, body, run

# --- The publisher ------------------------------------------------------------------------------------------------

KEYS = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=6)


def candidate(stream: str, synthetic: list[bytes], measurements: int) -> Candidate:
    """Step 0 with these synthetic records, of which two may have one key."""
    records = [PublicRecord("synthetic", key, b"%d" % number) for number, key in enumerate(synthetic)]
    records += [PublicRecord("measurements", b"0", b"%d" % number) for number in range(measurements)]
    payload, before = frame_records(records), "0" * 64
    digest = sha256(payload)
    chain = link(before, stream=stream, step=0, digest=digest, ledger=b"{}")
    return Candidate(stream, 0, before, chain, digest, payload, b"{}", {}, {})


def publication(publisher: StreamPublisher, answer: Candidate) -> tuple[PublicRecord, ...]:
    [chunk] = cut(answer.encode(), stream=publisher.stream, step=0)
    found = publisher.on_record(0, chunk)
    assert found is not None
    return found.records


@given(synthetic=KEYS, measurements=st.integers(0, 3), data=st.data())
def test_the_rest_of_a_torn_step_is_published_and_nothing_twice(
    synthetic: list[bytes], measurements: int, data: st.DataObject
) -> None:
    answer = candidate("s", synthetic, measurements)
    whole = unframe_records(answer.payload)
    there: list[PublicRecord] = []
    for channel in ("synthetic", "measurements"):
        mine = [record for record in whole if record.channel == channel]
        there += mine[: data.draw(st.integers(0, len(mine)))]
    last = {record.key: record for record in there if record.channel == "synthetic"}
    if data.draw(st.booleans()):  # compaction leaves the newest record of a key
        kept = [record for record in there if record.channel == "measurements" or last[record.key] is record]
    else:
        kept = there
    publisher = StreamPublisher("s")
    if kept:
        publisher.found(0, kept)
    published = publication(publisher, answer)
    assert published[-1].channel == "ledger"
    for channel in ("synthetic", "measurements"):
        everything = [record for record in (*there, *published) if record.channel == channel]
        assert everything == [record for record in whole if record.channel == channel]


def test_other_bytes_of_a_torn_step_stop_the_stream() -> None:
    publisher = StreamPublisher("s")
    publisher.found(0, [PublicRecord("synthetic", b"a", b"another value")])
    with pytest.raises(ForkError, match="public with other bytes"):
        publication(publisher, candidate("s", [b"a", b"b"], 1))


def test_a_ledger_that_has_lost_steps_is_not_taken_for_a_torn_one() -> None:
    with pytest.raises(GapError, match="ends at step -1: it has lost entries"):
        StreamPublisher("s").found(1, [PublicRecord("synthetic", b"a", b"0")])


def test_half_a_candidate_is_none_and_is_written_again() -> None:
    """The engine: chunks that were committed without the rest; the same seed gives the same ones again."""
    stream = contract_case("spatial").stream("default")
    stepper = Stepper.of(stream, 1)
    stepper.fold(0, Block(stream.name, 0, 0, 1, 0, {}))
    chunks = cut(stepper.compute(bytes(32)).encode(), stream=stream.name, step=0, chunk_bytes=300)
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
    standings = [Standing(f"s{at}", each.last_begin, each.next_offset) for at, each in enumerate(machines)]
    return starts(standings, committed=committed, places=Places(), beginning=0, where="raw-0", group="g")


@pytest.mark.parametrize("transactions_with_snapshots", [3, 4])
@pytest.mark.parametrize("trimmed_to", [0, 1])
def test_a_block_without_its_offset_is_gone_on_behind(transactions_with_snapshots: int, trimmed_to: int) -> None:
    """Whether or not the snapshots of its transaction are there, everybody's charges are."""
    history = written()
    machine = restored(history.blocks, history.first(transactions_with_snapshots), trimmed_to=trimmed_to)
    assert start(12, machine) == Starts({"s0": 16}, {}, ["s0"], 16)
    machine.take(records(16, 24))
    block, _ = machine.seal()
    assert block is not None
    undisturbed = run(records(0, 24), [], [], spec=GENEROUS)
    assert undisturbed.counts - Counter(ACCEPTED=16) == Counter(block.counts)
    assert undisturbed.counts["OVER_BOUND"] == USERS


@pytest.mark.parametrize("transactions_with_snapshots", [3, 4])
def test_where_the_snapshots_left_are_enough_it_goes_on(transactions_with_snapshots: int) -> None:
    """Blocks that the torn transaction's snapshots would replace are deleted; those before count up to what is left."""
    history = written()
    machine = restored(history.blocks, history.first(transactions_with_snapshots), trimmed_to=2)
    assert start(12, machine) == Starts({"s0": 16}, {}, ["s0"], 16)


def test_where_snapshots_were_cut_off_and_are_needed_it_is_refused() -> None:
    history = written()
    with pytest.raises(GapError, match="has lost snapshots"):
        restored(history.blocks, history.first(1), trimmed_to=2)


def test_of_two_streams_each_goes_on_behind_its_own_last_block() -> None:
    """One transaction was committed in part: the block of the first is there, that of the second and the offset not."""
    history = written()
    whole, lagging = restored(history.blocks, []), restored(history.blocks[:3], [])
    assert start(12, whole, lagging) == Starts({"s0": 16, "s1": 12}, {}, ["s0"], 16)


@pytest.mark.parametrize("committed", [0, 4, 8, 11, 17])
def test_any_other_offset_is_still_somebody_elses(committed: int) -> None:
    found = start(committed, restored(written().blocks, []))
    assert isinstance(found.refused["s0"], GapError)
    assert "Somebody changed the offsets" in str(found.refused["s0"])


def test_a_snapshot_without_its_block_is_refused() -> None:
    """Going on would charge its users twice now, and forget some of them at the next start."""
    history = written()
    with pytest.raises(TornError, match="without its block"):
        restored(history.blocks[:3], history.first(4))


def test_a_snapshot_without_its_block_is_refused_later_too() -> None:
    """An earlier version went on, and cut the next block otherwise."""
    history = written()
    machine = restored(history.blocks[:3], history.first(3))
    machine.take(records(12, 18))
    block, _ = machine.seal()
    assert block is not None
    with pytest.raises(TornError, match="without its block"):
        restored([*history.blocks[:3], block], history.first(4))
