"""`explain --registry`: an entry says what the explanation says, and what it cannot know is left to fill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from agents.cli.app import build_app
from agents.show.explain import explain
from agents.show.explain.registry import TO_FILL, registry
from engines.checks.contract_case import contract_case
from schemas.config import ENGINES, config_from_mapping
from tests.cli.explain_support import EVENT, config, explained, series, toml


def call(*arguments: object) -> Result:
    return CliRunner().invoke(build_app(), [str(argument) for argument in arguments])


def test_what_is_promised_is_in_the_entry() -> None:
    (found,) = registry(explained(epsilon="0.5"))["entries"]
    entry = found["deployment"]
    assert entry["privacy_loss"]["privacy_unit"] == "User-level"
    assert entry["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.5, "delta": 0.0}
    assert entry["dp_variant"]["name"] == "Pure differential privacy"
    assert entry["deployment_model"]["release_cadence"] == "1h"
    assert "Pure: epsilons of mechanisms add up" in entry["accounting"]["composition"]
    mechanisms = entry["implementation"]["mechanisms"]
    assert sum(each["epsilon_of_the_unit"] for each in mechanisms) == pytest.approx(0.5)
    assert all(each["noise"] for each in mechanisms)
    assert entry["basic"]["contact"].startswith(TO_FILL)
    assert "basic.contact" in found["to_fill"]
    assert json.dumps(entry).count(TO_FILL) == len(found["to_fill"])


def test_units_delta_and_streams_that_add_up() -> None:
    explanation = explain(config(toml(name="a"), toml(name="b"), toml(name="c", privacy=EVENT), series("default")))
    a, _, c, visits = registry(explanation)["entries"]
    assert "Streams a and b" in a["deployment"]["accounting"]["composition"]
    assert c["deployment"]["privacy_loss"]["privacy_unit"] == "Event-level"
    assert "NOT a person" in c["deployment"]["privacy_loss"]["privacy_unit_description"]
    assert visits["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-6}
    assert visits["deployment"]["dp_variant"]["name"] == "Approximate differential privacy"


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_has_an_entry(engine: str) -> None:
    stream = contract_case(engine).stream("default")
    made = config_from_mapping({"kafka": {"bootstrap": "localhost:9092"}, "streams": [stream.model_dump()]})
    (found,) = registry(explain(made))["entries"]
    entry = found["deployment"]
    assert entry["privacy_loss"]["privacy_parameters"]["epsilon"] == 2
    assert entry["implementation"]["mechanisms"]
    assert entry["dp_variant"]["data_domain"]


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "rides.toml"
    path.write_text('[kafka]\nbootstrap = "localhost:9092"\n' + toml())
    shown = call("explain", path, "--registry")
    assert shown.exit_code == 0
    assert "yours to fill" in shown.stderr
    document = json.loads(shown.stdout)
    assert [each["stream"] for each in document["entries"]] == ["rides"]
    assert json.loads(call("explain", path, "--registry", "--json").stdout) == document
