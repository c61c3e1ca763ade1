"""Zones as a configuration describes them, and how well their counts are released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from engines.spatial.domain import LineDomain, PolygonDomain, Shape, ZoneDomain, parsed, shape_of
from engines.spatial.queries import relative_errors
from schemas.arrays import IntArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError

DETAIL = 8
"""Halvings of a zone's bounds: points are spread evenly over its cells."""
RUNS = {"small": 0.0, "medium": 0.1, "large": 1 / 3}
"""Share of all zones in a query; small ones are single zones."""


def outlined(field: str, features: Sequence[tuple[str, bytes]], coordinates: tuple[str, str] | None) -> ZoneDomain:
    """Zones from named outlines, in order along their map.

    Args:
        features: name and GeoJSON of each; several of one name are one zone.
        coordinates: fields of synthetic records for a place inside their zone, or None.
    Raises: EngineInputError, naming the zone.
    """
    together: dict[str, list[Any]] = {}
    for name, content in features:
        together.setdefault(name, []).extend(parsed(content))
    maps = []
    for name, geometries in together.items():
        try:
            maps.append(_map(shape_of(np.array(geometries)), coordinates or ("x", "y")))
        except EngineInputError as error:
            raise EngineInputError(f'zone "{name}": {error}') from None
    kinds = {isinstance(each, LineDomain) for each in maps}
    if len(kinds) > 1:
        raise EngineInputError("zones must all be polygons or all be lines, or their measures can not be compared")
    order = _along(maps)
    names = list(together)
    return ZoneDomain(
        field,
        [names[index] for index in order],
        [maps[index].measure for index in order],
        [maps[index] for index in order] if coordinates is not None else (),
    )


def _map(shape: Shape, fields: tuple[str, str]) -> PolygonDomain | LineDomain:
    return LineDomain(fields, shape, DETAIL, reach_m=1.0) if shape.lines else PolygonDomain(fields, shape, DETAIL)


def _along(maps: Sequence[PolygonDomain | LineDomain]) -> list[int]:
    """Zones in the order in which a grid over all of them is numbered, by the middle of their bounds."""
    west, south, east, north = np.array([each.bounds for each in maps]).T
    x, y = (west + east) / 2, (south + north) / 2
    steps = []
    for values in (x, y):
        span = max(float(np.ptp(values)), 1e-9)
        steps.append(np.minimum((values - values.min()) / span * 1024, 1023).astype(np.int64))
    codes = np.zeros(len(maps), np.int64)
    for bit in range(9, -1, -1):
        for axis in steps:
            codes = 2 * codes + ((axis >> bit) & 1)
    return [int(index) for index in np.lexsort((np.arange(len(maps)), codes))]


@dataclass(frozen=True, slots=True)
class ZoneEvaluator:
    """Implements `engines.core.contract.Evaluator`: mean relative errors over all single zones (error_small), and over
    all runs of a tenth (error_medium) and a third (error_large) of the zones, neighbours in the table.
    """

    domain: ZoneDomain

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(f"error_{name}" for name in RUNS)

    @property
    def scope(self) -> Literal["alive", "step"]:
        return "alive"

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.domain.field,)

    def size(self, truth: Folded) -> int:
        """Inserts less deletes."""
        return int(self.true_counts(truth).sum())

    def true_counts(self, truth: Folded) -> IntArray:
        """`(zones,)`, in the order of the domain."""
        keys = truth.keys[:, 0].astype(np.int64)
        zones = self.domain.zone_of(keys >> 1)
        counts = np.zeros(len(self.domain.names), np.int64)
        np.add.at(counts, zones, truth.counts * (1 - 2 * (keys & 1)))
        return counts

    def synthetic_counts(self, names: Sequence[Any]) -> IntArray:
        """`(zones,)`, in the order of the domain; other names are passed over."""
        place = {name: index for index, name in enumerate(self.domain.names)}
        found = [place[name] for name in names if name in place]
        return np.bincount(np.array(found, np.int64), minlength=len(place)).astype(np.int64)

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.measure`."""
        return self._errors(truth, self.synthetic_counts(synthetic[self.domain.field]))

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.exact`."""
        return self._errors(truth, self.true_counts(kept))

    def _errors(self, truth: Folded, released: IntArray) -> dict[str, float]:
        """Of counts `(zones,)`."""
        true = self.true_counts(truth)
        alive = int(true.sum())
        errors = {}
        for name, share in RUNS.items():
            length = max(1, round(share * len(true)))
            sums = [np.convolve(counts, np.ones(length, np.int64), mode="valid") for counts in (true, released)]
            errors[f"error_{name}"] = float(relative_errors(*sums, alive=alive).mean())
        return errors
