"""Trips: those of all windows of a stream together against one release about all trips, at one epsilon for a trip.

Windows have equal numbers of trips, dealt by the seed. Rivals: AdaTrace [gursoy2018], where a checkout of its program
is given; the paper's trees and a coarse grid.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.trajectory.data import LARGE, SOURCES, chosen, joined
from benchmarks.trajectory.modes import FIVE, GRIDS, MODES
from engines.core.noise import seeded
from engines.trajectory.engine import Limits
from engines.trajectory.metrics import Truth
from engines.trajectory.trips import LATTICE, Trips

PART = "trips"
EPSILON = Fraction(1)
FIGURES = tuple(f"{figure} {side}" for side in GRIDS for figure in FIVE)
WINDOWS = (10, 4)
OURS = "10 windows"
BATCH = {"one batch" if name == "default" else name: mode for name, mode in MODES.items()}
ADATRACE = "AdaTrace"
RIVALS = (ADATRACE, "paper", "paper, exponential", "grid")
METHODS = (*(f"{windows} windows" for windows in WINDOWS), *BATCH)
SEEDS = 3
DATA = ("cabs", "manhattan", "jersey city")
"""Of more than `LARGE` trips: a tenth of fewer is no window that the engine is for."""
ADATRACE_SEEDS = 5
"""Its program runs so often, at epsilon 1."""
UNITS = 1000
"""Sides of the square that AdaTrace is given: it rounds to hundredths."""


def data(*, quick: bool) -> list[str]:
    """Sets whose files are there."""
    return [name for name in (DATA[:1] if quick else DATA) if not SOURCES[name].missing]


@lru_cache(maxsize=1)
def trips_of(name: str) -> tuple[Trips, tuple[Truth, ...]]:
    trips = SOURCES[name].make()
    assert len(trips) >= LARGE
    return trips, tuple(Truth.of(trips, side=side) for side in GRIDS)


def windows_of(trips: Trips, windows: int, seed: int) -> list[Trips]:
    order = np.random.default_rng(4000 + seed).permutation(len(trips))
    return [chosen(trips, np.sort(part)) for part in np.array_split(order, windows)]


def run(name: str, method: str, seed: int) -> dict[str, float]:
    """Figures of all synthetic trips together."""
    trips, _ = trips_of(name)
    mode = BATCH.get(method, BATCH["one batch"])
    windows = int(method.split(maxsplit=1)[0]) if method.endswith("windows") else 1
    made = [
        mode(window, epsilon=EPSILON, limits=Limits(), noise=seeded(seed).child("price", name, method, at))
        for at, window in enumerate(windows_of(trips, windows, seed))
    ]
    return figures(name, joined(made))


def figures(name: str, made: Trips) -> dict[str, float]:
    _, truths = trips_of(name)
    found: dict[str, float] = {}
    for side, truth in zip(GRIDS, truths, strict=True):
        errors = truth.errors(made)
        found |= {f"{figure} {side}": errors[figure] for figure in FIVE}
    return found


def adatrace(name: str, checkout: Path) -> list[dict[str, float]]:
    """Figures of AdaTrace's own five runs. Needs `javac` and `java`.

    Args: checkout: of git-disl/AdaTrace, with `src` and its two libraries. Its program reads a file of one name, knows
        one epsilon, and takes the box and the number of trips from the data.
    """
    for tool in ("javac", "java"):
        if shutil.which(tool) is None:
            raise SystemExit(f"AdaTrace needs {tool}: install a Java development kit")
    trips, _ = trips_of(name)
    jars = ":".join(str(jar.resolve()) for jar in sorted(checkout.glob("*.jar")))
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "built"
        sources = sorted(map(str, (checkout / "src").rglob("*.java")))
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", built, *sources], check=True, capture_output=True)
        (Path(folder) / "brinkhoff.dat").write_text(written(trips.first(Limits().points)), encoding="ascii")
        subprocess.run(["java", "-cp", f"{built}:{jars}", "Main"], cwd=folder, check=True, capture_output=True)
        found = sorted(Path(folder).glob("brinkhoff.dat-eps1.0-iteration*.dat"))
        assert len(found) == ADATRACE_SEEDS
        return [figures(name, read(path.read_text(encoding="ascii"))) for path in found]


def written(trips: Trips) -> str:
    """As AdaTrace reads trips: two lines each."""
    x, y = (values / LATTICE * UNITS for values in (trips.x, trips.y))
    lines = []
    for at in range(len(trips)):
        part = slice(trips.offsets[at], trips.offsets[at + 1])
        lines.append(f"#{at}:\n>0:" + "".join(f"{a:.4f},{b:.4f};" for a, b in zip(x[part], y[part], strict=True)))
    return "\n".join(lines) + "\n"


def read(text: str) -> Trips:
    """What AdaTrace writes."""
    rows = [line[3:].strip().rstrip(";").split(";") for line in text.splitlines() if line.startswith(">0:")]
    rows = [row for row in rows if row[0]]
    points = np.array([pair.split(",") for row in rows for pair in row], np.float64)
    places = np.clip((points / UNITS * LATTICE).astype(np.int64), 0, LATTICE - 1)
    return Trips(places[:, 0], places[:, 1], np.append(0, np.cumsum([len(row) for row in rows])))
