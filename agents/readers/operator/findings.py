"""What was looked at, and what there is to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agents.kafka.lifecycle.advice import advice
from schemas.errors import BrokerError, problems_of

Verdict = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    verdict: Verdict
    detail: str
    fix: str = ""


FIX_CLUSTER = (
    "check bootstrap and security in [kafka], and that the brokers' advertised listeners can be reached from here"
)


def of_error(what: str, error: Exception, *, verdict: Verdict = "problem", fix: str = "") -> Iterator[Finding]:
    """Yield what an error says is wrong, with the fix of its message.

    Args: fix: where the message has none; absent: what to do about such an error.
    """
    advised = advice(error)  # of a cluster that does not answer it is to ask `doctor`
    fix = fix or (FIX_CLUSTER if BrokerError in advised.kinds else advised.do)
    for each in problems_of(error):
        yield Finding(what, verdict, f"{each.key}: {each.reason}" if each.key else each.reason, each.fix or fix)
