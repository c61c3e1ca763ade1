"""The ledger is verified from public records alone, and whatever does not fit is found: each fault is planted once."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.release.json_rows import json_rows
from agents.protocol.release.public_records import framed_release, ledger_entry
from agents.readers.watch import public as module
from agents.readers.watch.public import StreamSeen
from agents.show.pictures import Picture, PointPicture, SeriesPicture, StatePicture, TripPicture
from agents.show.view import view_of
from engines.core.contract import Release, SyntheticRecord
from engines.core.many_records import RecordColumns
from schemas.config import Stream
from schemas.config.load import config_from_mapping
from schemas.guarantee import Guarantee, Mechanism
from schemas.releases import GENESIS, PublicRecord, frame_records, link, sha256, unframe_records
from tests.kafka.support import stream_table

EPSILON = Fraction(1, 3)
GUARANTEE = Guarantee(
    epsilon=EPSILON,
    mechanisms=(
        Mechanism(name="counts", distribution="discrete Laplace", l1_sensitivity=1, scale=Fraction(3), epsilon=EPSILON),
    ),
)
HOUR_US = 3_600_000_000


def stream(tmp: str = "unused", **overrides: object) -> Stream:
    table = stream_table("taxi", **{"privacy": {"epsilon": 1.0, "unit": "event"}, **overrides})
    return config_from_mapping(
        {"job": {"name": "j", "data_dir": tmp}, "kafka": {"bootstrap": "localhost:1"}, "streams": [table]}
    ).streams[0]


STREAM = stream()
Published = list[tuple[list[PublicRecord], bytes]]


def published(steps: int, *, fewer: int = 0) -> Published:
    """Records and ledger entry of steps that each add three points, withdraw one, and measure one count."""
    chain, made = GENESIS, []
    for step in range(steps):
        removed = [f"{step - 1}.0"] if step else []
        added = [SyntheticRecord(f"{step}.{at}", {"x": at / 4, "y": 0.5}) for at in range(3)]
        total = 3 * (step + 1) - step
        release = Release(step, added, removed, [{"count": step, "variance": 2.0}], total, gathered=False)

        def steps_of(part: RecordColumns, at: int = step) -> list[int]:
            return [at] * len(part.ids)

        framed = framed_release(release, time_field="at", steps_of=steps_of, time_of=int, rows=json_rows)
        records, digest = unframe_records(framed), sha256(framed)
        words, chain = ledger_entry(
            release, STREAM, GUARANTEE, spent=EPSILON, start_us=step * HOUR_US, end_us=(step + 1) * HOUR_US,
            digest=digest, previous_chain=chain, draw="00" * 16,
        )  # fmt: skip
        made.append((records, words))
    return made


OPEN: list[StreamSeen] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def seen(picture: Any = None) -> StreamSeen:
    """Closed behind the test."""
    return seen_of(STREAM, picture or PointPicture("x", "y", (0.0, 0.0, 1.0, 1.0)))


def seen_of(stream: Stream, picture: Any) -> StreamSeen:
    OPEN.append(StreamSeen(stream, picture))
    return OPEN[-1]


def feed(one: StreamSeen, step: int, records: list[PublicRecord], words: bytes) -> None:
    for record in records:
        one.take(record.channel, step, record.key, record.value)
    one.take("ledger", step, b"%d" % step, words)


def verdicts(one: StreamSeen) -> list[str]:
    return [row[9] for row in one.rows(-1)]


def test_what_was_published_is_verified_step_by_step_and_shown() -> None:
    one = seen()
    for step, (records, words) in enumerate(published(4)):
        feed(one, step, records, words)
        assert one.settle(now=100.0 + step)
        assert one.step == step
    summary = one.summary()
    assert summary["verdicts"] == {"verified": 4}
    assert (summary["chain_broken_at"], summary["twice"], summary["unreadable"]) == (None, None, 0)
    assert (summary["records"], summary["picture"]["shown"], summary["read_at"]) == (9, 9, 103.0)
    assert summary["mechanisms"][0]["name"] == "counts"
    assert summary["epsilon"] == pytest.approx(1 / 3)
    assert all(row[8] for row in one.rows(-1))
    assert [row[0] for row in one.rows(1)] == [2, 3]


@given(st.data())
def test_topics_may_be_shown_in_any_order_and_a_step_is_settled_once_it_is_whole(data: st.DataObject) -> None:
    """As partitions are: each in its own order, one against the others in any."""
    queues: dict[str, list[tuple[int, PublicRecord]]] = {"synthetic": [], "measurements": [], "ledger": []}
    steps = published(3)
    for step, (records, words) in enumerate(steps):
        for record in records:
            queues[record.channel].append((step, record))
        queues["ledger"].append((step, PublicRecord("ledger", b"%d" % step, words)))
    one = seen()
    while any(queues.values()):
        channel = data.draw(st.sampled_from(sorted(name for name, queue in queues.items() if queue)))
        step, record = queues[channel].pop(0)
        one.take(record.channel, step, record.key, record.value)
        one.settle(now=0.0)
        assert "differs" not in verdicts(one)
    assert verdicts(one) == ["verified"] * 3
    assert one.open is None


def test_a_byte_that_is_not_the_published_one_is_found() -> None:
    for channel in ("synthetic", "measurements"):
        one = seen()
        for step, (records, words) in enumerate(published(3)):
            if step == 1:
                at = next(at for at, each in enumerate(records) if each.channel == channel and each.value)
                value = records[at].value or b""
                records[at] = PublicRecord(records[at].channel, records[at].key, value.replace(b"1", b"2"))
                assert records[at].value != value
            feed(one, step, records, words)
        one.settle(now=0.0, upto=2)
        assert verdicts(one) == ["verified", "differs", "verified"]


def test_a_record_too_many_is_found_and_one_that_compaction_took_is_told_apart() -> None:
    (first, words0), (second, words1) = published(2)
    twice, fewer = seen(), seen()
    feed(twice, 0, [*first[:3], PublicRecord("synthetic", b"0.7", first[2].value), *first[3:]], words0)
    twice.settle(now=0.0, upto=0)
    assert verdicts(twice) == ["differs"]
    feed(fewer, 0, first[1:], words0)
    feed(fewer, 1, second, words1)
    fewer.settle(now=0.0, upto=1)
    assert verdicts(fewer) == ["compacted", "verified"]


def test_a_record_that_comes_after_its_step_was_whole_is_found() -> None:
    one = seen()
    for step, (records, words) in enumerate(published(2)):
        feed(one, step, records, words)
    one.settle(now=0.0)
    assert one.summary()["beyond"] is None
    one.take("synthetic", 1, b"1.0", b"{}")
    assert one.summary()["beyond"] == 1


def test_a_record_behind_those_of_a_later_step_is_found_also_before_the_ledger_is_known() -> None:
    """As after a restart of the page: compaction took step 0, and a forged record of it stands behind step 1."""
    (_, words0), (second, words1) = published(2)
    for channel in ("synthetic", "measurements"):
        one = seen()
        for record in second:
            one.take(record.channel, 1, record.key, record.value)
        assert one.summary()["beyond"] is None
        one.take(channel, 0, b"0.1", b'{"x": 0.9, "y": 0.9}')
        for step, words in enumerate((words0, words1)):
            one.take("ledger", step, b"%d" % step, words)
        one.settle(now=0.0, upto=1)
        assert one.summary()["beyond"] == 0


LAST = 2**31 - 1


@pytest.mark.parametrize("step", [-(10**30), -1, LAST + 1, 10**30])
def test_a_step_that_is_none_is_counted_and_moves_nothing(step: int) -> None:
    one = seen()
    one.take("synthetic", step, b"k", b'{"x": 0.5, "y": 0.5}')
    for number, (records, words) in enumerate(published(2)):
        feed(one, number, records, words)
    one.settle(now=0.0, upto=1)
    summary = one.summary()
    orjson.dumps(summary)
    assert (summary["unreadable"], summary["beyond"], summary["verdicts"]) == (1, None, {"verified": 2})


@pytest.mark.parametrize("x", ["1e308", "-1e300", '"nan"', '"inf"', "1" + "0" * 400, "[]", "null"])
@pytest.mark.parametrize("kind", ["points", "trips"])
def test_a_place_that_is_nowhere_is_counted_and_stops_no_picture(x: str, kind: str) -> None:
    box = (0.0, 0.0, 1.0, 1.0)
    picture = PointPicture("x", "y", box) if kind == "points" else TripPicture("trip", "at", "x", "y", box)
    one = seen(picture)
    value = b'{"trip": "t", "at": 0, "x": %s, "y": 0.5}' % x.encode()
    one.take("synthetic", 0, b"k", value)
    one.take("synthetic", LAST, b"l", b'{"trip": "u", "at": 0, "x": 0.5, "y": 0.5}')
    ((_, words),) = published(1)
    one.take("ledger", 0, b"0", words)
    one.settle(now=0.0, upto=0)
    assert one.summary()["unreadable"] == 1
    assert b"Infinity" not in one.picture.body({})


def test_a_step_told_in_a_record_is_one_that_json_can_say() -> None:
    series, states = SeriesPicture(["v"]), StatePicture("s", ["a"])
    for picture in (series, states):
        for step in (2**63, 10**30, -1):
            with pytest.raises(ValueError, match="no step"):
                picture.add(0, "k", {"step": step, "v": 1, "s": "a", "count": 1})
        picture.body({})


@pytest.mark.parametrize(
    "planted",
    [
        {"guarantee": "x"},
        {"guarantee": {"mechanisms": 5}},
        {"guarantee": {"mechanisms": [1]}},
        {"guarantee": {"delta": "x"}},
        {"guarantee": {"note": {}}},
        {"notes": 5},
        {"end": "zzz"},
        {"end": "9999-12-31"},
        {"epsilon": "much"},
        {"epsilon_spent": -1},
        {"epsilon_per_us": "x"},
        {"synthetic_records": "7"},
        {"added": 1.5},
        {"step": 10**18},
        {"step": True},
        {"digest": "00"},
    ],
    ids=str,
)
def test_an_entry_with_words_of_another_kind_is_counted_and_the_page_goes_on(planted: dict[str, object]) -> None:
    one = seen()
    (records, words), (second, words1) = published(2)
    told = {**orjson.loads(words), **planted}
    told["chain"] = link(GENESIS, stream="taxi", step=0, digest="00" * 32, ledger=orjson.dumps(told))
    one.take("ledger", 0, b"0", orjson.dumps(told))
    feed(one, 0, records, words)
    feed(one, 1, second, words1)
    one.settle(now=0.0, upto=1)
    summary = one.summary()
    assert (summary["unreadable"], summary["verdicts"]) == (1, {"verified": 2})


def test_steps_that_no_entry_knows_are_held_up_to_a_bound_and_then_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OPEN", 3)
    one, steps = seen(), published(5)
    for step, (_, words) in enumerate(steps):
        one.take("ledger", step, b"%d" % step, words)
    for step, (records, _) in enumerate(steps):  # steps of the ledger are not counted against the bound
        for record in records:
            one.take(record.channel, step, record.key, record.value)
    for step in range(100, 110):
        one.take("measurements", step, b"k", b"{}")
    assert one.summary()["unreadable"] == 7
    one.settle(now=0.0, upto=4)
    assert verdicts(one) == ["verified"] * 5


def test_a_step_is_not_judged_while_more_of_it_may_come() -> None:
    ((records, words),) = published(1)
    one = seen()
    feed(one, 0, records[:-1], words)  # its measurement is not shown yet
    assert not one.settle(now=0.0)
    assert verdicts(one) == ["waiting"]
    one.take("measurements", 0, records[-1].key, records[-1].value)
    assert one.settle(now=0.0)
    assert verdicts(one) == ["verified"]


def test_a_ledger_that_was_changed_or_has_a_gap_breaks_the_chain_there() -> None:
    for plant in ("spent", "gap"):
        one = seen()
        for step, (records, words) in enumerate(published(4)):
            if step == 2:
                if plant == "gap":
                    continue
                words = orjson.dumps({**orjson.loads(words), "epsilon_spent": 0.0})
            feed(one, step, records, words)
        one.settle(now=0.0, upto=3)
        assert one.summary()["chain_broken_at"] == (2 if plant == "spent" else 3)


def test_a_second_answer_for_a_step_is_found_and_a_repeated_word_is_none() -> None:
    one, steps = seen(), published(2)
    for step, (records, words) in enumerate(steps):
        feed(one, step, records, words)
    one.take("ledger", 1, b"1", steps[1][1])
    assert one.summary()["twice"] is None
    one.take("ledger", 1, b"1", orjson.dumps({**orjson.loads(steps[1][1]), "digest": "00" * 32}))
    assert one.summary()["twice"] == 1


@given(st.binary(max_size=40), st.sampled_from(["synthetic", "measurements", "ledger"]), st.none() | st.integers(0, 3))
def test_bytes_that_are_no_public_records_are_counted_and_stop_nothing(
    junk: bytes, channel: str, step: int | None
) -> None:
    one = seen()
    one.take(channel, step, junk, junk)  # type: ignore[arg-type]
    one.settle(now=0.0, upto=3)
    orjson.dumps(one.summary())


def test_large_steps_are_kept_in_a_file_until_they_are_compared() -> None:
    from agents.readers.consume.ledger import IN_MEMORY, StepRecords

    records = [PublicRecord("synthetic", b"k%d" % at, b"x" * 1_000_000) for at in range(6)]
    assert IN_MEMORY < 6_000_000
    held = StepRecords()
    for record in records:
        held.take(record)
    assert held.digest() == sha256(frame_records(records))
    held.take(records[0])
    assert held.synthetic == 7
    assert held.digest() == sha256(frame_records([*records, records[0]]))
    held.close()


@pytest.mark.parametrize(
    ("end", "due"), [(None, "1970-01-01T01:01:30+00:00"), ("9999-12-31T23:59:59+00:00", None)], ids=["next", "never"]
)
def test_what_the_clock_says_of_the_next_step(end: str | None, due: str | None) -> None:
    """After its end a step of 60 s and 30 s of grace; beyond the calendar nothing is due."""
    time = {"field": "at", "format": "s", "start": "2020-01-01T00:00:00", "step": "60s", "grace": "30s"}
    wall = seen_of(stream(time=time), Picture())
    ((_, words),) = published(1)
    wall.take("ledger", 0, b"0", words if end is None else orjson.dumps({**orjson.loads(words), "end": end}))
    assert wall.summary()["due"] == due
    assert seen().summary()["due"] is None


def test_a_large_epsilon_is_said_in_the_words_of_the_configuration() -> None:
    assert seen().summary()["epsilon_warning"] is None
    large = stream(privacy={"epsilon": 12.0, "unit": "event"})
    said = StreamSeen(large, PointPicture("x", "y", (0.0, 0.0, 1.0, 1.0))).summary()["epsilon_warning"]
    assert said == large.privacy.epsilon_warning
    assert "epsilon above 10 promises little" in said


def test_points_in_a_box_have_a_map_of_its_bounds() -> None:
    made = view_of(STREAM).picture(STREAM)
    assert made.kind == "points"
    assert list(made.about()["bounds"]) == [0.0, 0.0, 1.0, 1.0]
