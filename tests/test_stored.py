"""What is stored is what is read: `decode(encode(x)) == x` for all that is written down or travels, over the whole
range that the configuration allows.

Nothing here lists fields: records are made from the types of their fields, with the ends of every width among the
values. Whatever packs bytes in `WRITERS` must be one of `FORMATS`, or say in `NOT_STORED` what it is instead; whatever
names a type of few bytes says in `NARROW` why all that it holds fits. States of engines are in
`tests/contracts/test_engines.py`, by registration.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
import pytest
from annotated_types import Le
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from agents.kafka import stop_log
from agents.kafka.lifecycle.leaving import Lives
from agents.kafka.lifecycle.stops import Stop
from agents.local.library.journal import JournalEntry, LockText
from agents.protocol.fingerprint import Fingerprint
from agents.protocol.ingest.bounds import ADMITTED, SURPLUS, Bounds, BoundSpec
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.ingest.partition import _bounds_of
from agents.protocol.ingest.places import Places
from agents.protocol.ingest.route import PartitionRoute
from agents.protocol.ingest.snapshots import BucketLog
from agents.protocol.ingest.trip_bounds import MAX_LIFE
from agents.protocol.ingest.user_table import BUCKETS, SEGMENT_USERS
from agents.protocol.release.dating import fixed_width
from agents.protocol.release.held_out import HeldOutAudit
from agents.protocol.release.json_rows import json_rows
from agents.protocol.release.merge import BlockMerge
from agents.protocol.release.step_table import StepTable
from agents.protocol.release.witness import Mark
from engines.checks.contract_case import contract_case
from engines.core.accounting.accountant import RULES, Accountant, Cost
from engines.core.state import signs_of
from engines.tabular.domain import RowKeys
from schemas import wire
from schemas.arrays import narrowed
from schemas.blocks import Block, Folded
from schemas.config.engines.tabular import MAX_ATTRIBUTES, MAX_VALUES
from schemas.config.engines.trajectory import MAX_STEPS
from schemas.config.privacy import Privacy
from schemas.errors import EngineInputError
from schemas.events import Reason, Tick, encode_going_live, encode_tick, read_tick
from schemas.releases import (
    STEP_LIMIT,
    Candidate,
    Chunk,
    EncodedState,
    PublicRecord,
    Seed,
    StatePart,
    decode_log_record,
    frame_records,
    join_chunks,
    link,
    pieces_of,
    sha256,
    split_body,
    split_into_chunks,
    unframe_records,
)
from tests.columns import rows_of
from tests.examples import examples
from tests.protocol.ingest_runs import SPEC
from tests.schemas.golden import same

ROOT = Path(__file__).parent.parent
EASY = settings(max_examples=examples(0.5))

# --- Values at the ends of every width ----------------------------------------------------------------------------

ENDS = [1 << bits for bits in (0, 7, 8, 15, 16, 24, 31, 32, 40, 53, 60, 62)]


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    """Whole numbers of a range: one in two is at the end of some width, or of the range."""
    near = sorted({low, high, *(sign * end + by for end in ENDS for sign in (-1, 1) for by in (-1, 0, 1))})
    return st.sampled_from([number for number in near if low <= number <= high]) | st.integers(low, high)


INTEGERS = whole(-(2**63), 2**63 - 1)
COUNTS = whole(0, 2**63 - 1)
FRACTIONS = st.builds(Fraction, whole(0, 10**40), whole(1, 10**40))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | st.text(max_size=9)
JSON = st.recursive(
    SCALARS, lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=5), some, max_size=3)
)


def arrays(dtype: Any, dimensions: int) -> st.SearchStrategy[np.ndarray]:
    shapes = hnp.array_shapes(min_dims=dimensions, max_dims=dimensions, min_side=0, max_side=3)
    whole_ = np.dtype(dtype).kind in "iu"
    elements = whole(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) if whole_ else FLOATS
    return hnp.arrays(dtype, shapes, elements=elements if dtype is not bool else None)


ANY_ARRAY = st.one_of(*(arrays(kind, n) for kind in (np.int64, np.uint64, np.float64, np.uint8, bool) for n in (0, 2)))


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type. A type that nobody thought of is refused: say here what its values are."""
    plain = {int: INTEGERS, str: st.text(max_size=20), bytes: st.binary(max_size=20), Fraction: FRACTIONS, Any: JSON}
    if hint in plain:
        return plain[hint]
    if hint in (bool, float, type(None)):
        return {bool: st.booleans(), float: FLOATS}.get(hint, st.none())
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return st.sampled_from(parts)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(of_type, parts))
    if origin is np.ndarray:
        (dtype,) = typing.get_args(parts[1])
        return arrays(dtype, 2 if dtype is np.uint64 else 1)
    if origin is tuple:
        return st.lists(of_type(parts[0]), max_size=3).map(tuple) if ... in parts else st.tuples(*map(of_type, parts))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(of_type(parts[0]), of_type(parts[1]), max_size=4)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return st.lists(of_type(parts[0]), max_size=4)
    if hint is np.ndarray:
        return ANY_ARRAY
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    if dataclasses.is_dataclass(hint):
        return record(typing.cast("type", hint))
    raise AssertionError(f"of_type does not know the values of {hint}")


