"""`privstream status`: a stream that refuses its records looks as ill as it is."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents.cli.dead_letters import _entry, _line, _print, _shown
from agents.cli.status import _remarks
from agents.kafka import broker_clock
from agents.kafka import status as kafka_status
from agents.kafka.lifecycle.refusals import DOUBTED, MUCH, WHAT_TO_DO
from agents.kafka.lifecycle.stops import Stop
from agents.kafka.status import Doubt, StreamStatus
from agents.protocol.formats.values import NOT_FINITE
from agents.protocol.ingest.dead_letters import DeadLetter
from schemas.blocks import Tally
from schemas.events import Reason
from tests.commands import call

TAXI = Path(__file__).parents[2] / "examples" / "taxi.toml"
MISSPELT: Tally = {"ACCEPTED": {"": 20}, "MISSING_FIELD": {"pickup_lat": 960}, "BAD_TIME": {"at": 20}}
AT_THE_SHARE: Tally = {"ACCEPTED": {"": int(1_000 * (1 - MUCH))}, "BAD_TIME": {"at": int(1_000 * MUCH)}}
STOP = Stop("taxi", "engine", None, "reason", "advice", at_ms=0)


def of(name: str, recent: Tally, totals: Tally, **others: Any) -> StreamStatus:
    said = {"ingest_lag": 0, "over": 3, "waiting": 0, "lost": 0, "source_problem": None, **others}
    return StreamStatus(
        stream=name, published=3, published_at="2016-01-02", records=0, epsilon_spent=0.0, epsilon=1.0, private=True,
        recent=recent, totals=totals, live=None, partitions=1, **said,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "health"),
    [
        (of("taxi", MISSPELT, MISSPELT), "refuses 98%"),
        (of("taxi", {"BAD_TIME": {"at": 3}}, {}), "refuses 100%"),
        (of("taxi", {}, MISSPELT), "refuses 98%"),  # blocks may be gone, and totals last
        (of("taxi", {"ACCEPTED": {"": 1000}}, MISSPELT), "ok"),  # it was, and is put right
        (of("taxi", AT_THE_SHARE, AT_THE_SHARE), "ok"),
        (of("taxi", {}, {}), "ok"),
        (of("taxi", {"OVER_BOUND": {"": 9}, "LOST": {"": 9}}, {}), "ok"),
        (of("taxi", MISSPELT, {}, doubt=Doubt("no worker", "start one")), "no worker"),
        (of("taxi", MISSPELT, MISSPELT, source_problem="gone"), "source has changed"),
        (of("taxi", MISSPELT, MISSPELT, source_problem="gone", stopped=(STOP,)), "stopped"),
    ],
)
def test_health(state: StreamStatus, health: str) -> None:
    assert state.health == health


def test_dead_letters_come_with_what_to_do_once_for_each_reason(capsys: pytest.CaptureFixture[str]) -> None:
    counts = {("taxi", "WRONG_TYPE", "lon"): 5, ("taxi", "WRONG_TYPE", "lat"): 4, ("bike", "BAD_TIME", "at"): 1}
    _print(SimpleNamespace(counts=counts, unreadable=0), [])
    told = capsys.readouterr()
    assert told.err.count("WRONG_TYPE: a number must be one") == told.err.count("BAD_TIME: set [streams.time]") == 1
    assert "must be one" not in told.out, "a program reads the counts"


def test_a_record_that_is_no_text_is_shown_as_its_schema_reads_it() -> None:
    letter = DeadLetter("taxi", "raw.taxi", 0, 7, Reason.WRONG_TYPE, "fare")
    record = SimpleNamespace(value=b"\0\0\0\0\7\1\x1b[31m")
    values = [{"user": "ann", "fare": b"\1", "at": NOT_FINITE, "note": "\x1b[31m"}]
    entry = _entry(letter) | _shown(record, values)
    assert entry["read"] == [{"user": "ann", "fare": "bytes \\x01", "at": "NaN", "note": "\x1b[31m"}]
    told = _line(entry)
    assert '"user": "ann"' in told
    assert "\x1b" not in told
    assert _line(_entry(letter) | _shown(record, None)).endswith(r"\x00\x00\x00\x00\x07\x01\x1b[31m")
    assert _line(_entry(letter) | _shown(None, None)).endswith("no longer in the source")


def test_what_is_refused_is_named_with_its_share_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def states(_: object) -> list[StreamStatus]:
        return [of("taxi", MISSPELT, MISSPELT), of("bike", AT_THE_SHARE, AT_THE_SHARE)]

    async def clocks(_: object) -> dict[str, float]:
        return {}

    monkeypatch.setattr(kafka_status, "status", states)
    monkeypatch.setattr(broker_clock, "worker_clocks", clocks)
    told = call("status", TAXI)
    assert told.exit_code == 0
    rows = {line.split()[0]: line for line in told.stdout.splitlines()[1:] if line}
    assert "refuses 98%" in rows["taxi"]
    assert " ok " in rows["bike"]
    assert f"    MISSING_FIELD of pickup_lat 96%. What to do: {WHAT_TO_DO['MISSING_FIELD']}" in told.stderr
    assert f"    BAD_TIME of at 2%. What to do: {WHAT_TO_DO['BAD_TIME']}" in told.stderr
    assert told.stderr.count("steps go on without") == 1
    machine = json.loads(call("status", TAXI, "--json").stdout)
    assert [stream["health"] for stream in machine["streams"]] == ["refuses 98%", "ok"]


def test_times_in_doubt_are_said_and_are_no_fault() -> None:
    state = of("taxi", {}, {"ACCEPTED": {"": 900}, "AMBIGUOUS_TIME": {"": 30}, "NONEXISTENT_TIME": {"": 1}})
    assert state.health == "ok"
    assert list(_remarks(state)) == [
        f"of all 900 records {n} {DOUBTED[reason]}" for reason, n in (("AMBIGUOUS_TIME", 30), ("NONEXISTENT_TIME", 1))
    ]
