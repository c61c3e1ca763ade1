"""Ingest judges each record by itself: what becomes of one is the same beside ten thousand others as alone.

Two relations, for every source that is registered (`sources`), for batches and files of rows, and for every bound:
`f(batch)[i] == f([batch[i]])` of all that is decided before the bounds, given the ticks before the record; and what is
accepted and counted of a user is what it is of that user's records alone. Planted faults say what they find.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from agents.protocol.clock import StepClock
from agents.protocol.formats.contract import SchemaBook, SchemaRef
from agents.protocol.formats.reader import RecordReader
from agents.protocol.formats.values import cell
from agents.protocol.ingest.bounds import BoundSpec
from agents.protocol.ingest.decode import EventDecoder
from agents.protocol.ingest.events import PureFilter, RawRecord
from agents.protocol.ingest.partition import PartitionIngest, PendingBlock
from agents.protocol.ingest.parts import PartDecoder
from agents.protocol.ingest.spec import Readings, SourceSpec
from agents.protocol.ingest.times import TimeParser, Times
from agents.protocol.ingest.user_table import _Run
from agents.protocol.userhash import IdBytes
from engines.series.fields import SeriesDomain
from engines.tabular.domain import TableDomain
from schemas.blocks import Block
from tests.protocol.hostile import good_event
from tests.protocol.ingest_runs import Outcome, tick_header
from tests.protocol.sources import NOTHING, SOURCES, Source, hostile

DISTINCT = 100
RECORDS = 10_240
TICKS = (-1, 1, 30)
"""Last closed step before the first, second and last third of a batch."""


class Judged(NamedTuple):
    """What is decided of one event before the bounds: why it is refused and for which field, or where it goes."""

    reason: int
    field: str
    step: int = 0
    key: tuple[int, ...] = ()
    user: tuple[int, ...] = ()
    trip: tuple[int, ...] = ()
    clipped: bool = False
    doubt: int = 0


def judged(spec: SourceSpec, records: Sequence[RawRecord], ticked: Sequence[int]) -> list[tuple[Judged, ...]]:
    """Of each record, its events; all read and filtered together. Args: ticked: last closed step before each."""
    decoder = spec.decoder()
    events = decoder.unfold(records)
    decoded, reasons, at_fault = decoder.decode_unfolded(events)
    good = np.flatnonzero(reasons == 0)
    places = {record.offset: place for place, record in enumerate(records)}
    of_record = [places[event.offset] for event in events]
    arrivals = np.array([event.timestamp for event in events], np.int64) * 1000
    seen = PureFilter(spec, 0).run(decoded, np.array(ticked, np.int64)[of_record][good], arrivals[good])
    rows = [Judged(reason, at_fault.get(row, "")) for row, reason in enumerate(reasons.tolist())]
    users, trips = (
        [()] * len(good) if each is None else list(map(tuple, each.tolist())) for each in (seen.hashes, seen.parts)
    )
    clipped = [False] * len(good) if seen.clipped is None else seen.clipped.tolist()
    parts = zip(
        good.tolist(),
        seen.reasons.tolist(),
        seen.steps.tolist(),
        map(tuple, seen.keys.tolist()),
        users,
        trips,
        clipped,
        seen.doubts.tolist(),
        strict=True,
    )
    for at, (row, reason, *where) in enumerate(parts):
        rows[row] = Judged(reason, seen.at_fault.get(at, "")) if reason else Judged(0, "", *where)
    found: list[list[Judged]] = [[] for _ in records]
    for place, row in zip(of_record, rows, strict=True):
        found[place].append(row)
    return list(map(tuple, found))


def numbered(records: Sequence[RawRecord]) -> list[RawRecord]:
    return [record._replace(offset=offset) for offset, record in enumerate(records)]


def records_of(source: Source) -> int:
    """How many records of a batch are read: in formats that cost more, the others have no value."""
    return RECORDS if source.spec is source.plain else RECORDS // 5


def check_each(source: Source) -> None:
    """`f(batch)[i] == f([batch[i]])`. Raises: AssertionError."""
    spec = replace(source.spec, partitions=2) if source.spec.partitioner == "murmur2" else source.spec
    distinct = [record for _, record in hostile(source, DISTINCT)]
    alone = [judged(spec, [record], [TICKS[at % 3]])[0] for at, record in enumerate(distinct)]
    for record, events in zip(distinct, alone, strict=True):
        users = {event.user for event in events if not event.reason}
        assert len(users) <= 1, f"a record at {record.timestamp} is of several users"
    assert {event.reason for events in alone for event in events} > {0}
    chance = random.Random(source.name)
    batch = chance.choices(range(len(distinct)), k=records_of(source))
    batch += [distinct.index(NOTHING)] * (RECORDS - len(batch))
    chance.shuffle(batch)
    batch.sort(key=lambda at: TICKS[at % 3])
    together = judged(spec, numbered([distinct[at] for at in batch]), [TICKS[at % 3] for at in batch])
    different = [(alone[at], events) for at, events in zip(batch, together, strict=True) if events != alone[at]]
    assert not different, f"{source.name}: {len(different)} records, one of them {different[0]}"


def outcome(spec: SourceSpec, records: Sequence[RawRecord], pieces: int = 1) -> Outcome:
    """Of all blocks, one for each piece. Offsets need not follow each other."""
    machine, found = PartitionIngest(spec, 0), Outcome()
    for piece in np.array_split(np.arange(len(records)), pieces):
        machine.take([records[at] for at in piece.tolist()])
        block, letters = machine.seal()
        if block is not None:
            machine.committed(at=0)
            found.add(Block.decode(block.encode()), letters)
    return found


BOUNDS: dict[str, Sequence[Any]] = {
    "max_contributions": (1, 300),
    "charge": (2,),
    "max_per_step": (1, 300),
    "period_steps": (3,),
    "trip_life": (2,),
    "surplus": (1, 400),
    "pairs": (True,),
}


def bounds_of(spec: SourceSpec, chance: random.Random) -> BoundSpec | None:
    """Some of the settings changed, by chance; a trip's life where trips are bounded alone, and no surplus of pairs."""
    if spec.bounds is None:
        return None
    changed = {name: chance.choice(values) for name, values in BOUNDS.items() if chance.random() < 0.5}
    if spec.bounds.trip_life is None:
        changed.pop("trip_life", None)
    else:
        changed.pop("surplus", None)
        changed.pop("pairs", None)
    if "surplus" in changed and not spec.bounds.pairs:
        changed.pop("pairs", None)
    if "pairs" in changed or spec.bounds.pairs:
        changed |= {"surplus": 0, "charge": 1}
    return replace(spec.bounds, **changed)


