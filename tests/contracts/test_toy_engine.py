"""An engine of another distribution: five files, and every command and check has it.

The files are those of the folder `toy`, laid out as an installer would: modules, and an entry point.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path

import pytest

from schemas.config.engines.discovery import GROUP, load_specs
from schemas.errors import PrivstreamError

pytestmark = pytest.mark.seconds(3)

ROOT = Path(__file__).resolve().parents[2]
TOY = Path(__file__).parent / "toy"
MOST_FILES = 5
TESTS_FAILED = 1
"""Exit code of pytest; it has others where it could not run them."""
CONFIG = """
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "counted"
engine = "toy"
source = "raw.counted"
[streams.privacy]
epsilon = 2.0
unit = "user"
user = "u"
max_contributions = 2
[streams.time]
field = "t"
format = "s"
start = "2020-01-01T00:00:00"
step = "1h"
clock = "replay"
[streams.domain]
kind = "anything"
field = "what"
"""
START = 1_577_836_800


def install(folder: Path, *, name: str = "toy", value: str = "toy.spec:SPEC", dist: str = "toy") -> Path:
    """Lay the toy out in a folder; returns it. What its author writes is `author_files`."""
    if not (folder / "toy").exists():
        shutil.copytree(TOY, folder / "toy", ignore=shutil.ignore_patterns("__pycache__"))
    about = folder / f"{dist}-1.0.dist-info"
    about.mkdir()
    (about / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value}\n")
    # Of the installer.
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
    return folder


def author_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "METADATA"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = install(tmp_path_factory.mktemp("site"))
    (folder / "toy.toml").write_text(CONFIG)
    (folder / "user.key").write_bytes(bytes(32))
    rows = [f"{START + 3600 * step + row},user-{row},a" for step in range(4) for row in range(30)]
    (folder / "rows.csv").write_text("\n".join(["t,u,what", *rows]) + "\n")
    return folder


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        | {"PRIVSTREAM_USER_KEY_FILE": str(folder / "user.key")},
        capture_output=True,
        text=True,
    )


COMMANDS = """
import json, sys
from typer.testing import CliRunner
from agents.cli.app import build_app
app = build_app()
done = [CliRunner().invoke(app, arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([(each.exit_code, each.output) for each in done]))
"""


def privstream(folder: Path, *commands: Sequence[object]) -> list[tuple[int, str]]:
    """Exit code and output of each command, all in one process."""
    done = run(folder, "-c", COMMANDS, json.dumps([list(map(str, command)) for command in commands]))
    assert done.returncode == 0, done.stdout + done.stderr
    return [(code, output) for code, output in json.loads(done.stdout.splitlines()[-1])]


LIVE_PAGE = """
import json, sys
from agents.show.view import view_of
from agents.readers.watch.public import StreamSeen
from schemas.config import load_config
(stream,) = load_config(sys.argv[1]).streams
seen = StreamSeen(stream, view_of(stream).picture(stream))
for line in open(sys.argv[2], "rb"):
    seen.take("ledger", None, b"", line)
seen.settle(0.0, 99)
print(json.dumps(seen.summary()))
"""


def test_it_is_five_files(tmp_path: Path) -> None:
    assert len(author_files(install(tmp_path))) <= MOST_FILES


def test_commands_have_it(installed: Path) -> None:
    config, out, begun = installed / "toy.toml", installed / "out", installed / "begun.toml"
    answers = ["privacy.user=u", "privacy.max_contributions=2", "time.field=t", "domain.field=what"]
    answers = [
        part for each in (*answers, f"privacy.user_key_file={installed / 'user.key'}") for part in ("--set", each)
    ]
    init, checked, validated, explained, simulated, tuned = privstream(
        installed,
        ["init", "--engine", "toy", "--out", begun, "--from", installed / "rows.csv", *answers],
        ["validate", begun],
        ["validate", config],
        ["explain", config, "--json"],
        ["simulate", config, installed / "rows.csv", "--out", out, "--insecure-seed", 7],
        ["tune", config, installed / "rows.csv", "--runs", 1],
    )
    assert init[0] == 0, init[1]
    assert "stream rows, raw.rows -> rows.synthetic, engine toy" in init[1]
    assert checked[0] == 0, checked[1]
    assert validated[0] == 0, validated[1]
    assert "engine toy (default)" in validated[1]
    assert explained[0] == 0, explained[1]
    assert "number of events of a step" in explained[1]
    assert simulated[0] == 0, simulated[1]
    (ledger,) = out.rglob("ledger.jsonl")
    assert len(ledger.read_text().splitlines()) == 4
    page = (out / "report.html").read_text()
    assert "last error" in page
    assert "after the last step" in page, "a verdict, of the figures that there are"
    assert "engine toy does not say" in page
    assert "A figure of engine toy, whose distribution does not explain it." in page
    shown = run(installed, "-c", LIVE_PAGE, config, ledger)
    assert shown.returncode == 0, shown.stderr
    page = json.loads(shown.stdout)
    assert (page["kind"], page["steps"], page["records"], page["epsilon"]) == ("counts", 4, 4, 2.0)
    assert page["mechanisms"][0]["name"] == "number of events of a step"
    assert page["chain_broken_at"] is None
    assert tuned[0] == 0, tuned[1]
    assert "epsilon 2: max_contributions = " in tuned[1]


def on_toy(folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    tests = [f"tests/{file}" for file in files]
    return run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests, "-k", "toy")


def test_contract_tests_canaries_sealed_runs_coupled_pairs_and_the_library_have_it(installed: Path) -> None:
    contracts = ("contracts/test_engines.py", "contracts/test_canaries.py")
    done = on_toy(
        installed, *contracts, "couple/test_guarded.py", "couple/test_couple.py", "library/test_every_engine.py"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = int(done.stdout.rpartition(" passed")[0].split()[-1])
    assert passed >= 13


def test_coupled_pairs_catch_half_of_its_noise(tmp_path: Path) -> None:
    planted = install(tmp_path)
    engine = planted / "toy" / "engine.py"
    honest = "laplace_mechanism(total, self._scale,"
    assert honest in engine.read_text()
    engine.write_text(engine.read_text().replace(honest, "laplace_mechanism(total, self._scale / 2,"))
    done = on_toy(planted, "couple/test_couple.py")
    assert done.returncode == TESTS_FAILED, done.stdout + done.stderr


def entries(*folders: Path) -> list[EntryPoint]:
    found: list[Distribution] = list(distributions(path=[str(folder) for folder in folders]))
    return [entry for dist in found for entry in dist.entry_points if entry.group == GROUP]


def test_two_engines_of_one_name_are_refused_by_their_distributions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path)
    install(tmp_path, dist="other")
    with pytest.raises(
        PrivstreamError, match=r'"toy" is installed twice.*distribution (toy|other) 1.0.*(toy|other) 1.0'
    ):
        load_specs(entries(tmp_path))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("engines.specs.nowhere:SPEC", "cannot be loaded.*ModuleNotFoundError"),
        ("engines.specs.spatial:NOTHING", "cannot be loaded.*AttributeError"),
        ("engines.core.contract:Engine", "no EngineSpec"),
        ("engines.specs.spatial:SPEC", 'calls itself "spatial"'),
    ],
)
def test_what_is_no_engine_is_refused_by_its_distribution(tmp_path: Path, value: str, said: str) -> None:
    install(tmp_path, value=value, dist="broken")
    with pytest.raises(PrivstreamError, match=f'engine "toy" of distribution broken 1.0.*{said}'):
        load_specs(entries(tmp_path))


def test_a_domain_of_trips_asks_for_options_that_say_how_long_they_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "endless_trips.py").write_text(
        "from dataclasses import replace\n"
        "from engines.specs.spatial import SPEC as OTHER\n"
        "from engines.specs.trajectory import SPEC as TRIPS\n"
        "SPEC = replace(TRIPS, name='toy', options=OTHER.options)\n"
    )
    install(tmp_path, value="endless_trips:SPEC", dist="broken")
    with pytest.raises(PrivstreamError, match="no TripOptionsSection"):
        load_specs(entries(tmp_path))


def test_no_engine_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PrivstreamError, match="make setup"):
        load_specs(entries(tmp_path))


def test_a_spec_can_be_imported_first_of_all() -> None:
    """Specs and the configuration know each other: whatever is imported first must find the other."""
    for first in ("engines.specs.spatial", "schemas.config.stream"):
        code = f"import {first}; from schemas.config import ENGINES; assert 'spatial' in ENGINES"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_a_configuration_is_read_without_any_engine() -> None:
    code = (
        "import sys; from schemas.config import load_config; load_config('examples/taxi.toml');"
        "print([n for n in sys.modules if n.startswith('engines.') and not n.startswith('engines.specs')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
