"""The audit of configured streams: how much of its claim one unit can use up, and whether half the noise would show.

What is run is the stream as it is configured, but for two things: its clock is that of a replay, and its records come
as rows that have its fields, whatever the format of its topic is and whatever `[streams.map]` computes. Nothing is
estimated: what a pair costs is computed from the laws of the noise that was drawn, so a share above 1 is a violation,
and one at or below 1 says that these inputs showed none. That a pair can fail is shown on the same stream with half the
noise somewhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

from agents.local.coupling.claims import Claim
from agents.local.coupling.dearest import ADVERSARIES, LONGEST, dearer, dearest_of, gathered_steps
from agents.local.coupling.mutants import Site, every_site, mutated
from agents.local.coupling.runs import STEPS, Verdict, couple
from schemas.config import ENGINES, Stream
from schemas.errors import PrivstreamError

HALVED_TRIES = 4
"""Pairs on which half the noise of one call is tried."""
_START = "2020-01-01T00:00:00"


@dataclass(slots=True)
class Audit:
    """What the audit of one stream showed.

    Attributes:
        name: of the stream. epsilon, delta: claimed for one unit.
        pairs: of runs that were made. share: of the claim, the largest that a pair used.
        violations: what differs or costs too much, with the seed that shows it.
        halved: where half the noise was, that a pair has found; empty: none was found.
    """

    name: str
    epsilon: float
    delta: float
    pairs: int = 0
    share: float = 0.0
    violations: list[str] = field(default_factory=list)
    halved: str = ""

    @property
    def failed(self) -> bool:
        """Whether the claim is violated, or a fault would not have shown."""
        return bool(self.violations) or not self.halved

    @property
    def verdict(self) -> str:
        """What the audit says of the stream, in a word or two."""
        return "VIOLATED" if self.violations else "kept" if self.halved else "CANNOT FAIL"

    def add(self, verdict: Verdict) -> None:
        """Take in what a pair showed."""
        self.pairs += 1
        self.share = max(self.share, verdict.share)
        self.violations += [f"{broken} (seed {verdict.seed})" for broken in verdict.broken]


def fresh_seed() -> int:
    """Return a seed of the operating system, so that each audit has other inputs."""
    return random.SystemRandom().randrange(10**9)


def audited(stream: Stream) -> Stream:
    """Return the stream with the clock of a replay, a start, and records that have its fields."""
    time = stream.time.model_copy(update={"clock": "replay"})
    if time.start_us is None:
        time = time.model_copy(update={"start": _START})
    rows = {"format": "json", "envelope": "none", "key_format": "text", "csv": None}
    return stream.model_copy(update={"time": time, "map": None, **rows})


def audit(name: str, stream: Stream, *, pairs: int, seed: int, each_pair: Callable[[], None] = lambda: None) -> Audit:
    """Run pairs of neighbouring inputs: random ones, the dearest that are found, and some with half the noise.

    Args:
        pairs: random ones. seed: of the first one; the others count on from it. each_pair: called after each pair.
    """
    stream = audited(stream)
    steps = min(STEPS + gathered_steps(stream), LONGEST)
    claim = Claim.from_stream(stream)
    found = Audit(name, float(claim.epsilon), claim.delta)
    for number in range(pairs):
        found.add(couple(name, stream, seed + number, steps=steps))
        each_pair()
    shares: dict[int, float] = {}
    for verdict in () if found.violations else dearer(name, stream, tries=len(ADVERSARIES)):
        found.add(verdict)
        shares[verdict.seed] = verdict.share
        each_pair()
    # Every call on the dearest pair before any on another one: a stream that never comes to a call shows it on no pair.
    numbers = sorted(range(HALVED_TRIES), key=lambda number: -shares.get(number, 0))
    for number, site in product(numbers, _sites(stream)):
        each_pair()
        if _broken(site, name, stream, number):
            found.halved = f"{site.called} in {site.function}"
            return found
    return found


def _sites(stream: Stream) -> list[Site]:
    """Return the calls that size noise, of the stream's engine or shared by several: mechanisms first, of them those of
    a paper's own system where the mode is one and the others where it is none, of these the engine's own. Those that
    this stream never comes to change nothing.
    """
    others, paper = ENGINES.keys() - {stream.engine}, stream.mode != "default"
    return sorted(
        (site for site in every_site() if not others & set(site.module.split("."))),
        key=lambda site: (
            not site.called.endswith("_mechanism"),
            ("paper" in site.module) != paper,
            site.engine != stream.engine,
        ),
    )


def _broken(site: Site, name: str, stream: Stream, number: int) -> bool:
    with mutated(site):
        try:
            return bool(dearest_of(name, stream, number).broken)
        except PrivstreamError:
            # Refused when it is built.
            return True
