"""Every scale of every engine, halved by machine: each such mutant must break a coupled pair.

A site is a call that says how large noise is (`SCALES`). Its argument is rewritten in the function's syntax tree and
the function's code replaced while the mutant lives: nothing is imported anew.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

ENGINES = Path(__file__).resolve().parents[3] / "engines"
APART = {"checks", "specs", "core/noise", "core/accounting"}
"""What no noise of an engine comes from, or what tests/noise holds to its law."""

SCALES: Mapping[str, tuple[int | str, str]] = {
    "laplace_mechanism": (1, "({}) / 2"),
    "gaussian_mechanism": (1, "({}) / 4"),
    "binomial_mechanism": (1, "({}) // 4"),
    "laplace_exceeds": ("scale", "({}) / 2"),
    "exponential_mechanism": ("epsilon", "2 * ({})"),
    "laplace_nodes": (2, "({}) / 2"),
    "gaussian_node": (1, "({}) / 4"),
    "EpochsCounter": ("cost", "2 * ({})"),
    "with_best_arity": (0, "2 * ({})"),
    "fitted_to": (1, "2 * ({})"),
    "counter": (0, "2 * ({})"),
    "calibrated": (0, "2 * ({})"),
    "scale_for": (1, "2 * ({})"),
    "sigma_squared_for": (0, "({}) / 2"),
    "sigma_squared_of": (1, "4 * ({})"),
}
"""Which argument of which function is a scale or a budget, and what half the noise makes of it."""


@dataclass(frozen=True, slots=True)
class Site:
    """A call where noise gets its size. `engine` is the folder or file below `engines`, or below `engines/core`."""

    engine: str
    module: str
    function: str
    called: str
    line: int
    span: tuple[int, int, int | None, int | None]

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line} {self.called} in {self.function}"


@cache
def every_site() -> tuple[Site, ...]:
    """Return all sites, in the order of the files."""
    return tuple(_sites())


def _sites() -> Iterator[Site]:
    for path in sorted(ENGINES.rglob("*.py")):
        parts = path.relative_to(ENGINES).parts
        if APART & {parts[0], "/".join(parts[:2])}:
            continue
        module = ".".join(("engines", *parts)).removesuffix(".py").removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        if not any(scale in text for scale in SCALES):
            continue
        for function, call in _calls(ast.parse(text)):
            called = _called(call)
            if called in SCALES and _argument(call, called) is not None:
                yield Site(parts[parts[0] == "core"], module, function, called, call.lineno, _span(call))


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yield calls whose value is used, each with the qualified name of the function around it."""
    discarded = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}

    def below(node: ast.AST, name: str) -> Iterator[tuple[str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and not name.count("("):
                inner = f"{name}.{child.name}" if name else child.name
            if isinstance(child, ast.Call) and name and id(child) not in discarded:
                yield name, child
            yield from below(child, inner)

    return below(tree, "")


def _span(call: ast.Call) -> tuple[int, int, int | None, int | None]:
    return call.lineno, call.col_offset, call.end_lineno, call.end_col_offset


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _argument(call: ast.Call, called: str) -> ast.expr | None:
    which, _ = SCALES[called]
    if isinstance(which, int):
        return call.args[which] if which < len(call.args) else None
    return next((keyword.value for keyword in call.keywords if keyword.arg == which), None)


@contextmanager
def mutated(site: Site) -> Iterator[None]:
    """Halve the noise at one site while this is entered."""
    module = importlib.import_module(site.module)
    function = _function(module, site.function)
    before = function.__code__
    function.__code__ = _halved(module, site, before)
    _forget_caches()
    try:
        yield
    finally:
        function.__code__ = before
        _forget_caches()


def _function(module: ModuleType, name: str) -> FunctionType:
    found: Any = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    for step in ("fget", "func", "__func__", "__wrapped__"):
        while hasattr(found, step):
            found = getattr(found, step)
    assert isinstance(found, FunctionType), name
    return found


def _halved(module: ModuleType, site: Site, before: CodeType) -> CodeType:
    path = inspect.getsourcefile(module)
    assert path is not None
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    [call] = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _span(node) == site.span]
    which, template = SCALES[site.called]
    argument = _argument(call, site.called)
    assert argument is not None
    new = ast.parse(template.format(ast.unparse(argument)), mode="eval").body
    if isinstance(which, int):
        call.args[which] = new
    else:
        next(keyword for keyword in call.keywords if keyword.arg == which).value = new
    compiled = compile(ast.fix_missing_locations(tree), path, "exec")
    [code] = [each for each in _codes(compiled) if (each.co_qualname, each.co_firstlineno) == _name(before)]
    return code


def _name(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _forget_caches() -> None:
    """Forget what `lru_cache` remembers of the other code."""
    for name, module in list(sys.modules.items()):
        if name.startswith("engines."):
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if callable(clear):
                    clear()
