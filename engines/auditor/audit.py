"""The auditor: run a case's checks, and say what they found beside the claim.

A finding is a *violation* where the lower bound exceeds the claim. Monte Carlo bounds do so for an honest mechanism
with probability `alpha` at most; exact ones never. No violation is no proof: a bound below the claim says only that
these neighbours and these events showed no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import comb, inf, isfinite
from typing import Any, Literal

from engines.auditor.cases import Case, Fresh
from engines.auditor.events import bound
from engines.noise import NoiseSource, fresh_seed

ALPHA = 1e-6
RUNS = 4000

Detector = Literal["monte carlo", "exact", "fresh seeds"]
_ROUNDING = 1e-9  # relative, of exact losses that are computed in float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row of the auditor's table.

    Attributes:
        case, kind, check: what was audited, and which neighbours or computation.
        claimed, delta: what is promised.
        lower_bound: epsilon is at least this (exact: is this); infinite where outputs that must differ are equal.
        confidence: of the lower bound; 1 where it is exact.
        runs: on each of the two inputs; 0 where nothing was run.
        event: the outputs that showed it.
    """

    case: str
    kind: str
    check: str
    detector: Detector
    claimed: float
    delta: float
    lower_bound: float
    confidence: float
    runs: int
    event: str = ""

    @property
    def violated(self) -> bool:
        slack = _ROUNDING if self.detector == "exact" else 0.0
        return self.lower_bound > self.claimed * (1 + slack)

    def as_json(self) -> dict[str, Any]:
        """As plain values; an infinite bound is None beside `violated`."""
        bound = self.lower_bound if isfinite(self.lower_bound) else None
        return {**asdict(self), "lower_bound": bound, "violated": self.violated}


def audit(
    case: Case, *, runs: int = RUNS, source: NoiseSource | None = None, alpha: float = ALPHA
) -> Iterator[Finding]:
    """Check a case: one finding for each pair of neighbours, exact computation and comparison of fresh seeds.

    Args:
        runs: of an engine or stream on each of two inputs; array mechanisms run `Neighbours.times` as often.
        source: of all noise; None seeds every pair from the operating system. Fixed ones are for tests.
        alpha: false-positive rate of each Monte Carlo finding.
    """
    source = source or NoiseSource(fresh_seed(), "audit")
    claimed, delta = float(case.claim.epsilon), case.claim.delta
    common: dict[str, Any] = {"case": case.name, "kind": case.kind, "claimed": claimed, "delta": delta}
    for exact in case.exact:
        yield Finding(
            **common, check=exact.name, detector="exact", lower_bound=float(exact.epsilon()), confidence=1.0, runs=0
        )
    for fresh in case.fresh:
        yield _fresh(fresh, common)
    for pair in case.neighbours:
        count = runs * pair.times
        sides = [pair.observe(side, count, source.child(case.name, pair.name, side)) for side in (0, 1)]
        found = bound(*sides, alpha=alpha, delta=delta)
        yield Finding(
            **common,
            check=pair.name,
            detector="monte carlo",
            lower_bound=found.epsilon,
            confidence=1 - alpha,
            runs=count,
            event=found.event,
        )


def _fresh(fresh: Fresh, common: dict[str, Any]) -> Finding:
    """Equal outputs of fresh seeds: the noise is not the seed's. Honest runs agree with probability 1 - confidence."""
    outputs = {fresh.release(NoiseSource(fresh_seed(), "audit", "fresh")) for _ in range(fresh.runs)}
    equal = fresh.runs - len(outputs)
    return Finding(
        **common,
        check="noise differs between runs",
        detector="fresh seeds",
        lower_bound=inf if equal else 0.0,
        confidence=1 - min(1.0, comb(fresh.runs, 2) * fresh.collision),
        runs=fresh.runs,
        event=f"{equal} of {fresh.runs} outputs are repetitions",
    )


HEAD = ("case", "check", "detector", "claimed", "delta", "lower bound", "confidence", "runs", "verdict")


def table_rows(findings: Iterable[Finding]) -> list[tuple[str, ...]]:
    """Rows under `HEAD`, as text."""
    return [
        (
            found.case,
            found.check,
            found.detector,
            f"{found.claimed:.4g}",
            f"{found.delta:.3g}",
            f"{found.lower_bound:.4f}",
            "exact" if found.detector == "exact" else f"1 - {1 - found.confidence:.0e}",
            f"{found.runs:,}" if found.runs else "-",
            "VIOLATED" if found.violated else "kept",
        )
        for found in findings
    ]


def violations(findings: Sequence[Finding]) -> list[Finding]:
    return [found for found in findings if found.violated]
