"""Everything there is to audit: what is registered or exported is here without further ado."""

from __future__ import annotations

from engines.auditor import counters, engines, mechanisms
from engines.auditor.cases import Case


def cases() -> list[Case]:
    """All mechanisms, counters and engines, in that order. Names are unique."""
    made = [case for build in mechanisms.MECHANISMS.values() for case in build()]
    return [*made, *counters.cases(), *engines.cases()]
