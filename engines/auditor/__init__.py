"""The auditor: tries to break what is claimed, and says how far it came. Knows no Kafka; `privstream audit` runs it."""

from engines.auditor.audit import (
    ALPHA,
    HEAD,
    RUNS,
    AuditFinding,
    audit,
    powerless,
    remedies,
    silences,
    table_rows,
    violations,
)
from engines.auditor.cases import COVERED, Canaries, Case, Claim, Exact, Fresh, Neighbours, Trials
from engines.auditor.observations import Marked, Observations

__all__ = [
    "ALPHA",
    "COVERED",
    "HEAD",
    "RUNS",
    "AuditFinding",
    "Canaries",
    "Case",
    "Claim",
    "Exact",
    "Fresh",
    "Marked",
    "Neighbours",
    "Observations",
    "Trials",
    "audit",
    "powerless",
    "remedies",
    "silences",
    "table_rows",
    "violations",
]
