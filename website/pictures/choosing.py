"""What epsilon, the bound and the step do: figures of docs/choosing.md."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agents.local.offline.simulate import simulate
from agents.show.charts import AMBER, BLUE, GREY, RED, SYNTHETIC, figure, quiet
from engines import configure
from engines.core.noise import DiscreteLaplace, scale_for
from schemas.config import config_from_mapping, load_config
from schemas.guarantee import max_posterior
from website.pictures.rows import EXAMPLES, rows_of

SEED = 1
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
BOUNDS = (1, 2, 3, 4, 6, 8, 12)
STEPS = ("6h", "12h", "1d", "2d", "4d", "7d")


def epsilon() -> Any:
    """Draw how sure somebody can become, and how far a count is off."""
    made, (left, right) = figure(9.0, 3.3, columns=2)
    fine = [10 ** (-1 + index / 40) for index in range(80)]
    left.plot(fine, [100 * max_posterior(each) for each in fine], color=RED)
    left.axhline(50, color=GREY, linewidth=1, linestyle=":")
    left.set_ylabel("% sure, from an even chance")
    left.set_ylim(45, 101)
    within = [DiscreteLaplace(scale_for(1, _fraction(each))).variance ** 0.5 for each in EPSILONS]
    right.plot(EPSILONS, within, color=BLUE, marker="o")
    right.set_ylabel("standard deviation of one count")
    right.set_yscale("log")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(EPSILONS, [f"{each:g}" for each in EPSILONS])
        axes.minorticks_off()
        axes.set_xlabel("epsilon")
        quiet(axes)
    return made


def bound() -> Any:
    """Draw what a bound drops, and what noise it brings: drives of the town, epsilon 2 for a driver."""
    rows = [{**row, "last": row["last"] == "true"} for row in rows_of("town/drives.csv.gz")]
    kept, noise = [], []
    for most in BOUNDS:
        stream = configure(
            {**_stream("trips.toml"), "privacy": {"epsilon": 2, "user": "driver", "max_contributions": most}},
            insecure_seed=SEED,
        )
        taken = [release.taken for release in stream.run(rows, until=3)]
        accepted, over = (sum(getattr(each, name) for each in taken) for name in ("accepted", "over_bound"))
        kept.append(100 * accepted / (accepted + over))
        noise.append(most / 2)
    made, axes = figure(7.0, 3.3)
    axes.plot(BOUNDS, kept, color=SYNTHETIC, marker="o", label="% of the rows that count")
    axes.set_ylim(0, 105)
    axes.set_xlabel("max_contributions")
    axes.set_ylabel("% of the rows that count", color=SYNTHETIC)
    other = axes.twinx()
    other.plot(BOUNDS, noise, color=RED, marker="s")
    other.set_ylabel("scale of the noise at epsilon 2", color=RED)
    other.set_ylim(bottom=0)
    other.spines["top"].set_visible(False)
    quiet(axes)
    return made


def step() -> Any:
    """Draw error of counts in rectangles by the length of a step: taxi pickups, epsilon 1."""
    errors: dict[str, list[float]] = {"small": [], "medium": [], "large": []}
    with TemporaryDirectory() as folder:
        for length in STEPS:
            stream = _stream("taxi.toml")
            stream["time"]["step"] = length
            stream["domain"] = {
                "kind": "box",
                "x": "pickup_longitude",
                "y": "pickup_latitude",
                "bounds": [-74.05, 40.60, -73.75, 40.90],
            }
            config = config_from_mapping({"kafka": {"bootstrap": "none:1"}, "streams": [stream]})
            data = EXAMPLES / "nyc_taxi" / "taxi_2016_01_sample_20k.csv.gz"
            (done,) = simulate(config, data, Path(folder) / length, seed=SEED)
            for name, found in errors.items():
                found.append(100 * done.metrics[f"error_{name}"])
    made, axes = figure(7.0, 3.3)
    for (name, found), colour in zip(errors.items(), (RED, AMBER, BLUE), strict=True):
        axes.plot(range(len(STEPS)), found, marker="o", color=colour, label=f"{name} rectangles")
    axes.set_xticks(range(len(STEPS)), STEPS)
    axes.set_xlabel("length of a step")
    axes.set_ylabel("relative error in %, at the end")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    quiet(axes)
    return made


def _stream(name: str) -> dict[str, Any]:
    return dict(load_config(EXAMPLES / name, offline=True).streams[0].model_dump())


def _fraction(value: float) -> Fraction:
    return Fraction(Decimal(str(value)))


PICTURES: dict[str, Callable[[], Any]] = {f"choosing/{draw.__name__}": draw for draw in (epsilon, bound, step)}