def record(kind: type, **others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Of a dataclass or named tuple: its fields by their types, but for `others`."""
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: of_type(hints[name]) for name in hints.keys() - others.keys()}, **others)


# --- Formats ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """One format: what writes it, its values, and `back`, which writes one and reads it.

    Args: of: what is compared of values that have no equality.
    """

    writer: str
    values: st.SearchStrategy[Any]
    back: Callable[[Any], Any]
    of: Callable[[Any], Any] = lambda value: value


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    """The digests of one are those of its own bytes."""
    arrays = st.dictionaries(st.text(max_size=5), ANY_ARRAY, max_size=3)
    kept = tuple(StatePart.of({"at": at}, each) for at, each in enumerate(draw(st.lists(arrays, max_size=2))))
    made = dataclasses.replace(draw(record(Candidate, kept=st.just(kept))), arrays=draw(arrays))
    before, ledger = sha256(draw(st.binary())), orjson.dumps(draw(st.dictionaries(st.text(), JSON, max_size=3)))
    digest = sha256(made.payload)
    chain = link(before, stream=made.stream, step=made.step, digest=digest, ledger=ledger)
    return dataclasses.replace(made, previous_chain=before, chain=chain, digest=digest, ledger=ledger)


def candidate_back(made: Candidate) -> Candidate:
    """As the log and the changelog have it."""
    release, state = made.encode()
    chunks = [Chunk.decode(c.encode()) for c in split_into_chunks(release, stream="s", step=1)]
    return Candidate.decode(join_chunks(chunks), EncodedState.decode(b"".join(split_body(state.body))))


BLOCKS = record(Block)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, list[Any]]:
    count = draw(st.integers(0, 4))
    column = st.one_of(*(st.lists(kind, min_size=count, max_size=count) for kind in (INTEGERS, FLOATS, SCALARS)))
    return draw(st.dictionaries(st.text(max_size=5), column, min_size=1, max_size=3))


def rows_back(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    count = len(next(iter(columns.values())))
    read = [orjson.loads(row) for row in rows_of(json_rows(columns), count)]
    return {name: [row[name] for row in read] for name in columns}


ACCOUNTANTS = st.builds(
    lambda rule, delta, **parts: Accountant(rule=rule, delta=0.0 if rule == "pure" else delta, **parts),
    rule=st.sampled_from(RULES),
    delta=st.floats(1e-300, 0.5),
    epsilon=FRACTIONS.filter(bool),
    step=INTEGERS,
    **dict.fromkeys(("common", "finished", "current"), of_type(Cost)),
)


def dates_back(steps: dict[str, int]) -> dict[str, int]:
    """Of records of which some are old, and of those the first came, went and came again."""
    first, second = StepTable(), StepTable()
    names, numbers = fixed_width(steps), np.array([*steps.values()], np.int64)
    some = len(names) // 2
    first.add(names[:some], numbers[:some])
    first.add(names[some:], numbers[some:])
    first.add(names[:some][:1], first.pop(names[:some][:1]))
    second.restore(travelled(first.arrays()), [StatePart(pieces_of(part.body)) for part in first.kept()])
    read = dict(zip(steps, second.pop(fixed_width(steps)).tolist(), strict=True))
    assert len(second) == 0
    return read


def lives_back(lives: Lives) -> Lives:
    environment: dict[str, str] = {}
    lives.keep(environment)
    return Lives.before(environment)


def travelled(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return wire.decode(wire.Kind.STATE, wire.encode(wire.Kind.STATE, {}, state))[1]


def merged(block: Block) -> BlockMerge:
    """Events of far steps, with counts of any size, in the last of three partitions."""
    merge = BlockMerge("s", 3, 2)
    found = {step % STEP_LIMIT: folded for step, folded in block.steps.items()}
    surplus = {abs(step) % STEP_LIMIT: count for step, count in block.surplus.items()}
    first: dict[str, Any] = {"stream": "s", "partition": 2, "lo": 0, "hi": abs(block.hi), "after": None}
    kept = dataclasses.replace(block, steps=found, surplus=surplus, **first)
    merge.fold(abs(block.floor), dataclasses.replace(kept, tick=-1))
    merge.ticks[2] = block.tick
    return merge


def merge_of(merge: BlockMerge) -> Any:
    return vars(merge)


def merge_back(merge: BlockMerge) -> BlockMerge:
    second = BlockMerge("s", 3, 2)
    state = wire.encode(wire.Kind.STATE, merge.progress(), merge.arrays())
    second.restore(*wire.decode(wire.Kind.STATE, state))
    return second


@given(BLOCKS)
@settings(max_examples=examples(1))
def test_a_block_that_was_read_back_has_the_digest_that_it_had(block: Block) -> None:
    assert Block.decode(block.encode()).digest == block.digest


def audited(block: Block) -> HeldOutAudit:
    audit = HeldOutAudit(AUDITED, 3)
    audit.merge = merged(block)
    audit.step, audit.synthetic_offset, audit._events = block.lo, block.hi, block.floor
    audit._reasons = dict(block.counts)
    audit._truth = next(iter(block.steps.values()), audit._truth)
    audit._expiring.extend(block.steps.items())
    audit._alive = {name: {"x": number} for name, number in block.counts.items()}
    return audit


AUDITED = contract_case("spatial").stream("default")


def audit_back(audit: HeldOutAudit) -> HeldOutAudit:
    second = HeldOutAudit(AUDITED, 3)
    second.merge = BlockMerge("s", 3, 2)
    second.restore(audit.encode())
    return second


def audit_of(audit: HeldOutAudit) -> Any:
    """All that it has but what is public and read anew: the ledger, and what waits for it."""
    kept = {
        name: value for name, value in vars(audit).items() if name not in ("stream", "evaluator", "merge", "_records")
    }
    return {**kept, "merge": merge_of(audit.merge), "_expiring": list(audit._expiring)}


SIZES = st.lists(whole(1, MAX_VALUES), min_size=1, max_size=MAX_ATTRIBUTES).map(tuple)


@st.composite
def coded(draw: st.DrawFn) -> tuple[RowKeys, list[list[int]], list[int]]:
    keys = RowKeys(draw(SIZES))
    row = st.tuples(*(whole(0, size - 1) for size in keys.sizes)).map(list)
    rows = draw(st.lists(row, min_size=1, max_size=2))
    return keys, rows, draw(st.lists(st.sampled_from([1, -1]), min_size=len(rows), max_size=len(rows)))


def coded_back(row: tuple[RowKeys, list[list[int]], list[int]]) -> Any:
    keys = row[0].pack(np.array(row[1]), np.array(row[2], np.int8))
    return row[0], row[0].codes(keys).tolist(), signs_of(keys).tolist()


def back(encode: Callable[..., Any], decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: decode(encode(value))


def progress_back(next_offset: int) -> int:
    first, second = (PartitionRoute(SPEC, 3) for _ in range(2))
    first.advance(next_offset)
    hop = first.seal()
    assert hop is not None
    second.load([hop.progress.value])
    return second.next_offset


def lockable(said: LockText) -> bool:
    """A lock says a count of steps, an owner's digest, a line of words, and the number of a file."""
    line = bool(said.holder) and "\n" not in said.holder
    return line and min(said.begun, said.inode) >= 0


FORMATS: Sequence[Format] = (
    Format(
        "schemas.wire.encode",
        st.tuples(
            st.sampled_from(wire.Kind),
            st.dictionaries(st.text(max_size=5), JSON, max_size=3),
            st.dictionaries(st.text("az/0", min_size=1, max_size=5), ANY_ARRAY, max_size=3),
        ),
        lambda x: (x[0], *wire.decode(x[0], wire.encode(*x))),
    ),
    Format(
        "schemas.wire.frame",
        st.tuples(st.sampled_from(wire.Kind), st.dictionaries(st.text(max_size=5), JSON, max_size=3), st.binary()),
        lambda x: (x[0], *wire.unframe(x[0], wire.frame(*x))),
    ),
    Format("schemas.blocks.Block.encode", BLOCKS, back(Block.encode, Block.decode)),
    Format("schemas.releases.Seed.encode", record(Seed), back(Seed.encode, decode_log_record)),
    Format("schemas.releases.Chunk.encode", record(Chunk), back(Chunk.encode, decode_log_record)),
    Format(
        "schemas.releases.Candidate.encode",
        candidates(),
        candidate_back,
        of=lambda x: dataclasses.replace(x, state_digest=""),
    ),
    Format(
        "schemas.releases.frame_records",
        st.lists(record(PublicRecord), max_size=5),
        back(frame_records, unframe_records),
    ),
    Format(
        "schemas.events.encode_tick",
        st.builds(Tick, whole(-1, STEP_LIMIT), INTEGERS, st.text(max_size=9), st.none()),
        lambda x: read_tick(encode_tick(x.step, row=x.row, source=x.source)),
    ),
    Format(
        "schemas.events.encode_going_live",
        whole(0, STEP_LIMIT).flatmap(
            lambda live: st.builds(Tick, whole(live, STEP_LIMIT), INTEGERS, st.text(max_size=9), st.just(live))
        ),
        lambda x: read_tick(encode_going_live(x.step, live_from=x.live_from, row=x.row, source=x.source)),
    ),
    Format(
        "agents.protocol.fingerprint.Fingerprint.encode", record(Fingerprint), lambda x: Fingerprint.decode(x.encode())
    ),
    Format(
        "agents.protocol.ingest.dead_letters.DeadLetter.encode",
        record(DeadLetter),
        lambda x: DeadLetter.decode(x.encode()),
    ),
    Format(
        "agents.protocol.ingest.places.Places.encode",
        st.dictionaries(st.text(max_size=9), INTEGERS, max_size=40).map(Places),
        back(Places.encode, Places.decode),
    ),
    Format("agents.protocol.ingest.route.PartitionRoute.seal", whole(1, 2**63 - 1), progress_back),
    Format("agents.protocol.release.json_rows.json_rows", rows(), rows_back),
    Format(
        "agents.protocol.release.step_table.StepTable.arrays",
        st.dictionaries(
            st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=9),
            whole(0, STEP_LIMIT - 1),
            max_size=4,
        ),
        dates_back,
    ),
    Format("agents.protocol.release.merge.BlockMerge.arrays", BLOCKS.map(merged), merge_back, of=merge_of),
    Format("agents.protocol.release.held_out.HeldOutAudit.encode", BLOCKS.map(audited), audit_back, of=audit_of),
    Format(
        "agents.local.library.journal.JournalEntry.encode",
        record(JournalEntry),
        lambda x: JournalEntry.decode(x.encode()),
    ),
    Format(
        "agents.local.library.journal.LockText.encode",
        record(LockText, owner=st.text("0123456789abcdef", min_size=32, max_size=32)).filter(lockable),
        lambda x: LockText.decode(x.encode()),
    ),
    Format("agents.kafka.stop_log.encode", record(Stop), back(stop_log.encode, stop_log.decode)),
    Format(
        "agents.protocol.release.witness.Mark.encode",
        record(Mark),
        lambda x: Mark.decode(x.encode(), stream=x.stream, place="here"),
    ),
    Format("agents.kafka.lifecycle.leaving.Lives.keep", record(Lives), lives_back),
    Format(
        "engines.core.accounting.accountant.Accountant.state",
        ACCOUNTANTS,
        lambda x: x.unspent.restore(travelled(x.state())),
    ),
    Format("engines.tabular.domain.RowKeys.pack", coded(), coded_back),
)


