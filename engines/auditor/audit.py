"""The auditor: run a case's checks, and say what they found beside the claim, and what they could have found.

A finding is a *violation* where the lower bound exceeds the claim. Monte Carlo bounds do so for an honest mechanism
with probability `alpha` at most; exact ones never. No violation is no proof: a bound below the claim says only that
these inputs and these guesses showed no more. A row that could not have exceeded its claim, since there were too few
runs, has said nothing at all: it is an error, as a violation is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import comb, inf, isfinite
from typing import Any, Literal

import numpy as np

from engines.auditor.bounds import ceiling, guesses_needed, guesses_to_see, visible
from engines.auditor.cases import Canaries, Case, Fresh, Neighbours
from engines.auditor.guesses import SMALLEST, bound, guessed_of
from engines.auditor.observations import Marked, interleaved
from engines.noise import NoiseSource, fresh_seed
from schemas.arrays import BoolArray

ALPHA = 1e-6
RUNS = 4000

Detector = Literal["monte carlo", "exact", "fresh seeds", "coverage"]
_ROUNDING = 1e-9  # relative, of exact losses that are computed in float64


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One row of the auditor's table.

    Attributes:
        case, kind, check: what was audited, and by which inputs or computation.
        claimed, delta: what is promised.
        lower_bound: epsilon is at least this (exact: is this); infinite where outputs that must differ are equal.
        confidence: of the lower bound; 1 where it is exact.
        runs: of the mechanism; 0 where nothing was run. Of a coverage: how often it occurred.
        event: the guesses that showed it.
        guesses: secret bits that could be guessed.
        ceiling: the largest lower bound that so many guesses give, that of a total leak; infinite where it is exact.
        visible: the smallest true epsilon that would have been found above the claim with probability 0.95, if it
            showed as plainly as an epsilon can.
        runs_needed: `runs` that the audit must be asked for, so that the ceiling lies above the claim.
        runs_to_see: the same so that a true epsilon as large as the claim would show at all, in a bound above 0, with
            probability 0.95, if it showed as plainly as an epsilon can.
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
    guesses: int = 0
    ceiling: float = inf
    visible: float = 0.0
    runs_needed: int = 0
    runs_to_see: int = 0

    @property
    def violated(self) -> bool:
        slack = _ROUNDING if self.detector == "exact" else 0.0
        return self.lower_bound > self.claimed * (1 + slack)

    @property
    def powerless(self) -> bool:
        """True where no leak, however large, would have been a violation: the row says nothing."""
        return self.ceiling <= self.claimed

    @property
    def blind(self) -> bool:
        """True where a true epsilon as large as the claim would most likely have been taken for none."""
        return self.guesses < guesses_to_see(self.claimed, alpha=1 - self.confidence, delta=self.delta)

    @property
    def uncovered(self) -> bool:
        return self.detector == "coverage" and self.runs == 0

    @property
    def failed(self) -> bool:
        return self.violated or self.powerless or self.uncovered

    @property
    def verdict(self) -> str:
        if self.violated:
            return "VIOLATED"
        if self.powerless:
            return "CANNOT FAIL"
        return "NOT COVERED" if self.uncovered else "covered" if self.detector == "coverage" else "kept"

    def as_json(self) -> dict[str, Any]:
        """As plain values; an infinite number is None."""
        numbers = {name: getattr(self, name) for name in ("lower_bound", "ceiling", "visible")}
        finite = {name: value if isfinite(value) else None for name, value in numbers.items()}
        return {**asdict(self), **finite, "violated": self.violated, "verdict": self.verdict}


def audit(
    case: Case, *, runs: int = RUNS, source: NoiseSource | None = None, alpha: float = ALPHA
) -> Iterator[AuditFinding]:
    """Check a case: a finding for each exact computation, comparison of seeds, pair of neighbours and kind of canary.

    Args:
        runs: of an engine or stream; pairs of neighbours are run on both sides, so twice. Array mechanisms run `times`
            as often.
        source: of all noise and coins; None seeds every check from the operating system. Fixed ones are for tests.
        alpha: false-positive rate of each Monte Carlo finding.
    """
    source = source or NoiseSource(fresh_seed(), "audit")
    claimed, delta = float(case.claim.epsilon), case.claim.delta
    common: dict[str, Any] = {"case": case.name, "kind": case.kind, "claimed": claimed, "delta": delta}
    for exact in case.exact:
        yield AuditFinding(
            **common, check=exact.name, detector="exact", lower_bound=float(exact.epsilon()), confidence=1.0, runs=0
        )
    for fresh in case.fresh:
        yield _fresh(fresh, common)
    for pair in case.neighbours:
        marked = _sides(pair, runs, source.child(case.name, pair.name))
        yield _guessed(pair.name, marked, common, factor=2 * pair.times, alpha=alpha)
    for canaries in case.canaries:
        yield from _canaries(canaries, runs, common, source.child(case.name, canaries.name), alpha=alpha)


def coins(count: int, source: NoiseSource) -> BoolArray:
    """`(count,)` fair bits."""
    drawn: BoolArray = (source.words(count) & np.uint64(1)).astype(np.bool_)
    return drawn


def _sides(pair: Neighbours, runs: int, source: NoiseSource) -> Marked:
    """Each run takes the side that its coin says: so the sides have as many runs as coins fell on them."""
    bits = coins(2 * runs * pair.times, source.child("coins"))
    ones = int(bits.sum())
    counts = (len(bits) - ones, ones)
    return interleaved(bits, [pair.observe(side, count, source.child(side)) for side, count in enumerate(counts)])


def _canaries(
    canaries: Canaries, runs: int, common: dict[str, Any], source: NoiseSource, *, alpha: float
) -> Iterator[AuditFinding]:
    trials = canaries.observe(runs * canaries.times, source)
    for kind, marked in trials.marked.items():
        yield _guessed(f"{canaries.name}: {kind}", marked, common, factor=canaries.times, alpha=alpha)
    for what in canaries.covers:
        yield AuditFinding(
            **common,
            check=f"{canaries.name} comes across: {what}",
            detector="coverage",
            lower_bound=0.0,
            confidence=1.0,
            runs=trials.coverage.get(what, 0),
        )


def _guessed(check: str, marked: Marked, common: dict[str, Any], *, factor: int, alpha: float) -> AuditFinding:
    claimed, delta = common["claimed"], common["delta"]
    found = bound(marked, alpha=alpha, delta=delta)
    needed = guesses_needed(claimed, alpha=alpha, delta=delta)
    return AuditFinding(
        **common,
        check=check,
        detector="monte carlo",
        lower_bound=found.epsilon,
        confidence=1 - alpha,
        runs=marked.runs,
        event=found.event,
        guesses=found.guesses,
        ceiling=ceiling(found.guesses, alpha=alpha, delta=delta),
        visible=visible(claimed, found.guesses, alpha=alpha, delta=delta),
        runs_needed=_runs_for(needed, marked.each, factor),
        runs_to_see=_runs_for(guesses_to_see(claimed, alpha=alpha, delta=delta), marked.each, factor),
    )


def _runs_for(guesses: int, each: int, factor: int) -> int:
    """Runs to be asked for, so that so many bits can be guessed; 0 if no number is enough."""
    if not guesses:
        return 0
    runs = -(-SMALLEST // factor)
    while guessed_of(runs * factor, each) < guesses:
        runs = max(runs + 1, runs * guesses // max(guessed_of(runs * factor, each), 1))
    return runs


def _fresh(fresh: Fresh, common: dict[str, Any]) -> AuditFinding:
    """Equal outputs of fresh seeds: the noise is not the seed's. Honest runs agree with probability 1 - confidence."""
    outputs = {fresh.release(NoiseSource(fresh_seed(), "audit", "fresh")) for _ in range(fresh.runs)}
    equal = fresh.runs - len(outputs)
    return AuditFinding(
        **common,
        check="noise differs between runs",
        detector="fresh seeds",
        lower_bound=inf if equal else 0.0,
        confidence=1 - min(1.0, comb(fresh.runs, 2) * fresh.collision),
        runs=fresh.runs,
        event=f"{equal} of {fresh.runs} outputs are repetitions",
    )


