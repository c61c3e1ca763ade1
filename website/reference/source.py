"""What sources say that objects do not: docstrings of attributes, and types as they are written."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "engines", "agents")


class Attribute(NamedTuple):
    """One annotated name of a class: the text of its type, and the docstring below it."""

    kind: str
    doc: str


@cache
def attributes(cls: type) -> dict[str, Attribute]:
    """Return annotated attributes of a class and of those that it is made of, the nearest first."""
    found: dict[str, Attribute] = {}
    for each in cls.__mro__:
        if each.__module__.split(".")[0] not in (*PACKAGES, "toy"):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for node, after in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, Attribute(ast.unparse(node.annotation), _text(after)))
    return found


def listed(cls: type) -> dict[str, str]:
    """Return what the `Attributes:` part of a docstring says of each name; several names of one line share it."""
    text = inspect.cleandoc(cls.__doc__ or "")
    _, _, part = text.partition("Attributes:\n")
    found: dict[str, str] = {}
    names: list[str] = []
    for line in part.splitlines():
        if not line.strip():
            break
        for piece in re.split(r"(?<=[.;]) (?=[a-z_]+: )", line.strip()):
            head = re.match(r"((?:\w+, )*\w+): (.*)", piece)
            if head is not None and (len(line) - len(line.lstrip()) <= 4 or piece is not line.strip()):
                names = head[1].split(", ")
                found.update(dict.fromkeys(names, head[2]))
            elif names:
                found.update({name: f"{found[name]} {piece}" for name in names})
    return found


def summary(thing: Any) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join(inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].split())


def cell(text: str) -> str:
    """Return text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table of Markdown; cells are escaped already."""
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def modules(holding: str) -> Iterator[ast.Module]:
    """Yield the tree of every module of the packages that holds a text."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if holding in text:
                yield ast.parse(text)


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""
