"""Records with weights, of every engine that has them: they stand for what single records are, step by step."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.protocol.release.stepper import Stepper
from engines.checks import contract_checks as checks
from engines.checks.contract_case import EngineCase, contract_case
from engines.core.contract import Batch, Columns, Release
from engines.core.registry import build_domain, build_engine
from schemas.blocks import Block, Folded
from schemas.config import ENGINES, Stream
from schemas.config.records import WEIGHT
from schemas.errors import ConfigError
from schemas.releases import Candidate, unframe_records
from tests.examples import examples

CASES = [(name, mode) for name, spec in ENGINES.items() if spec.facts.weighs_records for mode in spec.facts.modes]
OTHERS = [name for name, spec in ENGINES.items() if not spec.facts.weighs_records]
WEIGHTED = {"records": {"form": "weighted"}}
STEPS = 4
Rows = Mapping[str, Mapping[str, Any]]


def streams(name: str, mode: str, variant: Mapping[str, Any]) -> tuple[Stream, Stream]:
    """The same stream in both forms."""
    case = contract_case(name)
    return case.stream(mode, variant), case.stream(mode, {**variant, **WEIGHTED})


def batches(case: EngineCase, chance: random.Random) -> list[Batch]:
    """Crowds that come and move, and a step without events."""
    found = []
    for step in range(STEPS):
        rows = [(case.crowd, 300), *((case.keys(chance.randint), chance.randint(1, 60)) for _ in range(9))]
        keys = np.array([key for key, _ in rows], np.uint64).reshape(-1, case.words)
        counts = np.array([count for _, count in rows], np.int64)
        found.append(Batch(step, Folded.from_keys(keys, counts) if step != 2 else Folded.empty(case.words)))
    return found


def tables(releases: Sequence[Release]) -> list[dict[str, tuple[Mapping[str, Any], int]]]:
    """Fields and weight of each record alive after each step."""
    alive: dict[str, tuple[Mapping[str, Any], int]] = {}
    found = []
    for release in releases:
        for name in release.removed:
            del alive[name]
        alive |= {record.id: (record.fields, record.weight or 1) for record in release.added}
        found.append(dict(alive))
    return found


def keys_of(stream: Stream, table: Mapping[str, tuple[Mapping[str, Any], int]]) -> Folded:
    """What a stream's records are to its domain, as often as they say."""
    domain = build_domain(stream)
    rows = [fields for fields, _ in table.values()]
    columns = Columns(
        {name: np.array([row[name] for row in rows], np.float64) for name in domain.number_fields},
        {name: [row[name] for row in rows] for name in domain.text_fields},
        np.ones(len(rows), np.int8),
        {name: [row[name] for row in rows] for name in domain.value_fields},
    )
    keys, reasons = domain.encode(columns)
    assert not reasons.any(), "a record lies in its domain"
    return Folded.from_keys(keys, np.array([weight for _, weight in table.values()], np.int64))


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_weights_add_up_to_the_single_records_of_the_same_noise(name: str, mode: str) -> None:
    case, fewer = contract_case(name), 0
    for variant in case.tried(mode):
        single, weighted = streams(name, mode, variant)
        steps = batches(case, random.Random(repr(variant)))[:3]
        ones, many = (checks.run(build_engine(stream), steps, seed=3) for stream in (single, weighted))
        checks.check_releases_add_up(many)
        checks.check_record_fields(many, ENGINES[name].records(weighted.domain))
        for one, other in zip(ones, many, strict=True):
            assert one.measurements == other.measurements
            assert (one.notes, one.spans, one.gathered) == (other.notes, other.spans, other.gathered)
            assert one.total == one.events == other.events
        first, last = tables(ones)[-1], tables(many)[-1]
        fewer += len(last) < len(first)
        assert sum(weight for _, weight in last.values()) == len(first)
        if weighted.domain.kind in ("table", "zones"):
            left, right = keys_of(single, first), keys_of(weighted, last)
            assert np.array_equal(left.keys, right.keys), variant
            assert np.array_equal(left.counts, right.counts), variant
        fields = {record.id: record.fields for release in many for record in release.added}
        for release in many:
            assert all(fields[record.id] == record.fields for record in release.added), "an id is of one place"
    assert fewer > 0


