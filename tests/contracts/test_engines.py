"""The contract of every installed engine and mode, on the streams of its `EngineCase`."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.local.coupling.inputs import inputs
from agents.local.coupling.runs import JobRun
from agents.protocol.ingest.events import PureFilter, RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release import public_records
from agents.show.view import View
from engines.checks import contract_checks as checks
from engines.checks.contract_case import EngineCase, Key, contract_case
from engines.checks.coupling import Recorder
from engines.core.accounting.accountant import Accountant, paid
from engines.core.contract import Batch, Columns, Domain, FilledDomain, Release, State
from engines.core.noise import seeded
from engines.core.registry import build_domain, build_engine, build_evaluator, part
from schemas.blocks import Folded
from schemas.config import ENGINES
from schemas.config.privacy import MAX_EPSILON
from schemas.errors import EngineInputError
from schemas.events import Reason
from tests.couple.wide import WIDE_CROWD, wide
from tests.examples import examples

pytestmark = pytest.mark.seconds(0.3)

CASES = [(name, mode) for name, spec in ENGINES.items() for mode in spec.facts.modes]
EASY = settings(max_examples=examples(0.24), suppress_health_check=[HealthCheck.too_slow])


def keys_of(case: EngineCase) -> st.SearchStrategy[Key]:
    @st.composite
    def key(draw: st.DrawFn) -> Key:
        return case.keys(lambda low, high: draw(st.integers(low, high)))

    return key()


def folded(case: EngineCase, rows: list[tuple[Key, int]]) -> Folded:
    keys = np.array([key for key, _ in rows], np.uint64).reshape(-1, case.words)
    return Folded.from_keys(keys, np.array([count for _, count in rows], np.int64))


def some_batches(case: EngineCase) -> st.SearchStrategy[list[Batch]]:
    """Steps with clusters, one key only, or nothing."""
    rows = st.lists(st.tuples(keys_of(case), st.integers(1, 60)), max_size=8)
    return st.lists(rows, min_size=1, max_size=4).map(
        lambda steps: [Batch(step, folded(case, found)) for step, found in enumerate(steps)]
    )


@pytest.mark.parametrize("name", ENGINES)
def test_a_spec_is_complete(name: str) -> None:
    """What it refers to is there, and of its kind."""
    spec = ENGINES[name]
    found = {each: part(name, each) for each in spec.references}
    assert isinstance(found["view"], View)
    assert isinstance(found["contract_case"], EngineCase)
    assert all(callable(found[each]) for each in ("domain", "build", "evaluator"))
    assert contract_case(name).engine == name
    assert spec.options() == spec.options.model_validate({})
    facts = spec.facts
    assert isinstance(facts.dates_records, bool)
    said = {*facts.noise_versions, *facts.uses_delta, *facts.needs_delta, *facts.counts_surplus}
    assert said <= set(facts.modes)
    assert facts.needs_delta <= facts.uses_delta


@pytest.mark.parametrize(("name", "mode"), CASES)
@EASY
@given(data=st.data(), seed=st.integers(0, 99))
def test_contract(name: str, mode: str, data: st.DataObject, seed: int) -> None:
    case = contract_case(name)
    configured = case.stream(mode, data.draw(st.sampled_from(case.tried(mode))))
    fields = configured.record_fields
    checks.check_engine(lambda: build_engine(configured), data.draw(some_batches(case)), fields=fields, seed=seed)


@pytest.mark.parametrize("name", [name for name, _ in wide()])
def test_the_contract_holds_where_there_is_much(name: str) -> None:
    """More cells, rows, fields and charges than any constant at which an engine takes another way."""
    stream = dict(wide())[name]
    chance = random.Random(name)
    recorder = Recorder()
    job = JobRun(stream, inputs(stream, chance, steps=2, crowd=WIDE_CROWD).first, recorder, chance, passive=True)
    assert len(list(job.releases())) == 2
    recorder.check_words()
    make, batches = partial(build_engine, stream), job.batches[:2]
    assert max(batch.events.counts.sum() for batch in batches) > 10_000
    checks.check_restores(make, batches, cuts=[1])
    checks.check_pays_for_noise(make, batches)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_the_largest_epsilon_is_computed_as_any_other(name: str, mode: str) -> None:
    """Noise that is 0 nearly always has a variance near 0, to divide by. Warnings are errors."""
    case, chance = contract_case(name), random.Random(f"{name} {mode}")
    # All of it for one event, where the case does not say otherwise.
    stream = case.stream(mode, {"privacy": {"max_contributions": 1, **case.privacy, "epsilon": MAX_EPSILON}})
    engine = build_engine(stream)
    for step in range(4 if isinstance(build_domain(stream), FilledDomain) else 30):  # or trips would be over
        rows = [(case.keys(chance.randint), chance.randint(1, 60)) for _ in range(40)]
        release = engine.step(Batch(step, folded(case, [*rows, (case.crowd, 400)])), seeded(step))
        assert release.step == step
    for array in engine.state().values():
        assert array.dtype.kind != "f" or not np.isnan(array).any()


@pytest.mark.parametrize("name", ENGINES)
def test_records_say_their_step_where_the_engine_says_so(name: str) -> None:
    case, said = contract_case(name), set()
    for mode in ENGINES[name].facts.modes:
        steps = [Batch(step, folded(case, [(case.crowd, 400)])) for step in range(8)]
        releases = checks.run(build_engine(case.stream(mode)), steps, seed=1)
        if any(release.added for release in releases):
            said.add(checks.check_records_are_dated(releases))
        checks.check_record_fields(releases, case.stream(mode).record_fields)
    assert said == {ENGINES[name].facts.dates_records}


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_what_is_charged_is_what_is_claimed(name: str, mode: str) -> None:
    case = contract_case(name)
    steps = [Batch(step, folded(case, [(case.crowd, 400)])) for step in range(4)]
    for make, _, state in crowded(name, mode):
        checks.check_charges(make, steps)
        checks.check_pays_for_noise(make, steps)
        guarantee = make().guarantee()
        if guarantee.delta == 0:
            assert guarantee.spent == guarantee.epsilon
        assert paid(Accountant.kept(state).values()) == guarantee.epsilon


@cache
def crowded(name: str, mode: str) -> list[tuple[checks.MakeEngine, list[Release], State]]:
    """Six steps of every variant: what makes its engine, its releases and its last state."""
    case = contract_case(name)
    found: list[tuple[checks.MakeEngine, list[Release], State]] = []
    for variant in case.tried(mode):
        make = partial(build_engine, case.stream(mode, variant))
        engine = make()
        batches = [Batch(step, folded(case, [(case.crowd, 400)])) for step in range(6)]
        found.append((make, checks.run(engine, batches, seed=1), engine.state()))
    return found


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_measurements_of_any_size_can_be_published(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker takes a record up to a size. What makes a measurement large is a list, which can be cut."""
    monkeypatch.setattr(public_records, "MOST_BYTES", 500)
    for _, releases, _ in crowded(name, mode):
        for release in releases:
            for measurement in release.measurements:
                assert public_records.measurement_records({"step": release.step, **measurement})


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_a_stored_state_is_read_as_it_was_stored(name: str, mode: str) -> None:
    for make, _, state in crowded(name, mode):
        checks.check_state_is_arrays(state)
        assert checks.check_state_is_kept(make, state) > 0


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_states_and_keys_of_others_are_refused(name: str, mode: str) -> None:
    case = contract_case(name)
    engine = build_engine(case.stream(mode))
    for broken in ("header", "identity"):
        state = engine.state()
        state[broken] = state[broken] + np.array(1, state[broken].dtype)
        with pytest.raises(EngineInputError):
            engine.restore(state)
    for missing in engine.state():
        state = engine.state()
        del state[missing]
        with pytest.raises(EngineInputError):
            engine.restore(state)
    if case.foreign is not None:
        with pytest.raises(EngineInputError, match="outside"):
            engine.step(Batch(0, folded(case, [(case.foreign, 1)])), seeded(1))


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_domain_and_evaluator_speak_the_raw_fields(name: str, mode: str) -> None:
    configured = contract_case(name).stream(mode)
    domain, evaluator = build_domain(configured), build_evaluator(configured)
    read = {*domain.number_fields, *domain.text_fields, *domain.value_fields}
    assert set(configured.domain.fields) <= read
    metrics = evaluator.measure(Folded.empty(evaluator.domain.words), {field: [] for field in evaluator.fields})
    assert tuple(metrics) == evaluator.metrics
    assert build_engine(configured).guarantee().epsilon == configured.event_epsilon


