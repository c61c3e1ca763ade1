"""Alerts fire when they should; alerts and the board ask for what a worker exposes, and call private what is."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from agents.kafka.lifecycle.refusals import BESIDE, MUCH, UNREFUSED
from tests.deployment.exposed import OURS, exposed
from tests.deployment.tools import ALERTS, BOARD, DEPLOY, ROOT, built, run

pytestmark = pytest.mark.seconds(1)

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
TESTS = DEPLOY / "rules-check" / "alerts-test.yaml"
EXPOSED = exposed()
ADDED = {"instance", "job", "namespace", "pod"}
"""Labels that Prometheus adds to every series of a target."""
MEMORY = {"process_resident_memory_bytes"}
"""No metric of ours, and it follows what is held of private records."""
NAME = re.compile(rf"\b{OURS}\w+")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("rules-check", tmp_path_factory.mktemp("rules-check"))


@pytest.fixture(scope="module")
def rules(program: Path) -> list[dict[str, Any]]:
    printed = run(program, "rules", ALERTS)
    assert printed.returncode == 0, printed.stderr
    found: list[dict[str, Any]] = json.loads(printed.stdout)
    assert found
    return found


# --- Without Go -----------------------------------------------------------------------------------------------------


def board_queries(board: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Panel and query; what Grafana fills in has some value."""
    return [
        (panel, re.sub(r"\$__rate_interval", "5m", target["expr"]))
        for panel in board["panels"]
        for target in panel.get("targets", [])
    ]


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(BOARD.read_text(encoding="utf-8"))
    return found


def unknown_names(text: str) -> set[str]:
    return {name for name in NAME.findall(text) if name not in EXPOSED}


def runbook_faults(text: str) -> list[str]:
    """Alerts without a section of their own in docs/operations.md, and sections without an alert."""
    faults = []
    alerts = re.findall(r"^ +- alert: (\w+)$", text, re.MULTILINE)
    links = re.findall(r"^ +runbook_url: (\S+)$", text, re.MULTILINE)
    sections = re.findall(r"^### (Privstream\w+)$", PAGE, re.MULTILINE)
    if links != [f"docs/operations.md#{alert.lower()}" for alert in alerts]:
        faults.append("runbook_url is not that of its alert")
    faults += [f"{name}: no section" for name in alerts if name not in sections]
    faults += [f"{name}: no alert" for name in sections if name not in alerts]
    return faults


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    text = ALERTS.read_text(encoding="utf-8")
    assert runbook_faults(text) == []
    assert runbook_faults(text.replace("alert: PrivstreamWorkerDead", "alert: PrivstreamWorkerGone"))
    assert runbook_faults(text.replace("#privstreamworkerdead", "#privstreamnoworker"))
    assert runbook_faults(text.replace("          runbook_url: docs/operations.md#privstreamnoworker\n", ""))


