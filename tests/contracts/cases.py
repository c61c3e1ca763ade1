"""What the contract tests need of each engine: small streams, keys of events, and what a release measures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from engines.contract import Release
from schemas.config import ENGINE_FACTS, Stream
from schemas.config.options.markov import NEED_TRANSITION

Key = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCase:
    """Attributes:

    tables: `domain`, `options` and what else differs of a stream's configuration, by table.
    variants: changes to those tables, each tried in every mode that takes them; None takes a key out.
    keys: draws the key of one event, `words` numbers. foreign: a key outside the domain, None where all are inside.
    measured: noisy integers of a release by name, those that one event moves by no more than is declared; None where
        the engine's own tests check its sensitivity instead.
    crowd: one event that is worth `crowded` of in a step for a release to measure something.
    """

    tables: Mapping[str, Any]
    keys: st.SearchStrategy[Key]
    crowd: Key
    foreign: Key | None
    words: int = 1
    measured: Callable[[Release], dict[str, int]] | None = None
    variants: Sequence[Mapping[str, Any]] = field(default=({},))
    privacy: Mapping[str, Any] = field(default_factory=dict)

    def stream(self, name: str, mode: str, variant: Mapping[str, Any] | None = None) -> Stream:
        """A stream of this engine, with the changes of a variant."""
        privacy = {"epsilon": 2.0, "unit": "user", "user": "u", "max_contributions": 2}
        document: dict[str, Any] = {
            "name": "s",
            "engine": name,
            "mode": mode,
            "source": "raw.s",
            "privacy": {**privacy, **self.privacy},
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            **self.tables,
        }
        for table, changes in (variant or {}).items():
            both = {**document.get(table, {}), **changes}
            document[table] = {key: value for key, value in both.items() if value is not None}
        return Stream.model_validate(document)


def _cells(release: Release) -> dict[str, int]:
    """Noisy integers by cell and round: later rounds of a step look at what earlier ones released."""
    return {f"{m.get('cell', m.get('zones'))} {m.get('round', 0)}": int(m["increment"]) for m in release.measurements}


SPATIAL_DEPTH = 6
_SHELL = [[-1.0, 40.0], [1.0, 40.1], [0.2, 40.4], [0.9, 41.0], [-0.6, 40.8], [-1.0, 40.0]]
_HOLE = [[-0.4, 40.3], [-0.2, 40.6], [0.0, 40.3], [-0.4, 40.3]]


def _zones(names: Sequence[str]) -> Mapping[str, Any]:
    return {"kind": "zones", "field": "zone", "zones": names, "x": None, "y": None, "bounds": None}


def _geojson(kind: str, coordinates: Any) -> Mapping[str, Any]:
    """A domain on a map, with what its file would hold."""
    content = json.dumps({"type": kind, "coordinates": coordinates}).encode()
    file = {"path": "shape.geojson", "sha256": hashlib.sha256(content).hexdigest(), "content": content}
    return {"kind": "geojson", "bounds": None, "file": file}


SERIES_HIGHEST = 8192
"""Lattice steps of a summed value at its limit, 4."""


class SeriesCase(EngineCase):
    """Modes that add Gaussian noise have a delta; those that protect windows, a window."""

    __slots__ = ()

    def stream(self, name: str, mode: str, variant: Mapping[str, Any] | None = None) -> Stream:
        changes: dict[str, Any] = {"delta": 1e-4} if mode in ENGINE_FACTS[name].needs_delta else {}
        given = dict(variant or {})
        if mode in ("ba", "bd"):
            # Two steps.
            changes["per"] = "12h" if given.get("time", {}).get("step") == "6h" else "2h"
        # super() would look for the class that `slots` replaced.
        return EngineCase.stream(self, name, mode, {**given, "privacy": {**changes, **given.get("privacy", {})}})


class TripsCase(EngineCase):
    """Only the default mode keeps to a map."""

    def stream(self, name: str, mode: str, variant: Mapping[str, Any] | None = None) -> Stream:
        given = dict(variant or {})
        if mode != "default" and "file" in given.get("domain", {}):
            given["domain"] = {**given["domain"], "file": None}
        return EngineCase.stream(self, name, mode, given)


class StatesCase(EngineCase):
    """Modes that rest on a declared chain have one."""

    __slots__ = ()

    def stream(self, name: str, mode: str, variant: Mapping[str, Any] | None = None) -> Stream:
        given = dict(variant or {})
        if mode in NEED_TRANSITION and given.get("domain", {}).get("transition", "declared") is None:
            given["domain"] = {key: value for key, value in given["domain"].items() if key != "transition"}
        return EngineCase.stream(self, name, mode, given)


CONTRACTS: Mapping[str, EngineCase] = {
    "spatial": EngineCase(
        tables={
            "domain": {"kind": "box", "x": "lon", "y": "lat", "bounds": [-1.0, 40.0, 1.0, 41.0]},
            "options": {"depth": SPATIAL_DEPTH, "initial_steps": 1, "max_leaves": 16, "allow_not_private": True},
        },
        keys=st.tuples(st.integers(0, 2 ** (SPATIAL_DEPTH + 1) - 1)),
        crowd=(8,),
        foreign=(2 ** (SPATIAL_DEPTH + 1),),
        measured=_cells,
        variants=(
            {},
            {"options": {"initial_steps": 2}},
            {"options": {"initial_steps": 3}, "domain": {"ttl": "1h"}},
            {"domain": {"ttl": "2h"}},
            {"domain": _geojson("Polygon", [_SHELL, _HOLE]), "options": {"initial_steps": 2}},
            {"domain": {**_geojson("MultiLineString", [_SHELL, _HOLE]), "ttl": "1h"}},
            {"domain": _zones([f"zone {index}" for index in range(40)])},
        ),
    ),
    "markov": StatesCase(
        tables={
            "domain": {
                "kind": "states",
                "field": "zone",
                "values": ["a", "b", "c"],
                "population": 100,
                "transition": {"path": "chain.csv", "sha256": "", "content": b"0.9,0.1,0\n0,0.5,0.5\n0.2,0.2,0.6\n"},
            },
            "options": {"horizon": 10},
        },
        privacy={"unit": "replace", "max_contributions": 10, "max_per_step": 1},
        keys=st.tuples(st.integers(0, 2)),
        crowd=(1,),
        foreign=(3,),
        measured=lambda release: {str(m["state"]): int(m["count"]) for m in release.measurements},
        variants=(
            {},
            {"options": {"lag": 1}},
            {"options": {"lag": 0, "prior": "uniform"}},
            {"domain": {"transition": None}},
            {"options": {"horizon": None}, "privacy": {"max_contributions": 4, "per": "4h"}},
        ),
    ),
    "series": SeriesCase(
        tables={
            "domain": {"kind": "series", "fields": [{"name": "km", "of": "sum", "limits": [0.0, 4.0]}]},
            "options": {"horizon": 3, "delay": 2, "coefficients": 1},
        },
        privacy={"max_contributions": 4, "max_per_step": 2},
        keys=st.tuples(st.integers(0, SERIES_HIGHEST)),
        crowd=(SERIES_HIGHEST,),
        foreign=(SERIES_HIGHEST + 1,),
        # Each event moves every measurement of its step; tests/sequence checks by how much.
        measured=None,
        variants=(
            {},
            {"privacy": {"max_contributions": 6}},
            # A user in every step, and days of four steps.
            {"time": {"step": "6h"}, "options": {"horizon": 12}, "privacy": {"max_contributions": 24}},
            {
                "domain": {"fields": [{"name": "km", "of": "value", "limits": [0.0, 4.0], "sensitivity": 0.5}]},
                "options": {"horizon": 12},
                "privacy": {"user": None, "max_contributions": None, "max_per_step": None},
            },
        ),
    ),
    "tabular": EngineCase(
        tables={
            "domain": {
                "kind": "table",
                "attributes": [
                    {"field": "smokes", "values": [False, True]},
                    {"field": "age", "edges": [0, 18, 65, 120], "integer": True},
                    {"field": "city", "values": ["here"], "missing": True},
                ],
            },
            "options": {"fit": "joint"},
        },
        keys=st.tuples(st.integers(0, 2 * 2 * 3 * 2 - 1)),
        crowd=(8,),
        foreign=(2 * 2 * 3 * 2,),
        variants=(
            {},
            {"domain": {"ttl": "1h"}},
            {"domain": {"ttl": "2h"}, "options": {"records": False}},
            {"domain": {"op": "what"}, "options": {"ways": [1, 2, 3]}},
            {"options": {"marginals": [{"of": ["age", "smokes"], "weight": 3}]}},
        ),
    ),
    "trajectory": TripsCase(
        tables={
            "domain": {"kind": "trips", "trip": "n", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0], "end": "e"},
            "options": {"max_points": 20, "max_moves": 20, "side": 8},
        },
        # Name, admitting step, time, place, end record.
        keys=st.tuples(
            st.integers(1, 6), st.just(0), st.just(0), st.integers(0, 9), st.integers(0, 2**40 - 1), st.integers(0, 1)
        ),
        crowd=(1, 0, 0, 1, 5, 1),
        foreign=(1, 0, 0, 1, 2**40, 1),
        words=6,
        # One trip moves many bins by parts of one; tests/trajectory checks that they add up to one at most.
        measured=None,
        variants=(
            {},
            # As long as the guarded runs of `tests/couple`: their trips are all admitted in step 0.
            {"options": {"idle": "2h", "longest": "11h"}},
            {"options": {"records": False}},
            {"domain": {"bounds": [-1.0, 40.0, 1.0, 41.0], "file": _geojson("Polygon", [_SHELL, _HOLE])["file"]}},
        ),
    ),
}
