"""An epsilon that promises next to nothing is said wherever a configuration is looked at or run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import agents.kafka.lifecycle.logs
import agents.worker.process
from agents.cli.app import build_app
from agents.kafka.lifecycle.leaving import Leaving
from agents.readers.operator.doctor import config_findings
from agents.readers.watch import server
from schemas.config import Config, load_config, with_overrides

EXAMPLE = Path(__file__).parents[2] / "examples" / "taxi.toml"
SAID = "stream taxi: epsilon above 10 promises little"


def config(epsilon: float) -> Config:
    return with_overrides(load_config(EXAMPLE, {}), mode=None, epsilon=epsilon)


@pytest.mark.parametrize(("epsilon", "said"), [(10, False), (10.5, True)])
def test_doctor(epsilon: float, said: bool) -> None:
    assert any(SAID in each.detail for each in config_findings(config(epsilon))) == said


@pytest.mark.parametrize(("epsilon", "said"), [(10, False), (10.5, True)])
def test_a_worker(epsilon: float, said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = re.sub(r"(?m)^epsilon = .*$", f"epsilon = {epsilon}", EXAMPLE.read_text())
    (tmp_path / "taxi.toml").write_text(text.replace("nyc_taxi/", f"{EXAMPLE.parent}/nyc_taxi/"))
    ran: list[Any] = []
    monkeypatch.setattr(Leaving, "install", lambda self: None)  # signals and logs of this process stay as they are
    monkeypatch.setattr(agents.kafka.lifecycle.logs, "set_up", lambda level, form: None)
    monkeypatch.setattr(agents.worker.process, "run_worker", lambda loaded, **_: ran.append(loaded))
    done = CliRunner().invoke(build_app(), ["run", str(tmp_path / "taxi.toml")])
    assert ran, done.output
    assert (SAID in done.stderr) == said


def test_the_page_shows_the_sentence_it_is_sent() -> None:
    text = (Path(server.__file__).parent / "assets" / "ledger.js").read_text()
    assert 's.epsilon_warning ? [element("p", { class: "bad" }, s.epsilon_warning)]' in text