@pytest.mark.parametrize("file", [ALERTS, BOARD, TESTS], ids=lambda path: path.name)
def test_every_name_is_that_of_a_metric(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert NAME.search(text)
    assert unknown_names(text) == set()
    assert unknown_names(text.replace("privstream_epsilon_spent", "privstream_epsilon_paid")) == {
        "privstream_epsilon_paid"
    }


def test_the_page_lists_every_metric_and_no_other() -> None:
    table = PAGE.split("\n| metric |", 1)[1].split("\n\n", 1)[0]
    listed = set(NAME.findall(table))
    stems = {re.sub(r"_(bucket|sum|count)$", "", name) for name in EXPOSED if name.startswith(OURS)}
    assert listed == stems
    for row in table.splitlines()[2:]:
        said = "PRIVATE" in row
        for name in NAME.findall(row):
            shown = EXPOSED.get(name) or EXPOSED[f"{name}_count"]
            assert shown.private == said, f"{name}: the page and its help text disagree on what is private"


def test_the_board_keeps_private_panels_apart() -> None:
    row = ""
    for panel in board()["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
            continue
        private = any(
            name in MEMORY or EXPOSED[name].private
            for target in panel["targets"]
            for name in re.findall(rf"(?:{OURS}|process_)\w+", target["expr"])
        )
        assert row.startswith("PRIVATE") == panel["title"].startswith("PRIVATE: ") == private, panel["title"]
    ids = [panel["id"] for panel in board()["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_board_shows_every_metric() -> None:
    asked = " ".join(query for _, query in board_queries(board()))
    stems = {re.sub(r"_(bucket|sum|count)$", "", name) for name in EXPOSED if name.startswith(OURS)}
    assert {stem for stem in stems if stem not in asked} == set()


# --- By Prometheus' own parser and engine -----------------------------------------------------------------------------


def query_faults(program: Path, queries: list[str]) -> list[str]:
    """Queries that are none, or that name metrics or labels which are not there."""
    printed = run(program, "queries", given=json.dumps(queries))
    if printed.returncode:
        return [printed.stderr]
    faults = []
    for query, asked in zip(queries, json.loads(printed.stdout), strict=True):
        there = set(ADDED)
        for name, labels in asked["metrics"].items():
            if name not in EXPOSED:
                faults.append(f"{query}: there is no metric {name}")
                continue
            there |= EXPOSED[name].labels
            faults += [f"{query}: {name} has no label {label}" for label in {*labels} - EXPOSED[name].labels - ADDED]
        faults += [f"{query}: no label {label}" for label in {*asked["groups"]} - there]
    return faults


def test_the_board_asks_for_metrics_and_labels_that_are_there(program: Path) -> None:
    queries = [query for _, query in board_queries(board())]
    assert query_faults(program, queries) == []
    for right, wrong in [
        ("privstream_public_step{", "privstream_step{"),
        ('stream=~"', 'streams=~"'),
        ("sum by (", "sum by (x"),
    ]:
        planted = [query.replace(right, wrong) for query in queries]
        assert planted != queries
        assert query_faults(program, planted), wrong
    assert query_faults(program, ["rate(privstream_public_step[5m)"])


def test_alerts_ask_for_metrics_and_labels_that_are_there(program: Path, rules: list[dict[str, Any]]) -> None:
    assert query_faults(program, [rule["Expr"] for rule in rules]) == []


def test_the_example_of_an_autoscaler_asks_for_a_metric_that_is_there(program: Path) -> None:
    text = (DEPLOY / "keda" / "scaledobject.yaml").read_text(encoding="utf-8")
    (query,) = re.findall(r"^ +query: (.*)$", text, re.MULTILINE)
    assert query_faults(program, [query]) == []
    assert query_faults(program, [query.replace("lag_offsets", "lag")])


def test_what_an_alert_adds_up_or_joins_is_of_one_job() -> None:
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", ALERTS.read_text(encoding="utf-8"))
    assert grouped
    assert all(labels.startswith("namespace, job") for labels in grouped), grouped


def test_an_alert_on_private_counts_says_so_and_tells_no_value(program: Path, rules: list[dict[str, Any]]) -> None:
    asked = json.loads(run(program, "queries", given=json.dumps([rule["Expr"] for rule in rules])).stdout)
    for rule, each in zip(rules, asked, strict=True):
        private = any(EXPOSED[name].private for name in each["metrics"])
        assert rule["Labels"]["privacy"] == ("private" if private else "public"), rule["Alert"]
        assert rule["Labels"]["severity"] in {"critical", "warning", "info"}
        assert "$value" not in json.dumps(rule["Annotations"]), rule["Alert"]
        assert set(rule["Annotations"]) == {"summary", "runbook_url"}


def planted(folder: Path, right: str, wrong: str, *, file: str) -> Path:
    """A copy of rules and tests with something replaced. Returns the tests."""
    for path in (ALERTS, TESTS):
        copy = folder / path.relative_to(DEPLOY)
        copy.parent.mkdir(parents=True)
        shutil.copy(path, copy)
        if path.name == file:
            text = path.read_text(encoding="utf-8")
            assert right in text
            copy.write_text(text.replace(right, wrong), encoding="utf-8")
    return folder / TESTS.relative_to(DEPLOY)


def test_the_share_of_the_alert_is_that_of_the_log(rules: list[dict[str, Any]]) -> None:
    (rule,) = [rule for rule in rules if rule["Alert"] == "PrivstreamManyRecordsRefused"]
    assert rule["Expr"].endswith(f"> {MUCH}")


def test_what_counts_as_refused_is_what_the_log_counts() -> None:
    """In alerts and on the board: shares are of all records, and what is beside them is none."""
    for file in (ALERTS, BOARD):
        text = file.read_text(encoding="utf-8").replace('\\"', '"')
        assert set(re.findall(r'reason!~"([^"]*)"', text)) <= {"|".join((*UNREFUSED, *BESIDE)), "|".join(BESIDE)}
        assert "|".join((*UNREFUSED, *BESIDE)) in text


def test_every_alert_fires_and_does_not_fire(program: Path) -> None:
    checked = run(program, "test", TESTS)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "file", "reason"),
    [
        ("(privstream_stopped) == 1", "(privstream_stopped) == 2", ALERTS.name, "PrivstreamStreamStopped after 3m"),
        ("for: 2m", "for: 20m", ALERTS.name, "PrivstreamWorkerDead"),
        ("max by (namespace, job) (privstream_worker", "max(privstream_worker", ALERTS.name, "PrivstreamNoWorker"),
        ("max by (namespace, job) (privstream_worker", "max by (job) (privstream_worker", ALERTS.name, "NoWorker"),
        ("unless group by (namespace, job)", "unless group by (namespace)", ALERTS.name, "PrivstreamNoWorker"),
        ("max by (namespace, job, stream, part)", "max by (namespace, stream, part)", ALERTS.name, "StreamStopped"),
        (") > 0.5\n        for: 5m", ") > 0.05\n        for: 5m", ALERTS.name, "MostRecordsRefused"),
        (") > 0.05\n        for: 20m", ") > 0.03\n        for: 20m", ALERTS.name, "ManyRecordsRefused"),
        ("records_total offset 15m", "records_total", ALERTS.name, "MostRecordsRefused"),
        ("|NO_EVENT|", "|", ALERTS.name, "MostRecordsRefused"),
        ("schemas_awaited > 0\n        for: 5m", "schemas_awaited > 0\n        for: 1m", ALERTS.name, "SchemasAwaited"),
        ("expr: abs(", "expr: (", ALERTS.name, "PrivstreamClockWrong"),
        ("min by (namespace, job, stream)", "max by (namespace, job, stream)", ALERTS.name, "Horizon"),
        ("alert: PrivstreamNoWorker", "alert: PrivstreamNobody", ALERTS.name, "no such alert"),
        ("    rules:\n", "    rules:\n      - {alert: New, expr: up == 0}\n", ALERTS.name, "New"),
        ("for: 2m", "for: 2m\n        keep_firing_for: 5m", ALERTS.name, "not evaluated here"),
        ("    rules:\n", "    rules:\n      - {record: new, expr: up}\n", ALERTS.name, "not evaluated here"),
        ("    rules:\n", "    interval: 5m\n    rules:\n", ALERTS.name, "not evaluated here"),
        ("summary: \"Stream {{ $labels.stream }} has stopped", "summary: \"{{ $value", ALERTS.name, "StreamStopped"),
        ("eval_time: 3m", "eval_time: 3m30s", TESTS.name, "nothing is evaluated at 3m30s"),
        ("severity: critical", "severity: page", TESTS.name, "expected"),
        ("alert_rule_test:", "alert_rules_test:", TESTS.name, "alert_rules_test"),
    ],
)  # fmt: skip
def test_a_planted_mistake_is_found(
    program: Path, tmp_path: Path, right: str, wrong: str, file: str, reason: str
) -> None:
    checked = run(program, "test", planted(tmp_path, right, wrong, file=file))
    assert checked.returncode == 1
    assert reason in checked.stderr
