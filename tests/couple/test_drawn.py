"""Coupled pairs of streams whose keys are combined from their types: configurations that nobody has written down.

False alarms: none, nothing is sampled but streams and inputs, for any of which the promise holds. New ones each night,
and of each mode a few that are the same every time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any
from unittest.mock import patch

import pytest

from agents.local.coupling.audit import audited, fresh_seed
from agents.local.coupling.dearest import dearest_unit
from agents.local.coupling.inputs import UNIT, inputs
from agents.local.coupling.runs import KEY, couple
from agents.local.coupling.written import BOOK, USER_IN_KEY
from agents.local.job import LocalJob
from agents.protocol.formats.reader import ReadRecord, RecordReader
from engines.checks.contract_case import contract_case
from engines.core.registry import build_engine
from schemas.config import ENGINES, Stream
from schemas.errors import EngineInputError
from schemas.events import Reason
from tests.contracts.combinations import cases, deeper, mixed, paired
from tests.couple.planted import SHORT

STREAMS, MIXED = 6, 30
"""Of each mode: with keys of the promise set together, and with keys of any depth."""
CROWD = 60


def runs_on(stream: Stream) -> bool:
    """Whether the engine takes what its configuration says, and no counter ends the stream within a short pair."""
    if hasattr(stream.options, "counter") and stream.horizon is not None and stream.horizon < SHORT:
        return False
    try:
        build_engine(stream)
    except EngineInputError:
        return False  # too large, or of no use: `validate` says so
    return True


def check(name: str, streams: Iterable[Stream], seed: int) -> None:
    for stream in filter(runs_on, streams):
        verdict = couple(name, stream, seed, steps=SHORT, crowd=CROWD)
        assert not verdict.broken, (seed, stream)
        assert verdict.share <= 1 + 1e-9, (seed, stream)


@pytest.mark.seconds(0.5)
@pytest.mark.parametrize(("engine", "mode"), cases())
def test_neighbours_cannot_be_told_apart_by_keys_that_settings_leave_alone(engine: str, mode: str) -> None:
    """Two of these: computed fields, parts of a split, weights, steps of the calendar; and one that is read by schemas
    or in envelopes. No setting has them.
    """
    chance = random.Random(f"{engine} {mode}")
    streams = list(deeper(contract_case(engine), mode))
    kinds = (
        [each for each in streams if each.map is not None],
        [each for each in streams if each.split is not None],
        [each for each in streams if each.weighted],
        [each for each in streams if each.time.timezone != "UTC"],
    )
    every = [kind for kind in kinds if kind]
    otherwise = [each for each in streams if _encoding(each) not in (PLAIN, ("csv", *PLAIN[1:]))]
    check(f"{engine}/{mode}", [chance.choice(kind) for kind in (*chance.sample(every, 2), otherwise)], 1)


def test_a_decoder_that_refuses_a_record_because_of_the_one_before_is_found() -> None:
    """By the dearest unit, which uses up its claim: with another person's records it costs more."""
    stream = next(
        each
        for each in deeper(contract_case("spatial"), "default")
        if _encoding(each) == ("avro", "none", "text") and each.privacy.bounds_users and runs_on(each)
    )
    unfold = RecordReader.unfold

    def refusing(reader: RecordReader, records: Sequence[Any]) -> list[ReadRecord]:
        read, before = [], False
        for each in unfold(reader, records):
            read.append(each._replace(reason=Reason.UNREADABLE, fields={}) if before and not each.headers else each)
            before = each.fields.get(stream.privacy.user or "") == UNIT
        return read

    def shares() -> list[float]:
        return [couple("", stream, seed, steps=SHORT, crowd=CROWD, unit=dearest_unit).share for seed in range(3)]

    assert max(shares()) <= 1 + 1e-9
    with patch.object(RecordReader, "unfold", refusing):
        assert max(shares()) > 1.2


def test_an_audit_reads_fields_that_stand_beside_the_value() -> None:
    case = contract_case("spatial")
    document = case.document("default", {})
    beside = {"privacy": {**document["privacy"], "user": USER_IN_KEY}, "partitioner": "none", "key_format": "avro"}
    stream = audited(Stream.model_validate({**document, **beside}))
    job = LocalJob(stream, key=KEY, schemas=BOOK)
    block, _ = job.take(inputs(stream, random.Random(3), steps=4, crowd=8).first[0])
    assert block is not None
    assert block.counts.keys() <= {"ACCEPTED", "OVER_BOUND"}


PLAIN = ("json", "none", "text")
READING = (
    Reason.NOT_JSON,
    Reason.EMPTY,
    Reason.BAD_OPERATION,
    *map(Reason, range(Reason.UNREADABLE, Reason.TWO_USERS + 1)),
)
UNREAD = {each.name for each in READING}
"""Reasons of records that no decoder, or no envelope, could read."""


def _encoding(stream: Stream) -> tuple[str, str, str]:
    return stream.format, stream.envelope, stream.key_format


@pytest.mark.parametrize("engine", ENGINES)
def test_records_of_coupled_runs_are_read_in_every_format(engine: str) -> None:
    """Else a pair of them would be alike because both are refused."""
    case, read = contract_case(engine), set()
    for stream in deeper(case, ENGINES[engine].facts.modes[0]):
        form = _encoding(stream)
        if form == PLAIN or form in read or stream.map is not None or stream.part is not None or not runs_on(stream):
            continue
        read.add(form)
        records = inputs(stream, random.Random(3), steps=4, crowd=8).first
        job = LocalJob(stream, key=KEY, partitions=len(records), rows=False, schemas=BOOK)
        counts: Counter[str] = Counter()
        for partition, each in enumerate(records):
            block, _ = job.take(each, partition=partition)
            counts.update({} if block is None else block.counts)
        assert counts["ACCEPTED"], stream
        assert not counts.keys() & UNREAD, (counts, stream)
    assert {form for form, _, _ in read} >= {"avro", "protobuf"}
    assert {envelope for _, envelope, _ in read} == {"none", "cloudevents", "debezium"}


@pytest.mark.nightly
@pytest.mark.parametrize(("engine", "mode"), cases())
def test_neighbours_cannot_be_told_apart_however_keys_are_combined(engine: str, mode: str) -> None:
    seed = fresh_seed()
    chance, case = random.Random(seed), contract_case(engine)
    together = list(paired(case, mode))
    check(f"{engine}/{mode}", chance.sample(together, min(STREAMS, len(together))), seed)
    check(f"{engine}/{mode}", islice(mixed(case, mode, chance), MIXED), seed)
