"""Tables, the picture, and the last line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean, stdev

from agents.show import charts
from benchmarks.keys import zones
from benchmarks.keys.methods import BATCHES, ENGINE, SQLP
from benchmarks.keys.runs import BOUNDS, FEW, MANY, STREAMS, SYNTHETIC, TABLE, WEEKS, ZONES, at
from benchmarks.results import Results

LEAST = 0.2
"""No key in any of five seeds counts as one in one of them."""
PUBLISHED: Mapping[str, float] = {"keys": 28_338, "l1": 17_740_000, "l2": 50_039}
"""Of DP-SQLP at 100 tests, in the paper's own table."""
RATIOS: Mapping[str, tuple[str, Sequence[str]]] = {
    "to_dpsqlp": (at(ENGINE, FEW), (at(SQLP, FEW),)),
    "to_dpsqlp_100": (at(ENGINE, MANY), (at(SQLP, MANY),)),
    "to_batch": (at(ENGINE, FEW), BATCHES),
    "to_batch_100": (at(ENGINE, MANY), BATCHES),
}
OF_TABLE = ("keys_held", "bytes_per_key", "us_per_event")
FIGURES: Mapping[str, str] = {
    "error": "error",
    "busy": f"error, {zones.BUSY} people or more",
    "read": "error, below two standard errors read as 0",
}
"""Errors of people of zones, and the heads of their columns."""
PEOPLE: Mapping[str, tuple[str, str, str, str]] = {
    "people_by_zone": (ZONES, "error", "error", zones.FIRST),
    "people_by_zone_read": (ZONES, "read", "error", zones.FIRST),
    "people_by_zone_busy": (ZONES, "busy", "busy", zones.FIRST),
    "people_by_zone_checkins": (ZONES, "error", "error", zones.SPATIAL),
    "people_by_zone_busy_checkins": (ZONES, "busy", "busy", zones.SPATIAL),
    "people_by_week": (WEEKS, "error", "error", zones.FIRST),
    "people_by_week_read": (WEEKS, "read", "error", zones.FIRST),
    "people_by_week_busy": (WEEKS, "busy", "busy", zones.FIRST),
    "people_by_week_busy_checkins": (WEEKS, "busy", "busy", zones.SPATIAL),
}
"""Part, error of `keys`, and error and method it is over."""


def found(results: Results, data: str, method: str, bound: int) -> list[float]:
    """Keys by seed."""
    return results.of(STREAMS, data, method, f"keys, m={bound}")


def best(results: Results, data: str, names: Sequence[str]) -> tuple[str, int]:
    """Method and bound that find most keys, in the mean over seeds."""
    tried = [(name, bound) for name in names for bound in BOUNDS]
    return max(tried, key=lambda each: fmean(found(results, data, *each)))


def ratio(results: Results, ours: str, others: Sequence[str]) -> tuple[float, float, dict[str, float]] | None:
    """Return the geometric mean over streams, the standard deviation over seeds of the same of each, and by stream."""
    known = set(results.methods(STREAMS))
    if not known.issuperset((ours, *others)):
        return None
    sides = {
        data: tuple(found(results, data, *best(results, data, names)) for names in ((ours,), others))
        for data in results.data(STREAMS)
    }
    by_stream = {data: max(fmean(mine), LEAST) / max(fmean(other), LEAST) for data, (mine, other) in sides.items()}
    seeds = [
        geometric_mean(max(mine[seed], LEAST) / max(other[seed], LEAST) for mine, other in sides.values())
        for seed in range(min(len(side) for pair in sides.values() for side in pair))
    ]
    return geometric_mean(by_stream.values()), _spread(seeds), by_stream


def people(results: Results, name: str) -> tuple[float, dict[str, float]] | None:
    """Return errors of `keys` over those of `spatial`, each at its best bound: the geometric mean, and by data."""
    part, ours, theirs, over = PEOPLE[name]
    if not set(results.methods(part)).issuperset((ENGINE, over)):
        return None
    by_data = {
        data: least(results, part, data, ENGINE, ours)[0] / least(results, part, data, over, theirs)[0]
        for data in results.data(part)
    }
    return geometric_mean(by_data.values()), by_data


def least(results: Results, part: str, data: str, method: str, error: str) -> tuple[float, int]:
    """Return the least error of a method in the mean over seeds, and at which bound."""
    bounds = zones.WEEKLY_BOUNDS if part == WEEKS else zones.BOUNDS
    return min((fmean(results.of(part, data, method, f"{error}, m={bound}")), bound) for bound in bounds)


def last_line(results: Results) -> dict[str, float]:
    line: dict[str, float] = {}
    for suffix, tests in (("", MANY), (f"_{FEW}", FEW)):
        for name in ("keys", "l1"):
            values = [
                value
                for data in results.data(SYNTHETIC)
                for value in results.of(SYNTHETIC, data, at(ENGINE, tests), name)
            ]
            if values:
                line[f"zipf_{name}{suffix}"] = round(fmean(values))
    for name, sides in RATIOS.items():
        if (told := ratio(results, *sides)) is not None:
            line[name], line[f"{name}_spread"] = round(told[0], 3), round(told[1], 3)
    for data in results.data(TABLE):
        for name in OF_TABLE:
            line[name] = float(f"{fmean(results.of(TABLE, data, ENGINE, name)):.3g}")
    for name in PEOPLE:
        if (by_zone := people(results, name)) is not None:
            line[name] = round(by_zone[0], 3)
    return line


