"""All parts, one after the other: `make bench-sequence` (QUICK=1: under three minutes); the last line is JSON.

`--only series`, `--only percentiles` or `--only markov` runs one of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys

from rich.console import Console

from benchmarks.size import QUICK

PARTS = ("series", "percentiles", "markov")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--quick", action="store_true", default=QUICK)
    arguments = parser.parse_args()
    console = Console(file=sys.stderr)
    figures: dict[str, float] = {}
    for part in PARTS:
        name = f"benchmarks.sequence.{part}"
        if arguments.only in (None, part) and importlib.util.find_spec(name) is not None:
            figures |= importlib.import_module(name).run(quick=arguments.quick, console=console)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
