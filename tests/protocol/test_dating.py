"""Which step a record stands for: mass that is moved keeps its time, what is new has that of its measurement."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zstandard import frame_content_size

from agents.local.job import LocalIngest, planned
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.dating import Dating, StepTable, dated, fixed_width
from agents.protocol.release.stepper import Stepper
from engines.core.contract import Release, SyntheticRecord
from engines.core.many_records import parts_of
from engines.core.registry import build_domain
from schemas import wire
from schemas.blocks import Block
from schemas.config import ConfigError, Stream, parse_config
from schemas.errors import EncodedSizeError, EngineInputError
from schemas.releases import STEP_LIMIT, Candidate, split_into_parts, unframe_records
from tests.examples import examples

BOUNDS = "bounds = [0, 0, 1, 1]"
TABLE = 'kind = "table"\nattributes = [{ field = "a", values = ["x", "y"] }]\n'
DATED = ('clock = "replay"', 'clock = "replay"\nrecords = "dated"')
RELEASED = ('clock = "replay"', 'clock = "replay"\nrecords = "released"')
TEXT = """
[job]
name = "job"
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "ev"
engine = "spatial"
source = "raw"
[streams.privacy]
epsilon = 4.0
unit = "event"
[streams.time]
field = "at"
timezone = "America/New_York"
start = "2024-03-08"
step = "1 day"
clock = "replay"
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0, 0, 1, 1]
"""


@given(
    st.lists(st.integers(0, 20), max_size=30),
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(-1, 19), st.floats(-5, 50)), max_size=4),
)
def test_moved_mass_keeps_its_time(withdrawn: list[int], added: int, spans: list[tuple[int, float]]) -> None:
    steps = dated(withdrawn, added, now=20, spans=spans).tolist()
    assert len(steps) == added
    before, after = Counter(withdrawn), Counter(steps)
    if added <= len(withdrawn):
        # Nothing is new, and what is lost is the newest.
        assert after <= before
        assert sorted(steps) == sorted(withdrawn)[:added]
        return
    assert before <= after
    fresh = after - before
    weighty = [since for since, weight in spans if weight > 0]
    assert all((min(weighty) if weighty else 19) < step <= 20 for step in fresh)


@given(st.integers(1, 500), st.integers(1, 40))
def test_what_is_new_is_even_over_its_steps(count: int, steps: int) -> None:
    found = Counter(dated([], count, now=steps - 1, spans=[(-1, 3.0)]).tolist())
    assert max(found.values()) - min(found.get(step, 0) for step in range(steps)) <= 1


def test_the_order_of_places_is_kept() -> None:
    """Records come cell by cell: moved ones stand for what was withdrawn near them, new ones are everywhere."""
    steps = dated(list(range(100)), 200, now=1000, spans=[])
    old = steps[steps < 1000]
    assert old.tolist() == list(range(100))
    assert max(np.diff(np.flatnonzero(steps == 1000))) <= 2
    halves = np.split(dated([], 1000, now=9, spans=[(-1, 1.0)]), 2)
    assert abs(halves[0].mean() - halves[1].mean()) < 0.5


def release(step: int, added: list[str], removed: list[str]) -> Release:
    return Release(step, [SyntheticRecord(name, {}) for name in added], removed, (), 0)


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6) | st.text(
    "ab", max_size=3
)


def state(table: StepTable | Dating) -> bytes:
    return wire.encode(wire.Kind.STATE, {}, table.arrays())


def table_of(steps: Mapping[str, int]) -> StepTable:
    table = StepTable()
    table.add(fixed_width(steps), np.array([*steps.values()], np.int64))
    return table


@settings(max_examples=examples(0.6))
@given(st.data())
def test_the_table_is_a_dict_and_of_equal_bytes_after_every_restart(data: st.DataObject) -> None:
    """Every step withdraws some and adds some, to a table that goes on and to one that is restored each time."""
    model: dict[str, int] = {}
    tables = [StepTable(), StepTable()]
    for _ in range(data.draw(st.integers(1, 4))):
        gone = [name for name in data.draw(st.permutations(sorted(model))) if data.draw(st.booleans())]
        expected = [model.pop(name) for name in gone]
        for table in tables:
            table.begin_step()
        assert [table.pop(fixed_width(gone)).tolist() for table in tables] == [expected] * 2
        drawn = data.draw(st.dictionaries(NAMES, st.integers(0, STEP_LIMIT - 1)))
        new = {name: step for name, step in drawn.items() if name not in model}
        tables[0].add(fixed_width(new), np.array([*new.values()], np.int64))
        for name, step in reversed(new.items()):
            tables[1].add(fixed_width([name]), np.array([step]))
        model |= new
        assert state(tables[0]) == state(tables[1])
        saved = wire.decode(wire.Kind.STATE, state(tables[1]))[1]
        tables[1] = StepTable()
        tables[1].restore(saved)
    assert len(tables[0]) == len(tables[1]) == len(model)
    assert [table.pop(fixed_width(model)).tolist() for table in tables] == [[*model.values()]] * 2


@pytest.mark.parametrize("alive", [{}, {"b": 3}, {"a": 1, "bc": 2, "c": 3}])
def test_what_breaks_the_contract_is_refused(alive: dict[str, int]) -> None:
    for gone in (["x"], ["bb"], ["b", "bcd"], [*alive, *alive][: 2 * len(alive)] or [""]):
        table = table_of(alive)
        with pytest.raises(EngineInputError, match="withdrew"):
            table.pop(fixed_width(gone))
        assert state(table) == state(table_of(alive))
    for new in (["z", "z"], [*alive, "z"] if alive else ["", ""]):
        with pytest.raises(EngineInputError, match="added"):
            table_of(alive).add(fixed_width(new), np.zeros(len(new), np.int64))
    with pytest.raises(EngineInputError, match="NUL"):
        fixed_width(["a", "a\0"])
    with pytest.raises(OverflowError):
        table_of({"a": STEP_LIMIT})


def test_a_restart_goes_on() -> None:
    first, second = Dating(), Dating()
    for step, (added, removed, steps) in enumerate(
        [(["a", "b"], [], [0, 0]), (["c", "e"], ["a"], [0, 1]), (["d"], ["e", "c"], [0]), ([], ["b", "d"], [])]
    ):
        given_ = release(step, added, removed)
        for each in (first, second):
            steps_of = each.take(given_)
            assert [step for part in parts_of(given_.added) for step in steps_of(part)] == steps
        assert state(first) == state(second)
        second = Dating()
        second.restore(first.arrays())


def test_a_record_alive_takes_the_bytes_of_its_id_and_step() -> None:
    """And saved, with ids that come as those of engine `spatial` do, under two."""
    count = 20_000
    table = table_of({f"{place // 16:05x}-{place % 16:x}": place % 50 for place in range(count)})
    assert sum(table.arrays()[f"dating/{name}"].nbytes for name in ("ids", "steps")) == count * (len("00000-0") + 4)
    assert len(state(table)) < 2 * count
    table.begin_step()
    assert len(table.arrays()["dating/old"]) < 2 * count


def test_what_is_written_at_a_step_grows_with_the_root_of_the_records() -> None:
    """With 400 changes a step to 40,000 records: 40,000 at each step without the old table, 12,000 if that stayed."""
    alive, changes, steps = 40_000, 400, 59
    table, written, before = StepTable(), 0, b""
    table.add(fixed_width(f"{name:08x}" for name in range(alive)), np.zeros(alive, np.int64))
    for step in range(steps):
        table.begin_step()
        names = range(changes // 2 * step, changes // 2 * (step + 1))
        table.pop(fixed_width(f"{name:08x}" for name in names))
        table.add(fixed_width(f"{alive + name:08x}" for name in names), np.full(len(names), step))
        arrays = table.arrays()
        changed = [arrays[f"dating/{name}"].shape[1] for name in ("gone", "ids")]
        written += sum(changed)
        if (old := arrays["dating/old"].tobytes()) != before:
            written, before = written + len(table) + changed[0] - changed[1], old
    assert len(table) == alive
    assert written / steps < 1.2 * (2 * changes * alive) ** 0.5


def stream(*changes: tuple[str, str]) -> Stream:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_config(text).streams[0]


def rows(days: int) -> list[dict[str, object]]:
    """Many in one corner, day by day; from the tenth on few, and elsewhere, while clocks go forward on the third."""
    chance = random.Random(3)
    found: list[dict[str, object]] = []
    for day in range(days):
        at = datetime(2024, 3, 8, 0, 30) + timedelta(days=day)
        low = 0.0 if day < 10 else 0.5
        found += [
            {"at": at.isoformat(), "x": low + chance.random() / 2, "y": low + chance.random() / 2}
            for _ in range(400 if day < 10 else 15)
        ]
    return found


def blocks(stream: Stream, days: int) -> list[Block]:
    ingest = LocalIngest(SourceSpec.from_stream(stream, build_domain(stream), key=None, partitions=1))
    taken = (ingest.take_planned(records)[0] for records, _ in planned(stream, [rows(days)], source=""))
    return [block for block in taken if block is not None]


def run(stream: Stream, found: list[Block], *, restart: int = -1) -> list[Candidate]:
    stepper = Stepper.from_stream(stream, 1)
    for offset, block in enumerate(found):
        stepper.fold(offset, block)
    candidates = []
    while stepper.closable:
        candidates.append(stepper.compute(bytes([stepper.step]) * 32))
        if stepper.step - 1 == restart:
            stepper = Stepper.from_stream(stream, 1)
            stepper.restore(Candidate.decode(*candidates[-1].encode()))
            for offset, block in enumerate(found):
                stepper.fold(offset, block)
    return candidates


def alive(candidates: list[Candidate]) -> list[dict[str, object]]:
    found: dict[bytes, dict[str, object]] = {}
    for candidate in candidates:
        for record in unframe_records(candidate.payload):
            if record.channel == "synthetic" and record.value is None:
                del found[record.key]
            elif record.channel == "synthetic":
                assert record.value is not None
                found[record.key] = orjson.loads(record.value)
    return list(found.values())


def days_of(records: list[dict[str, object]]) -> Counter[str]:
    return Counter(str(record["at"])[:10] for record in records)


def test_rows_can_be_counted_by_their_time() -> None:
    made = blocks(stream(), 26)
    candidates = run(stream(), made)
    dated_ = alive(candidates)
    early = sum(count for day, count in days_of(dated_).items() if day < "2024-03-18")
    # True: 4,000 of 4,240 in the first ten days.
    assert 0.9 < early / len(dated_) < 0.98
    assert {str(record["at"])[10:] for record in dated_} == {"T00:00:00-05:00", "T00:00:00-04:00"}
    plain = alive(run(stream(RELEASED), made))
    late = sum(count for day, count in days_of(plain).items() if day >= "2024-03-18")
    # True: 240. Mass that was moved bears the day of the move.
    assert late / len(plain) > 1.5 * 240 / 4_240
    # Nothing else differs.
    assert [{**record, "at": 0} for record in plain] == [{**record, "at": 0} for record in dated_]


def test_a_crash_dates_no_record_anew() -> None:
    made = blocks(stream(), 9)
    whole = run(stream(), made)
    assert [each.payload for each in run(stream(), made, restart=4)] == [each.payload for each in whole]
    assert [each.chain for each in run(stream(), made, restart=6)] == [each.chain for each in whole]
    assert not any(name.startswith("dating/") for name in run(stream(RELEASED), made)[0].arrays or {})


def test_more_records_than_can_be_read_back_are_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream stops behind an answer that everybody can read, and a restart comes as far and stops again."""
    made = blocks(stream(), 9)
    whole = run(stream(), made)
    sizes = [max(frame_content_size(part[5:]) for part in split_into_parts(each.encode().state)) for each in whole]
    monkeypatch.setattr(wire, "MAX_DECODED_BYTES", sizes[4])
    assert max(sizes[:5]) == sizes[4] < sizes[5]
    stepper = Stepper.from_stream(stream(), 1)
    stepper.restore(Candidate.decode(*whole[4].encode()))
    for offset, block in enumerate(made):
        stepper.fold(offset, block)
    with pytest.raises(EncodedSizeError, match="a STATE_PART record would have"):
        stepper.compute(bytes([5]) * 32).encode()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (BOUNDS, BOUNDS + '\nttl = "30 days"', "with ttl records stand for the events alive now"),
        (BOUNDS, BOUNDS + '\nop = "action"', "with op records stand for"),
        ('"dated"', '"exact"', "not one of"),
    ],
)
def test_what_cannot_be_dated_is_refused(old: str, new: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        stream(DATED, (old, new))


@pytest.mark.parametrize("gone", ['ttl = "30 days"', 'op = "action"'])
def test_what_cannot_be_dated_is_not(gone: str) -> None:
    made = stream((BOUNDS, f"{BOUNDS}\n{gone}"))
    assert made.record_times == "released"
    assert Stepper.from_stream(made, 1)._dating is None
    assert made.fingerprint_fields() == stream((BOUNDS, f"{BOUNDS}\n{gone}"), RELEASED).fingerprint_fields()


def test_records_of_one_step_say_it_anyhow() -> None:
    text = (
        TEXT[: TEXT.index("[streams.domain]")]
        .replace('"spatial"', '"series"')
        .replace("epsilon = 4.0", "epsilon = 4.0\ndelta = 1e-6")
    )
    text += '[streams.domain]\nkind = "series"\nfields = [{ name = "v", of = "count" }]\n'
    (made,) = parse_config(text).streams
    assert made.record_times is None
    assert "records" not in made.fingerprint_fields()["time"]
    for old, new in (DATED, RELEASED):
        with pytest.raises(ConfigError, match="always dates its records"):
            parse_config(text.replace(old, new))


@pytest.mark.parametrize(("engine", "said"), [("spatial", DATED), ("tabular", DATED), ("spatial", RELEASED)])
def test_the_fingerprint_has_what_is_meant_and_not_whether_it_was_said(engine: str, said: tuple[str, str]) -> None:
    other = () if engine == "spatial" else (('"spatial"', '"tabular"'), (TEXT[TEXT.index("kind =") :], TABLE))
    default, stated = stream(*other), stream(*other, said)
    assert default.fingerprint_fields()["time"]["records"] == "dated"
    pinned = said[1].partition('records = "')[2].rstrip('"')
    assert stated.fingerprint_fields()["time"]["records"] == pinned
    assert (default.fingerprint_fields() == stated.fingerprint_fields()) == (pinned == "dated")
    assert stated.fingerprint_from("2024-03-08")["time"].keys() >= {"records", "begins"}
