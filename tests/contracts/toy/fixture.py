"""The streams that engine `toy` is tried on, by contract tests and coupled runs."""

from __future__ import annotations

from engines.checks.contract_case import EngineCase

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
