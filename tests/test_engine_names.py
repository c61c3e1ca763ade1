"""Nobody but an engine's own spec and folder knows it by its name: a new one changes nothing anywhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.config import ENGINES
from tests.architecture.rules import Module, project

ROOT = Path(__file__).resolve().parent.parent
OWN = ("agents.show.views", *(f"engines.{name}" for name in ENGINES), "engines.specs")
"""Where engines are: packages of theirs."""
ALLOWED = {
    ("agents.show.pictures", "series"): "a kind of picture has the name of the engine",
    ("agents.show.pictures", "keys"): "a kind of picture has the name of the engine",
    ("engines.checks.coupling.listing", "keys"): "a part of a table of counts",
    ("engines.core.noise.listing", "keys"): "a part of a table of counts",
    ("schemas.config.engines.keys", "keys"): "a kind of domain has the name of the engine",
    ("schemas.config.engines.series", "series"): "a kind of domain and its key have the name of the engine",
    ("schemas.config.stream", "spatial"): "an example of the key, for who left it out",
}
LISTS = {
    "tests/start/test_init.py": "what nobody can guess, by kind of domain",
    "tests/contracts/test_every_key.py": "keys that no coupled stream sets, and why, by engine",
    "tests/security/test_hostile_worker.py": "streams of three kinds of keys, in one job",
    "benchmarks/scale/streams.py": "streams of every engine, in one job",
    "benchmarks/step/big.py": "the two engines whose steps release a record for each event",
    "benchmarks/keys/zones.py": "a benchmark of two engines",
    "benchmarks/sequence/__main__.py": "a benchmark of two engines",
}
"""Files of tests and benchmarks that name several engines in one place, and why."""


def literals(module: Module) -> Iterator[str]:
    """Names of engines that stand in a module as texts."""
    for node in ast.walk(ast.parse(module.source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in ENGINES:
            yield node.value


def imports(module: Module) -> Iterator[str]:
    """Packages of engines that a module imports."""
    for _, name in module.mentions:
        for package in OWN:
            if package.startswith("engines.") and f"{name}.".startswith(f"{package}."):
                yield package


def outside(module: Module) -> bool:
    return not f"{module.name}.".startswith(tuple(f"{package}." for package in OWN))


def lists(source: str) -> Iterator[set[str]]:
    """The engines that one list, set, tuple or mapping names, where they are several."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
            each = node.keys if isinstance(node, ast.Dict) else node.elts
            texts = {key.value for key in each if isinstance(key, ast.Constant) and isinstance(key.value, str)}
            named = texts & set(ENGINES)
            if len(named) > 1:
                yield named


def test_the_job_names_no_engine() -> None:
    found = {(module.name, name) for module in project() if outside(module) for name in literals(module)}
    assert found == set(ALLOWED)


def test_schemas_and_agents_import_no_engine() -> None:
    shells = [module for module in project() if outside(module) and not module.name.startswith("engines")]
    assert {(module.name, package) for module in shells for package in imports(module)} == set()


def test_tests_and_benchmarks_list_no_engines() -> None:
    paths = [path for top in ("tests", "benchmarks") for path in sorted((ROOT / top).rglob("*.py"))]
    found = {str(path.relative_to(ROOT)) for path in paths if any(lists(path.read_text(encoding="utf-8")))}
    assert found == set(LISTS)


@pytest.mark.parametrize("source", ["TABLE = {'markov': 1}", "if engine == 'tabular': pass", "x = ('spatial',)"])
def test_a_planted_name_is_seen(source: str) -> None:
    assert list(literals(Module("agents.readers.operator.doctor", source)))


@pytest.mark.parametrize("source", ["from engines.spatial import held", "import engines.tabular.domain"])
def test_a_planted_import_is_seen(source: str) -> None:
    assert list(imports(Module("agents.readers.operator.doctor", source)))


def test_a_planted_list_is_seen() -> None:
    (found,) = lists("CASES = ['markov', 'series']")
    assert sorted(found) == "markov series".split()
