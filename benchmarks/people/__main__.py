"""`make bench-people`: what protecting whole users costs, at the best bound in hindsight on every side.

Sides: `pure`, the engine on the events within the bound; `surplus`, the same with the count of what the bound drops
(`privacy.surplus`); and the engine at the same epsilon for single EVENTS, of all users, which protects nobody. The
error of a side at one bound is the geometric mean over the engine's errors (sizes of rectangles, or the table's) after
the last step, each a mean over seeds; the best bound is chosen for each side, set and epsilon.

The last line is JSON:

ratio_to_pure: geometric mean, over sets, epsilons and errors, of `surplus` over `pure`. worst_ratio: the largest.
to_event_level: the geometric mean of `surplus` over the error at event level.
accepted: smallest and largest share of rows within the best bound of `surplus`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from statistics import geometric_mean

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agents.local.offline.files import rows_for
from agents.local.offline.simulate import driven_by_ticks
from agents.local.offline.tune import LEAST, History, TuneCell, mean_split, tune
from benchmarks.people.streams import SETS, People
from benchmarks.size import QUICK, sized
from engines.core.noise import NoiseSource

EPSILONS = sized((Decimal(1), Decimal(4)), smallest=(Decimal(1),))
REACH = 5
EVERY_EVENT = 1_000_000


@dataclass(frozen=True, slots=True)
class Side:
    """The best bound of a side. `errors` by name."""

    bound: int
    accepted: float
    errors: Mapping[str, float]

    @staticmethod
    def best(people: People, cells: Iterator[TuneCell]) -> Side:
        found = [Side(cell.bound, cell.accepted, people.compared(cell.errors.total)) for cell in cells]
        return min(found, key=lambda side: mean_of(side.errors.values()))


def mean_of(values: Iterable[float]) -> float:
    """Geometric; an error of nothing counts as a thousandth."""
    return geometric_mean(max(value, LEAST) for value in values)


def seeds(seed: int) -> Iterator[bytes]:
    source = NoiseSource(seed.to_bytes(32, "big"), "people")
    while True:
        yield source.words(4).tobytes()


def sides(people: People, runs: int, progress: Progress) -> dict[tuple[str, Decimal], Side]:
    """By side and epsilon."""
    found = {}
    for side, surplus in (("pure", None), ("surplus", REACH)):
        config = people.config(EPSILONS[0], surplus=surplus)
        task = progress.add_task(f"{people.name}, {side}", total=None)
        draw = seeds(1)
        tuned = tune(
            config,
            people.file,
            stream="people",
            bounds=people.bounds[: sized(None, smallest=1)],
            epsilons=EPSILONS,
            runs=runs,
            progress=lambda done, total, task=task: progress.update(task, completed=done, total=total),  # type: ignore[misc]
            draw=lambda draw=draw: next(draw),  # type: ignore[misc]
        )
        for epsilon in EPSILONS:
            found[side, epsilon] = Side.best(people, (cell for cell in tuned.cells if cell.epsilon == epsilon))
    for epsilon in EPSILONS:
        found["event", epsilon] = event_level(people, epsilon, runs)
    return found


def event_level(people: People, epsilon: Decimal, runs: int) -> Side:
    """All events of all users, each protected alone."""
    chosen, draw = people.config(epsilon, max_contributions=EVERY_EVENT).streams[0], seeds(2)
    file = rows_for(people.file, chosen)
    everything = driven_by_ticks(chosen, file)
    history = History(everything, file, file.summary(), lambda rows: None)
    events = people.config(epsilon, unit="event", user=None, max_contributions=None).streams[0]
    events = events.model_copy(update={"time": everything.time})
    bounded = history.bounded(everything, lambda rows: None)
    splits = [bounded.run(events, lambda rows: None, lambda: next(draw)) for _ in range(runs)]
    return Side(0, 1.0, people.compared(mean_split(splits).total))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1 if QUICK else 3, help="seeds")
    parser.add_argument("--only", default="", help="sets whose name contains this")
    arguments = parser.parse_args()
    sets = [people for people in SETS if arguments.only.lower() in people.name.lower() and people.file.exists()]
    if not sets:
        print("no data: the sets of benchmarks/people/streams.py are read from ../shared/data", file=sys.stderr)
        return 1
    console = Console()
    table = Table("set", "epsilon", "error", "pure", "surplus", "event level")
    ratios, event_ratios, accepted = [], [], []
    with Progress(console=Console(stderr=True)) as progress:
        for people in sets:
            found = sides(people, arguments.runs, progress)
            for epsilon in EPSILONS:
                pure, ours, event = (found[side, epsilon] for side in ("pure", "surplus", "event"))
                ratios += [max(ours.errors[name], LEAST) / max(pure.errors[name], LEAST) for name in ours.errors]
                event_ratios += [max(ours.errors[name], LEAST) / max(event.errors[name], LEAST) for name in ours.errors]
                accepted.append(ours.accepted)
                for error in ours.errors:
                    table.add_row(
                        people.name, str(epsilon), error, *(f"{side.errors[error]:.4f}" for side in (pure, ours, event))
                    )
                bounds = (f"{side.bound} ({side.accepted:.0%} of rows)" for side in (pure, ours))
                table.add_row(people.name, str(epsilon), "best bound", *bounds, "none", end_section=True)
    console.print(table)
    figures = {
        "ratio_to_pure": round(mean_of(ratios), 3),
        "worst_ratio": round(max(ratios), 3),
        "to_event_level": round(mean_of(event_ratios), 2),
        "accepted": [round(min(accepted), 3), round(max(accepted), 3)],
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
