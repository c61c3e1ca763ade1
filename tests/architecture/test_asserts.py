"""An assert tells the type checker what is known; what somebody else can cause is refused with a sentence."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def narrows(test: ast.expr) -> bool:
    """`isinstance(...)`, or `... is not None`."""
    if isinstance(test, ast.Call):
        return isinstance(test.func, ast.Name) and test.func.id == "isinstance"
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
        return ast.unparse(test.comparators[0]) == "None"
    return False


def others(source: str) -> list[int]:
    """Lines with an assert of another kind."""
    nodes = ast.walk(ast.parse(source))
    return [node.lineno for node in nodes if isinstance(node, ast.Assert) and not narrows(node.test)]


def test_no_assert_of_the_job_says_more_than_a_type() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "agents").rglob("*.py"))
        for line in others(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_what_it_finds() -> None:
    assert others("assert x is not None\nassert isinstance(x, int), 'why'") == []
    assert others("assert x > 0\nassert x is None") == [1, 2]
