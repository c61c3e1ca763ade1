"""The command: `python -m benchmarks.spatial`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from fractions import Fraction

import benchmarks.spatial
from benchmarks.size import QUICK, RESULTS, SMALLEST, sized
from benchmarks.spatial.modes import MODES, MORE
from benchmarks.spatial.report import last_line, markdown, plot, read_csv, write_csv
from benchmarks.spatial.runs import Cell, Row, run_all
from benchmarks.spatial.sources import SOURCES
from benchmarks.spatial.streams import EARLY

EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2))
FEW = sized(("circles, deletion", "Minneapolis stops", "SF evictions", "Gowalla, 30 days"), smallest=("SF evictions",))
"""Streams of a quick run."""


def chosen(arguments: argparse.Namespace) -> list[str]:
    """Names of the streams to run; those whose data are not there are said and passed over."""
    known = SOURCES
    names = arguments.streams.split(";") if arguments.streams else list(FEW if arguments.quick else known)
    for name in names:
        if name not in known:
            raise SystemExit(f"no stream {name!r}; there are: {'; '.join(known)}")
        if known[name].missing:
            print(f"skipped {name}: {known[name].missing}", file=sys.stderr)
    return [name for name in names if not known[name].missing]


def main() -> None:
    """Run, save and print; see the package."""
    parser = argparse.ArgumentParser(description=benchmarks.spatial.__doc__)
    parser.add_argument("--quick", action="store_true", default=QUICK, help="about 2 minutes")
    parser.add_argument("--seeds", type=int, help="5, or 2 when quick")
    parser.add_argument("--streams", help="some of them, semicolons between")
    parser.add_argument("--modes", help="some of them, semicolons between: " + "; ".join([*MODES, *MORE]))
    parser.add_argument("--epsilons", help="some, commas between")
    parser.add_argument("--early", type=float, default=EARLY, help="share of the steps before t0")
    parser.add_argument("--update", action="store_true", help="put these runs into the saved results")
    arguments = parser.parse_args()
    names = chosen(arguments)
    few = ("default", "paper") if arguments.quick and not SMALLEST else tuple(MODES)
    few += sized((), smallest=tuple(MORE))
    modes = tuple(arguments.modes.split(";")) if arguments.modes else few
    epsilons = (Fraction(1),) if arguments.quick else EPSILONS
    if arguments.epsilons:
        epsilons = tuple(Fraction(text) for text in arguments.epsilons.split(","))
    whole = SMALLEST or not (arguments.quick or arguments.streams or arguments.modes or arguments.epsilons)
    keep = (arguments.update or whole) and arguments.early == EARLY
    saved = read_csv(RESULTS / "spatial.csv") if arguments.update else {}

    def merged(done: Mapping[Row, Cell]) -> dict[Row, Cell]:
        """In the order of streams, epsilons and modes."""
        both = {**saved, **done}
        order = [(name, epsilon, mode) for name in SOURCES for epsilon in EPSILONS for mode in MODES]
        return {row: both[row] for row in order if row in both}

    def save(done: Mapping[Row, Cell]) -> None:
        if keep:
            write_csv(merged(done), RESULTS / "spatial.csv")
            (RESULTS / "spatial.md").write_text(markdown(merged(done)))

    results = run_all(
        names,
        modes,
        epsilons,
        seeds=arguments.seeds or sized(2 if arguments.quick else 5, smallest=1),
        early=arguments.early,
        after=save,
    )
    if keep:
        results = merged(results)
        save(results)
        plot(results, RESULTS / "spatial.png")
    print(markdown(results))
    print(json.dumps(last_line(results)))


if __name__ == "__main__":
    main()