def markdown(results: Results) -> str:
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    yield "# Keys that nobody listed"
    yield "\nMade by `make bench-keys`. Mean ± standard deviation over seeds (their number in brackets)."
    yield "\n| keys found at the end | ratio | by stream |"
    yield "|---|---|---|"
    for name, (ours, others) in RATIOS.items():
        if (told := ratio(results, ours, others)) is not None:
            by_stream = ", ".join(f"{data} {value:.2f}" for data, value in told[2].items())
            yield f"| {name}: {ours} / {' or '.join(others)} | {told[0]:.3f} ± {told[1]:.3f} | {by_stream} |"
    yield "\n## Real streams: epsilon 1, delta 1e-6 of a user, the best bound of each method in hindsight\n"
    yield "| data | method | bound | keys | error of a count that is shown, rms |"
    yield "|---|---|---|---|---|"
    for data in results.data(STREAMS):
        for method in results.methods(STREAMS):
            _, bound = best(results, data, [method])
            keys, errors = (results.of(STREAMS, data, method, f"{each}, m={bound}") for each in ("keys", "rmse"))
            yield f"| {data} | {method} | {bound} | {_cell(keys)} | {_cell(errors)} |"
    yield "\n## The synthetic stream of DP-SQLP: epsilon 6, delta 1e-9 of a user, 32 keys a user\n"
    yield "| method | keys | sum of errors | l2 of errors |"
    yield "|---|---|---|---|"
    yield f"| {at(SQLP, MANY)}, as published | " + " | ".join(f"{value:.0f}" for value in PUBLISHED.values()) + " |"
    for data in results.data(SYNTHETIC):
        for method in results.methods(SYNTHETIC):
            cells = (_cell(results.of(SYNTHETIC, data, method, each)) for each in PUBLISHED)
            yield f"| {method} | " + " | ".join(cells) + " |"
    yield "\n## A table of keys that are not found, as `make bench-table`\n"
    yield f"| data | {' | '.join(OF_TABLE)} |"
    yield "|---|---|---|---|"
    for data in results.data(TABLE):
        cells = (f"{fmean(results.of(TABLE, data, ENGINE, name)):.3g}" for name in OF_TABLE)
        yield f"| {data} | " + " | ".join(cells) + " |"
    yield from _people(results)


def _people(results: Results) -> Iterator[str]:
    yield "\n## People of 256 public zones by week: epsilon 1 (`keys`: delta 1e-6 too) of a user, best bounds\n"
    yield "`people_by_zone`: in all weeks so far. `people_by_week`: in each week, with a promise for each week.\n"
    yield "| error of `keys` over that of `spatial` | ratio | by data |"
    yield "|---|---|---|"
    for name, (_, ours, _, over) in PEOPLE.items():
        if (told := people(results, name)) is not None:
            by_data = ", ".join(f"{data} {value:.2f}" for data, value in told[1].items())
            yield f"| {name}: {FIGURES[ours]} / {over} | {told[0]:.3f} | {by_data} |"
    for part, title in ((ZONES, "All weeks so far"), (WEEKS, "Each week")):
        yield f"\n{title}: errors as shares of the number of people, and in brackets the bound.\n"
        yield f"| data | method | {' | '.join(FIGURES.values())} |"
        yield "|---|---|---|---|---|"
        for data in results.data(part):
            for method in results.methods(part):
                cells = []
                for error in FIGURES:
                    _, bound = least(results, part, data, method, error)
                    values = results.of(part, data, method, f"{error}, m={bound}")
                    cell = f"{fmean(values):.3f} ± {_spread(values):.3f} ({bound})"
                    cells.append("" if error == "read" and method != ENGINE else cell)
                yield f"| {data} | {method} | {' | '.join(cells)} |"


def plot(results: Results, path: Path) -> None:
    """Draw how many keys of the real streams are found by each of the tests, each method at its best bound."""
    streams, tests = results.data(STREAMS), range(1, FEW + 1)
    made, every = charts.figure(9.0, 3.2, columns=len(streams), squeeze=False)
    for axes, data in zip(every.flat, streams, strict=True):
        name, bound = best(results, data, BATCHES)
        axes.axhline(
            fmean(found(results, data, name, bound)), color=charts.GREY, linestyle="--", label="one batch, at the end"
        )
        for method, colour in ((ENGINE, charts.SYNTHETIC), (SQLP, charts.RED)):
            name, bound = best(results, data, [at(method, FEW)])
            seeds = [results.of(STREAMS, data, name, f"by test {test}, m={bound}") for test in tests]
            axes.errorbar(
                tests, [*map(fmean, seeds)], [*map(_spread, seeds)], color=colour, marker="o", capsize=2, label=method
            )
        axes.set_title(data, fontsize=10)
        axes.set_xlabel(f"test, of {FEW}")
        axes.set_ylim(bottom=0)
        charts.quiet(axes)
    every.flat[0].set_ylabel("keys found")
    every.flat[0].legend(frameon=False, fontsize=8, loc="center left")
    made.savefig(path, dpi=100)


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _cell(values: Sequence[float]) -> str:
    mean = fmean(values)
    digits = 2 if mean < 2 else 1 if mean < 1000 else 0
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean:.{digits}f}{spread} ({len(values)})"
