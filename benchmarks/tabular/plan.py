"""Which runs there are, in the order in which they are worth having."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.results import Run
from benchmarks.size import SMALLEST, sized
from benchmarks.tabular.streams import STREAMS, WINDOWS

EPSILONS = (0.5, 1.0, 2.0, 4.0)
SEEDS = 5
FAST = ("default", "default, delta")
SLOW = ("paper", "streaming-mwem", "paper-block", "paper, half penalty")
BLOCK = ("evictions-weekly", "adult-randomised-50", "adult-ordered-50")
"""Streams of table 3, which compares counters."""
STRONGER = sized(("adult-randomised-200", "adult-ordered-200"), smallest=("evictions-weekly",))
"""Streams on which `paper` also runs with half its penalty."""


def part(epsilon: float) -> str:
    """What is compared is of one epsilon."""
    return f"epsilon {epsilon:g}"


def epsilon_of(run: Run) -> float:
    return float(run.part.removeprefix("epsilon "))


@dataclass(frozen=True)
class Plan:
    """What to run. Attributes:

    steps: of a stream at most; None for all.
    """

    streams: tuple[str, ...] = tuple(STREAMS)
    epsilons: tuple[float, ...] = EPSILONS
    modes: tuple[str, ...] = (*FAST, *SLOW)
    seeds: int = SEEDS
    steps: int | None = None

    def has(self, run: Run) -> bool:
        return run.data in self.streams and epsilon_of(run) in self.epsilons and run.method in self.modes

    def runs(self) -> Iterator[Run]:
        for mode in self.modes:
            for seed in range(self.seeds):
                for stream in self.streams:
                    if fits(mode, stream):
                        yield from (Run(part(epsilon), stream, mode, seed) for epsilon in self.epsilons)


def fits(mode: str, stream: str) -> bool:
    """False where a run would say nothing new."""
    if mode == "paper-block":
        return stream in BLOCK
    if mode == "paper, half penalty":
        return stream in STRONGER
    # With a ttl the others delete by events: that is the stream of deletes.
    return stream != WINDOWS[1] or mode in FAST


def twin(mode: str, stream: str) -> str:
    """The stream on which a mode's figures for `stream` are found."""
    return stream if fits(mode, stream) else WINDOWS[0]


FEW = Plan(
    streams=("adult-randomised-200", "evictions-weekly", "adult-window-ttl"),
    epsilons=(1.0,),
    modes=("default", "default, delta", "paper", "streaming-mwem"),
    seeds=1,
    steps=40,
)
"""Of a quick run."""
if SMALLEST:
    FEW = replace(FEW, streams=("evictions-weekly", "adult-window-ttl"), modes=(*FAST, *SLOW), steps=1)
DELTAS = Plan(
    streams=("adult-randomised-200", "minneapolis-200", "evictions-weekly"),
    epsilons=(1.0,),
    modes=FAST,
    seeds=20,
)
"""What `delta_ratio` is of. Errors on evictions, of few rows a week, differ much from seed to seed."""