def scalars(content: Any) -> list[Any]:
    """All that a section of a configuration names: among it are values that its domain takes."""
    if isinstance(content, Mapping):
        return [each for value in content.values() for each in scalars(value)]
    if isinstance(content, list | tuple):
        return [each for value in content for each in scalars(value)]
    if isinstance(content, bytes):
        return [float(number) for number in re.findall(rb"-?\d+\.?\d*", content)]
    return [content] if isinstance(content, str | int | float) else []


DOMAINS = [
    (name, variant) for name in ENGINES for variant in ({}, *contract_case(name).variants) if {*variant} <= {"domain"}
]
ALL_DOMAINS = [
    (name, variant)
    for name, case in ((name, contract_case(name)) for name in ENGINES)
    for variant in ({}, *case.variants, *case.longer, *case.of_default)
    if not variant or "domain" in variant
]
NO_NUMBER, NO_TEXT = (float("nan"), 1e300), ("no such text",)


@pytest.mark.parametrize("role", ["engine", "evaluator"])
@pytest.mark.parametrize(("name", "variant"), DOMAINS)
def test_the_ingest_fills_the_words_of_a_key_that_the_domain_declares_and_no_others(
    name: str, variant: Mapping[str, Any], role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = contract_case(name).stream(ENGINES[name].facts.modes[0], variant)
    domain: Domain = build_domain(stream) if role == "engine" else build_evaluator(stream).domain
    spec = (
        SourceSpec.from_stream(stream, domain, key=bytes(16), partitions=1)
        if role == "engine"
        else SourceSpec.held_out(stream, domain, partitions=1)
    )
    declared = domain.filled if isinstance(domain, FilledDomain) else None
    filled = [] if declared is None else [*declared.trip, declared.admitted, declared.time]
    assert len(set(filled)) == len(filled)
    assert set(filled) < set(range(domain.words)), "and some word is the domain's"
    assert (spec.fields.trip is not None) == bool(filled)

    encoded: list[tuple[int, ...]] = []
    encode = type(domain).encode

    def noting(self: Any, columns: Columns) -> Any:
        keys, reasons = encode(self, columns)
        encoded.extend(map(tuple, keys.tolist()))
        return keys, reasons

    monkeypatch.setattr(type(domain), "encode", noting)
    chance = random.Random(name)
    values = [*scalars(stream.model_dump()["domain"]), 0.5, 1, "a"]
    fields = [*domain.number_fields, *domain.text_fields, *domain.value_fields]
    machine = PartitionIngest(spec, 0)
    events = [
        {**{each: chance.choice(values) for each in fields}, "u": f"u{at}", "n": f"trip {at}", "t": 1_577_836_800}
        for at in range(4000)
    ]
    machine.take([RawRecord(at, -1, None, orjson.dumps(event)) for at, event in enumerate(events)])
    kept = [tuple(key) for keys, _ in machine._pending.events for key in keys.tolist()]
    assert kept, "no event was accepted"
    assert not np.array(encoded, np.uint64)[:, filled].any(), "these the domain leaves 0"
    own = [word for word in range(domain.words) if word not in filled]
    assert {tuple(key[word] for word in own) for key in kept} <= {tuple(key[word] for word in own) for key in encoded}
    for word in filled:
        if role == "engine" and declared is not None and word != declared.admitted:  # admitted in step 0
            assert all(key[word] for key in kept), "and the ingest fills"


@pytest.mark.parametrize(("name", "variant"), ALL_DOMAINS)
def test_a_field_that_is_wrong_alone_is_named_alone(name: str, variant: Mapping[str, Any]) -> None:
    case, chance = contract_case(name), random.Random(name)
    stream = case.stream(ENGINES[name].facts.modes[0], variant)
    domain = build_domain(stream)
    spec = SourceSpec.from_stream(stream, domain, key=bytes(16), partitions=1)
    numbers, texts, values = spec.fields.numbers, spec.fields.texts, tuple(spec.fields.scalars)
    wrong = {
        **dict.fromkeys(numbers, NO_NUMBER),
        **dict.fromkeys(texts, NO_TEXT),
        **dict.fromkeys(values, (*NO_NUMBER, *NO_TEXT, None)),
    }

    def columns(rows: Sequence[Mapping[str, Any]]) -> Columns:
        return Columns(
            {field: np.array([row[field] for row in rows], np.float64) for field in numbers},
            {field: [row[field] for row in rows] for field in texts},
            np.ones(len(rows), np.int8),
            {field: [row.get(field) for row in rows] for field in values},
        )

    drawn = [case.event(stream.domain, chance) for _ in range(200)]
    right = drawn[domain.encode(columns(drawn))[1].tolist().index(0)]
    changed = [(field, right | {field: value}) for field, others in wrong.items() for value in others]
    events = columns([event for _, event in changed])
    reasons = domain.encode(events)[1]
    refused = np.flatnonzero((reasons != 0) & (reasons != Reason.DROPPED))  # a key outside of a sample is no fault
    named = PureFilter(spec, 0)._at_fault(events, refused)
    assert named == {row: changed[row][0] for row in refused.tolist()}
    if len(wrong) > 1:
        assert set(named.values()) >= {*numbers, *texts}, "each of them can be wrong"


@pytest.mark.parametrize("name", ENGINES)
def test_every_kind_of_domain_is_tried(name: str) -> None:
    mode = ENGINES[name].facts.modes[0]
    tried = {contract_case(name).stream(mode, variant).domain.kind for each, variant in ALL_DOMAINS if each == name}
    assert tried == {*ENGINES[name].domains}
