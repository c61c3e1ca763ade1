"""Every planted bug is caught, and its honest twin passes.

Null hypothesis for twins: the claim holds. False alarms: 1e-6 for each Monte Carlo row, none for exact ones. Power: the
numbers of runs are such that a cheat's bound lies well above its claim. Seeds are fixed, but for the comparison of
fresh ones, and some cheats have fewer runs for that; `make audit` does the same with fresh seeds throughout.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.auditor import audit, powerless, violations
from engines.noise import seeded
from tests.audit import cheats
from tests.audit.cheats import CHEATS, Cheat

pytestmark = pytest.mark.seconds(2)

# Some cheats have one twin between them.
TWINS = list(
    {cheat.honest: cheat for cheat in sorted(CHEATS, key=lambda cheat: cheat.honest_runs) if not cheat.claimed}.values()
)


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_a_cheat_is_caught(cheat: Cheat) -> None:
    findings = list(audit(cheat.cheat(), runs=cheat.few or cheat.runs, source=seeded(11)))
    assert cheat.caught_by in {found.detector for found in violations(findings)}


@pytest.mark.parametrize("cheat", TWINS, ids=lambda cheat: cheat.name)
def test_its_honest_twin_passes(cheat: Cheat) -> None:
    findings = list(audit(cheat.honest(), runs=cheat.honest_runs, source=seeded(12)))
    assert findings
    assert not violations(findings)
    assert not powerless(findings)


def test_every_planted_cheat_is_tried() -> None:
    planted = {path.stem for path in Path(cheats.__file__).parent.glob("*.py")} - {"__init__"}
    assert {cheat.cheat.__module__.rpartition(".")[2] for cheat in CHEATS} == planted
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS)
    assert {cheat.caught_by for cheat in CHEATS} == {"monte carlo", "exact", "fresh seeds"}
