"""What breaks a rule of the tree is found; what keeps it is not. Part of `make check`."""

from __future__ import annotations

import grimp
import pytest

from tests.architecture.rules import (
    PARTS,
    Module,
    alias_breaches,
    chance_breaches,
    clock_breaches,
    import_breaches,
    papers_breaches,
    upward_breaches,
)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("schemas.blocks", "engines"),
        ("schemas.blocks", "agents.worker.ingest.service"),
        ("schemas.wire", "faust"),
        ("engines.spatial.papers.phdstream", "agents.protocol.release.merge"),
        ("engines.spatial.papers.phdstream", "time"),
        ("engines.spatial.points", "pathlib"),
        ("engines.spatial.points", "pandas"),
        ("engines.spatial.points", "shapely"),
        ("engines.specs.spatial", "engines.spatial.build"),
        ("engines.specs.spatial", "schemas.config.engines.discovery"),
        ("engines.specs.spatial", "numpy"),
        ("engines.core.registry", "engines.spatial.build"),
        ("engines.core.counters.tree", "engines.spatial.domain"),
        ("engines.spatial.points", "secrets"),
        ("agents.protocol.release.merge", "asyncio"),
        ("agents.protocol.release.merge", "os"),
        ("agents.protocol.release.merge", "aiokafka"),
        ("agents.protocol.release.merge", "engines.spatial.domain"),
        ("agents.protocol.release.merge", "engines.spatial"),
        ("agents.protocol.release.merge", "agents.worker.ingest.service"),
        ("agents.worker.ingest.service", "tests"),
        ("agents.worker.ingest.service", "jgo"),
    ],
)
def test_a_planted_import_is_caught(importer: str, imported: str) -> None:
    assert len(import_breaches(importer, imported)) == 1


@pytest.mark.parametrize(
    ("importer", "imported", "lazy"),
    [
        ("engines.series.config", "engines.series.papers", True),
        ("engines.series.build", "engines.series.papers", False),
        ("engines.tabular.build", "engines.series.papers", True),
        ("engines.tabular.papers.paper_table", "engines.series.papers", True),
        ("agents.show.views.series", "engines.series.papers", True),
        ("agents.show.views.spatial", "engines.tabular.papers.paper_table", True),
    ],
)
def test_a_planted_import_of_papers_is_caught(importer: str, imported: str, lazy: bool) -> None:
    assert len(papers_breaches(importer, imported, lazy=lazy)) == 1


def test_a_planted_import_upwards_and_a_planted_circle_are_caught() -> None:
    assert upward_breaches("engines.spatial.points", "engines.spatial")
    assert not upward_breaches("engines.spatial", "engines.spatial.points")
    graph = grimp.build_graph("engines", "schemas", cache_dir=None)
    graph.add_import(importer="engines.spatial.domain.box", imported="engines.spatial.points")
    assert graph.nominate_cycle_breakers("engines.spatial")
    graph.add_import(importer="engines.core.noise.source", imported="engines.core.counters.tree")
    inside = next(layers for layers in PARTS if "engines.core.noise" in layers[-1].module_tails)
    assert graph.find_illegal_dependencies_for_layers(inside)


def test_a_planted_name_for_a_type_of_arrays_is_caught() -> None:
    source = "FloatArray = npt.NDArray[np.float64]\nweights: FloatArray = np.zeros(3)"
    assert len(alias_breaches(Module("engines.series.bank", source))) == 1
    assert not alias_breaches(Module("schemas.arrays", source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("schemas.blocks", "import random"),
        ("schemas.blocks", "from uuid import uuid4"),
        ("engines.spatial.points", "import numpy as np\nnp.random.default_rng(0)"),
        ("engines.spatial.points", "from numpy import random as dice"),
        ("engines.core.noise.source", "import numpy.random"),
        ("engines.spatial.points", "import secrets"),
        ("agents.worker.engine", "import os\nseed = os.urandom(32)"),
        ("agents.worker.engine", "from os import urandom"),
        ("agents.local.broker.embedded", "import secrets"),
    ],
)
def test_a_planted_source_of_chance_is_caught(name: str, source: str) -> None:
    assert chance_breaches(Module(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("agents.protocol.release.merge", "from datetime import datetime\nnow = datetime.now()"),
        ("agents.protocol.release.merge", "import datetime as dt\nnow = dt.datetime.now(dt.UTC)"),
        ("schemas.config.timing", "import time\ntime.time()"),
    ],
)
def test_a_planted_clock_is_caught(name: str, source: str) -> None:
    assert clock_breaches(Module(name, source))


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("engines.core.counters.tree", "engines.core.noise"),
        ("engines.core.counters.tree", "numpy"),
        ("engines.core.noise.source", "secrets"),
        ("agents.protocol.release.merge", "engines.core.contract"),
        ("agents.protocol.release.merge", "agents.protocol.release.log"),
        ("agents.protocol.release.merge", "datetime"),
        ("agents.worker.ingest.service", "faust"),
        ("agents.worker.ingest.service", "time"),
        ("agents.worker.ingest.service", "agents.protocol.release.merge"),
    ],
)
def test_honest_imports_pass(importer: str, imported: str) -> None:
    assert import_breaches(importer, imported) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("engines.core.noise.source", "import secrets\nsecrets.token_bytes(32)"),
        ("agents.protocol.release.merge", "from datetime import datetime\ndatetime.fromisoformat('2016-01-01')"),
        ("agents.worker.ingest.service", "import faust\nimport time\nfrom agents.protocol import merge"),
    ],
)
def test_honest_modules_pass(name: str, source: str) -> None:
    assert chance_breaches(Module(name, source)) == []
    assert clock_breaches(Module(name, source)) == []