@pytest.mark.parametrize("format_", FORMATS, ids=lambda each: each.writer)
@EASY
@given(data=st.data())
def test_what_is_stored_is_what_is_read(format_: Format, data: st.DataObject) -> None:
    value = data.draw(format_.values)
    assert same(format_.of(format_.back(value)), format_.of(value))


def test_sameness_looks_into_everything() -> None:
    """Or the property above would hold of nothing."""
    left, right = ({"a": [(0, Folded(np.zeros((1, 1), np.uint64), np.array([n])))]} for n in (1, 257))
    assert same(left, left)
    assert not same(left, right)
    assert not same(np.zeros(1, np.int32), np.zeros(1, np.int64))
    assert not same(np.zeros((2, 0)), np.zeros((0, 2)))
    assert not same([1], [1, 2])
    assert not same(1, True)


# --- Bounds on users: their charges in blocks, and their snapshots ------------------------------------------------


def most(key: str) -> int:
    """What the configuration allows of a key of `[streams.privacy]`."""
    field = Privacy.model_fields[key]
    return next(int(each.le) for each in field.metadata if isinstance(each, Le))  # type: ignore[call-overload]


@st.composite
def bound_specs(draw: st.DrawFn) -> BoundSpec:
    most_charges = draw(whole(2, most("max_contributions")))
    trips, pairs = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    return BoundSpec(
        max_contributions=most_charges,
        charge=1 if trips or pairs else draw(st.sampled_from([1, 2])),
        max_per_step=draw(st.none() | whole(1, most_charges)),
        period_steps=draw(st.none() | whole(1, STEP_LIMIT)),
        trip_life=draw(whole(1, MAX_STEPS)) if trips else None,
        pairs=pairs,
        surplus=0 if trips or pairs else draw(st.just(0) | whole(1, most("surplus"))) * most_charges,
    )


