"""The tree keeps its rules. Part of `make check`."""

from __future__ import annotations

import ast
from pathlib import Path

import grimp

from tests.architecture.rules import (
    CHANCE_ALLOWED,
    LAYERS,
    PACKAGES,
    PARTS,
    RULES,
    SHOWS_PAPERS,
    alias_breaches,
    below,
    chance_breaches,
    clock_breaches,
    edges,
    import_breaches,
    imports,
    in_functions,
    ours,
    papers_breaches,
    papers_of,
    project,
    upward_breaches,
)


def test_every_import_is_an_allowed_edge() -> None:
    assert set(ours()) == {module.name for module in project()}
    breaches = [breach for edge in edges() for breach in import_breaches(*edge)]
    assert not breaches, "\n".join(breaches)


def test_no_import_runs_up() -> None:
    breaches = [breach for edge in edges() for breach in upward_breaches(*edge)]
    for found in (
        found for order in (LAYERS, *PARTS) for found in imports().find_illegal_dependencies_for_layers(order)
    ):
        breaches.append(f"{found.importer} imports {found.imported}, which stands above it or beside it")
    assert not breaches, "\n".join(breaches)


def test_every_room_has_its_layer() -> None:
    placed = {name for layer in LAYERS for name in layer.module_tails}
    assert placed == {"schemas", *imports().find_children("engines"), *imports().find_children("agents")}


def test_nothing_is_imported_in_a_circle() -> None:
    graph = grimp.build_graph(*PACKAGES, "benchmarks", cache_dir=None)
    packages = [package for package in sorted(graph.modules) if graph.find_children(package)]
    circles = {package: sorted(graph.nominate_cycle_breakers(package)) for package in packages}
    assert not any(circles.values()), {package: breakers for package, breakers in circles.items() if breakers}


def test_papers_are_asked_for_by_what_builds_their_engine_alone() -> None:
    assert {papers_of(module) for module in ours()} > {None}
    breaches = []
    for importer, imported in edges():
        if papers_of(imported) is not None:
            breaches += papers_breaches(importer, imported, lazy=in_functions(importer, imported))
    assert not breaches, "\n".join(breaches)
    shown = {(importer, papers_of(imported)) for importer, imported in edges()}
    assert shown >= SHOWS_PAPERS


def test_types_of_arrays_have_their_names_in_one_place() -> None:
    breaches = [breach for module in project() for breach in alias_breaches(module)]
    assert not breaches, "\n".join(breaches)


def test_chance_comes_from_the_noise_package_alone() -> None:
    breaches = [breach for module in project() for breach in chance_breaches(module)]
    assert not breaches, "\n".join(breaches)


def test_records_engines_and_protocol_never_ask_for_the_time() -> None:
    breaches = [breach for module in project() for breach in clock_breaches(module)]
    assert not breaches, "\n".join(breaches)


def test_no_rule_is_left_over() -> None:
    names = [module.name for module in project()]
    places = [rule.package for rule in RULES] + list(CHANCE_ALLOWED)
    assert [place for place in places if not any(below(name, place) for name in names)] == []


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
