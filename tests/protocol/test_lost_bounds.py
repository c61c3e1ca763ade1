"""Whatever the bounds topic has lost: a partition is restored exactly, or refused. One that lost nothing never is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import agents.protocol.ingest.partition
from agents.protocol.ingest.bounds import BoundSpec
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.snapshots import BucketLog
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.ingest.user_table import BUCKETS
from schemas.blocks import Block
from schemas.errors import GapError, PromiseError
from schemas.wire import Kind, decode
from tests.examples import examples
from tests.protocol.ingest_runs import SPEC, body, sealed, tick_header

BOUND = 3
USERS = [f"u{index}" for index in range(7)]
ALL, ONE = 1 << 20, 1  # bytes of snapshots in a transaction: of all buckets, of one


@dataclass
class History:
    """What one partition has committed and what the job has trimmed of it."""

    spec: SourceSpec
    blocks: list[tuple[int, Block]] = field(default_factory=list)
    trimmed_to: int = 0
    snapshots: list[tuple[bytes, bytes]] = field(default_factory=list)
    """The bounds topic before compaction."""
    charges: Counter[tuple[int, ...]] = field(default_factory=Counter)
    machine: PartitionIngest = field(init=False)

    def __post_init__(self) -> None:
        self.machine = PartitionIngest(self.spec, 0)

    def commit(self, records: list[RawRecord], *, budget: int = ALL) -> None:
        self.machine.take(records)
        written = self.machine.snapshots(budget)
        block, _ = self.machine.seal()
        if block is None:
            return
        at = 3 * block.hi + 5
        self.blocks.append((at, Block.decode(block.encode())))
        self.snapshots += [(each.key, each.value) for each in written]
        self.charges += charged(block)
        self.machine.committed(at=at)

    def trim(self) -> None:
        """As the engine does it."""
        self.trimmed_to = max(self.trimmed_to, self.blocks[-1][1].floor)
        self.blocks = [(at, block) for at, block in self.blocks if at >= self.trimmed_to]

    def restored(self, snapshots: dict[bytes, bytes]) -> PartitionIngest:
        machine = PartitionIngest(self.spec, 0)
        machine.load(list(snapshots.values()))
        for at, block in self.blocks:
            machine.apply(block, at=at, trimmed_to=self.trimmed_to)
        machine.check_restored(trimmed_to=self.trimmed_to)
        return machine

    def check_exact(self, machine: PartitionIngest) -> None:
        """Everybody comes again, more often than allowed: who is at the bound must be whom the history holds there."""
        begin = machine.next_offset
        flood = [
            RawRecord(begin + offset, -1, None, body(u=USERS[offset % len(USERS)], t=machine.ticked + 1))
            for offset in range((BOUND + 1) * len(USERS))
        ]
        charges: list[Counter[tuple[int, ...]]] = []
        for each in (machine, self.machine):
            each.take(flood)
            charges.append(charged(sealed(each)[0]))
        assert charges[0] == charges[1]
        assert max((self.charges + charges[0]).values()) <= BOUND


def charged(block: Block) -> Counter[tuple[int, ...]]:
    return Counter(dict(zip(map(tuple, block.users.tolist()), block.increments.tolist(), strict=True)))


@st.composite
def histories(draw: st.DrawFn) -> History:
    beside: dict[str, Any] = draw(st.sampled_from([{}, {"surplus": BOUND}, {"pairs": True}]))
    bounds = BoundSpec(
        max_contributions=BOUND,
        period_steps=draw(st.sampled_from([None, 3])),
        **beside,
    )
    spec = replace(SPEC, bounds=bounds)
    history, offset, step = History(spec), 0, 0
    for _ in range(draw(st.integers(1, 9))):
        records = []
        for user in draw(st.lists(st.sampled_from([*USERS, "tick"]), max_size=5)):
            headers = tick_header(step) if user == "tick" else ()
            records.append(RawRecord(offset, -1, None, b"" if user == "tick" else body(u=user, t=step), headers))
            step += user == "tick"
            offset += 1
        history.commit(records, budget=draw(st.sampled_from([ONE, ALL])))
        if bool(history.blocks) and draw(st.booleans()):
            history.trim()
    return history


def latest(snapshots: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    return dict(snapshots)


@st.composite
def remains(draw: st.DrawFn, snapshots: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """What is left of the bounds topic: all up to a record or from one on, and in half of the cases holes in that."""
    begin, end = sorted(draw(st.tuples(*[st.integers(0, len(snapshots))] * 2)))
    kept = snapshots[begin:] if draw(st.booleans()) else snapshots[:end]
    # A bucket without any record is refused before it matters which record it was: without holes few are bare.
    holes = draw(st.booleans())
    return latest([each for each in kept if not holes or draw(st.integers(0, 4))])


def lose_anything(data: st.DataObject) -> None:
    """The property: exact, or refused."""
    history = data.draw(histories())
    try:
        machine = history.restored(data.draw(remains(history.snapshots)))
    except PromiseError:
        return
    if history.blocks:
        history.check_exact(machine)


@given(st.data())
@settings(max_examples=examples(6))
def test_whatever_is_lost_nobody_is_above_the_bound(data: st.DataObject) -> None:
    lose_anything(data)


@given(histories())
@settings(max_examples=examples(2))
def test_what_lost_nothing_is_restored(history: History) -> None:
    machine = history.restored(latest(history.snapshots))
    if history.blocks:
        history.check_exact(machine)


class NoCheck(BucketLog):
    """Planted: nothing is proven."""

    def check_complete(self) -> None:
        pass


class AnySnapshotWillDo(BucketLog):
    """Planted: that there is one, and not which."""

    def fold(self, block: Block, *, at: int) -> None:
        super().fold(replace(block, snapshots=np.minimum(block.snapshots, 1)), at=at)


class FloorsForgotten(BucketLog):
    """Planted: what a block says is believed although the blocks it relies on are gone."""

    def fold(self, block: Block, *, at: int) -> None:
        super().fold(replace(block, floor=at), at=at)


@pytest.mark.parametrize("fault", [NoCheck, FloorsForgotten])
def test_a_planted_fault_is_found(fault: type[BucketLog], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.protocol.ingest.partition, "BucketLog", fault)
    quietly = settings(
        max_examples=1_000,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(AssertionError):
        quietly(given(st.data())(lose_anything))()


# --- Kinds of loss, one by one ------------------------------------------------------------------------------------


def trimmed_history(*, spec: SourceSpec = SPEC) -> History:
    """Every user at the bound, twice written or more, and then some who are new: blocks of the first are trimmed."""
    history = History(spec)
    for turn in range(BOUND + 2):
        users = USERS if turn < BOUND else USERS[:2]
        begin = history.machine.next_offset
        history.commit([RawRecord(begin + at, -1, None, body(u=user)) for at, user in enumerate(users)])
    history.trim()
    assert history.blocks[0][1].lo > 0
    return history


def everything(history: History) -> dict[bytes, bytes]:
    return {}


def one_bucket(history: History) -> dict[bytes, bytes]:
    return dict(list(latest(history.snapshots).items())[1:])


def one_bucket_is_older(history: History) -> dict[bytes, bytes]:
    key = history.snapshots[0][0]
    return {**latest(history.snapshots), key: history.snapshots[0][1]}


def an_older_copy(history: History) -> dict[bytes, bytes]:
    return latest(history.snapshots[: len(USERS)])


@pytest.mark.parametrize("loss", [one_bucket_is_older, an_older_copy])
def test_that_any_snapshot_will_do_is_found(
    loss: Callable[[History], dict[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generated losses show this one once in a thousand: these are made for it."""
    monkeypatch.setattr(agents.protocol.ingest.partition, "BucketLog", AnySnapshotWillDo)
    history = trimmed_history()
    with pytest.raises(AssertionError):
        history.check_exact(history.restored(loss(history)))


