"""Constants at which engines, protocol and formats take another way, and on which sides of each the checks are.

A threshold is a comparison with a number that is named in capitals or is a large one, or a minimum or maximum at one.
Run as a command, this imports all three with each of them noted, and prints as JSON those of which one side was never
taken: of engines in the settings of `make couple`, of the others in `tests/protocol` and `tests/schemas`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import pkgutil
import random
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ENGINES = "engines."
ROOMS = ("engines", "agents.protocol", "schemas")
APART = (
    "engines.checks", "engines.specs", "engines.core.contract", "engines.core.registry", "engines.core.answers",
    "engines.core.noise", "engines.core.accounting",
)  # fmt: skip
"""What looks at engines and what describes them; and noise and accounting, which are tested by scales and epsilons and
not by streams (tests/noise, tests/accounting)."""
NAMED, WRITTEN = 2, 16
"""The least number that is a threshold: below, it tells nothing from something."""
LIMITS = ("min", "max", "minimum", "maximum", "clip", "clipped")

Place = tuple[str, int, int]
"""Module, line and column."""
SEEN: dict[Place, set[bool]] = {}


def nodes(tree: ast.AST, function: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield comparisons and limits with a constant, and the function around each; none that decides on an error."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Assert):
            continue
        if isinstance(child, ast.If) and isinstance(child.body[-1], ast.Raise):
            for rest in child.orelse:
                yield from nodes(ast.Module([rest], []), function)
            continue
        if isinstance(child, ast.expr) and any(list(_constants(side)) for side in _sides(child)):
            yield function, child
        named = isinstance(child, ast.ClassDef | ast.FunctionDef)
        yield from nodes(child, f"{function}.{child.name}" if named else function)  # type: ignore[attr-defined]


def _sides(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.Compare():
            return [node.left, *node.comparators]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in LIMITS:
            return node.args
        case _:
            return []


def _constants(side: ast.expr) -> Iterator[ast.expr]:
    """Yield constants of an expression, but those of an index."""
    if isinstance(side, ast.Constant) or (isinstance(side, ast.Name) and side.id.isupper()):
        yield side
    for name, child in ast.iter_fields(side):
        if not (isinstance(side, ast.Subscript) and name == "slice"):
            for each in child if isinstance(child, list) else [child]:
                if isinstance(each, ast.expr):
                    yield from _constants(each)


def _large(node: ast.expr, module: ModuleType) -> bool:
    """Tell whether a constant may be a threshold. One that a function imports has no value here, and may be."""
    least = WRITTEN if isinstance(node, ast.Constant) else NAMED
    value = node.value if isinstance(node, ast.Constant) else getattr(module, getattr(node, "id", ""), NAMED)
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) >= least


def thresholds(module: ModuleType) -> Iterator[tuple[Place, str]]:
    """Yield place and name of each threshold of an imported module."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    for function, node in nodes(tree, module.__name__):
        if any(_large(each, module) for side in _sides(node) for each in _constants(side)):
            yield (module.__name__, node.lineno, node.col_offset), f"{function}: {ast.unparse(node)}"


def compared(place: Place, told: Any) -> Any:
    """Note on which sides a comparison is, and return it."""
    taken = SEEN.setdefault(place, set())
    if isinstance(told, np.ndarray) and told.dtype == bool:
        taken.update([True] if told.any() else [], [] if told.all() else [False])
    elif isinstance(told, bool | np.bool_):
        taken.add(bool(told))
    return told


def limited(place: Place, limit: Any, *given: Any, **named: Any) -> Any:
    """Note whether a limit moves its first argument, and return what it gives."""
    value = limit(*given, **named)
    compared(place, np.equal(value, given[0]))
    return value


class Noting(ast.NodeTransformer):
    """Wraps whatever may be a threshold of a module."""

    def __init__(self, module: str, tree: ast.AST) -> None:
        self._module, self._found = module, {id(node) for _, node in nodes(tree, "")}

    def visit(self, node: ast.AST) -> Any:
        found = id(node) in self._found
        made = self.generic_visit(node)
        if not found:
            return made
        place = ast.Constant((self._module, node.lineno, node.col_offset))  # type: ignore[arg-type, attr-defined]
        called = ast.Call(ast.Name("__compared__", ast.Load()), [place, made], [])  # type: ignore[list-item]
        if isinstance(made, ast.Call):
            called = ast.Call(ast.Name("__limited__", ast.Load()), [place, made.func, *made.args], made.keywords)
        return ast.copy_location(called, node)


class Loader(SourceFileLoader):
    """Loads modules with their thresholds noted, and keeps no bytecode."""

    def get_code(self, fullname: str) -> Any:
        tree = ast.parse(self.get_data(self.path))
        tree = ast.fix_missing_locations(Noting(fullname, tree).visit(tree))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(__compared__=compared, __limited__=limited)
        super().exec_module(module)


class Finder(PathFinder):
    """Finds what is noted before anything else does."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith(ROOMS) or fullname.startswith(APART):
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(fullname, spec.loader.path)
        return spec


def modules() -> list[ModuleType]:
    """Import all that may have thresholds."""
    names = [
        found.name
        for room in ROOMS
        for found in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}.")
    ]
    kept = [name for name in names if not name.startswith(APART) and not name.endswith((".fixture", ".metrics"))]
    return [importlib.import_module(name) for name in kept]


def one_sided(every: Mapping[Place, str]) -> list[str]:
    return sorted({name for place, name in every.items() if len(SEEN.get(place, ())) < 2})


def main() -> int:
    """See the module. Returns what pytest does."""
    sys.meta_path.insert(0, Finder)
    every = {place: name for module in modules() for place, name in thresholds(module)}
    engines = {place: name for place, name in every.items() if name.startswith(ENGINES)}
    from agents.local.coupling.inputs import inputs
    from agents.local.coupling.runs import CROWD, STEPS, JobRun, settings
    from engines.checks.coupling import Recorder
    from tests.couple.wide import WIDE_CROWD, WIDE_STEPS, wide

    for name, stream in (*settings(), *wide("default")):
        steps, crowd = (WIDE_STEPS, WIDE_CROWD) if "wide" in name else (STEPS, CROWD)
        drawn = inputs(stream, random.Random(name), steps=steps, crowd=crowd)
        for _ in JobRun(stream, drawn.first, Recorder(), random.Random(name), passive=True).releases():
            pass
        print(f"{name}: {len(one_sided(engines))} of {len(engines)} on one side", file=sys.stderr, flush=True)
    found = one_sided(engines)
    with contextlib.redirect_stdout(sys.stderr):
        failed = pytest.main(["-q", "-n0", "-p", "no:cacheprovider", "tests/protocol", "tests/schemas"])
    found += one_sided({place: name for place, name in every.items() if place not in engines})
    print(json.dumps(found, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
