"""Routers: each record of a source is in the committed routed topic once, in order, on the partition of its user."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.protocol.formats.build import InputFormat
from agents.protocol.formats.mapping import FieldMap
from agents.protocol.ingest.bounds import BoundSpec
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.places import Places
from agents.protocol.ingest.route import (
    HOP_BYTES,
    HOP_RECORDS,
    MOST_BESIDE_BYTES,
    PLACE_HEADER,
    Copy,
    Hop,
    PartitionRoute,
    lost_records,
    place_of,
)
from agents.protocol.partitioner import home_partition
from schemas.blocks import Block
from schemas.config.mapping import MapSection
from schemas.errors import GapError, WireError
from schemas.events import Reason
from tests.examples import examples
from tests.protocol.ingest_runs import SPEC, Outcome, body, live_header, tick_header

ROUTED = 3
BOUND = 2
ROUTER, READER = replace(
    SPEC, partitions=ROUTED, replay=False, bounds=BoundSpec(max_contributions=BOUND), input=InputFormat("json")
).routing("job.routed.s", 0)
USERS = ("ann", "bob", "eve", "kim", "lou")


def raw_records() -> st.SearchStrategy[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]:
    """Key, value and headers of events, and of what is none."""
    events = st.sampled_from(USERS).map(lambda user: body(u=user))
    others = st.sampled_from(
        [None, b"", b"no JSON", b"[1]", body(u=""), body(u=7), body(u=True), body(u="x" * 300), b"{" + b" " * 300]
    )
    headers = st.sampled_from([(), (("trace", b"1"), ("none", None)), tick_header(3), ((PLACE_HEADER, b"0/0"),)])
    return st.tuples(st.sampled_from([None, b"key"]), events | others, headers)


@st.composite
def sources(draw: st.DrawFn) -> list[list[RawRecord]]:
    """Records of one to three partitions, between markers of transactions."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        contents = draw(st.lists(raw_records(), max_size=12))
        gaps = draw(st.lists(st.integers(1, 3), min_size=len(contents), max_size=len(contents)))
        offsets = itertools.accumulate(gaps)
        found.append(
            [
                RawRecord(at, at * 10, key, value, headers)
                for at, (key, value, headers) in zip(offsets, contents, strict=True)
            ]
        )
    return found


@dataclass
class Cluster:
    """What Kafka gives to the routers of one source partition each: transactions that are whole or nothing, fences."""

    sources: Sequence[Sequence[RawRecord]]
    routed: dict[int, list[Copy]] = field(default_factory=lambda: {home: [] for home in range(ROUTED)})
    progress: dict[bytes, bytes] = field(default_factory=dict)
    places: dict[int, Places] = field(default_factory=dict)
    epochs: Counter[int] = field(default_factory=Counter)

    def start(self, partition: int) -> tuple[int, PartitionRoute]:
        """Fence whoever was there, and restore from what is committed."""
        self.epochs[partition] += 1
        router = PartitionRoute(ROUTER, partition)
        [key] = router.snapshot_keys
        if key in self.progress:
            router.load([self.progress[key]])
        assert self.places.get(partition, Places()).get(ROUTER.name, 0) == router.next_offset
        router.resume(router.next_offset)
        return self.epochs[partition], router

    def transact(self, partition: int, epoch: int, hop: Hop, effects: int) -> bool:
        """Carry out so many effects of a hop, and crash there; all that there are: commit it.

        Returns: whether it was committed, which no fenced router can.
        """
        appends: list[tuple[int, Copy]] = [(home, copy) for home, copies in hop.copies.items() for copy in copies]
        if epoch != self.epochs[partition] or effects < len(appends) + 2:
            return False  # aborted by whoever fences this one
        for home, copy in appends:
            self.routed[home].append(copy)
        self.progress[hop.progress.key] = hop.progress.value
        self.places[partition] = self.places.get(partition, Places()).with_blocks({ROUTER.name: hop.hi})
        return True

    def drain(self) -> None:
        """Let new routers copy all that is left."""
        for partition, records in enumerate(self.sources):
            epoch, router = self.start(partition)
            router.take([record for record in records if record.offset >= router.next_offset])
            if (hop := router.seal()) is not None:
                assert self.transact(partition, epoch, hop, 1 << 20)

    def copies_of(self, partition: int) -> Iterator[tuple[int, int, Copy]]:
        """Yield routed partition, offset in the source and copy of one source partition's records."""
        for home, copies in self.routed.items():
            for copy in copies:
                place = place_of(copy.headers)
                assert place is not None
                if place[0] == partition:
                    yield home, place[1], copy


