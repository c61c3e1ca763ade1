"""What engine `toy` is audited on, and the streams of its contract tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engines.auditor.cases import Case
from engines.auditor.engines import case, faintly
from engines.auditor.features import Features
from engines.auditor.fixture import VISITED, AuditFixture, Focus
from engines.contract_case import EngineCase
from schemas.blocks import Folded

CROWD = 5


def total_focus(known: Sequence[tuple[int, int]]) -> Focus:
    """What was counted beyond the known events. Args: known: step and number of events that both inputs have."""

    def focus(step: int, measurements: Sequence[Mapping[str, Any]]) -> Features:
        there = sum(count for at, count in known if at == step)
        return {"residual": float(measurements[0]["count"] - there)}

    return focus


def cases(mode: str) -> Iterator[Case]:
    stream = CONTRACT.stream(mode)
    focus = total_focus([(step, CROWD) for step in range(VISITED)])
    base = Folded(np.zeros((1, 1), np.uint64), np.array([CROWD], np.int64))
    made = AuditFixture(stream, base, {"dense cell": (0, None, focus)})
    yield case(f"engine toy, mode {mode}", made, faint=faintly(stream))


CONTRACT = EngineCase(
    engine="toy",
    tables={"domain": {"kind": "anything", "field": "what"}},
    keys=lambda pick: (0,),
    event=lambda domain, chance: {domain.field: chance.choice(["a", "b"])},
    crowd=(0,),
    foreign=(1,),
    wide=lambda mode: ({"privacy": {"max_contributions": 12}},),
    measured=lambda release: {"count": int(release.measurements[0]["count"])},
)
