"""`privstream audit` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.local.coupling import audit as audits
from agents.local.coupling.audit import Audit
from agents.local.coupling.dearest import ADVERSARIES
from agents.local.coupling.mutants import every_site, mutated
from schemas.config import Stream, load_config
from tests.commands import call
from tests.couple.planted import SHORT
from tests.couple.plants import unasked

pytestmark = pytest.mark.seconds(5)

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.toml"))
CONFIG = """
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "tiny"
engine = "spatial"
mode = "paper"
source = "raw.tiny"
format = "csv"
[streams.csv]
columns = ["x", "y", "t"]
[streams.privacy]
epsilon = 1.0
unit = "event"
[streams.time]
field = "t"
start = "now"
step = "1 month"
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0.0, 0.0, 1.0, 1.0]
[streams.options]
depth = 2
initial_steps = 4
"""


def test_a_setting_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "STEPS", SHORT)
    done = call("audit", "--only", "markov/default/0", "--runs", "2", "--seed", "1", "--workers", "1")
    assert done.exit_code == 0, done.output
    head, row = done.stdout.splitlines()[:2]
    assert all(word in head for word in ("claimed", "pairs", "largest share used", "half the noise", "verdict"))
    assert row.startswith("markov/default/0")
    assert row.endswith("kept")
    assert "pairs from --seed 1" in done.output


def test_a_stream_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any format, from now on, with steps of the calendar, the first of which are one release."""
    monkeypatch.setattr(audits, "STEPS", SHORT)
    path = tmp_path / "job.toml"
    path.write_text(CONFIG)
    done = call("audit", path, "--runs", "2", "--seed", "1", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["ok"], result["seed"]) == (True, 1)
    [found] = result["streams"]
    assert (found["name"], found["epsilon"], found["delta"], found["violations"]) == ("tiny", 1.0, 0.0, [])
    assert 0.5 < found["share"] <= 1 + 1e-9
    assert found["pairs"] >= 2
    assert "in" in found["halved"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_streams_of_every_example_can_be_audited(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random pairs are short, and the first adversaries enough; the dearest pairs are as long as the stream needs."""
    monkeypatch.setattr(audits, "STEPS", SHORT)
    monkeypatch.setattr(audits, "ADVERSARIES", ADVERSARIES[:2])
    for stream in load_config(path, {}, offline=True).streams:
        found = whole(stream)
        assert not found.violations
        assert found.halved
        assert found.share > 0.3


def whole(stream: Stream) -> Audit:
    return audits.audit(stream.name, stream, pairs=1, seed=2)


def a_stream(tmp_path: Path) -> Stream:
    path = tmp_path / "job.toml"
    path.write_text(CONFIG)
    return load_config(path, {}, offline=True).streams[0]


def test_too_little_noise_is_a_violation(tmp_path: Path) -> None:
    """Of an engine that nobody asks what it costs when it is built."""
    stream = a_stream(tmp_path)
    site = next(site for site in every_site() if site.called == "laplace_exceeds" and site.engine == "spatial")
    with unasked(), mutated(site):
        found = whole(stream)
    assert found.failed
    assert found.verdict == "VIOLATED"
    assert any("seed" in line for line in found.violations)


def test_where_half_the_noise_shows_nothing_the_audit_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "_broken", lambda *_: False)
    found = whole(a_stream(tmp_path))
    assert not found.violations
    assert found.failed
    assert found.verdict == "CANNOT FAIL"


def test_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert call("audit", "--only", "no such thing").exit_code == 2
    assert call("audit", tmp_path / "missing.toml").exit_code == 2