@pytest.mark.parametrize(("name", "mode"), CASES)
@settings(max_examples=examples(0.05), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 99))
def test_an_engine_with_weights_keeps_the_contract(name: str, mode: str, data: st.DataObject, seed: int) -> None:
    case = contract_case(name)
    _, stream = streams(name, mode, data.draw(st.sampled_from(case.tried(mode))))
    steps = batches(case, random.Random(data.draw(st.integers(0, 99))))[: data.draw(st.integers(1, 4))]
    checks.check_engine(partial(build_engine, stream), steps, fields=ENGINES[name].records(stream.domain), seed=seed)


def candidates(stream: Stream, steps: Sequence[Batch], *, restart_after: int | None = None) -> list[Candidate]:
    """What the job's stepper makes of these steps; one that is restored after a step goes on in its place."""
    blocks = [
        Block(stream.name, 0, at, at + 1, at, {at: batch.events}, counts={"ACCEPTED": batch.events.total})
        for at, batch in enumerate(steps)
    ]
    stepper, found = Stepper.from_stream(stream, 1), []
    for at in range(len(steps)):
        stepper.fold(at, blocks[at])
        found.append(stepper.compute(bytes([at]) * 32))
        if at == restart_after:
            encoded = found[-1].encode()
            stepper = Stepper.from_stream(stream, 1)
            stepper.restore(Candidate.decode(encoded.release, encoded.state))
    return found


def folded(found: Sequence[Candidate]) -> Rows:
    """The records alive, as a consumer has them that knows of upserts and tombstones alone."""
    alive: dict[str, Mapping[str, Any]] = {}
    for candidate in found:
        for record in unframe_records(candidate.payload):
            if record.channel == "synthetic" and record.value is None:
                alive.pop(record.key.decode(), None)
            elif record.channel == "synthetic":
                alive[record.key.decode()] = orjson.loads(record.value or b"")
    return alive


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_consumers_have_the_table_whatever_is_restarted(name: str, mode: str) -> None:
    case = contract_case(name)
    steps = batches(case, random.Random(name))
    single, weighted = streams(name, mode, {})
    found = candidates(weighted, steps)
    for cut in (0, 1):
        again = candidates(weighted, steps, restart_after=cut)
        assert [each.payload for each in again] == [each.payload for each in found]
        assert [each.chain for each in again] == [each.chain for each in found]
    alive, ones = folded(found), candidates(single, steps)
    last = orjson.loads(found[-1].ledger)
    assert last["synthetic_records"] == len(alive)
    assert last["notes"][WEIGHT] == sum(row[WEIGHT] for row in alive.values()) == len(folded(ones))
    assert all(row.keys() == {"t", *weighted.record_fields} for row in alive.values())
    for mine, theirs in zip(found, ones, strict=True):
        entry, other = orjson.loads(mine.ledger), orjson.loads(theirs.ledger)
        for said in ("guarantee", "epsilon_spent", "gathered", "draw"):
            assert entry[said] == other[said], "the same noise at the same price"


@pytest.mark.parametrize("name", OTHERS)
def test_an_engine_whose_records_are_never_alike_refuses_weights(name: str) -> None:
    with pytest.raises(ConfigError, match='remove the key; records have weights with engine "spatial" or "tabular"'):
        contract_case(name).stream(ENGINES[name].facts.modes[0], WEIGHTED)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_weighted_records_have_no_dates(name: str, mode: str) -> None:
    case = contract_case(name)
    assert case.stream(mode, WEIGHTED).record_times == "released"
    with pytest.raises(ConfigError, match="a record stands for events of many steps"):
        case.stream(mode, {**WEIGHTED, "time": {"records": "dated"}})


def test_a_field_of_the_domain_is_no_weight() -> None:
    domain = {"domain": {"kind": "box", "x": WEIGHT, "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]}}
    stream = contract_case("spatial").stream("default", domain)
    assert WEIGHT in stream.record_fields, "without weights it is a field like any other"
    with pytest.raises(ConfigError, match="would be their weight and a value of the engine"):
        contract_case("spatial").stream("default", {**domain, **WEIGHTED})