def home_of(record: RawRecord) -> int:
    """Where the record must be, worked out otherwise: by its bytes, and what ingest says of it alone."""
    for user in (*USERS, 7):
        if record.value == body(u=user):
            return home_partition(str(user), ROUTED)
    return record.offset % ROUTED


@settings(max_examples=examples(1.2))
@given(sources(), st.data())
def test_each_record_is_routed_once_and_in_order_wherever_routers_crash(
    records: list[list[RawRecord]], data: st.DataObject
) -> None:
    cluster = Cluster(records)
    working: list[tuple[int, int, PartitionRoute]] = []
    for _ in range(data.draw(st.integers(0, 12))):
        partition = data.draw(st.integers(0, len(records) - 1))
        if not working or data.draw(st.booleans()):
            working.append((partition, *cluster.start(partition)))
        index = data.draw(st.integers(0, len(working) - 1))  # one that was fenced long ago may wake up
        partition, epoch, router = working[index]
        coming = [record for record in records[partition] if record.offset >= router.next_offset]
        router.take(coming[: data.draw(st.integers(0, 6))])
        hop = router.seal()
        effects = data.draw(st.integers(0, 9) | st.just(1 << 20))
        if hop is not None and not cluster.transact(partition, epoch, hop, effects):
            del working[index]
    cluster.drain()
    for partition, source in enumerate(records):
        found = list(cluster.copies_of(partition))
        for _, copies in itertools.groupby(found, key=lambda each: each[0]):
            offsets = [offset for _, offset, _ in copies]
            assert offsets == sorted(offsets), "in order on each routed partition"
        by_offset = {offset: (home, copy) for home, offset, copy in found}
        assert len(by_offset) == len(found), "none twice"
        assert by_offset.keys() == {record.offset for record in source}, "each of them"
        for record in source:
            home, copy = by_offset[record.offset]
            assert home == home_of(record)
            if len(record.value or b"") > ROUTER.max_value_bytes:
                assert copy[:3] == (record.key, b" " * (ROUTER.max_value_bytes + 1), record.timestamp)
            else:
                assert copy[:3] == (record.key, record.value, record.timestamp)
            assert copy.headers[:-1] == list(record.headers)


def ingested(cluster: Cluster) -> list[tuple[Block, list[tuple[str, int, int, Reason]]]]:
    """What ingest makes of each routed partition: its block, and its dead letters."""
    found = []
    for home, copies in cluster.routed.items():
        machine = PartitionIngest(READER, home)
        machine.take([RawRecord(at, c.timestamp, c.key, c.value, tuple(c.headers)) for at, c in enumerate(copies)])
        block, letters = machine.seal()
        if block is not None:
            found.append((block, [(each.topic, each.partition, each.offset, each.reason) for each in letters]))
    return found


