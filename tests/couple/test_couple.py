"""Coupled pairs of runs of every engine, mode and variant, by registration alone.

False alarms: none, nothing is sampled but inputs and outputs, for any of which the promise holds. Seeds are fixed here;
`make couple` draws fresh ones.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from unittest.mock import patch

import pytest

from agents.local.coupling.dearest import dearest, dearest_of, window_of
from agents.local.coupling.inputs import Sent
from agents.local.coupling.runs import STEPS, Verdict, couple, settings
from engines.checks.contract_case import WHOLE, contract_case
from engines.core.accounting.streams import StreamCost
from schemas.config import ENGINES, ConfigError, Stream
from schemas.config.engines.discovery import DOMAINS
from schemas.config.formats import InputParts
from tests.couple.__main__ import main
from tests.couple.planted import SHORT
from tests.couple.plants.tabular import EPSILON_OF_MANY, of_many_marginals
from tests.couple.work import WINDOWS

pytestmark = pytest.mark.seconds(1)

SETTINGS = list(settings())


def in_ci(name: str) -> bool:
    """All variants of `default` modes, and a third of those of each other mode; `make couple` runs all of them."""
    engine, mode, number = name.split("/")
    modes_of = ENGINES[engine].facts.modes
    return mode == "default" or int(number) % 3 == modes_of.index(mode) % 3


TRIED = [(name, stream) for name, stream in SETTINGS if in_ci(name)]
LONG = {tuple(name.split("/")[:2]): name for name, _ in reversed(TRIED)}
"""Mode -> the setting whose pair is as long as those of `make couple`; of the others it is short."""


@pytest.mark.parametrize("name", [name for name, _ in TRIED])
def test_neighbours_cannot_be_told_apart(name: str) -> None:
    """The engine runs sealed where the pair is long, and where `test_guarded` does not try its setting."""
    engine, mode, number = name.split("/")
    long = name in LONG.values()
    sealing = long or int(number) >= len(contract_case(engine).tried(mode))
    verdict = couple(name, dict(SETTINGS)[name], 1, steps=STEPS if long else SHORT, sealing=sealing)
    assert not verdict.broken
    assert verdict.share <= 1 + 1e-9


def test_every_engine_mode_and_domain_is_coupled() -> None:
    assert {name.split("/")[0] for name, _ in SETTINGS} == set(ENGINES)
    assert {tuple(name.split("/")[:2]) for name, _ in TRIED} == {tuple(name.split("/")[:2]) for name, _ in SETTINGS}
    assert {tuple(name.split("/")[:2]) for name, _ in SETTINGS} == {
        (name, mode) for name, spec in ENGINES.items() for mode in spec.facts.modes
    }
    assert {stream.domain.kind for _, stream in TRIED} == set(DOMAINS)


def _dearest_in_ci() -> list[str]:
    """Of each mode one setting, and of `default` modes the first of each kind of domain."""
    modes = sorted({tuple(name.split("/")[:2]) for name, _ in SETTINGS})
    of_mode = {mode: [name for name, _ in settings(*mode)] for mode in modes}
    one_each = [names[ENGINES[mode[0]].facts.modes.index(mode[1]) % len(names)] for mode, names in of_mode.items()]
    kinds = {(stream.engine, stream.domain.kind): name for name, stream in reversed(TRIED) if stream.mode == "default"}
    return sorted({*one_each, *kinds.values()})


@pytest.mark.parametrize("name", _dearest_in_ci())
def test_a_unit_can_use_up_its_claim(name: str) -> None:
    """Otherwise noise that is too small would not show. `make couple` asks it of every setting."""
    stream = dict(SETTINGS)[name]
    verdict = dearest(name, stream)
    assert not verdict.broken
    assert contract_case(stream.engine).reach(stream) <= verdict.share <= 1 + 1e-9


RENEWING = [name for name, stream in SETTINGS if stream.privacy.per and stream.mode == "default"]
SHARED = next(name for name in RENEWING if name.startswith("tabular") and dict(SETTINGS)[name].privacy.delta)
"""A table with a delta: one block measures events of two periods together."""


@pytest.mark.parametrize("name", RENEWING)
def test_a_unit_in_two_periods_costs_what_the_ledger_says(name: str) -> None:
    verdict = window_of(name, dict(SETTINGS)[name], 2)
    assert not verdict.broken
    assert 0 < verdict.share <= 1 + 1e-9


def test_what_comes_late_costs_in_the_period_in_which_it_comes() -> None:
    """So a window is one of the steps that events join: by the times of events it would be a false claim."""
    variant = {"privacy": {"max_contributions": 2, "per": "4h", "delta": None, "max_per_step": None}}
    histogram = {"name": "km", "of": "histogram", "edges": [0.0, 1.0, 4.0]}
    more = {"domain": {"fields": [histogram]}, "options": {"horizon": None}}
    stream = contract_case("series").stream("default", {**variant, **more})

    def costs(periods: int) -> Verdict:
        def late(_stream: Stream, _chance: random.Random, _steps: int) -> list[Sent]:
            return [Sent(4 * period + 1, 0, "ann", {"km": 0.5}, unit=True) for period in range(periods)] * 2

        return couple("late", stream, 3, steps=20, crowd=4, sealing=False, unit=late, window=True)

    assert not costs(2).broken
    assert costs(5).broken
    assert costs(5).share == pytest.approx(5 / 2)


def test_two_periods_of_a_table_cost_more_than_draws_at_right_angles() -> None:
    """So a table that said that its periods are apart is found."""
    seed = 34  # one in thirty has both periods in a block that spends all that it may
    assert window_of(SHARED, dict(SETTINGS)[SHARED], seed).share > WHOLE
    cost = replace(StreamCost.from_stream(dict(SETTINGS)[SHARED]), apart=True)
    with patch.object(StreamCost, "from_stream", return_value=cost):
        assert window_of(SHARED, dict(SETTINGS)[SHARED], seed).broken


@pytest.mark.parametrize("seed", [0, 5])
def test_a_unit_of_a_table_with_many_marginals_pays_its_claim_early_and_late(seed: int) -> None:
    """Early, where larger marginals have no budget, events are in one-way marginals only."""
    stream = contract_case("tabular").stream("default", EPSILON_OF_MANY)
    with of_many_marginals():
        verdict = dearest_of("many", stream, seed)
    assert not verdict.broken
    assert any("larger" in place for place in verdict.touched) == (seed == 5)
    assert WHOLE <= verdict.share <= 1 + 1e-9


def test_a_record_that_could_be_no_other_one_is_left_out() -> None:
    """An audit of a stream with one state would never end."""
    one = {"values": ["here"], "transition": None, "unseen": True}
    verdict = couple("one", contract_case("markov").stream("default", {"domain": one}), 0, steps=SHORT, sealing=False)
    assert not verdict.broken
    assert 0 < verdict.share <= 1 / 2 + 1e-9


def test_a_unit_with_more_contributions_than_there_are_keys_has_all_of_them() -> None:
    """An audit of a short public list would never end."""
    few = contract_case("keys").stream("public", {"privacy": {"max_contributions": 5}})
    few = few.model_copy(update={"domain": few.domain.revised(keys=["north", "south"])})
    verdict = dearest_of("few", few, 0)
    assert not verdict.broken
    assert verdict.share == pytest.approx(2 / 5, abs=0.01)


def test_a_reading_that_its_own_value_leaves_out_is_found() -> None:
    """A configuration that says so is refused; this one would be told apart, and so is no such stream."""
    case, readings = contract_case("series"), {"user": None, "max_contributions": None, "max_per_step": None}
    field = {"name": "r", "of": "value", "limits": [0.0, 50.0], "sensitivity": 1.0}
    variant = {"domain": {"fields": [field]}, "privacy": readings, "map": {"r": "r < `25` && r"}}
    with pytest.raises(ConfigError, match=r"which a user can move"):
        case.stream("default", variant)
    with patch.object(InputParts, "_readings", return_value=iter(())):
        stream = case.stream("default", variant)

    def unit(_stream: Stream, _chance: random.Random, steps: int) -> list[Sent]:
        return [Sent(at, at, "", {"r": 24.5}, unit=True, instead={"r": 25.5}) for at in range(steps)]

    [broken] = couple("left out", stream, 0, steps=3, sealing=False, unit=unit).broken
    assert "on one of two neighbouring inputs only" in broken


def test_bursts_merges_and_divisions_happen() -> None:
    happened = couple("spatial/default/0", dict(SETTINGS)["spatial/default/0"], 0).events
    assert happened["burst"]
    assert happened["merged"]
    assert happened["divided"]


def test_the_last_line_says_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    code = main("--runs 2 --only series/paper-binomial/9 --faults 1 --seed 5 --workers 1".split())
    printed = capsys.readouterr().out
    last = json.loads(printed.splitlines()[-1])
    assert code == 0, printed
    assert (last["engines"], last["modes"], last["settings"]) == (1, 1, 1)
    assert (last["runs"], last["violations"], last["unreached"], last["uncoupled"]) == (2 + 1 + WINDOWS, 0, [], [])
    assert last["worst_loss"] <= 1 + 1e-9
    assert last["planted"] == last["planted_caught"] == 2


def test_runs_that_leave_a_setting_out_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--runs", "20"])
    assert "settings with less than 2 pairs. Fix: --runs" in capsys.readouterr().err