def check_users(source: Source) -> None:
    """What is accepted and counted of all is the sum of what it is of each user alone. Raises: AssertionError."""
    # So many that whoever sends much has more than the largest bound, 400.
    chance, records = random.Random(source.name), RECORDS // 5
    spec = replace(source.spec, bounds=bounds_of(source.spec, chance))
    distinct = hostile(source, DISTINCT)
    # A few send much, so that counts leave one byte; the others a little of everything.
    weights = [30 if users & {"ann", "7", "Ann", "ann "} else 1 for users, _ in distinct]
    drawn = [distinct[at] for at in chance.choices(range(len(distinct)), weights, k=records)]
    ticks = {records // 3: 1, 2 * records // 3: 30}
    feed = [
        (frozenset("every"), RawRecord(at, -1, None, None, tick_header(ticks[at]))) if at in ticks
        else (users if len(users) == 1 else frozenset(), record._replace(offset=at))
        for at, (users, record) in enumerate(drawn)
    ]  # fmt: skip
    everybody = {users for users, record in feed if record.offset not in ticks}
    whole, parts = outcome(spec, [record for _, record in feed]), Outcome()
    for users in everybody:
        alone = outcome(spec, [record for whose, record in feed if whose == users or record.offset in ticks])
        for step, cells in alone.steps.items():
            parts.steps.setdefault(step, type(cells)()).update(cells)
        for mine, added in (
            (parts.charges, alone.charges),
            (parts.counts, alone.counts),
            (parts.surplus, alone.surplus),
        ):
            mine.update(added)  # type: ignore[arg-type]
        parts.letters += alone.letters
    assert whole == outcome(spec, [record for _, record in feed], pieces=5), f"{source.name}: cut into pieces"
    assert (whole.steps, whole.charges) == (parts.steps, parts.charges), source.name
    assert (whole.counts, whole.surplus) == (parts.counts, parts.surplus), source.name
    assert whole.letters == sorted(parts.letters, key=lambda letter: letter.offset), source.name


# --- What must hold -----------------------------------------------------------------------------------------------


def test_every_setting_of_a_bound_is_tried() -> None:
    assert BOUNDS.keys() == {each.name for each in fields(BoundSpec)}


@pytest.mark.parametrize("name", SOURCES)
def test_what_becomes_of_a_record_is_its_own(name: str) -> None:
    check_each(SOURCES[name])


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_accepted_of_a_user_is_that_of_the_users_records_alone(name: str) -> None:
    check_users(SOURCES[name])


@pytest.mark.parametrize(
    ("name", "bounds", "accepted", "surplus"),
    [
        ("json-spatial-5-wall", {"max_contributions": 66_000}, 66_000, 0),
        ("json-spatial-5-wall", {"max_contributions": 66_400, "max_per_step": 66_300}, 66_300, 0),
        ("json-tabular-7-wall", {"max_contributions": 300, "surplus": 66_000}, 300, 66_000),
        ("json-trajectory-3-wall", {}, 66_500, 0),
    ],
)
def test_one_user_with_more_records_than_two_bytes_count(
    name: str, bounds: dict[str, Any], accepted: int, surplus: int
) -> None:
    """Those of a trip pass free once it is admitted."""
    source = SOURCES[name]
    spec = source.spec
    assert spec.bounds is not None
    spec = replace(spec, bounds=replace(spec.bounds, **bounds))
    value = source.write(good_event(source.plain))
    feed = [RawRecord(offset, -1, None, value) for offset in range(66_500)]
    whole = outcome(spec, feed)
    assert (whole.accepted, whole.surplus.total()) == (accepted, surplus)
    assert whole.accepted == whole.counts["ACCEPTED"] == 66_500 - whole.counts["OVER_BOUND"]
    assert whole == outcome(spec, feed, pieces=3)


# --- Planted faults: each is found by the relations, in sources that have what it is in ---------------------------


def ids_in_a_dictionary(patch: pytest.MonkeyPatch) -> None:
    """Ids that differ in case are the one that came first."""
    of = IdBytes.from_ids

    def folded(ids: Sequence[Any]) -> IdBytes:
        known: dict[Any, Any] = {}
        return of([known.setdefault(each.casefold(), each) if type(each) is str else each for each in ids])

    patch.setattr(IdBytes, "from_ids", staticmethod(folded))


def ids_are_stripped(patch: pytest.MonkeyPatch) -> None:
    """Of each record by itself: two users have one bound."""
    patch.setattr(
        "agents.protocol.formats.csv_text.cell", lambda text, kinds, decimal=".": cell(text.strip(), kinds, decimal)
    )


def timestamps_are_repaired(patch: pytest.MonkeyPatch) -> None:
    """So that they do not go back."""
    assign = StepClock.assign

    def repaired(clock: StepClock, times: Any, *, ticked: Any, arrivals_us: Any) -> Any:
        return assign(clock, times, ticked=ticked, arrivals_us=np.maximum.accumulate(arrivals_us))

    patch.setattr(StepClock, "assign", repaired)


def the_unit_is_guessed(patch: pytest.MonkeyPatch) -> None:
    """Times far below the median of their batch are seconds."""
    numbers = TimeParser._numbers

    def guessed(parser: TimeParser, values: Sequence[Any]) -> Any:
        times, usable = numbers(parser, values)
        median = np.median(times[usable]) if usable.any() else 0
        return np.where(usable & (times > 0) & (times < median // 100), times * 1000, times), usable

    patch.setattr(TimeParser, "_numbers", guessed)


def missing_times_are_interpolated(patch: pytest.MonkeyPatch) -> None:
    """A text that is no time has that of the record before."""
    texts = TimeParser._texts

    def filled(parser: TimeParser, values: Sequence[str]) -> Any:
        read = texts(parser, values)
        last = np.maximum.accumulate(np.where(read.usable, np.arange(len(values)), 0))
        return Times(read.us[last], read.usable[last], read.doubts[last])

    patch.setattr(TimeParser, "_texts", filled)


def records_twice_are_one(patch: pytest.MonkeyPatch) -> None:
    """Within a batch."""
    unfold = EventDecoder.unfold

    def once(decoder: EventDecoder, records: Sequence[Any]) -> Sequence[Any]:
        return unfold(decoder, list({record.value: record for record in reversed(records)}.values())[::-1])

    patch.setattr(EventDecoder, "unfold", once)


def large_batches_are_rounded(patch: pytest.MonkeyPatch) -> None:
    """Above 2^12 of them, coordinates have 16 bits."""
    columns = PureFilter._columns

    def rounded(self: PureFilter, events: list[Any], operations: Any) -> Any:
        found = columns(self, events, operations)
        if len(events) > 1 << 12:
            for name in found.numbers:
                found.numbers[name][:] = np.float16(found.numbers[name])
        return found

    patch.setattr(PureFilter, "_columns", rounded)


def outliers_are_clipped(patch: pytest.MonkeyPatch) -> None:
    """To what is usual in the batch, and not to the public limit alone."""
    encode = SeriesDomain.encode

    def clipped(domain: SeriesDomain, columns: Any) -> Any:
        for numbers in columns.numbers.values():
            np.minimum(numbers, np.median(numbers) if len(numbers) else 0.0, out=numbers)
        return encode(domain, columns)

    patch.setattr(SeriesDomain, "encode", clipped)


def gaps_get_the_last_category(patch: pytest.MonkeyPatch) -> None:
    """A missing value is that of the row before."""
    encode = TableDomain.encode

    def filled(domain: TableDomain, columns: Any) -> Any:
        for values in columns.values.values():
            for row in range(1, len(values)):
                values[row] = values[row - 1] if values[row] is None else values[row]
        return encode(domain, columns)

    patch.setattr(TableDomain, "encode", filled)


def the_surplus_has_a_cap(patch: pytest.MonkeyPatch) -> None:
    """Of a batch."""
    count = PendingBlock.count_surplus
    patch.setattr(PendingBlock, "count_surplus", lambda pending, steps: count(pending, steps[:100]))


def counts_have_one_byte(patch: pytest.MonkeyPatch) -> None:
    """Whatever the bound."""
    empty = _Run.empty
    patch.setattr(_Run, "empty", staticmethod(lambda count_type: empty(np.uint8)))


def pairs_are_of_everybody(patch: pytest.MonkeyPatch) -> None:
    """A key that somebody has had is a repeat of all others."""
    pairs = PureFilter._pairs
    patch.setattr(PureFilter, "_pairs", lambda self, users, keys: pairs(self, np.zeros_like(users), keys))


def the_first_schema_is_kept(patch: pytest.MonkeyPatch) -> None:
    """All records of a reader are read with the schema of its first one."""
    reader = SchemaBook.reader
    first: dict[str, SchemaRef] = {}

    def kept(book: SchemaBook, ref: SchemaRef, kind: str) -> Any:
        return reader(book, first.setdefault(kind, ref), kind)

    def forgotten(self: SourceSpec, readings: Readings | None = None) -> EventDecoder | PartDecoder:
        first.clear()
        return decoder(self, readings)

    decoder = SourceSpec.decoder
    patch.setattr(SchemaBook, "reader", kept)
    patch.setattr(SourceSpec, "decoder", forgotten)


def a_row_may_change_hands(patch: pytest.MonkeyPatch) -> None:
    """Events of one record are of two users."""
    patch.setattr(RecordReader, "_check_user", lambda reader, record, documents: None)


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, Callable[[Source], None]]] = {
    ids_in_a_dictionary: ("json-markov-4-replay", check_each),
    ids_are_stripped: ("csv-none", check_users),
    timestamps_are_repaired: ("json-spatial-7-wall", check_each),
    the_unit_is_guessed: ("json-tabular-7-wall", check_each),
    missing_times_are_interpolated: ("json-trajectory-3-wall", check_each),
    records_twice_are_one: ("json-tabular-1-wall", check_each),
    large_batches_are_rounded: ("json-trajectory-3-wall", check_each),
    outliers_are_clipped: ("json-series-1-wall", check_each),
    gaps_get_the_last_category: ("json-tabular-7-wall", check_each),
    the_surplus_has_a_cap: ("json-spatial-6-replay", check_users),
    counts_have_one_byte: ("json-spatial-5-wall", check_users),
    pairs_are_of_everybody: ("json-series-2-replay", check_users),
    the_first_schema_is_kept: ("avro-none", check_each),
    a_row_may_change_hands: ("json-debezium", check_each),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    name, check = FAULTS[fault]
    if FAULTS[fault][1] is check_each and fault is not large_batches_are_rounded:
        monkeypatch.setattr("tests.protocol.test_each_record_by_itself.RECORDS", 2_000)
    fault(monkeypatch)
    with pytest.raises(AssertionError, match=name if fault is not a_row_may_change_hands else "several users"):
        check(SOURCES[name])