@pytest.mark.parametrize("loss", [everything, one_bucket, one_bucket_is_older, an_older_copy])
def test_a_loss_is_refused_with_what_happened_and_what_to_do(loss: Callable[[History], dict[bytes, bytes]]) -> None:
    history = trimmed_history()
    with pytest.raises(GapError, match=r"stream s, source partition 0: the bounds topic has lost.*Restore the private"):
        history.restored(loss(history))


def test_a_loss_while_every_block_is_there_is_none() -> None:
    history = History(SPEC)
    for _ in range(2):
        begin = history.machine.next_offset
        history.commit([RawRecord(begin + at, -1, None, body(u=user)) for at, user in enumerate(USERS)])
    assert history.snapshots
    history.check_exact(history.restored({}))


def test_ticks_alone_need_no_snapshots() -> None:
    history = History(SPEC)
    for step in range(4):
        history.commit([RawRecord(step, -1, None, b"", tick_header(step))])
    history.trim()
    assert history.blocks[0][0] > 5
    history.restored({})


def test_snapshots_without_any_block_are_refused() -> None:
    history = trimmed_history()
    history.blocks = []
    with pytest.raises(GapError, match="and no block is"):
        history.restored(latest(history.snapshots))


def test_a_block_says_up_to_where_each_bucket_is_written() -> None:
    history = trimmed_history()
    written = np.zeros(BUCKETS, np.int64)
    for value in latest(history.snapshots).values():
        header, _ = decode(Kind.BOUNDS, value)
        written[header["bucket"]] = header["upto"]
    assert history.blocks[-1][1].snapshots.tolist() == written.tolist()
