"""The reference says everything that there is: every key, command, option, metric, reason, field and name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer

import engines
from agents.cli.app import COMMANDS, build_app
from agents.protocol.release.held_out import HeldOutAudit
from engines.checks.contract_case import contract_case
from schemas.config import ENGINES
from schemas.events import Reason
from schemas.guarantee import format_percent, max_posterior
from schemas.ledger import MEASUREMENT_FIELDS, UTILITY_FIELDS
from tests.architecture.drawing import drawings
from website import diagrams, hooks, reference
from website.navigation import navigation
from website.pictures.__main__ import PICTURES
from website.reference import configuration, metrics
from website.reference.records import field_descriptions
from website.reference.source import attributes

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.seconds(0.1)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.pages()


@pytest.mark.parametrize("model", dict.fromkeys(configuration.models()), ids=lambda model: model.__name__)
def test_every_key_is_described(model: Any, pages: dict[str, str]) -> None:
    said = attributes(model)
    keys = {name: field.alias or name for name, field in model.model_fields.items() if name != "kind"}
    if model.__name__ == "Stream":
        keys = {name: key for name, key in keys.items() if name not in ("privacy", "time", "map", "domain", "options")}
    assert {name for name in keys if not said[name].doc} == set()
    page = pages["reference/configuration.md"]
    assert {key for key in keys.values() if f"| `{key}` |" not in page} == set()


def test_every_type_is_in_words(pages: dict[str, str]) -> None:
    kinds = [row.split(" | ")[1] for row in pages["reference/configuration.md"].splitlines() if row.startswith("| `")]
    assert len(kinds) > 80
    plain = [kind.replace("IP", "") for kind in kinds if '"' not in kind]
    assert [kind for kind in plain if re.search(r"[A-Z\[\]]", kind)] == []


def test_every_command_and_option_is_there(pages: dict[str, str]) -> None:
    page = pages["reference/commands.md"]
    root: Any = typer.main.get_command(build_app())
    options = {name for command in COMMANDS for each in root.commands[command].params for name in each.opts}
    assert {name for name in options if name.startswith("--") and f"`{name}`" not in page} == set()
    assert [command for command in COMMANDS if f"## `{command}`" not in page] == []


def test_every_metric_is_there(pages: dict[str, str]) -> None:
    page = pages["reference/metrics.md"]
    literal = re.compile(r'"(privstream_[a-z_]+)"')
    made = {name for path in (ROOT / "agents" / "worker").rglob("*.py") for name in literal.findall(path.read_text())}
    assert len(made) >= 20
    assert {name for name in made if f"| `{name}` |" not in page and f"| `{name}_total` |" not in page} == set()
    assert {name for name, _, _, text in metrics.found() if not text.startswith(("PRIVATE", "Public"))} == set()


def test_every_reason_and_error_is_there(pages: dict[str, str]) -> None:
    page = pages["reference/reasons.md"]
    assert [reason for reason in Reason if f"| `{reason.name}` | {int(reason)} |" not in page] == []
    assert "BudgetError" in page


def test_every_name_of_the_library_is_there(pages: dict[str, str]) -> None:
    assert [name for name in engines.__all__ if f"## `{name}`" not in pages["reference/library.md"]] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_fields_of_public_records_are_those_that_are_described(engine: str) -> None:
    case = contract_case(engine)
    stream = case.stream("default")
    release = engines.configure(stream.model_dump()).step([])
    assert set(release.ledger) == set(field_descriptions()) - {"witness", "epsilon_per", "renewal"}  # of other jobs
    assert all("step" in measurement for measurement in release.measurements)
    assert {"step", "part", "parts", "cut"} == set(MEASUREMENT_FIELDS)
    audit = HeldOutAudit(stream, 1)
    audit.on_ledger(orjson.dumps(release.ledger))
    assert set(orjson.loads(audit.measure())) == set(UTILITY_FIELDS)


def test_every_page_has_its_place_and_a_new_one_is_under_more() -> None:
    tree = navigation(["index.md", "guarantee.md", "library.md", "new.md", "notes/1.md", "choosing.md", "engines/a.md"])
    assert tree == [
        "index.md",
        {"Begin": ["choosing.md", "library.md"]},
        {"Engines": "engines/a.md"},
        {"The guarantee": "guarantee.md"},
        {"Inside": [{"Choices": ["notes/1.md"]}]},
        {"More": ["new.md"]},
    ]


def test_links_that_leave_the_docs_lead_to_copies() -> None:
    def seen(text: str) -> str:
        return hooks._LINK.sub(lambda found: hooks._seen("docs/engines/spatial.md", "engines/spatial.md", found), text)

    assert seen("[a](../guarantee.md#2-noise)") == "[a](../guarantee.md#2-noise)"
    assert seen("![b](../../benchmarks/results/spatial.png)") == "![b](../repository/benchmarks/results/spatial.png)"
    assert seen("[c](../../examples)") == "c"
    assert seen("[d](https://d.example) [e](#f) [g](gone.md)") == "[d](https://d.example) [e](#f) [g](gone.md)"
    lines = ["Text:", "- one", "- two", "", "```", "x", "- no", "```", "| a |", "- b"]
    assert list(hooks._with_lists(lines)) == ["Text:", "", *lines[1:]]


def test_every_picture_has_its_drawing_and_every_figure_of_the_guide_is_computed() -> None:
    folder = ROOT / "docs" / "images"
    drawn = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*/*.png")}
    assert set(PICTURES) <= drawn
    assert {name for name in drawn if name.startswith(("engines/", "choosing/"))} == set(PICTURES)
    guide = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+ %) \|", guide, re.MULTILINE)
    assert len(rows) >= 6
    assert [(epsilon, format_percent(max_posterior(float(epsilon)))) for epsilon, _ in rows] == rows


def test_drawings_are_drawn() -> None:
    for text in drawings().values():
        svg = diagrams.as_svg(text)
        for name in re.findall(r"\b\w+\b(?= -->)", text):
            assert f">{name}</text>" in svg or f"{name}[" in text
        assert svg.count('<path d="M') - 1 >= text.count("-->")
    with pytest.raises(AssertionError, match="cannot draw"):
        diagrams.as_svg("a --> b{choice}")
