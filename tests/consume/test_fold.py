"""Public records of every engine become the table that the ledger says, and nothing else is taken for it."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.protocol.release.public_records import measurement_records
from agents.readers.consume.ledger import FoldedTable, Ledger, PublicRecordsError
from agents.readers.consume.reader import measurements_of
from schemas.config import ENGINES
from schemas.config.records import WEIGHT
from schemas.releases import Candidate, PublicRecord
from tests.consume.runs import RUNS, WEIGHTED, case_run, kept_by_compaction, records_of
from tests.examples import examples

SPATIAL = next(iter(name for name in ENGINES if "box" in ENGINES[name].domains))


def ledger_of(candidates: Sequence[Candidate]) -> Ledger:
    return Ledger.of(candidates[0].stream, [candidate.ledger for candidate in candidates])


def folded(candidates: Sequence[Candidate]) -> FoldedTable:
    table = FoldedTable(candidates[0].stream)
    for entry, candidate in zip(ledger_of(candidates).entries, candidates, strict=True):
        table.take(entry, records_of(candidate, "synthetic"), records_of(candidate, "measurements"))
        table.whole(entry)
    return table


@pytest.mark.parametrize("name", RUNS)
def test_every_engine_folds_to_what_its_ledger_says(name: str) -> None:
    stream, candidates = case_run(name)
    table = folded(candidates)
    assert table.verified == len(candidates)
    assert len(table.rows) > 0
    alive: dict[bytes, bytes] = {}
    for candidate in candidates:
        for record in records_of(candidate, "synthetic"):
            if record.value is None:
                del alive[record.key]
            else:
                alive[record.key] = record.value
    assert {key: value for key, (_, value) in table.rows.items()} == alive
    assert all(stream.time.field in fields for _, _, fields in table.records())
    if stream.weighted:
        assert (
            sum(fields[WEIGHT] for _, _, fields in table.records()) == ledger_of(candidates).entries[-1].notes[WEIGHT]
        )


@pytest.mark.parametrize("name", WEIGHTED)
def test_of_weighted_records_the_newest_table_is_there_once_the_topic_is_compacted(name: str) -> None:
    stream, candidates = case_run(name)
    whole, table = folded(candidates), FoldedTable(stream.name)
    entries = ledger_of(candidates).entries
    for entry, candidate, left in zip(entries, candidates, kept_by_compaction(list(candidates)), strict=True):
        table.take(entry, left, records_of(candidate, "measurements"))
    table.whole(entries[-1])
    assert table.rows == whole.rows
    assert 0 < len(table.compacted) < len(entries)


@settings(max_examples=examples(0.5))
@given(data=st.data())
def test_any_change_of_a_public_record_is_seen(data: st.DataObject) -> None:
    """A byte, an order, a record more or one less: the digest is of all of them."""
    _, candidates = case_run(SPATIAL)
    number = data.draw(st.integers(0, len(candidates) - 1))
    entry = ledger_of(candidates).entries[number]
    synthetic = records_of(candidates[number], "synthetic")
    measurements = records_of(candidates[number], "measurements")
    records = [*synthetic, *measurements]
    at = data.draw(st.integers(0, len(records) - 1))
    how = data.draw(st.sampled_from(["value", "key", "more", *(["measurement lost"] if measurements else [])]))
    if how == "value":
        records[at] = records[at]._replace(value=(records[at].value or b"") + b" ")
    elif how == "key":
        records[at] = records[at]._replace(key=records[at].key + b"0")
    elif how == "more":
        records.append(PublicRecord("synthetic", b"another", b"{}"))
    else:
        records.remove(measurements[at % len(measurements)])
    parts = [[each for each in records if each.channel == channel] for channel in ("synthetic", "measurements")]
    with pytest.raises(PublicRecordsError, match=f"step {number} are not those of its ledger entry"):
        FoldedTable(entry.stream).take(entry, *parts)


def test_compaction_leaves_the_last_table_whole_and_no_earlier_one() -> None:
    _, candidates = case_run(SPATIAL)
    ledger, left = ledger_of(candidates), kept_by_compaction(list(candidates))
    assert any(records_of(candidate, "synthetic") != kept for candidate, kept in zip(candidates, left, strict=True))
    table, refused = FoldedTable(candidates[0].stream), 0
    for entry, candidate, kept in zip(ledger.entries, candidates, left, strict=True):
        table.take(entry, kept, records_of(candidate, "measurements"))
        if len(table.rows) < entry.synthetic_records:
            refused += 1
            with pytest.raises(PublicRecordsError, match="compacted"):
                table.whole(entry)
    assert refused > 0
    assert table.compacted
    table.whole(ledger.entries[-1])
    assert {key: value for key, (_, value) in table.rows.items()} == {
        key: value for key, (_, value) in folded(candidates).rows.items()
    }


@pytest.mark.parametrize("what", ["word", "order", "gap", "foreign", "chain"])
def test_a_ledger_that_is_not_a_chain_is_refused(what: str) -> None:
    stream, candidates = case_run(SPATIAL)
    values = [candidate.ledger for candidate in candidates]
    if what == "word":
        values[2] = values[2].replace(b'"epsilon":', b'"epsilom":')
    elif what == "order":
        values[1], values[2] = values[2], values[1]
    elif what == "gap":
        del values[2]
    elif what == "foreign":
        values[2] = b"[]"
    else:
        told = orjson.loads(values[-1])
        values[-1] = orjson.dumps({**told, "chain": "0" * 64})
    with pytest.raises(PublicRecordsError, match=r"Fix: "):
        Ledger.of(stream.name, values)


def test_a_ledger_is_asked_by_step_and_by_time() -> None:
    _, candidates = case_run(SPATIAL)
    ledger = ledger_of([*candidates, candidates[-1]])  # a copy is passed over
    assert ledger.at(None).step == ledger.at("5").step == 5
    assert ledger.at("2020-01-01T03:30:00").step == ledger.at("2020-01-01T04:00:00+01:00").step == 2
    for wanted, reason in (("6", "not public yet"), ("2019-12-31", "no step .* has ended"), ("soon", "neither")):
        with pytest.raises(PublicRecordsError, match=reason):
            ledger.at(wanted)
    with pytest.raises(PublicRecordsError, match="no step yet"):
        Ledger.of("s", []).at(None)


@settings(max_examples=examples(0.6))
@given(
    numbers=st.lists(st.integers(0, 10**15), min_size=1, max_size=50),
    times=st.integers(60_000, 90_000),
    names=st.lists(st.text(max_size=3), max_size=4),
)
def test_measurements_that_were_cut_are_whole_again(numbers: list[int], times: int, names: list[str]) -> None:
    counts = (numbers * (times // len(numbers) + 1))[:times]
    measurement = {"step": 3, "of": names, "counts": counts, "inner": {"others": [10**14] * times}}
    records = [PublicRecord("measurements", b"3", value) for value in measurement_records(measurement)]
    assert len(records) > 1
    small = PublicRecord("measurements", b"3", b'{"step":3}')
    assert measurements_of([small, *records, small]) == [{"step": 3}, measurement, {"step": 3}]
