"""The command: `python -m benchmarks.spatial`."""

from __future__ import annotations

import argparse
import json
import sys
from fractions import Fraction

import benchmarks.spatial
from benchmarks.size import QUICK, RESULTS, SMALLEST, sized
from benchmarks.spatial.modes import MODES, MORE
from benchmarks.spatial.report import first_line, first_steps, last_line, markdown, plot, write_csv, write_first
from benchmarks.spatial.runs import Results, run_all
from benchmarks.spatial.sources import SOURCES
from benchmarks.spatial.streams import EARLY

EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2))
AT_ONCE = ("default", "paper")
"""Modes that are run on streams of which nothing is gathered."""
FEW = sized(("circles, deletion", "Minneapolis stops", "SF evictions", "Gowalla, 30 days"), smallest=("SF evictions",))
"""Streams of a quick run."""


def chosen(arguments: argparse.Namespace) -> list[str]:
    """Names of the streams to run; those whose data are not there are said and passed over."""
    names = arguments.streams.split(";") if arguments.streams else list(FEW if arguments.quick else SOURCES)
    for name in names:
        if name not in SOURCES:
            raise SystemExit(f"no stream {name!r}; there are: {'; '.join(SOURCES)}")
        if SOURCES[name].missing:
            print(f"skipped {name}: {SOURCES[name].missing}", file=sys.stderr)
    return [name for name in names if not SOURCES[name].missing]


def main() -> None:
    """Run, save and print; see the package."""
    parser = argparse.ArgumentParser(description=benchmarks.spatial.__doc__)
    parser.add_argument("--quick", action="store_true", default=QUICK, help="about 2 minutes")
    parser.add_argument("--seeds", type=int, help="5, or 2 when quick")
    parser.add_argument("--streams", help="some of them, semicolons between")
    parser.add_argument("--modes", help="some of them, semicolons between: " + "; ".join([*MODES, *MORE]))
    parser.add_argument("--epsilons", help="some, commas between")
    parser.add_argument(
        "--early", type=float, nargs="+", default=[EARLY, 0.0], help="shares of the steps before t0; 0: the first steps"
    )
    arguments = parser.parse_args()
    names = chosen(arguments)
    few = ("default", "paper") if arguments.quick and not SMALLEST else tuple(MODES)
    few += sized((), smallest=tuple(MORE))
    modes = tuple(arguments.modes.split(";")) if arguments.modes else few
    epsilons: tuple[Fraction, ...] = (Fraction(1),) if arguments.quick else EPSILONS
    if arguments.epsilons:
        epsilons = tuple(Fraction(text) for text in arguments.epsilons.split(","))
    whole = SMALLEST or not (arguments.quick or arguments.streams or arguments.modes or arguments.epsilons)
    seeds = arguments.seeds or sized(2 if arguments.quick else 5, smallest=1)
    found: dict[str, object] = {}
    for early in arguments.early:
        these = modes if early or arguments.modes else AT_ONCE
        results = run_all(names, these, epsilons, seeds=seeds, early=early)
        print(markdown(results))
        found |= _first(results, whole) if not early else _later(results, whole and early == EARLY)
    print(json.dumps(found))


def _later(results: Results, whole: bool) -> dict[str, object]:
    if whole:
        write_csv(results, RESULTS / "spatial.csv")
        (RESULTS / "spatial.md").write_text(markdown(results))
        plot(results, RESULTS / "spatial.png")
    return last_line(results)


def _first(results: Results, whole: bool) -> dict[str, object]:
    if not {mode for _, _, mode in results}.issuperset(AT_ONCE):
        return {}
    table = first_steps(results)
    print(table)
    if whole:
        write_first(results, RESULTS / "spatial_first.csv")
        (RESULTS / "spatial_first.md").write_text(table)
    return first_line(results)


if __name__ == "__main__":
    main()