HEAD = (
    "case", "check", "detector", "claimed", "delta", "lower bound", "ceiling", "sees from", "confidence", "runs",
    "verdict",
)  # fmt: skip


def table_rows(findings: Iterable[AuditFinding]) -> list[tuple[str, ...]]:
    """Rows under `HEAD`, as text. `sees from`: see `AuditFinding.visible`."""
    return [_row(found) for found in findings]


def _row(found: AuditFinding) -> tuple[str, ...]:
    sampled, counted = found.detector == "monte carlo", found.detector == "coverage"
    return (
        found.case,
        found.check,
        found.detector,
        "-" if counted else f"{found.claimed:.4g}",
        "-" if counted else f"{found.delta:.3g}",
        "-" if counted else f"{found.lower_bound:.4f}",
        f"{found.ceiling:.2f}" if sampled else "-",
        (f"{found.visible:.2f}" if isfinite(found.visible) else "nothing") if sampled else "-",
        "exact" if found.detector in ("exact", "coverage") else f"1 - {1 - found.confidence:.0e}",
        f"{found.runs:,}" if found.runs or counted else "-",
        found.verdict,
    )


def violations(findings: Sequence[AuditFinding]) -> list[AuditFinding]:
    return [found for found in findings if found.violated]


def powerless(findings: Sequence[AuditFinding]) -> list[AuditFinding]:
    """Rows that could not fail."""
    return [found for found in findings if found.powerless]


