"""Every message says what to do, and names a section of docs/operations.md that is there and belongs to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import schemas.errors
from agents.kafka.lifecycle.advice import ADVICE, PAGE, advice, explain, table
from schemas.errors import BatchError, PrivstreamError, PromiseError, RecordError, StateFileError, StepOrderError

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
HEADINGS = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
ABSTRACT = (PrivstreamError, PromiseError)
OF_THE_LIBRARY = (BatchError, StepOrderError, StateFileError)
"""For who calls it, in a notebook; no worker knows them."""
ERRORS = [
    kind
    for kind in vars(schemas.errors).values()
    if isinstance(kind, type)
    and issubclass(kind, PrivstreamError)
    and kind not in (*ABSTRACT, *OF_THE_LIBRARY, RecordError)
]


def test_the_page_holds_the_table_of_all_messages() -> None:
    found = re.search(r"<!-- advice: .* -->\n(.*)\n<!-- end of advice -->", TEXT, re.DOTALL)
    assert found is not None
    assert found[1] == table(), "python -m agents.kafka.lifecycle.advice prints the table as it should be"


@pytest.mark.parametrize("each", ADVICE, ids=lambda each: each.section)
def test_each_message_has_its_section(each: object) -> None:
    assert HEADINGS.count(each.section) == 1  # type: ignore[attr-defined]


def test_every_section_that_a_line_of_the_program_names_is_there() -> None:
    """Lines name it as `PAGE, "section"`, or with the page's name in place of `PAGE`."""
    named = set()
    for path in (ROOT / "agents").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        named |= set(re.findall(r"(?:PAGE|operations\.md), \"([^\"{]+)\"", source))
        assert not re.search(r"operations\.md[:,] ?[a-z]", source), f"{path.name} names a section otherwise"
    assert "A stream that is taken out" in named
    assert named <= set(HEADINGS)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_of_ours_has_advice_of_its_own(kind: type[PrivstreamError]) -> None:
    """An error that stops a stream or the job is never answered with "start the worker again"."""
    error = kind.__new__(kind)
    assert advice(error).section != "An error of the program"


def test_errors_of_the_library_are_raised_there_alone() -> None:
    names = [kind.__name__ for kind in OF_THE_LIBRARY]
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "agents").rglob("*.py")}
    found = {path.relative_to(ROOT).parts[1:3] for path, text in sources.items() if any(name in text for name in names)}
    assert found == {("local", "library")}


def test_of_foreign_errors_only_the_type_is_told() -> None:
    line = explain(ValueError("x = 0.123"))
    assert line.startswith("ValueError. What to do: ")
    assert "0.123" not in line
