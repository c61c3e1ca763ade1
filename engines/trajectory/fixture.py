"""What engine `trajectory` is audited on: trips of one point in a corner where many start, or where none does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from math import isqrt
from typing import Any

import numpy as np

from engines.auditor.cases import Case
from engines.auditor.engines import case, faintly
from engines.auditor.features import Features
from engines.auditor.fixture import DENSE, VISITED, AuditFixture, Focus, Key
from engines.contract_case import WHOLE, Chance, EngineCase, Variant
from engines.spatial.fixture import point_at
from engines.trajectory.domain import TripDomain
from engines.trajectory.grid import Grid
from engines.trajectory.trips import LATTICE, LATTICE_BITS
from schemas.blocks import Folded
from schemas.config import ENGINES, Stream

AT: Mapping[str, tuple[float, float]] = {"dense cell": (0.1, 0.1), "empty cell": (0.9, 0.9)}
KnownTrip = tuple[int, float, float, int]
"""Step in which it closes, x, y in the unit square, and number of one-point trips that both inputs have."""


def cases(mode: str) -> Iterator[Case]:
    """One for a mode, and one with a delta where the mode takes one."""
    if mode in ENGINES["trajectory"].facts.uses_delta:
        yield case(f"engine trajectory, mode {mode}, delta", fixture(mode, delta=1e-3, epsilon=1.5))
    made = fixture(mode, contributions=2)
    yield case(f"engine trajectory, mode {mode}", made, faint=faintly(made.stream))


def trip_focus(x: float, y: float, known: Sequence[KnownTrip]) -> Focus:
    """What was measured at one place beyond the known trips of one point: all histograms together.

    Each histogram counts with its precision, as the best test of a trip at that place would.
    """
    place = np.array([int(x * LATTICE)]), np.array([int(y * LATTICE)])

    def focus(step: int, measurements: Sequence[Mapping[str, Any]]) -> Features:
        trips = sum(count for at, _, _, count in known if at == step)
        residual, weight = 0.0, 0.0
        for measurement in measurements:
            name, bins, values = measurement["histogram"], measurement["bins"], measurement["values"]["noisy"]
            if name == "trips":
                found, there = values[0], trips
            elif name in ("starts", "ends", "points"):
                # Trips of one point are in the first group of points.
                grid = Grid(isqrt(bins)) if isqrt(bins) ** 2 == bins else Grid(isqrt(bins // 3))
                cell = int(grid.cells(*place)[0])
                found = sum(values[cell :: grid.size])
                there = sum(
                    count
                    for at, px, py, count in known
                    if at == step
                    and int(grid.cells(np.array([int(px * LATTICE)]), np.array([int(py * LATTICE)]))[0]) == cell
                )
            else:
                # All trips of one point are in one bin, or nowhere.
                found, there = measurement["sum"], trips
            share = 1 / measurement["variance"] ** 0.5
            residual, weight = residual + share * (found - there), weight + share
        return {"residual": residual / weight} if weight else {}

    return focus


def fixture(mode: str, *, contributions: int = 1, epsilon: float = 2.0, delta: float = 0.0) -> AuditFixture:
    """`DENSE` trips in each step, all in one corner; audited trips are there or in the opposite one, as
    many of a user as `contributions` says.

    Grids are as coarse as they may be: other cells hold noise alone, which tells nothing and costs time.
    """
    stream = Stream.model_validate(
        {
            "name": "audit",
            "engine": "trajectory",
            "mode": mode,
            "source": "raw.audit",
            "privacy": {
                "epsilon": epsilon,
                "delta": delta,
                "unit": "user",
                "user": "u",
                "max_contributions": contributions,
            },
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            "domain": {"kind": "trips", "trip": "n", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0], "end": "e"},
            "options": {"records": False, "longest": "100h", "side": 4},
        }
    )
    bounds = (0.0, 0.0, 1.0, 1.0)
    assert TripDomain("x", "y", bounds).words == len(_key("dense cell", 0))

    def crowd(step: int) -> Folded:
        keys = [_key("dense cell", (DENSE + 2) * step + number) for number in range(DENSE)]
        return Folded.of(np.array(keys, np.uint64))

    def numbered(key: Key, step: int, index: int) -> Key:
        assert isinstance(key, tuple)
        return (key[0] - index + (DENSE + 2) * step, *key[1:])

    known = [(step, *AT["dense cell"], DENSE) for step in range(VISITED)]
    places = {name: (_key(name, DENSE + 1), None, trip_focus(*at, known)) for name, at in AT.items()}
    return AuditFixture(stream, crowd(0), places, numbered=numbered, changing=crowd)


def _key(place: str, number: int) -> tuple[int, ...]:
    """A trip of one point that ends at once; its name comes every step, and counts in the first."""
    x, y = (int(coordinate * LATTICE) for coordinate in AT[place])
    return (number + 1, 0, 0, 1, x << LATTICE_BITS | y, 1)


def _in_mode(mode: str, variant: Variant) -> Variant:
    """Only the default mode keeps to a map."""
    given = dict(variant)
    if mode != "default" and "file" in given.get("domain", {}):
        given["domain"] = {**given["domain"], "file": None}
    return given


_SHELL = [[-1.0, 40.0], [1.0, 40.1], [0.2, 40.4], [0.9, 41.0], [-0.6, 40.8], [-1.0, 40.0]]
_HOLE = [[-0.4, 40.3], [-0.2, 40.6], [0.0, 40.3], [-0.4, 40.3]]
_MAP = json.dumps({"type": "Polygon", "coordinates": [_SHELL, _HOLE]}).encode()
_FILE = {"path": "shape.geojson", "sha256": hashlib.sha256(_MAP).hexdigest(), "content": _MAP}


def _event(domain: Any, chance: Chance) -> dict[str, Any]:
    end = {} if domain.end is None else {domain.end: chance.choice([domain.end_value, "no", "no"])}
    return {**point_at(domain, chance), **end, domain.trip: f"trip {chance.randint(0, 2)}"}


def _dearest(domain: Any, chance: Chance) -> list[dict[str, Any]]:
    """A trip of one point or of two that ends where it is: all of its weight is in one bin of each histogram."""
    points = [point_at(domain, chance) for _ in range(chance.randint(1, 2))]
    under_way, over = ({}, {}) if domain.end is None else ({domain.end: "no"}, {domain.end: domain.end_value})
    return [*({**point, **under_way} for point in points), {**points[-1], **over}]


def _reach(stream: Stream) -> float:
    """No trip is the dearest one to all histograms at once: one that stays has no moves, one that moves has its points
    in several cells, and with a delta the squares of halves count. So they add up to more than any trip pays
    (`tests/couple/test_trajectory_delta.py`: each histogram alone reaches its part). In mode `paper` trees are
    charged for paths without end, too."""
    if stream.mode == "default":
        return 0.7 if stream.privacy.delta else WHOLE
    return 0.5


def _wide(mode: str) -> list[Variant]:
    """Finer grids, and longer trips."""
    many = {"max_contributions": 8, "max_per_step": 6}
    return [{"options": {"max_points": 100, "max_moves": 60, "side": 48}, "privacy": many}]


CONTRACT = EngineCase(
    wide=_wide,
    engine="trajectory",
    tables={
        "domain": {"kind": "trips", "trip": "n", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0], "end": "e"},
        "options": {"max_points": 20, "max_moves": 20, "side": 8},
    },
    # Name, admitting step, time, place, end record.
    keys=lambda pick: (pick(1, 6), 0, 0, pick(0, 9), pick(0, 2**40 - 1), pick(0, 1)),
    event=_event,
    reach=_reach,
    dearest=_dearest,
    crowd=(1, 0, 0, 1, 5, 1),
    foreign=(1, 0, 0, 1, 2**40, 1),
    words=6,
    # One trip moves many bins by parts of one; tests/trajectory checks that they add up to one at most.
    measured=None,
    variants=(
        {},
        # As long as the guarded runs of `tests/couple`: their trips are all admitted in step 0.
        {
            "privacy": {"delta": 1e-6, "epsilon": 8.0, "max_contributions": 4, "max_per_step": 1},
            "options": {"idle": "2h", "longest": "11h"},
        },
        {"options": {"records": False}},
        {"domain": {"bounds": [-1.0, 40.0, 1.0, 41.0], "file": _FILE}},
    ),
    in_mode=_in_mode,
    longer=(
        {"privacy": {"max_contributions": 3, "per": "8h"}, "options": {"longest": "3h"}},
        {
            "privacy": {"delta": 1e-3, "max_contributions": 5, "max_per_step": 2, "per": "8h"},
            "options": {"longest": "3h"},
        },
    ),
)
