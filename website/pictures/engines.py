"""One picture for each engine: what was there, which is public data here, and what is released of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import Any

from agents.show.charts import GREY, SYNTHETIC, TRUE, figure, quiet
from engines import configure
from website.pictures.rows import EXAMPLES, rows_of

SEED = 1
SHOWN = 250


def spatial() -> Any:
    """Draw taxi pickups of a month."""
    rows = rows_of("nyc_taxi/taxi_2016_01_sample_20k.csv.gz")
    stream = configure(EXAMPLES / "taxi.toml", insecure_seed=SEED)
    stream.run(list(rows), until=31)
    synthetic = stream.synthetic().to_pylist()
    made, (left, right) = figure(9.0, 4.2, columns=2, sharex=True, sharey=True)
    box = ((-74.03, -73.83), (40.66, 40.85))
    for axes, points, title in (
        (left, rows, f"{len(rows):,} pickups"),
        (right, synthetic, f"{len(synthetic):,} synthetic pickups, epsilon 1"),
    ):
        x, y = ([row[f"pickup_{name}"] for row in points] for name in ("longitude", "latitude"))
        axes.hist2d(x, y, bins=110, range=box, cmap="viridis", norm="log")
        axes.set_title(title, fontsize=11)
        axes.set_xticks([])
        axes.set_yticks([])
    return made


def series() -> Any:
    """Draw departures in three hours."""
    rows = rows_of("nyc_departures/departures_2013_01.csv.gz")
    stream = configure(EXAMPLES / "departures.toml", insecure_seed=SEED)
    stream.run(list(rows), until=248)
    released = [row["departures"] for row in stream.synthetic().to_pylist()]
    made, axes = figure(9.0, 3.2)
    steps = range(120)
    axes.step(
        steps, [row["departures"] for row in rows[:120]], where="mid", color=GREY, linewidth=3, label="departures"
    )
    axes.step(
        steps, released[:120], where="mid", color=SYNTHETIC, label="released, epsilon 2 for a flight in all steps"
    )
    axes.set_xlabel("step of three hours")
    axes.set_ylim(top=290)
    axes.legend(frameon=False, loc="upper right", ncols=2)
    quiet(axes)
    return made


def tabular() -> Any:
    """Draw eviction notices by neighbourhood, and by a pair of columns."""
    rows = list(rows_of("sf_evictions/eviction_notices_2011_2015.csv.gz"))
    stream = configure(EXAMPLES / "evictions.toml", insecure_seed=SEED)
    stream.run(rows, until=66)
    synthetic = stream.synthetic().to_pylist()
    made, axes = figure(9.0, 3.8)
    true, said = (Counter(row["neighborhood"] for row in each) for each in (rows, synthetic))
    names = [name for name, _ in true.most_common(18) if name]
    places = range(len(names))
    axes.bar([at - 0.2 for at in places], [true[name] for name in names], 0.4, color=GREY, label="notices")
    axes.bar([at + 0.2 for at in places], [said[name] for name in names], 0.4, color=SYNTHETIC,
             label="synthetic notices, epsilon 2")  # fmt: skip
    axes.set_xticks(list(places), names, rotation=35, ha="right", fontsize=8)
    axes.legend(frameon=False)
    quiet(axes)
    return made


def markov() -> Any:
    """Draw where the drivers of the town are, in each step of three hours: in a quarter of it, or not on the road."""
    middle, length, steps = (0.026, 0.0245), 10_800, 24
    rows = rows_of("town/drives.csv.gz")
    drivers = sorted({row["driver"] for row in rows})
    seen: dict[tuple[int, str], str] = {}
    for row in rows:
        quarter = ("south" if row["lat"] < middle[1] else "north") + ("west" if row["lon"] < middle[0] else "east")
        seen.setdefault((row["time"] // length, row["driver"]), quarter)
    states = ["northwest", "northeast", "southwest", "southeast", "not on the road"]
    batch = [
        {"driver": driver, "time": step * length, "where": seen.get((step, driver), states[-1])}
        for step in range(steps)
        for driver in drivers
    ]
    stream = configure(
        name="drivers",
        engine="markov",
        privacy={
            "epsilon": 4.0,
            "unit": "replace",
            "user": "driver",
            "max_contributions": steps,
            "max_per_step": 1,
        },
        time={"field": "time", "format": "s", "start": "1970-01-01T00:00:00", "step": "3h"},
        domain={"kind": "states", "field": "where", "values": states, "population": len(drivers)},
        options={"horizon": steps},
        insecure_seed=SEED,
    )
    releases = stream.run(batch, until=steps)
    true = Counter((row["time"] // length, row["where"]) for row in batch)
    made, axes = figure(9.0, 3.2)
    for colour, state in (("#2a8c6a", "northeast"), ("#2f6f9f", "southwest")):
        said = [next((row["count"] for row in each.records if row["where"] == state), 0) for each in releases]
        there = [true[step, state] for step in range(steps)]
        axes.plot(there, color=colour, linewidth=5, alpha=0.25, label=f"{state}: drivers")
        axes.plot(said, color=colour, linewidth=1.6, label=f"{state}: released")
    axes.set_xlabel("step of three hours")
    axes.legend(frameon=False, ncols=2, fontsize=9)
    quiet(axes)
    return made


def trajectory() -> Any:
    """Draw drives of the town."""
    rows = rows_of("town/drives.csv.gz")
    stream = configure(EXAMPLES / "trips.toml", insecure_seed=SEED)
    stream.run([{**row, "last": row["last"] == "true"} for row in rows], until=3)
    synthetic = stream.synthetic().to_pylist()
    made, (left, right) = figure(9.0, 4.4, columns=2, sharex=True, sharey=True)
    for axes, points, colour, title in (
        (left, rows, TRUE, "drives"),
        (right, synthetic, SYNTHETIC, "synthetic drives, epsilon 6"),
    ):
        ordered = sorted(points, key=lambda row: (str(row["trip"]), row["time"]))
        drives = [list(drive) for _, drive in groupby(ordered, key=lambda row: row["trip"])]
        shown = drives[:: len(drives) // SHOWN][:SHOWN]  # every so many-th: ids may be in an order of their own
        for drive in shown:
            lon, lat = ([row[name] for row in drive] for name in ("lon", "lat"))
            axes.plot(lon, lat, color=colour, alpha=0.16, linewidth=0.9)
        axes.set_title(f"{len(shown)} of {len(drives):,} {title}", fontsize=11)
        axes.set_xticks([])
        axes.set_yticks([])
    return made


def keys() -> Any:
    """Draw at how many crossings of the town drives end, by how many drivers, and what is released of it."""
    rows = rows_of("town/arrivals.csv.gz")
    stream = configure(EXAMPLES / "arrivals.toml", insecure_seed=SEED)
    last = stream.run(list(rows), until=6)[-1]
    drivers = Counter(
        crossing for crossing, _ in {(row["crossing"], row["driver"]) for row in rows if row["time"] < 3 * 86_400}
    )
    said = {row["crossing"]: (row["count"], row["error"]) for row in last.records}
    names = sorted(drivers, key=lambda name: (-drivers[name], name))[:26]
    made, axes = figure(9.0, 3.6)
    axes.bar(range(len(names)), [drivers[name] for name in names], 0.7, color=GREY, alpha=0.6, label="drivers")
    there = [(at, *said[name]) for at, name in enumerate(names) if name in said]
    at, counts, errors = zip(*there, strict=True)
    axes.errorbar(
        at,
        counts,
        [1.64 * error for error in errors],
        color=SYNTHETIC,
        linestyle="",
        marker="o",
        capsize=3,
        label="released, with a 90 % interval: epsilon 4 for a driver",
    )
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7)
    axes.legend(frameon=False)
    quiet(axes)
    return made


PICTURES: dict[str, Callable[[], Any]] = {
    f"engines/{draw.__name__}": draw for draw in (spatial, series, tabular, markov, trajectory, keys)
}