@settings(max_examples=examples(0.8))
@given(sources())
def test_ingest_of_what_is_routed_refuses_nothing_for_its_place(records: list[list[RawRecord]]) -> None:
    """And says of what it refuses where it is in the source; each user is bounded once, wherever producers put them."""
    cluster = Cluster(records)
    cluster.drain()
    counts: Counter[str] = Counter()
    letters = []
    for block, refused in ingested(cluster):
        counts.update(block.counts)
        letters += refused
    every = [(partition, record) for partition, source in enumerate(records) for record in source]
    sent = Counter(home_of(record) for _, record in every)
    assert sum(counts.values()) == len(every)
    assert Reason.WRONG_PARTITION.name not in counts
    of_users = Counter(record.value for _, record in every if record.value in [body(u=user) for user in (*USERS, 7)])
    ticks = Counter(record.value for _, record in every if record.headers == tick_header(3))
    accepted = sum(min(BOUND, of_users[body(u=user)] - ticks[body(u=user)]) for user in (*USERS, 7))
    assert counts[Reason.ACCEPTED.name] == accepted
    assert len(letters) == len(every) - counts[Reason.ACCEPTED.name] - counts[Reason.OVER_BOUND.name]
    by_place = {("raw", partition, record.offset): record for partition, record in every}
    assert {letter[:3] for letter in letters} <= by_place.keys(), sent
    for topic, partition, offset, reason in letters:
        alone = PartitionIngest(replace(READER, routed_from=None, partitioner="none", partitions=1), 0)
        alone.take([by_place[topic, partition, offset]])
        [letter] = alone.seal()[1]
        assert letter.reason == reason, "as it is refused by itself"


@settings(max_examples=examples(0.8))
@given(st.lists(st.tuples(st.sampled_from(USERS), st.integers(0, ROUTED - 1)), max_size=12))
def test_a_user_has_one_bound_wherever_copies_are(placed: list[tuple[str, int]]) -> None:
    """Whatever routers do: a copy that is not on the partition of its user is refused there."""
    accepted: Counter[str] = Counter()
    for partition in range(ROUTED):
        ingest = PartitionIngest(READER, partition)
        here = [user for user, at in placed if at == partition]
        place = [(PLACE_HEADER, b"0/%d" % at) for at in range(len(here))]
        ingest.take([RawRecord(at, 0, None, body(u=user), (place[at],)) for at, user in enumerate(here)])
        block, _ = ingest.seal()
        home = [user for user in here if home_partition(user, ROUTED) == partition]
        counts = {} if block is None else block.counts
        assert counts.get(Reason.WRONG_PARTITION.name, 0) == len(here) - len(home)
        accepted[str(partition)] = counts.get(Reason.ACCEPTED.name, 0)
        assert accepted[str(partition)] == sum(min(BOUND, n) for n in Counter(home).values())
    assert accepted.total() <= BOUND * len({user for user, _ in placed})


@settings(max_examples=examples(0.4))
@given(sources(), st.sampled_from(USERS))
def test_records_of_one_user_move_nothing_else(records: list[list[RawRecord]], user: str) -> None:
    others = [[record for record in source if record.value != body(u=user)] for source in records]
    both = [Cluster(records), Cluster(others)]
    for cluster in both:
        cluster.drain()
    for partition in range(len(records)):
        everything, without = (list(cluster.copies_of(partition)) for cluster in both)
        assert [each for each in everything if each[2].value != body(u=user)] == without


def test_both_events_of_a_change_go_with_their_user() -> None:
    """An update of a table is a delete and an insert: two events of one record."""
    row = {"u": "ann", "t": 0, "x": 0.5, "y": 0.5}
    fields = replace(ROUTER.fields, operation="$operation")
    router = PartitionRoute(
        replace(ROUTER, fields=fields, input=InputFormat("json", envelope="debezium"), max_value_bytes=999), 0
    )
    value = body(before=row, after=row, op="u", u="eve")
    router.take([RawRecord(offset, 0, None, value) for offset in (4, 5)])
    hop = router.seal()
    assert hop is not None
    assert [(home, len(copies)) for home, copies in hop.copies.items()] == [(home_partition("ann", ROUTED), 2)]


