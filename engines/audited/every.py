"""Everything there is to audit: what is installed or exported is here without further ado.

It stands above the engines, whose parts it audits; what audits them (`engines.auditor`) knows none of them.
"""

from __future__ import annotations

from engines.audited import counters, mechanisms
from engines.auditor import engines
from engines.auditor.cases import Case


def cases() -> list[Case]:
    """All mechanisms, counters and engines, in that order. Names are unique."""
    made = [case for build in mechanisms.MECHANISMS.values() for case in build()]
    return [*made, *counters.cases(), *engines.cases()]
