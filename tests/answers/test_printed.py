"""How answers are printed: what is not known is said, and never as a number."""

from __future__ import annotations

import doctest

import pytest

from agents.cli import query
from agents.readers.query.run import Answered, Queried
from engines.core.answers.contract import CountAnswer, Sum, answered

TIMES = ("2020-01-01T00:00:00+00:00", "2020-01-01T01:00:00+00:00")


def shown(answer: CountAnswer, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    lines = [query._line(Answered(0, 0, *TIMES, answer))]
    query._show(lines)
    query._remarks(lines, Queried("s", (), settled=0, verified=0, compacted=0, counted_share=None))
    return capsys.readouterr()


def test_examples_in_the_text() -> None:
    assert doctest.testmod(query).attempted
    assert not doctest.testmod(query).failed


def test_what_is_cut_has_an_interval_and_no_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    whole, cut = Sum(100.0, 4.0, 1.0), answered(Sum(150.0, 5.0, 1.0), Sum(100.0, 4.0, 1.0), Sum(200.0, 8.0, 1.0))
    assert cut.standard_error is None
    assert cut.low < 100 < 200 < (cut.high or 0)  # type: ignore[operator]
    out, err = shown(cut, capsys)
    assert out.splitlines()[-1].split()[3:] == ["150", "-", *f"{cut.low:.1f} to {cut.high:.0f} 100".split()]
    assert "use the interval" in err
    out, err = shown(answered(whole, whole, whole), capsys)
    assert " 2 " in out
    assert not err


def test_steps_in_totals_alone_have_none_either_though_their_counts_cancel() -> None:
    """Totals of steps that no marginal covers can add up to exactly 0: something is shared out all the same."""
    assert answered(Sum(100.0, 4.5), Sum(100.0, 4.0), Sum(100.0, 6.0)).standard_error is None


def test_an_end_that_is_not_known_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    some = Sum(100.0, 4.0)
    assert "or more" in shown(answered(some, some, some, pending=0.5, bounded=False), capsys)[0]
    assert "unknown" in shown(answered(some, some, some, pending=0.5, bounded=False, signed=True), capsys)[0]


def test_what_nobody_measured_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    """Once a mean over steps without a reading was printed as 0 with a standard error of 0, beside "unknown"."""
    nothing = answered(Sum(0.0, 0.0), Sum(0.0, 0.0), Sum(0.0, 0.0), pending=1.0, bounded=False, signed=True)
    assert (nothing.estimate, nothing.standard_error) == (None, None)
    out, err = shown(nothing, capsys)
    assert out.splitlines()[-1].split()[3:] == ["unknown", "-", "unknown", "100.0%"]
    assert "not measured yet" in err
    assert "cut" not in err


@pytest.mark.parametrize(("verified", "loud"), [(5, False), (0, True)])
def test_steps_that_kafka_compacted_are_loud_only_where_none_is_left(
    verified: int, loud: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    query._remarks([], Queried("s", (), settled=0, verified=verified, compacted=3, counted_share=None))
    said = capsys.readouterr().err
    assert said.startswith("ATTENTION: ") == loud
    assert "3 steps could not be checked" in said