def test_a_record_goes_to_its_computed_user() -> None:
    mapping = FieldMap(MapSection.model_validate({"u": "join('-', [region, id])", "drop": "test"}))
    router = PartitionRoute(replace(ROUTER, mapping=mapping), 0)
    values = [body(region="de", id=each, test=each == "b") for each in "ab"]
    router.take([RawRecord(offset, 0, None, value) for offset, value in zip((0, 2), values, strict=True)])
    hop = router.seal()
    assert hop is not None
    assert hop.copies.keys() == {home_partition("de-a", ROUTED), 2} != {home_partition("de-b", ROUTED), 2}, (
        "what is dropped lies where its offset says"
    )


def test_what_was_deleted_before_it_was_routed_is_counted_as_lost() -> None:
    router = PartitionRoute(ROUTER, 1)
    router.resume(10)
    router.lose(17)
    router.pass_over(2)
    assert router.next_offset == 17
    hop = router.seal()
    assert hop is not None
    copies = [copy for each in hop.copies.values() for copy in each]
    assert [lost_records(copy.headers) for copy in copies] == [7, 2]
    machine = PartitionIngest(READER, 0)
    machine.take([RawRecord(at, c.timestamp, c.key, c.value, tuple(c.headers)) for at, c in enumerate(copies)])
    block, letters = machine.seal()
    assert block is not None
    assert (block.counts, letters) == ({Reason.LOST.name: 9}, [])


def test_nobody_can_say_from_a_source_that_records_are_lost() -> None:
    """A copy's last header is its place, whatever its producer wrote."""
    router = PartitionRoute(ROUTER, 0)
    router.take([RawRecord(0, 0, None, body(), (("privstream-lost", b"5"),))])
    cluster = Cluster([[]])
    hop = router.seal()
    assert hop is not None
    for home, copies in hop.copies.items():
        cluster.routed[home] += copies
    [(block, letters)] = ingested(cluster)
    assert (block.counts, letters) == ({Reason.ACCEPTED.name: 1}, [])


def test_a_record_that_no_topic_takes_goes_on_as_too_large() -> None:
    router = PartitionRoute(ROUTER, 0)
    router.take([RawRecord(0, 5, b"k" * MOST_BESIDE_BYTES, body(), (("x", b"1"),))])
    hop = router.seal()
    assert hop is not None
    [[copy]] = hop.copies.values()
    assert copy == (None, b" " * (ROUTER.max_value_bytes + 1), 5, [(PLACE_HEADER, b"0/0")])


def test_whose_ticks_a_replay_waits_for_is_said() -> None:
    with pytest.raises(ValueError, match="each partition of its source"):
        replace(SPEC, replay=True).routing("job.routed.s", 0)


def test_progress_is_of_one_router() -> None:
    router = PartitionRoute(ROUTER, 0)
    router.take([RawRecord(4, 0, None, body())])
    hop = router.seal()
    assert hop is not None
    other = PartitionRoute(ROUTER, 1)
    with pytest.raises(GapError, match="another router"):
        other.load([hop.progress.value])
    with pytest.raises(WireError):
        other.load([b"nonsense"])
    with pytest.raises(GapError, match="comes next"):
        router.take([RawRecord(4, 0, None, body())])
    assert router.seal() is None


REPLAYED = replace(SPEC, bounds=None, partitions=ROUTED)


@st.composite
def replayed_sources(draw: st.DrawFn) -> list[list[RawRecord]]:
    """Events, ticks and marks of going live in two source partitions, some of them where nobody would mean them."""
    found = []
    for _ in range(2):
        step, records = 0, []
        for offset, kind in enumerate(
            draw(st.lists(st.sampled_from(["event"] * 4 + ["tick"] * 3 + ["live", "bad", "far"])))
        ):
            headers = {"tick": tick_header(step), "live": live_header(step), "far": tick_header(step + 20_000)}.get(
                kind, ()
            )
            step += kind in ("tick", "live")
            user, at = draw(st.sampled_from(USERS)), max(0, step + draw(st.integers(-2, 2)))
            bad: tuple[tuple[str, bytes | None], ...] = (("privstream-tick", b"7"),)
            value = body(u=user, t=at) if kind == "event" else b""
            records.append(RawRecord(offset, -1, None, value, bad if kind == "bad" else headers))
        found.append(records)
    return found


