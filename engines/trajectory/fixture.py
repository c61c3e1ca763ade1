"""The streams that engine `trajectory` is tried on, by contract tests and coupled runs."""

from __future__ import annotations

from typing import Any

from engines.checks.contract_case import WHOLE, Chance, EngineCase, Variant
from engines.spatial.fixture import HOLE, SHELL, geojson, point_at
from schemas.config import Stream


def _in_mode(mode: str, variant: Variant) -> Variant:
    """Only the default mode keeps to a map."""
    given = dict(variant)
    if mode != "default" and "file" in given.get("domain", {}):
        given["domain"] = {**given["domain"], "file": None, "reach_m": None}
    return given


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
    in several cells, and with a delta the squares of halves count. So they add up to more than any trip pays.
    In mode `paper` trees are charged for paths without end, too."""
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
        {"domain": {"bounds": [-1.0, 40.0, 1.0, 41.0], "file": geojson("Polygon", [SHELL, HOLE])["file"]}},
    ),
    in_mode=_in_mode,
    drawn=(
        {"domain": {"end_value": "over", "order": "at"}},
        {
            "domain": {
                "bounds": [-1.0, 40.0, 1.0, 41.0],
                "file": geojson("MultiLineString", [SHELL, HOLE])["file"],
                "reach_m": 5000.0,
            }
        },
    ),
    longer=(
        {"privacy": {"max_contributions": 3, "per": "8h"}, "options": {"longest": "3h"}},
        {
            "privacy": {"delta": 1e-3, "max_contributions": 5, "max_per_step": 2, "per": "8h"},
            "options": {"longest": "3h"},
        },
    ),
)
