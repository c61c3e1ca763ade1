"""Engine markov from a configuration: what is refused and how to fix it, what explain says, a job without Kafka."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.protocol.ingest.spec import SourceSpec
from agents.show.report import section_html
from agents.show.view import view_of
from agents.show.views.markov import leakage, leakage_lines, leakage_sections
from engines.core.accounting.streams import Price, totals
from engines.core.registry import build_domain, build_engine
from engines.markov.engine import Markov
from schemas.config import Config, parse_config
from schemas.config.engines.markov import MatrixFileError, read_matrix
from schemas.errors import ConfigError

GOOD = """
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "zones"
engine = "markov"
source = "raw.zones"
[streams.privacy]
epsilon = 2.0
unit = "replace"
user = "u"
max_contributions = 10
max_per_step = 1
[streams.time]
field = "t"
format = "s"
start = "2020-01-01T00:00:00"
step = "1h"
clock = "replay"
[streams.domain]
kind = "states"
field = "zone"
values = ["a", "b", "c"]
population = 300
transition = "chain.csv"
[streams.options]
horizon = 10
"""
CHAIN = "0.9,0.1,0\n0.05,0.9,0.05\n0,0.1,0.9\n"


def parsed(folder: Path, text: str = GOOD, chain: str = CHAIN) -> Config:
    (folder / "chain.csv").write_text(chain)
    return parse_config(text, folder=folder)


def changed(*pairs: tuple[str, str]) -> str:
    text = GOOD
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


PER_STEP = ("max_contributions = 10", 'max_contributions = 1\nper = "1h"')


@pytest.mark.parametrize(
    ("changes", "key", "reason", "fix"),
    [
        ([('unit = "replace"', 'unit = "user"')], "privacy.unit", "needs engine", 'unit = "replace"'),
        ([("max_per_step = 1\n", "")], "privacy.max_per_step", "one state in a step", "max_per_step = 1"),
        ([('user = "u"\n', "")], "privacy.user", "can bound only", "user ="),
        ([("horizon = 10\n", "")], "options.horizon", "every user is charged in every step", "horizon"),
        ([("= 10\nmax_per", "= 11\nmax_per")], "privacy.max_contributions", "more than the 10 steps", "= 10"),
        ([("= 10\nmax_per", "= 9\nmax_per")], "privacy.max_contributions", "no longer be counted", "unseen"),
        (
            [('transition = "chain.csv"\n', ""), ("source", 'mode = "paper"\nsource')],
            "domain.transition",
            "declared",
            "CSV",
        ),
        ([("horizon = 10", 'horizon = 10\nallocation = "leakage"')], "options.allocation", "ONE step", "per"),
        ([('["a", "b", "c"]', '["a", "b", "a"]')], "domain.values", "one state twice", "once"),
        ([("population = 300", "population = 0")], "domain.population", "1", ""),
    ],
)
def test_what_is_refused_names_key_reason_and_fix(
    tmp_path: Path, changes: list[tuple[str, str]], key: str, reason: str, fix: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(tmp_path, changed(*changes))
    found = [problem for problem in caught.value.problems if problem.key == f"streams[0].{key}"]
    assert found, caught.value
    assert reason in found[0].reason
    assert fix in found[0].fix


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        ("0.9,0.1,0\n0.05,0.9,0.04\n0,0.1,0.9\n", "line 2 sums to 0.99"),
        ("0.9,0.1,0\n0.05,0.9,0.05\n", "2 rows, but there are 3 states"),
        ("0.9,0.1\n0.05,0.9\n0,0.1\n", "line 1 has 2 entries"),
        ("1.9,-0.9,0\n0.05,0.9,0.05\n0,0.1,0.9\n", "line 1 holds a value that is not a probability"),
        ("0.9,0.1,x\n0.05,0.9,0.05\n0,0.1,0.9\n", "not a probability"),
        ("nan,0.1,0\n0.05,0.9,0.05\n0,0.1,0.9\n", "not a probability"),
        ("from,to,probability\na,a,1\nb,b,1\n", 'state "c" sums to 0'),
        ("from,to,probability\na,a,1\na,a,1\nb,b,1\nc,c,1\n", "second time"),
        ("from,to,probability\na,d,1\n", "line 2 does not name two states"),
    ],
)
def test_a_file_that_is_no_transition_matrix_is_refused_by_its_line(tmp_path: Path, chain: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(tmp_path, chain=chain)
    (problem,) = [problem for problem in caught.value.problems if problem.key == "streams[0].domain.transition"]
    assert reason in problem.reason
    assert "row of probabilities" in problem.fix


def test_a_file_of_moves_is_the_matrix_and_bytes_that_are_no_text_are_refused() -> None:
    moves = b"from,to,probability\na,b,1\nb,a,0.5\nb,(unseen),0.5\n(unseen),a,1\n"
    found = read_matrix(moves, ("a", "b"), unseen=True)
    assert list(zip(found.rows.tolist(), found.columns.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 2), (2, 0)]
    with pytest.raises(MatrixFileError, match="not a CSV file"):
        read_matrix(b"\xff\xfe", ("a",), unseen=False)


def test_the_fingerprint_knows_the_chain(tmp_path: Path) -> None:
    one = parsed(tmp_path).streams[0].fingerprint_fields()
    two = parsed(tmp_path, chain="1,0,0\n0,1,0\n0,0,1\n").streams[0].fingerprint_fields()
    assert one != two
    assert {key for key in one if one[key] != two[key]} == {"domain"}


def test_users_are_bounded_and_their_budgets_add_up_under_replacement(tmp_path: Path) -> None:
    """The bound is what makes a replaced user's records few: without it nothing holds."""
    config = parsed(tmp_path)
    stream = config.streams[0]
    assert stream.contributions == 10
    assert stream.event_epsilon == Fraction(1, 5)
    spec = SourceSpec.from_stream(stream, build_domain(stream), key=bytes(16), partitions=2)
    assert spec.bounds is not None
    assert (spec.bounds.max_contributions, spec.bounds.max_per_step) == (10, 1)
    assert spec.partitioner == "murmur2"
    with pytest.raises(ConfigError, match="user_key_file"):
        SourceSpec.from_stream(stream, build_domain(stream), key=None, partitions=2)
    (total,) = totals(config)
    assert (total.unit, total.who, total.lifetime) == ("user", "u", Price(Fraction(2), 0))


