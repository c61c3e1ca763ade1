"""The library runs every installed engine and mode, and releases what the job's own code releases of the same rows."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.local.offline.simulate import simulate
from engines import StepRelease, configure
from engines.checks.contract_case import contract_case
from schemas.config import ENGINES, config_from_mapping
from schemas.config.load import NO_CLUSTER

pytestmark = pytest.mark.seconds(0.4)

CASES = [(name, mode) for name, spec in ENGINES.items() for mode in spec.facts.modes]
START, STEP, STEPS, ROWS, USERS = 1_577_836_800, 3600, 3, 60, 25


def tables_of(engine: str, mode: str) -> dict[str, Any]:
    """The contract test's stream of an engine, as a notebook would write it."""
    return contract_case(engine).stream(mode).model_dump()


def rows_of(engine: str, mode: str) -> list[dict[str, Any]]:
    """Sorted by time, users over their bound among them."""
    case = contract_case(engine)
    stream, chance = case.stream(mode), random.Random(11)
    rows = []
    for row in range(ROWS):
        at = START + row * STEP * STEPS // ROWS
        fields = case.event(stream.domain, chance)
        rows.append({**fields, "t": at, **({"u": f"u{chance.randrange(USERS)}"} if stream.privacy.user else {})})
    return rows


def reopened(tables: dict[str, Any], rows: list[dict[str, Any]], state: Path) -> tuple[list[StepRelease], str]:
    """What is released where the stream is opened again for each step, and what is promised."""
    releases: list[StepRelease] = []
    for until in range(1, STEPS + 1):
        with configure(tables, insecure_seed=5, state=state) as stream:
            releases += stream.run(rows, until=until)
    return releases, " ".join(str(stream.guarantee()).split())


@pytest.mark.parametrize(("engine", "mode"), CASES)
def test_it_goes_on_from_its_file(engine: str, mode: str, tmp_path: Path) -> None:
    tables, rows = tables_of(engine, mode), rows_of(engine, mode)
    whole = configure(tables, insecure_seed=5).run(rows, until=STEPS)
    parts, said = reopened(tables, rows, tmp_path / "s.state")
    assert [each.ledger["chain"] for each in parts] == [each.ledger["chain"] for each in whole]
    assert [replace(each.taken, left=0) for each in parts] == [replace(each.taken, left=0) for each in whole]
    assert not any(each.ledger["guarantee"]["private"] for each in parts)
    assert said.startswith("!! NOT PRIVATE: an insecure seed")
    assert "PUBLIC BY ASSUMPTION" in said
    assert "topic" not in said, said
    assert " tick" not in said, said


@pytest.mark.parametrize("engine", ENGINES)
def test_it_releases_what_simulate_releases(engine: str, tmp_path: Path) -> None:
    tables, rows = tables_of(engine, "default"), rows_of(engine, "default")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = config_from_mapping({"kafka": NO_CLUSTER, "streams": [tables]})
    (done,) = simulate(config, tmp_path / "rows.jsonl", tmp_path / "out", seed=5)
    expected = [json.loads(line)["digest"] for line in (done.folder / "ledger.jsonl").read_text().splitlines()]
    releases = configure(tables, insecure_seed=5).run(rows, until=STEPS)
    assert [each.ledger["digest"] for each in releases] == expected
    assert len({each.ledger["draw"] for each in releases}) == len(releases)
    assert [each.ledger["previous_chain"] for each in releases[1:]] == [each.ledger["chain"] for each in releases[:-1]]
    assert sum(each.taken.accepted for each in releases) == done.events
    assert (
        sum(each.taken.over_bound for each in releases) == done.counts.get("OVER_BOUND", 0) > 0
        or tables["privacy"]["user"] is None
    )