def remedies(findings: Sequence[AuditFinding]) -> list[str]:
    """What to do about rows that could not fail, and about what no run came across; one line for each case."""
    lines = []
    for case in dict.fromkeys(found.case for found in findings):
        weak = [found for found in findings if found.case == case and found.powerless]
        if weak:
            needed = max(found.runs_needed for found in weak)
            hopeless = any(found.runs_needed == 0 for found in weak)
            fix = "audit it with a smaller epsilon" if hopeless else f"use --runs {needed}"
            least = min(found.ceiling for found in weak)
            lines.append(
                f"{case}: {len(weak)} rows say nothing: even a total leak would show no more than epsilon {least:.2f} "
                f"in so few runs, and {weak[0].claimed:.4g} is claimed: {fix}"
            )
        lines += [f"{found.case}: {found.check}: never" for found in findings if found.case == case and found.uncovered]
    return lines


def silences(findings: Sequence[AuditFinding]) -> list[str]:
    """What to make of cases of which runs showed nothing whatever: no bound of theirs is above 0. A line for each."""
    lines = []
    for case in dict.fromkeys(found.case for found in findings):
        sampled = [found for found in findings if found.case == case and found.detector == "monte carlo"]
        if not sampled or any(found.lower_bound > 0 for found in sampled):
            continue
        blind = [found for found in sampled if found.blind]
        needed = max((found.runs_to_see for found in blind), default=0)
        if any(found.runs_to_see == 0 for found in blind):
            why = "no number of runs tells so small an epsilon from none: audit a larger one"
        elif blind:
            why = f"even a loss of all of it would hardly show in so few runs: use --runs {needed} or more"
        else:
            why = "a loss of all of it would have shown if it were plain to see; --runs with a larger number sees finer"
        claimed = sampled[0].claimed
        lines.append(
            f"{case}: all bounds from runs are 0, which says little of the {claimed:.4g} that is claimed: {why}"
        )
    return lines