def lines(folder: Path, *changes: tuple[str, str], chain: str = CHAIN) -> str:
    engine = build_engine(parsed(folder, changed(*changes), chain).streams[0])
    assert isinstance(engine, Markov)
    return " ".join(leakage_lines(engine))


def test_explain_shows_the_leakage_curve(tmp_path: Path) -> None:
    told = lines(tmp_path)
    assert "At worst 1.65" in told  # of the 2 that ten steps cost together
    engine = build_engine(parsed(tmp_path).streams[0])
    assert isinstance(engine, Markov)
    assert (curve := leakage(engine)) is not None
    assert len(curve.total) == 10
    assert curve.total == pytest.approx(curve.total[::-1])  # the chain is symmetric
    assert curve.total[0] < curve.total[5]
    endless = lines(tmp_path, PER_STEP, ("horizon = 10\n", ""))
    assert "Without an end" in endless
    weak = "0.5,0.25,0.25\n0.25,0.5,0.25\n0.25,0.25,0.5\n"
    held = lines(tmp_path, PER_STEP, ("horizon = 10", 'horizon = 10\nallocation = "leakage"'), chain=weak)
    assert "At worst 2," in held
    assert "not known" in lines(tmp_path, ('transition = "chain.csv"\n', ""))
    assert "beyond every bound" in lines(tmp_path, PER_STEP, ("horizon = 10\n", ""), chain="1,0,0\n0,1,0\n0,0,1\n")


def test_the_report_draws_the_leakage_of_the_steps_it_shows(tmp_path: Path) -> None:
    engine = build_engine(parsed(tmp_path).streams[0])
    assert isinstance(engine, Markov)
    starts = [datetime(2024, 1, 1, hour) for hour in range(4)]
    (section,) = leakage_sections(engine, starts)
    assert section.heading == "Temporal privacy leakage"
    assert "<img" in section_html(section)
    assert leakage_sections(engine, []) == []
    unknown = build_engine(parsed(tmp_path, changed(('transition = "chain.csv"\n', ""))).streams[0])
    assert isinstance(unknown, Markov)
    assert leakage_sections(unknown, starts) == []


def test_a_chain_that_nobody_leaves_can_not_hold_leakage_for_ever(tmp_path: Path) -> None:
    text = changed(PER_STEP, ("horizon = 10", 'allocation = "leakage"'))
    stream = parsed(tmp_path, text, "1,0,0\n0,1,0\n0,0,1\n").streams[0]
    with pytest.raises(ValueError, match="declare a horizon"):
        build_engine(stream)


def test_the_view_has_figures_for_steps_with_and_without_a_release(tmp_path: Path) -> None:
    stream = parsed(tmp_path).streams[0]
    shown = view_of(stream)
    engine: Any = build_engine(stream)
    assert "300 users" in shown.domain(stream)
    assert shown.error_model(stream, engine.guarantee()).answers[0].deviations[0] == pytest.approx(14.1, abs=0.1)
    [error] = shown.metrics(stream)
    assert error.said({"mse": 4.0}) == "2 users"
    assert error.said(orjson.loads(orjson.dumps({"mse": float("nan")}))) == "nothing compared"
    assert list(shown.sections(stream, None, [])) == []  # type: ignore[arg-type]
