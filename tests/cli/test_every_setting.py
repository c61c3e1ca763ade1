"""Each command takes what `validate` takes: commands and settings are those of the registries, and none is listed here
but the commands that ask a cluster, or no configuration.
"""

from __future__ import annotations

import itertools
import random
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest

from agents.cli.app import COMMANDS
from agents.local.coupling.dearest import ADVERSARIES
from agents.protocol.replay import clock_of
from engines.checks.contract_case import contract_case
from schemas.config import ENGINES, Config, Stream
from schemas.config.load import NO_CLUSTER
from schemas.config.timing import Timing
from schemas.steps import DAYS, MONTHS
from tests.commands import call
from tests.couple.planted import SHORT

OFFLINE = {
    "validate": (),
    "explain": (),
    "topics": ("--acls",),
    "simulate": ("--out", "out", "--epsilon", "1.5", "--allow-refused"),
    "tune": ("--bounds", "10", "--epsilons", "1.5", "--runs", "1", "--out", "out"),
    "audit": ("--runs", "1", "--workers", "1"),
}
"""Commands that read a configuration and nothing of a cluster, with options that make them small."""
ELSEWHERE = {"init", "demo"}
"""Make their own configuration."""
ON_A_CLUSTER = {"dev", "run", "replay", "export", "query", "watch", "status", "dead-letters", "doctor"}
TAKE_ROWS = {"simulate", "tune"}
STEPS = ("1h", *(f"1 {unit}" for unit in (*DAYS, *MONTHS)))
CLOCKS = get_args(Timing.model_fields["clock"].annotation)
USERS, COUNTED = 12, 3


def test_every_command_is_run_here_or_asks_a_cluster() -> None:
    assert {*OFFLINE, *ELSEWHERE, *ON_A_CLUSTER} == set(COMMANDS)


def settings() -> list[Any]:
    """Every engine in steps of every length; its modes, units and clocks go round, as do commands.

    Each engine meets each command, and is tuned in every setting.
    """
    found = []
    in_turn = [name for name in OFFLINE if name not in ("validate", "tune", "audit")]
    for (at, engine), (turn, step) in itertools.product(enumerate(ENGINES), enumerate(STEPS)):
        modes, units = ENGINES[engine].facts.modes, ENGINES[engine].facts.units
        audited = turn == 2 - at % 2
        setting = {
            "engine": engine,
            "mode": modes[turn % len(modes)],
            "unit": units[turn // 2 % len(units)],
            "step": step,
            "clock": CLOCKS[(turn + turn // 2) % len(CLOCKS)],
        }
        commands = ["validate", "tune", in_turn[(at + turn) % len(in_turn)], *(["audit"] if audited else [])]
        found.append(pytest.param(setting, commands, id="-".join(setting.values())))
    return found


def stream_of(engine: str, mode: str, unit: str, step: str, clock: str) -> Stream:
    """A small stream of the setting; one of the wall clock starts now, and one of the calendar has periods of it."""
    privacy: dict[str, Any] = {"unit": unit, "max_contributions": 10}
    if unit == "event":
        privacy |= dict.fromkeys(("user", "max_contributions", "max_per_step"))
    elif step.startswith("1 "):
        privacy["per"] = f"20 {step.removeprefix('1 ')}s"
    start = "now" if clock == "wall" else "2020-01-01T00:00:00"
    return contract_case(engine).stream(
        mode, {"time": {"step": step, "clock": clock, "start": start}, "privacy": privacy}
    )


def rows_of(stream: Stream) -> list[dict[str, Any]]:
    """One event of each user in each of some steps; trips have names of their own."""
    timing = stream.time.model_copy(update={"clock": "replay", "start": "2020-01-01T00:00:00"})
    clock = clock_of(stream.model_copy(update={"time": timing}))
    event, chance, trip = contract_case(stream.engine).event, random.Random(5), stream.domain.trip_field
    rows = []
    for step, user in itertools.product(range(COUNTED), range(USERS)):
        at = clock.start_of(step) // 1_000_000 + user
        row = {**event(stream.domain, chance), stream.time.field: at, "u": f"user {user}"}
        if trip is not None:
            row[trip] = f"trip {step} of {user}"
        rows.append(row)
    return rows


@pytest.mark.parametrize(("setting", "commands"), settings())
def test_a_command_takes_every_setting(
    setting: dict[str, str],
    commands: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a command refuses it refuses in words, and only a bound of nobody is refused."""
    stream, key = stream_of(**setting), tmp_path / "user.key"
    key.write_bytes(bytes(range(32)))
    key.chmod(0o600)
    if stream.privacy.user is not None:
        stream = stream.revised(privacy=stream.privacy.revised(user_key_file=key))
    config = Config.model_validate({"kafka": NO_CLUSTER, "streams": [stream]})
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows_of(stream)))
    monkeypatch.setattr("schemas.config.load_config", lambda *arguments, **options: config)
    # tests/couple have pairs of full length, and under every adversary.
    monkeypatch.setattr("agents.local.coupling.audit.STEPS", SHORT)
    monkeypatch.setattr("agents.local.coupling.audit.ADVERSARIES", ADVERSARIES[:1])
    monkeypatch.chdir(tmp_path)
    for name in commands:
        done = call(name, "job.toml", *([file] if name in TAKE_ROWS else []), *OFFLINE[name])
        if name == "tune" and not stream.privacy.bounds_users:
            assert done.exit_code == 2
            assert "bounds nobody" in done.stderr
            assert "fix: " in done.stderr
        else:
            assert done.exit_code == 0, (name, done.output, done.stderr)


@pytest.mark.parametrize("setting", [each.values[0] for each in settings()], ids=[each.id for each in settings()])
def test_a_stream_with_other_values_is_the_stream_with_other_values(setting: dict[str, str]) -> None:
    stream = stream_of(**setting)
    assert stream.with_overrides(mode=stream.mode, epsilon=stream.privacy.epsilon) == stream
    changed = stream.with_overrides(epsilon="0.75")
    assert changed.privacy.epsilon == Decimal("0.75")
    pinned, before = changed.fingerprint_fields(), stream.fingerprint_fields()
    assert {key for key in pinned if pinned[key] != before[key]} == {"privacy"}