USERS = st.lists(st.tuples(whole(0, 2**64 - 1), whole(0, 2**64 - 1)), min_size=1, max_size=3, unique=True)
Charged = dict[tuple[str, int], dict[tuple[int, int], int]]


@st.composite
def charged_rows(draw: st.DrawFn) -> tuple[BoundSpec, np.ndarray, np.ndarray, Charged]:
    """Rows of a block that charge users of one step, and what each table then holds."""
    spec, users, step = draw(bound_specs()), draw(USERS), draw(whole(0, STEP_LIMIT - 1))
    period = 0 if spec.period_steps is None else step // spec.period_steps
    charges: list[int] = []
    rows: list[tuple[int, int, int]] = []
    tables: Charged = {}
    for user in users:
        events = draw(whole(1, max(1, min(spec.max_contributions // spec.charge, spec.max_per_step or 2**62))))
        rows.append((*user, period if spec.max_per_step is None else step))
        charges.append(events * spec.charge)
        tables.setdefault(("period", period), {})[user] = events * spec.charge
        if spec.max_per_step is not None:
            tables.setdefault(("step", step), {})[user] = events
        beside = {
            "trip": (ADMITTED + step, spec.trip_life),
            "pair": (ADMITTED + period, int(spec.pairs)),
            "surplus": (SURPLUS + period, spec.surplus),
        }
        for slot, largest in beside.values():
            if largest:
                rows.append((*user, slot))
                charges.append(draw(whole(1, largest)))
                tables.setdefault(("period", slot), {})[user] = charges[-1]
    return spec, np.array(rows, np.uint64), np.array(charges), tables


def told(bounds: Bounds) -> Charged:
    found: Charged = {}
    for kind, slot, table in bounds.tables():
        parts = [table.bucket(bucket) for bucket in range(BUCKETS)]
        counts = {(a, b): n for users, n_of in parts for (a, b), n in zip(users.tolist(), n_of.tolist(), strict=True)}
        if counts:
            found[kind, slot] = counts
    return found


@settings(max_examples=examples(0.8))
@given(charged=charged_rows())
def test_bounds_are_read_as_they_were_stored(charged: tuple[BoundSpec, np.ndarray, np.ndarray, Charged]) -> None:
    spec, rows_, charges, tables = charged
    block = Block.decode(Block("s", 0, 7, 9, -1, {}, rows_, charges).encode())
    log = BucketLog("s", 0, _bounds_of(spec))
    log.fold(block, at=5)
    assert log.bounds is not None
    assert told(log.bounds) == tables
    restored = BucketLog("s", 0, _bounds_of(spec))
    restored.load([snapshot.value for snapshot in log.write(next_offset=9, budget_bytes=1 << 40)])
    assert restored.bounds is not None
    assert told(restored.bounds) == tables
    assert same(restored.snapshots, log.snapshots)


# --- Nothing is left out ------------------------------------------------------------------------------------------

SNAPSHOTS = "agents.protocol.ingest.snapshots.BucketLog._encode"
NOT_STORED: Mapping[str, str] = {
    "agents.local.library.batches._dumps": "a row of the caller's, in the form of a raw record",
    "agents.local.library.batches._plain": "a cell of it",
    "agents.protocol.fingerprint._flat": "compares fields as JSON would read them",
    "agents.protocol.release.dating.Dating.arrays": "those of its StepTable",
    "agents.protocol.release.step_table.Letters.of": "a part of Run.of",
    "agents.protocol.release.held_out.HeldOutAudit.measure": "a record for operators, which nothing reads back",
    "agents.protocol.release.merge.BlockMerge.progress": "stored with BlockMerge.arrays",
    "agents.protocol.release.json_rows._json_column": "a part of json_rows",
    "agents.protocol.release.record_formats.RecordFormat._head": "public; tests/protocol/test_record_formats.py",
    "agents.protocol.release.record_formats.schema_text": "public; tests/protocol/test_record_formats.py",
    "agents.protocol.userhash.key_id": "a digest, which a fingerprint holds as a text",
    "agents.protocol.userhash.UserHash.__init__": "numbers of its own, from the key",
    "agents.protocol.userhash.UserHash.of_rows": "what is hashed; rows are told apart, as tests/protocol show",
    "agents.protocol.userhash.UserHash._hashes": "the digest of a standard; tests/protocol/test_userhash.py",
    "schemas.blocks.Block.digest": "what a block says; equal for one that was read back, as a test above shows",
    "schemas.ledger.LedgerEntry.encode": "public; tests/schemas/test_ledger.py",
    "agents.protocol.release.public_records.measurement_records": "public; tests/protocol/test_public_records.py",
    "agents.protocol.replay.ReplayPlan.progress": "shown while a replay runs",
    "agents.protocol.replay.place_by_user": "bytes of ids as they came",
    "agents.kafka.batches.ReadBatch.records": "reads a batch of Kafka's protocol",
    "agents.kafka.batches.RecordBatch._build": "Kafka's protocol; tests/agents/test_batches.py",
    "agents.kafka.broker_clock.BrokerClock._ask": "a question for the broker's time; nobody reads its value",
    "agents.kafka.stop_log.keep": "calls stop_log.encode",
    "agents.kafka.stop_log.record": "calls stop_log.encode",
    "agents.kafka.topics.Id.encode": "Kafka's protocol",
    "agents.worker.probes.application": "an answer to a probe",
    "agents.worker.table.DurableTable.records": "tests/protocol/test_state_pieces.py; its body has a digest",
    "schemas.byte_columns.side_by_side": "bytes of rows that are there already",
    "schemas.releases.Frames.__iter__": "reads frames",
    "schemas.releases.frame_column": "writes what frame_records does; tests/schemas/test_wire.py",
    "schemas.releases.StatePart.of": "a part of Candidate.encode; tests/protocol/test_state_pieces.py",
    "schemas.releases.link": "hashed",
    "schemas.releases.sha256": "hashed",
    "schemas.steps.CalendarSteps.digest": "hashed",
    "schemas.config.engines.keys._text": "a value of a public list, which a fingerprint compares",
    "schemas.config.mapping.MapFunctions._func_to_string": "text within an expression",
    "schemas.config.engines.spatial.named_features": "a part of a file of the configuration",
    "schemas.config.engines.tabular._text": "shown",
    "schemas.config.values.Section._in_words": "shown",
}
"""What packs bytes that are no format of ours, and what it does instead."""
PACKS = frozenset({"dumps", "tobytes", "to_bytes"})
NAMED = ("encode", "_encode", "frame_", "packed", "pack", "json_rows")
STORING = (
    "agents/protocol",
    "agents/local/library",
    "agents/kafka",
    "agents/worker",
    "agents/kafka/lifecycle",
    "schemas",
)


def functions(tree: ast.AST, name: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{name}.{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}.{node.name}", node


def writers() -> set[str]:
    """Functions that pack bytes, or are named as if they did."""
    found = set()
    for folder in STORING:
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
            for name, node in functions(ast.parse(path.read_text()), module):
                own = name.rpartition(".")[2]
                called = {call.func for call in ast.walk(node) if isinstance(call, ast.Call)}
                packs = any(isinstance(func, ast.Attribute) and func.attr in PACKS for func in called)
                packs |= any(isinstance(func, ast.Name) and func.id == "encode" for func in called)
                state = own in ("arrays", "state", "progress") and folder.startswith("agents")
                if (packs and not own.startswith(("decode", "restore"))) or own.startswith(NAMED) or state:
                    found.add(name)
    return found


def test_whatever_packs_bytes_is_a_format_or_says_what_it_is() -> None:
    stored = {each.writer for each in FORMATS} | {SNAPSHOTS}
    elsewhere = {name for name in stored if name.startswith("engines.")}
    assert writers() == stored - elsewhere | NOT_STORED.keys()


NARROW: Mapping[str, str] = {
    "agents.protocol.ingest.snapshots": "narrowed",
    "agents.protocol.ingest.user_table": "places in a segment; counts are checked by `FoundUsers.write`",
    "agents.protocol.partitioner": "hashes of 32 bits, as Kafka's clients compute them",
    "agents.protocol.release.step_table": "narrowed; numbers of ids below the product that `Letters.kind` takes",
    "schemas.arrays": "distances below `_DENSE_SPAN`",
    "schemas.releases": "narrowed sizes of keys and values",
    "engines.tabular.records": "narrowed codes, of attributes with MAX_VALUES at most",
}
"""Modules that name types of two or four bytes, and why what they hold fits."""
DRAWN = ("agents.show.pictures", "agents.readers.watch")
"""What these make is seen, not read back."""


FEW_BYTES = re.compile(r"u?int(16|32)|float(16|32)|[<>=|]?[iuf][24]")


def is_narrow(node: ast.AST) -> bool:
    """Whether it names a type of two or four bytes."""
    name = node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else None
    return isinstance(name, str) and FEW_BYTES.fullmatch(name) is not None


def test_types_of_few_bytes_hold_all_that_the_configuration_allows() -> None:
    found = set()
    for folder in ("agents", "engines", "schemas"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            if not module.startswith(DRAWN) and any(map(is_narrow, ast.walk(ast.parse(path.read_text())))):
                found.add(module)
    assert found == NARROW.keys()
    assert np.iinfo(np.int32).max >= STEP_LIMIT - 1
    assert np.iinfo(np.int16).max >= MAX_VALUES - 1
    assert np.iinfo(np.int32).max >= 4 * SEGMENT_USERS
    assert most("max_contributions") * most("surplus") <= np.iinfo(np.uint32).max
    assert max(most("max_per_step"), most("max_contributions")) <= np.iinfo(np.uint32).max
    assert MAX_STEPS <= MAX_LIFE
    assert STEP_LIMIT <= ADMITTED < ADMITTED + STEP_LIMIT <= SURPLUS
    assert max(Reason) <= np.iinfo(np.uint8).max


def test_a_number_that_does_not_fit_is_not_stored() -> None:
    for wide in (-1, 2**16, 2**32 + 1):
        with pytest.raises(OverflowError, match="stored as another one"):
            narrowed(np.array([3, wide]), np.uint16)
    for header in ({"a": float("nan")}, {"a": (1,)}, {"a": Fraction(1, 3)}):
        with pytest.raises((TypeError, ValueError)):
            wire.encode(wire.Kind.STATE, header, {})
    with pytest.raises(EngineInputError, match="NUL"):
        dates_back({"a\0": 1})
    with pytest.raises(OverflowError, match="stored as another one"):
        dates_back({"a": STEP_LIMIT})
