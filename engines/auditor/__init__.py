"""The auditor: tries to break what is claimed, and says how far it came. Knows no Kafka; `privstream audit` runs it."""

from engines.auditor.audit import ALPHA, HEAD, RUNS, Finding, audit, table_rows, violations
from engines.auditor.cases import Case, Claim, Exact, Fresh, Neighbours
from engines.auditor.observations import Observations
from engines.auditor.registry import cases

__all__ = [
    "ALPHA",
    "HEAD",
    "RUNS",
    "Case",
    "Claim",
    "Exact",
    "Finding",
    "Fresh",
    "Neighbours",
    "Observations",
    "audit",
    "cases",
    "table_rows",
    "violations",
]
