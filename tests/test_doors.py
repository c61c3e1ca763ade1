"""Where private values may be looked at: a list, so that one place more is a decision. Part of `make check`.

`aggregate` functions fold private records into counts, out of the sight of sealed runs (`engines.core.noise.private`).
The door alone opens counts, and adds noise to them; these modules go through it. Only mechanisms and counters call a
sampler: noise that is drawn elsewhere meets no witness. An engine makes no source: the calls of a path are counted in
the one that it is given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from engines.core.noise.private import OPENING
from tests.architecture.rules import Module, project

AGGREGATES = """
    engines.keys.table.PeriodTable.added
    engines.markov.domain.StatesDomain.counts
    engines.series.fields.SeriesDomain.sums
    engines.core.state.Expiry.scheduled
    engines.core.state.Expiry.taken
    engines.core.state.Gathered.all
    engines.core.state.Gathered.with_batch
    engines.core.state.check_batch
    engines.core.state.check_events
    engines.core.state: aggregate(Folded.merge)
    engines.spatial.changes.grouped
    engines.spatial.held.engine.StepWork._apart
    engines.spatial.changes.Changes.moved
    engines.spatial.changes.Changes.net
    engines.spatial.changes.Changes.net_between
    engines.spatial.changes.Changes.of
    engines.spatial.split.check_counts
    engines.tabular.growing.finding.texts_of
    engines.tabular.marginals.EventRows.counts
    engines.tabular.marginals.EventRows.of
    engines.tabular.marginals.EventRows.totals
    engines.tabular.marginals.Marginals.widened
    engines.tabular.marginals.check_batch
    engines.trajectory.domain.Assembly.with_step
    engines.trajectory.ground.Ground.moved
    engines.trajectory.papers.hierarchy.PointWeights.between
    engines.trajectory.papers.hierarchy.PointWeights.of
    engines.trajectory.papers.pair_tree._Members.below
    engines.trajectory.papers.pair_tree._Members.of
    engines.trajectory.papers.pair_tree._Members.sizes
    engines.trajectory.papers.paper_trees.Paper._transitions
    engines.trajectory.default.questions.Questions.cell_pairs
    engines.trajectory.default.questions.Questions.histograms
    engines.trajectory.default.questions.Questions.of
    engines.trajectory.default.questions._number
    engines.trajectory.trips.Trips.first
"""
ADDING = ("engines.core.counters.linear", "engines.core.noise.binomial", "engines.core.noise.mechanisms")
DECIDING = ("engines.core.noise.exponential", "engines.core.noise.listing", "engines.core.noise.split")
SAMPLERS = ("discrete_laplace", "laplace_values", "discrete_gaussian", "centred_binomials")
DRAWING = ("engines.core.noise", "engines.core.counters.linear", "engines.checks.contract_checks")


def aggregates(module: Module) -> Iterator[str]:
    """Dotted names of a module's functions that are marked, or the call that marks one."""

    def below(node: ast.AST, name: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                inner = f"{name}.{child.name}" if name else child.name
                if any(isinstance(mark, ast.Name) and mark.id == "aggregate" for mark in child.decorator_list):
                    yield f"{module.name}.{inner}"
                yield from below(child, inner)
            elif isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == "aggregate":
                yield f"{module.name}: {ast.unparse(child)}"
            else:
                yield from below(child, name)

    return below(ast.parse(module.source), "")


def named(module: Module, names: tuple[str, ...]) -> bool:
    """Whether a module imports one of these names, or takes it as an attribute."""
    return any(full.rpartition(".")[2] in names for _, full in module.mentions)


def test_functions_that_see_private_records_are_these() -> None:
    found = {name for module in project() if module.name != "engines.core.noise.private" for name in aggregates(module)}
    listed = {line.strip() for line in AGGREGATES.strip().splitlines()}
    assert found == listed, f"new: {found - listed}; gone: {listed - found}"


def calls(module: Module, name: str) -> bool:
    """Whether a module calls something of this name."""
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
        for node in ast.walk(ast.parse(module.source))
    )


def test_the_door_alone_opens_private_values() -> None:
    assert sorted(module.name for module in project() if named(module, ("revealed",))) == sorted(OPENING)


@pytest.mark.parametrize(
    ("door", "through"), [("engines.core.noise.door.released", ADDING), ("engines.core.noise.door.opened", DECIDING)]
)
def test_private_values_go_through_the_door_in_these_modules(door: str, through: tuple[str, ...]) -> None:
    found = {module.name for module in project() if any(full == door for _, full in module.mentions)}
    assert found == set(through)


def test_engines_are_given_their_source() -> None:
    made = {module.name for module in project() if module.name.startswith("engines.") and calls(module, "NoiseSource")}
    assert made == {"engines.core.noise.source"}


def test_only_mechanisms_and_counters_draw_noise() -> None:
    drawing = [module.name for module in project() if named(module, SAMPLERS)]
    assert drawing
    assert [name for name in drawing if not name.startswith(DRAWING)] == []


@pytest.mark.parametrize(
    "source", ["@aggregate\ndef f(): ...", "class A:\n    @aggregate\n    def f(self): ...", "g = aggregate(A.f)"]
)
def test_a_planted_aggregate_is_seen(source: str) -> None:
    assert len(list(aggregates(Module("engines.spatial.x", source)))) == 1


@pytest.mark.parametrize(
    "source",
    ["from engines.core.noise import discrete_laplace", "from engines.core import noise\nnoise.discrete_laplace"],
)
def test_a_planted_sampler_is_seen(source: str) -> None:
    assert named(Module("engines.spatial.x", source), SAMPLERS)
