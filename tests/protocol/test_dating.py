"""Which step a record stands for: mass that is moved keeps its time, what is new has that of its measurement."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zstandard import frame_content_size

from agents.local.job import LocalIngest, planned
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release import step_table
from agents.protocol.release.dating import Dating, dated, fixed_width
from agents.protocol.release.step_table import StepTable
from agents.protocol.release.stepper import Stepper
from engines.core.contract import Release, SyntheticRecord
from engines.core.many_records import parts_of
from engines.core.registry import build_domain
from schemas import wire
from schemas.blocks import Block
from schemas.config import ConfigError, Stream, parse_config
from schemas.errors import EncodedSizeError, EngineInputError
from schemas.releases import STEP_LIMIT, Candidate, StatePart, pieces_of, unframe_records
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


def state(table: StepTable | Dating) -> list[bytes]:
    return [wire.encode(wire.Kind.STATE, {}, table.arrays()), *(part.body for part in table.kept())]


def restored(table: StepTable) -> StepTable:
    second = StepTable()
    second.restore(table.arrays(), [StatePart(pieces_of(part.body)) for part in table.kept()])
    return second


def table_of(steps: Mapping[str, int]) -> StepTable:
    table = StepTable()
    table.add(fixed_width(steps), np.array([*steps.values()], np.int64))
    return table


@settings(max_examples=examples(0.6))
@given(st.data(), st.sampled_from([6, 40, step_table.MOST]))
def test_the_table_is_a_dict_and_of_equal_bytes_after_every_restart(data: st.DataObject, most: int) -> None:
    """Every step withdraws some and adds some, to a table that goes on and to one that is restored each time."""
    model: dict[str, int] = {}
    tables = [StepTable(), StepTable()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_table, "MOST", most)
        for _ in range(data.draw(st.integers(1, 9))):
            gone = [name for name in data.draw(st.permutations(sorted(model))) if data.draw(st.booleans())]
            expected = [model.pop(name) for name in gone]
            assert [table.pop(fixed_width(gone)).tolist() for table in tables] == [expected] * 2
            drawn = data.draw(st.dictionaries(NAMES, st.integers(0, STEP_LIMIT - 1)))
            new = {name: step for name, step in drawn.items() if name not in model}
            for table in tables:
                table.add(fixed_width(new), np.array([*new.values()], np.int64))
            model |= new
            assert state(tables[0]) == state(tables[1])
            tables[1] = restored(tables[1])
            assert state(tables[0]) == state(tables[1])
    assert len(tables[0]) == len(tables[1]) == len(model)
    assert [table.pop(fixed_width(model)).tolist() for table in tables] == [[*model.values()]] * 2
    for table in tables:
        table.add(fixed_width([]), np.zeros(0, np.int64))
        assert table.kept() == ()


@given(st.lists(NAMES, unique=True), st.lists(NAMES, unique=True))
def test_letters_number_ids_in_their_order(mine: list[str], others: list[str]) -> None:
    ids, asked = np.sort(fixed_width(mine)), fixed_width([*mine, *others])
    letters = step_table.Letters.of(ids)
    numbers, there = letters.numbers(ids)
    assert there.all()
    assert (numbers[1:] > numbers[:-1]).all()
    assert letters.ids(numbers).tolist() == ids.tolist()
    found, there = letters.numbers(asked)
    assert there[: len(mine)].all()
    assert letters.ids(found[there]).tolist() == asked[there].tolist()
    both = letters | step_table.Letters.of(asked)
    assert both.ids(letters.renumbered(numbers, both)).tolist() == ids.tolist()


def test_ids_of_any_bytes_are_their_own_numbers() -> None:
    """More of them are possible than whole numbers of 64 bits."""
    chance = random.Random(0)
    names = [bytes(chance.choices(range(1, 256), k=chance.choice([20, 21]))).decode("latin-1") for _ in range(300)]
    table = table_of({name: at for at, name in enumerate(names)})
    table.add(fixed_width(["a"]), np.array([7]))
    assert table.pop(fixed_width(names[:100])).tolist() == [*range(100)]
    table.add(fixed_width([]), np.zeros(0, np.int64))
    second = restored(table)
    assert state(second) == state(table)
    assert second.pop(fixed_width([*names[100:], "a"])).tolist() == [*range(100, 300), 7]


@pytest.mark.parametrize("alive", [{}, {"b": 3}, {"a": 1, "bc": 2, "c": 3}])
def test_what_breaks_the_contract_is_refused(alive: dict[str, int]) -> None:
    for gone in (["x"], ["bb"], ["b", "bcd"], [*alive, *alive][: 2 * len(alive)] or [""]):
        table = table_of(alive)
        with pytest.raises(EngineInputError, match="withdrew"):
            table.pop(fixed_width(gone))
        assert state(table) == state(table_of(alive))
        assert len(table) == len(alive)
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
        second.restore(first.arrays(), first.kept())


def test_a_record_alive_takes_five_bytes_and_under_two_in_a_state() -> None:
    """With ids that come as those of engine `spatial` do."""
    count = 20_000
    table = table_of({f"{place // 16:05x}-{place % 16:x}": place % 50 for place in range(count)})
    (run,) = table._runs.values()
    assert run.numbers.nbytes + run.steps.nbytes == count * (4 + 1)
    assert run.part.size < 2 * count


class Counted:
    """A table of which all records but few are there from the beginning, and what its steps wrote."""

    def __init__(self, alive: int) -> None:
        self.table, self.alive, self.written, self.encoded = StepTable(), alive, list[int](), 0
        self.table.add(self._names(range(alive)), np.zeros(alive, np.int64))
        self._known = set(self.table.kept())

    @staticmethod
    def _names(names: Iterable[int]) -> npt.NDArray[np.bytes_]:
        return fixed_width(f"{name:08x}" for name in names)

    def step(self, gone: Iterable[int], added: Iterable[int], step: int) -> None:
        self.table.pop(self._names(gone))
        new = self._names(added)
        self.table.add(new, np.full(len(new), step))
        kept = self.table.kept()
        fresh = [run.entries for run in self.table._runs.values() if run.part not in self._known]
        self.written.append(sum(fresh))
        self._known = set(kept)


def test_what_is_written_follows_from_the_changes_and_not_from_what_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 40 changes a step to 2,000 records and to 64,000: the same, and each change five times at most."""
    monkeypatch.setattr(step_table, "MOST", 2_000)
    changes, steps, found = 20, 120, list[list[int]]()
    for alive in (2_000, 64_000):
        counted, chance = Counted(alive), random.Random(1)
        old = chance.sample(range(2_000), changes * steps // 4)
        for step in range(steps):
            some = range(alive + changes * step, alive + changes * (step + 1))
            gone = [*old[step * changes // 4 : (step + 1) * changes // 4], *some[: changes // 4]]
            counted.step(
                [name - changes if name >= alive + changes else name for name in gone if name < alive], some, step
            )
        assert len(counted.table) == alive + changes * steps - len(old)
        assert len(counted.table._runs) < 20
        found.append(counted.written)
    small, large = map(sum, found)
    assert large <= 5 * steps * (changes + changes // 4)
    assert max(found[1]) <= 2_000 + 2 * changes
    # Of few records the first run is half gone in the end, and is written anew.
    assert large <= small <= large + 2_000


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
    undated = run(stream(RELEASED), made)[-1]
    assert not undated.kept
    assert not any(name.startswith("dating/") for name in undated.arrays or {})


def test_more_records_than_can_be_read_back_are_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream stops behind an answer that everybody can read, and a restart comes as far and stops again."""
    made = blocks(stream(), 9)
    whole = run(stream(), made)
    sizes = []
    for release, state in (each.encode() for each in whole):
        sizes.append(max(frame_content_size(body[5:]) for body in (release, *(part.body for part in state.parts))))
    last = sizes.index(max(sizes)) - 1
    monkeypatch.setattr(wire, "MAX_DECODED_BYTES", max(sizes) - 1)
    stepper = Stepper.from_stream(stream(), 1)
    stepper.restore(Candidate.decode(*whole[last].encode()))
    for offset, block in enumerate(made):
        stepper.fold(offset, block)
    with pytest.raises(EncodedSizeError, match="record would have"):
        stepper.compute(bytes([last + 1]) * 32).encode()


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