@settings(max_examples=examples(2))
@given(replayed_sources(), st.data())
def test_a_step_rests_on_the_ticks_of_its_own_source_partition(
    records: list[list[RawRecord]], data: st.DataObject
) -> None:
    """However copies interleave and whatever crashes: as where each source partition is read by itself. A step is over,
    and the clock on the wall, once it is so in all of them.
    """
    alone, ticks = Outcome(), []
    for source in records:
        machine = PartitionIngest(replace(REPLAYED, partitioner="none", partitions=1), 0)
        machine.take(source)
        block, _ = machine.seal()
        ticks.append((machine.ticked, machine.live_from))
        if block is not None:
            alone.counts.update(block.counts)
            for step, folded in block.steps.items():
                alone.steps.setdefault(step, Counter()).update(
                    dict(zip(map(tuple, folded.keys.tolist()), folded.counts.tolist(), strict=True))
                )
    router, reader = REPLAYED.routing("job.routed.s", len(records))
    routed, together = dict[int, list[Copy]](), Outcome()
    waiting = [list(source) for source in records]
    routers = [PartitionRoute(router, partition) for partition in range(len(records))]
    while any(waiting):
        index = data.draw(st.sampled_from([at for at, left in enumerate(waiting) if left]))
        count = data.draw(st.integers(1, 5))
        routers[index].take(waiting[index][:count])
        del waiting[index][:count]
        hop = routers[index].seal()
        assert hop is not None
        for home, copies in hop.copies.items():
            routed.setdefault(home, []).extend(copies)
    for home in range(ROUTED):
        here = [
            RawRecord(at, c.timestamp, c.key, c.value, tuple(c.headers)) for at, c in enumerate(routed.get(home, []))
        ]
        machine, blocks, outcome = PartitionIngest(reader, home), list[Block](), Outcome()
        while machine.next_offset < len(here):
            machine.take(here[machine.next_offset :][: data.draw(st.integers(1, 9))])
            block, letters = machine.seal()
            assert block is not None
            blocks.append(Block.decode(block.encode()))
            outcome.add(blocks[-1], letters)
            machine.committed(at=len(blocks))
            if data.draw(st.booleans()):
                machine = PartitionIngest(reader, home)
                for each in blocks:
                    machine.apply(each)
        together.counts.update(outcome.counts)
        for step, cells in outcome.steps.items():
            together.steps.setdefault(step, Counter()).update(cells)
        live = [live_from for _, live_from in ticks]
        assert machine.ticked == min(ticked for ticked, _ in ticks)
        assert machine.live_from == (None if None in live else max(each for each in live if each is not None))
    assert together.steps == alone.steps
    assert {reason: n for reason, n in together.counts.items() if n} == {r: n for r, n in alone.counts.items() if n}


@pytest.mark.parametrize(
    ("count", "key", "value"),
    [
        (HOP_RECORDS + 1, None, body(u="ann")),
        (HOP_BYTES // (1 << 20) + 1, None, b"7" * (1 << 20)),
        (HOP_BYTES // (1 << 20) + 1, b"7" * (1 << 20), body(u="ann")),
    ],
    ids=["records", "values", "keys"],
)
def test_a_transaction_that_is_full_has_no_room_until_it_is_sealed(count: int, key: bytes | None, value: bytes) -> None:
    router = PartitionRoute(replace(ROUTER, max_value_bytes=1 << 20), 0)
    assert router.room == HOP_RECORDS
    router.take([RawRecord(offset, 0, key, value, ()) for offset in range(count)])
    assert router.room == 0
    assert router.seal() is not None
    assert router.room == HOP_RECORDS
