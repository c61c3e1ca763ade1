"""Values that nobody listed, in tables: what is refused, when they are tested, and what a stream does with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.checks.contract_case import contract_case
from engines.core.answers.contract import CountQuestion
from engines.core.answers.where import Atom, Both
from engines.core.contract import Batch, Columns, Release
from engines.core.noise import seeded
from engines.core.noise.listing import listing_mechanism
from engines.core.registry import build_domain, build_engine, build_evaluator, part
from engines.keys.hashes import KeyHash
from engines.keys.selection import RESOLUTION, SURE, exceeded
from engines.keys.table import PeriodTable
from engines.tabular.answers import answers
from engines.tabular.domain import FOUND, MISSING, OTHER, Discovered, TableDomain
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.growing.finding import FindingRule, texts_of
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.errors import ConfigError, EngineInputError
from schemas.events import Reason
from tests.couple.plants import edited

SEX = {"field": "sex", "values": ["f", "m"]}
PAGE = {"field": "page", "values": "discover"}
COMMON = ("/", "/about", "caf\u00e9")


def stream(page: dict[str, Any] | None = None, **changes: Any) -> Stream:
    domain = {"attributes": [SEX, {**PAGE, **(page or {})}], **changes.pop("domain", {})}
    privacy = {"delta": 1e-3, "epsilon": 8.0, **changes.pop("privacy", {})}
    options = {"records": False, **changes.pop("options", {})}
    return contract_case("tabular").stream(
        changes.pop("mode", "default"), {"domain": domain, "privacy": privacy, "options": options, **changes}
    )


def events(domain: TableDomain, pages: Sequence[Any]) -> Folded:
    values = {"sex": ["f" if at % 3 else "m" for at in range(len(pages))], "page": list(pages)}
    keys, reasons = domain.encode(Columns({}, {}, np.ones(len(pages), np.int8), values))
    assert not reasons.any()
    return Folded.from_keys(keys)


def run(
    stream: Stream, pages: Sequence[Sequence[Any]], *, restart: bool = False
) -> tuple[GrowingBlocks, list[Release]]:
    domain, engine, releases = build_domain(stream), build_engine(stream), []
    assert isinstance(domain, TableDomain)
    for step, each in enumerate(pages):
        if restart:
            state, engine = engine.state(), build_engine(stream)
            engine.restore(state)
        releases.append(engine.step(Batch(step, events(domain, each)), seeded(step)))
    assert isinstance(engine, GrowingBlocks)
    return engine, releases


def found(engine: GrowingBlocks) -> tuple[str, ...]:
    assert engine.config.domain.discovered is not None
    return engine.config.domain.discovered[1].found


CROWD = [[page for page in COMMON for _ in range(120)] + [f"alone {step}"] for step in range(6)]


# --- what a configuration may say -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"privacy": {"delta": None}}, "privacy.delta: .* no guarantee without a delta\n.*fix: set delta = 1e-6"),
        ({"mode": "paper"}, 'domain.attributes: values = "discover" is for mode "default"'),
        ({"domain": {"op": "what"}}, "domain.op: would delete rows from another cell .*\n.*fix: remove op, or list"),
        ({"domain": {"attributes": [PAGE, {**PAGE, "field": "b"}]}}, "domain.attributes: are 2 with values"),
        ({"page": {"edges": [0, 1]}}, "an attribute has either values or edges"),
        ({"page": {"unknown": "clamp"}}, 'unknown: is "clamp", which needs bins'),
        ({"page": {"integer": True}}, "integer: has no effect without edges"),
        ({"page": {"values": ["a"], "most": 3}}, "most: has no effect without values"),
        ({"page": {"values": "found"}}, "values: must be a list"),
        ({"page": {"most": 901}}, "most: must be at most 900"),
        (
            {"domain": {"impossible": [{"left": "page", "left_values": ["/"], "right": "sex", "right_values": ["f"]}]}},
            "impossible.*left: has values that nobody listed",
        ),
        ({"privacy": {"surplus": 2}}, "privacy.surplus"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        stream(**changes)


def test_the_fingerprint_holds_what_finding_rests_on() -> None:
    prints = [stream(page).fingerprint_fields()["domain"] for page in ({}, {"most": 3}, {"least_count": 9})]
    assert len({str(each) for each in prints}) == 3


# --- texts of events --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("/", Reason.ACCEPTED),
        ("", Reason.ACCEPTED),
        (None, Reason.MISSING_FIELD),
        (7, Reason.WRONG_TYPE),
        (True, Reason.WRONG_TYPE),
        (["/"], Reason.WRONG_TYPE),
        ("n\0ul", Reason.OUTSIDE_DOMAIN),
        ("\ud800", Reason.OUTSIDE_DOMAIN),
        ("\u00e9" * 5, Reason.OUTSIDE_DOMAIN),
    ],
)
def test_reasons_of_a_value(value: Any, reason: Reason) -> None:
    domain = build_domain(stream({"max_key_bytes": 9}))
    assert isinstance(domain, TableDomain)
    columns = Columns({}, {}, np.ones(1, np.int8), {"sex": ["f"], "page": [value]})
    keys, reasons = domain.encode(columns)
    assert reasons.tolist() == [reason]
    assert keys.shape == (1, domain.words)
    assert domain.at_fault(columns) == ["page" if reason else ""]
    assert reason == 0 or not keys.any()


TEXTS = st.text(st.characters(exclude_categories=["Cs"], min_codepoint=2), max_size=6)


@given(st.lists(TEXTS, max_size=8), st.lists(TEXTS, max_size=5))
def test_a_text_has_a_code_of_its_own_once_it_is_found(pages: list[str], texts: list[str]) -> None:
    base = TableDomain((Discovered(field="page", values="discover", missing=True),))
    assert base.discovered is not None
    attribute = base.discovered[1]
    known = list(dict.fromkeys(attribute.texts(attribute.packed(texts))))
    wide = base.with_found([text for text in known if text != "other"])
    columns = Columns({}, {}, np.ones(len(pages) + 1, np.int8), {"page": [*pages, None]})
    keys, reasons = base.encode(columns)
    assert not reasons.any()
    codes = wide.codes(keys)[:, 0]
    assert codes.tolist() == wide.attributes[0].encode([*pages, None])[0].tolist()
    normal = attribute.texts(attribute.packed(pages))
    shown = wide.attributes[0].decode(codes, np.zeros(len(codes)))
    assert shown == [*(text if text in known else "other" for text in normal), None]
    assert codes[-1] == MISSING
    assert ((codes[:-1] >= FOUND) | (codes[:-1] == OTHER)).all()


def test_null_found_values_and_the_text_of_other_are_not_tested() -> None:
    domain = build_domain(stream({"missing": True}))
    assert isinstance(domain, TableDomain)
    folded = events(domain, ["/", "/", "/about", None, "other", "caf\u0065\u0301"])
    assert domain.discovered is not None
    counted = texts_of(folded, domain.with_found(["/about"]))
    texts = domain.discovered[1].texts(counted.keys)
    assert dict(zip(texts, counted.counts.tolist(), strict=True)) == {"/": 2, "caf\u00e9": 1}


# --- when and with what thresholds ------------------------------------------------------------------------------------


def rule(**changes: Any) -> FindingRule:
    return FindingRule(**{"mu_squared": Fraction(1, 50), "delta": 1e-7, "changes": 3, "tests": 10, **changes})


@pytest.mark.parametrize(
    "changes",
    [{}, {"tests": 4, "longest": 24}, {"tests": 4, "longest": 3}, {"period": 23}, {"period": 10}, {"tests": 1}],
    ids=str,
)
def test_each_step_is_in_one_period_of_so_many_tests(changes: dict[str, Any]) -> None:
    tested = rule(**changes)
    begins, places = [tested.begin(step) for step in range(100)], range(100)
    for step in places:
        first, every = begins[step]
        assert first <= step
        period = [at for at in places if begins[at][0] == first]
        assert period == list(range(first, first + len(period)))
        tests = [tested.test_at(at) for at in period if tested.test_at(at) is not None]
        assert tests == list(range(1, len(tests) + 1))
        assert len(tests) <= tested.tests
        assert tested.tested_by(step) == sum(tested.test_at(at) is not None for at in range(first, step + 1))
        if tested.test_at(step) is not None:
            law = tested.law(tested.test_at(step) or 0, every)
            assert law.begin(step) + law.every == next(at for at in period if tested.test_at(at) == 1)
    if tested.period is not None:
        assert all(tested.test_at(at) == tested.tests for at in range(tested.period - 1, 100, tested.period))
    if tested.longest is not None:
        assert max(every for _, every in begins) * tested.tests <= max(tested.longest, tested.tests)


@pytest.mark.parametrize("changes", [1, 2, 5, 40, 400])
def test_a_threshold_is_above_every_way_in_which_a_unit_alone_decides(changes: int) -> None:
    """k of its m events in one value, m/k values: noise may fail there with k/m of delta, over all tests."""
    tested = rule(changes=changes, least_count=4)
    for alone in {1, 2, 3, changes // 2, changes - 1, changes} - {0}:
        if alone <= changes:
            above = exceeded(tested.counter, tested.delta * SURE * alone / (changes * tested.tests))
            needed = [(3 + alone) * RESOLUTION + each for each in above]
            assert all(threshold >= each for threshold, each in zip(tested.thresholds, needed, strict=True))


UNITS, MOST = 3000, 51
"""Of 3000 units 0.008 each are 24 at most; more than 51 have a probability below 10^-6."""


def shown(tested: FindingRule, values: int) -> int:
    """For how many units a value is found that is one by them alone, who have all of their events in so many values."""
    count = tested.least_count - 1 + tested.changes // values
    keys = np.arange(UNITS * values, dtype=np.uint64)[:, np.newaxis]
    table = PeriodTable.empty(KeyHash.drawn(1, seeded(7).child("hash")))
    table = table.added(Folded(keys, np.full(len(keys), count)), least=tested.least_count, most=len(keys))
    seen = np.zeros(UNITS, np.bool_)
    for test in range(1, tested.tests + 1):
        listed, table = listing_mechanism(table, tested.law(test, 1), seeded(7).child("test", test))
        seen[listed.keys[:, 0].astype(np.int64) // values] = True
    return int(seen.sum())


def test_values_of_one_unit_are_found_as_seldom_as_promised() -> None:
    """False alarms: below 10^-6, and the seed is fixed."""
    tested = rule(delta=0.008, changes=4, mu_squared=Fraction(1, 4), tests=3)
    assert all(shown(tested, values) <= MOST for values in (1, 4))
    with edited(FindingRule, "thresholds", "(least + self.changes) * RESOLUTION", "(least + 1) * RESOLUTION"):
        of_one = rule(delta=0.008, changes=4, mu_squared=Fraction(1, 4), tests=3)
        assert shown(of_one, 1) > MOST, "a threshold for one event in a value"


# --- what a stream does -----------------------------------------------------------------------------------------------


def test_common_values_are_found_and_shown_and_those_of_few_are_not() -> None:
    engine, releases = run(stream(options={"records": True}), CROWD)
    assert set(found(engine)) == set(COMMON)
    told = [each for release in releases for each in release.measurements if "found" in each]
    assert [each["value"] for test in told for each in test["found"]] == list(found(engine))
    assert all(each["count"] >= test["threshold"] - 1 for test in told for each in test["found"])
    alive: dict[str, Any] = {}
    for release in releases:
        for gone in release.removed:
            del alive[gone]
        alive |= {record.id: record.fields for record in release.added}
    pages = [fields["page"] for fields in alive.values()]
    assert set(pages) <= {*COMMON, "other"}
    assert all(abs(pages.count(page) - len(CROWD) * 120) < 300 for page in COMMON)
    evaluator = build_evaluator(stream())
    truth = events(build_domain(stream()), [page for step in CROWD for page in step])  # type: ignore[arg-type]
    columns = {name: [fields[name] for fields in alive.values()] for name in evaluator.fields}
    assert evaluator.measure(truth, columns)["avg_we"] < 0.05
    assert evaluator.exact(truth, truth)["avg_we"] == 0


def test_nothing_of_a_value_that_is_not_found_is_public() -> None:
    """Measurements, notes and records are the same bytes with other texts of the same few events."""
    spoken = []
    for name in ("alone", "other one"):
        pages = [[*([COMMON[0]] * 100), f"{name} {step}"] for step in range(3)]
        _, releases = run(stream(options={"records": True}), pages)
        spoken.append(str([(list(r.added), r.removed, r.measurements, r.notes) for r in releases]))
        assert name not in spoken[-1]
    assert spoken[0] == spoken[1]


@pytest.mark.parametrize("changes", [{}, {"domain": {"ttl": "3h"}}, {"privacy": {"per": "4h"}}], ids=str)
def test_a_restart_at_every_step_changes_nothing(changes: dict[str, Any]) -> None:
    tried = stream({"most": 2}, **changes)
    one, first = run(tried, CROWD)
    other, second = run(tried, CROWD, restart=True)
    assert len(found(one)) == 2
    assert [list(r.added) for r in first] == [list(r.added) for r in second]
    assert [r.measurements for r in first] == [r.measurements for r in second]
    state, again = one.state(), other.state()
    assert state.keys() == again.keys()
    assert all(array.tobytes() == again[name].tobytes() for name, array in state.items())
    assert not state["table/totals"].size, "once as many are found as may be, no text is kept"


def test_differences_beside_values_that_are_found_late_count_every_row_once() -> None:
    """Of two binary attributes one number; of those and the other, cells, in which rows of before are not."""
    binary = [{**SEX, "field": field} for field in ("left", "right")]
    tried = stream(domain={"attributes": [*binary, {**PAGE}]}, privacy={"epsilon": 60.0})
    domain, engine = build_domain(tried), build_engine(tried)
    assert isinstance(domain, TableDomain)
    assert isinstance(engine, GrowingBlocks)
    measured, sides = [], np.arange(1200) % 3 > 0
    for step in range(12):
        pages = np.where(np.arange(1200) % 4 > 0, COMMON[0], COMMON[1 if step > 4 else 0]).tolist()
        texts = np.where(sides, "f", "m").tolist()
        keys, _ = domain.encode(Columns({}, {}, np.ones(1200, np.int8), {"left": texts, "right": texts, "page": pages}))
        measured += [
            (step, told) for told in engine.step(Batch(step, Folded.from_keys(keys)), seeded(step)).measurements
        ]
    assert found(engine) == COMMON[:2]
    both = [told for _, told in measured if told.get("marginal") == ["left", "right"]]
    assert all(told["difference"] and len(told["increment"]) == 1 for told in both)
    beside = [told for _, told in measured if told.get("marginal") == ["left", "page"]]
    assert not any(told["difference"] for told in beside)
    lengths = [len(told["increment"]) for told in beside]
    assert lengths == sorted(lengths)
    assert {2 * (FOUND + 1), 2 * (FOUND + 2)} <= set(lengths)
    answerer = answers(tried, measured, 11)
    for where, true in (
        (Both((Atom("left", "=", ("f",)), Atom("right", "=", ("f",)))), 12 * 800),
        (Both((Atom("left", "=", ("f",)), Atom("page", "=", (COMMON[1],)))), 7 * 200),
    ):
        answer = answerer.answer(CountQuestion(0, 11, where))
        assert answer.estimate == pytest.approx(true, abs=400)


def test_a_value_that_comes_between_two_tests_is_not_forgotten_at_a_restart() -> None:
    """After ten steps there is a test at every second one."""
    pages = [[*["/"] * 5]] * 10 + [["/late"] * 300, ["/"] * 5]
    one, first = run(stream(), pages)
    _, second = run(stream(), pages, restart=True)
    assert "/late" in found(one)
    assert [r.measurements for r in first] == [r.measurements for r in second]


def test_the_largest_noisy_count_is_first_where_room_is_short() -> None:
    pages = [["/"] * 500 + ["/about"] * 200] * 2
    engine, releases = run(stream({"most": 1}), pages)
    assert found(engine) == ("/",)
    assert [each["found"] for each in releases[1].measurements if "found" in each] == []
    assert releases[1].notes["values"] == 1


def test_a_full_table_stops_the_stream_and_names_no_value() -> None:
    with pytest.raises(EngineInputError, match=r"max_keys = 2.*Nothing is lost.*raise max_keys") as error:
        run(stream({"max_keys": 2}), [["secret a", "secret b", "secret c"]])
    assert "secret" not in str(error.value)
    assert error.value.__suppress_context__


def test_a_state_of_another_width_or_with_parts_missing_is_refused() -> None:
    engine, _ = run(stream(), CROWD[:2])
    for changed in (
        {name: array for name, array in engine.state().items() if name != "found/texts"},
        {**engine.state(), "found/texts": np.zeros((0, 3), np.uint64)},
        {name: array for name, array in engine.state().items() if name != "keys/new"},
    ):
        with pytest.raises(EngineInputError):
            build_engine(stream()).restore(changed)


def test_finding_and_counting_share_the_budget_and_say_so() -> None:
    engine = build_engine(stream())
    assert isinstance(engine, GrowingBlocks)
    told = engine.guarantee()
    assert told.mu_squared == engine.config.shares.mu_squared_of(engine.config.shares.whole)
    (finding,) = [each for each in told if each.account == "values"]
    assert finding.mu_squared == Fraction(3, 20) * (told.mu_squared or 0)
    assert "nobody listed" in finding.name
    assert "Of delta" in told.note


def test_questions_are_answered_with_values_that_were_found_meanwhile() -> None:
    asked = stream()
    _, releases = run(asked, CROWD)
    measured = [(step, each) for step, release in enumerate(releases) for each in release.measurements]
    answers = part("tabular", "answers")(asked, measured, len(CROWD) - 1)
    assert set(answers.fields["page"].listed) == {*COMMON, "other"}


def test_validate_and_explain_say_how_many_rows_a_value_needs() -> None:
    asked = stream()
    engine, view = build_engine(asked), part("tabular", "view")
    assert isinstance(engine, GrowingBlocks)
    assert engine.config.finding is not None
    needed = math.ceil(engine.config.finding.threshold(10))
    for said in (list(view.warnings(asked)), list(view.remarks(asked))):
        (line,) = [each for each in said if "found" in each]
        assert f"once {needed:,} rows" in line
        assert "15% of the noise budget and 20% of delta" in line
    assert "page (up to 64 that are found)" in view.domain(asked)
    assert not list(view.warnings(contract_case("tabular").stream("default")))
