"""Every benchmark that the Makefile has a target for runs at its smallest size, see `benchmarks.size`, to its end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agents.local.broker.embedded import BOOTSTRAP_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
RECIPE = re.compile(r"^bench-([a-z]+):.*\n\t.*-m benchmarks\.(\w+)", re.MULTILINE)
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = dict(RECIPE.findall(MAKEFILE))
"""Names, and the module of each."""


def sources(module: str) -> str:
    """All code of a benchmark."""
    path = ROOT / "benchmarks" / module
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return "\n".join(file.read_text() for file in files)


def has_a_smallest_size(module: str) -> bool:
    """Whether it asks for the size, or takes its data from where they are made up."""
    return re.search(r"\bSMALLEST\b|\bsmallest=|\bfrom benchmarks\.data import", sources(module)) is not None


WITH_BROKER = {name for name, module in TARGETS.items() if "broker_from_env" in sources(module)}


def contents() -> Mapping[str, bytes]:
    """Of the results that are in the repository."""
    return {path.name: path.read_bytes() for path in (ROOT / "benchmarks" / "results").iterdir()}


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.forks"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def run(forks: subprocess.Popen[str], name: str, folder: Path, **environment: str) -> None:
    module, before = TARGETS[name], contents()
    assert has_a_smallest_size(module), f"give benchmarks.{module} a smallest size, see benchmarks/size.py"
    assert forks.stdin is not None
    assert forks.stdout is not None
    told = {
        "module": f"benchmarks.{module}",
        "environment": {"SIZE": "smallest", "TMPDIR": str(folder), **environment},
        "folder": str(folder),
    }
    print(json.dumps(told), file=forks.stdin, flush=True)
    assert forks.stdout.readline() == "0\n", (folder / "stderr").read_text()[-6000:]
    found = json.loads((folder / "stdout").read_text().strip().splitlines()[-1])
    assert isinstance(found, dict)
    assert found
    assert contents() == before, "results of the smallest size were written over the true ones"


def test_the_makefile_is_read_whole() -> None:
    """Each target but `bench` itself, which runs some of them, and no other."""
    listed = re.findall(r"\bbench-([a-z]+)", MAKEFILE.partition(".PHONY:")[2].partition("\n")[0])
    assert sorted(TARGETS) == sorted(listed)
    assert sorted(TARGETS) == sorted(re.findall(r"^bench-([a-z]+):", MAKEFILE, re.MULTILINE))


def test_a_benchmark_without_a_smallest_size_is_noticed() -> None:
    assert not has_a_smallest_size("pictures")


@pytest.mark.seconds(3)
@pytest.mark.parametrize("name", sorted(TARGETS.keys() - WITH_BROKER))
def test_it_runs(forks: subprocess.Popen[str], name: str, tmp_path: Path) -> None:
    run(forks, name, tmp_path)


@pytest.mark.seconds(10)
@pytest.mark.parametrize("name", sorted(WITH_BROKER))
def test_it_runs_with_a_broker(forks: subprocess.Popen[str], name: str, tmp_path: Path, bootstrap: str) -> None:
    run(forks, name, tmp_path, **{BOOTSTRAP_VARIABLE: bootstrap})
