"""A table of named zones as a domain: an event says the name of its zone, and so does a synthetic record.

The tree halves the list of zones, so neighbours in it share cells: zones with outlines are put in order along their
map first. A zone of measure zero is a structural zero: it is in no cell, and events that name it are outside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import fsum
from typing import Any

import numpy as np

from engines.core.contract import Columns
from engines.spatial.domain.base import WHOLE, PublicWords, SpatialDomain, first_codes
from engines.spatial.domain.geojson import parsed, shape_of
from engines.spatial.domain.lines import LineDomain, map_of
from engines.spatial.domain.mapped import MappedDomain
from schemas.arrays import BoolArray, FloatArray, IntArray, KeyArray, ReasonArray
from schemas.errors import EngineInputError
from schemas.events import Reason

MOST = 1e18


class ZoneDomain(SpatialDomain):
    """Implements `SpatialDomain`. A key is `code of the zone << 1 | (1 if delete else 0)`.

    Args:
        field: name of the text field that holds a zone's name.
        names: of zones, in the order in which they are halved. measures: of each, such as its area; not negative.
        maps: of each zone, if synthetic records are to have coordinates inside of it: their fields are the maps'.
    Raises: EngineInputError if no zone has a measure, or one has a measure that is none.
    """

    named = True

    def __init__(
        self, field: str, names: Sequence[str], measures: Sequence[float], maps: Sequence[MappedDomain] = ()
    ) -> None:
        sizes = np.array(measures, np.float64)
        if not np.isfinite(sizes).all() or (sizes < 0).any() or (sizes > MOST).any():
            raise EngineInputError(f"measures of zones must be finite, not negative, and at most {MOST:g}")
        there = np.flatnonzero(sizes > 0).tolist()
        if not there:
            raise EngineInputError("there is no zone with a measure above 0")
        self.field, self.text_fields = field, (field,)
        self.names = [names[index] for index in there]
        self.measures: list[float] = sizes[there].tolist()
        self._maps = [maps[index] for index in there] if maps else []
        self._depth = max(1, (len(there) - 1).bit_length())
        self._inner, self._share, self.start, self._end_depth = _halved(sizes[there], self._depth)
        self._code_of = dict(zip(self.names, self.start.tolist(), strict=True))
        digest = hashlib.sha256("\0".join(self.names).encode())
        digest.update(np.ascontiguousarray(self._share, "<i8").tobytes())
        self._identity = ("zones", field, digest.hexdigest(), *(each.identity for each in self._maps))

    @property
    def depth(self) -> int:
        return self._depth

    @property
    def identity(self) -> tuple[Any, ...]:
        return self._identity

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """See `engines.core.contract.Domain`: a name that is not in the table is OUTSIDE_DOMAIN."""
        texts = columns.texts[self.field]
        codes = np.fromiter((self._code_of.get(text, -1) for text in texts), np.int64, len(texts))
        known = codes >= 0
        reasons = np.where(known, Reason.ACCEPTED, Reason.OUTSIDE_DOMAIN).astype(np.uint8)
        keys = np.where(known, codes << 1 | (columns.operations < 0), 0).astype(np.uint64)
        return keys.reshape(-1, 1), reasons

    def zone_of(self, codes: IntArray) -> IntArray:
        """Return the position in `names` of the zone in which each code lies, `(codes,)`."""
        return np.searchsorted(self.start, codes, side="right") - 1

    def divisible(self, nodes: IntArray, depths: IntArray) -> BoolArray:
        return depths < self._end_depth[self.zone_of(first_codes(nodes, depths, self.depth))]

    def left_shares(self, nodes: IntArray, depths: IntArray) -> IntArray:
        shares = np.full(len(nodes), WHOLE)
        inner = self.divisible(nodes, depths)
        shares[inner] = self._share[np.searchsorted(self._inner, nodes[inner])]
        return shares

    def described(self, nodes: IntArray, depths: IntArray) -> list[dict[str, Any]]:
        """See `SpatialDomain`: the names of the zones of each node."""
        codes = first_codes(nodes, depths, self.depth)
        first = self.zone_of(codes)
        last = self.zone_of(codes + (np.int64(1) << (self.depth - depths)) - 1)
        return [{"zones": self.names[i : j + 1]} for i, j in zip(first.tolist(), last.tolist(), strict=True)]

    @property
    def record_fields(self) -> tuple[str, ...]:
        return (self.field, *self._maps[0].record_fields) if self._maps else (self.field,)

    def placed(self, public: PublicWords, nodes: IntArray, indices: IntArray) -> Sequence[list[Any]]:
        zones = self.zone_of(nodes - (np.int64(1) << self.depth))
        names = [self.names[zone] for zone in zones.tolist()]
        if not self._maps:
            return (names,)
        x, y = np.zeros(len(nodes)), np.zeros(len(nodes))
        for zone in np.unique(zones).tolist():
            at = np.flatnonzero(zones == zone)
            x[at], y[at] = self._maps[zone].spread(public, indices[at], salt=int(self.start[zone]) + 1)
        return names, x.tolist(), y.tolist()


def _halved(sizes: FloatArray, depth: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Halve a list again and again: return inner names, first shares, and the code and depth of each item."""
    inner, share = [], []
    start, depths = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    # Name, first item and one after the last: a level is in order, so are the names.
    level = [(1, 0, len(sizes))]
    while level:
        below = []
        for name, first, last in level:
            if last - first == 1:
                depths[first] = name.bit_length() - 1
                start[first] = (name << (depth - int(depths[first]))) - (1 << depth)
                continue
            middle = (first + last + 1) // 2
            part = fsum(sizes[first:middle]) / fsum(sizes[first:last])
            inner.append(name)
            share.append(min(max(round(part * WHOLE), 1), WHOLE - 1))
            below += [(2 * name, first, middle), (2 * name + 1, middle, last)]
        level = below
    return np.array(inner, np.int64), np.array(share, np.int64), start, depths


DETAIL = 8
"""Halvings of a zone's bounds: points are spread evenly over its cells."""


def outlined(field: str, features: Sequence[tuple[str, bytes]], coordinates: tuple[str, str] | None) -> ZoneDomain:
    """Make zones of named outlines, in order along their map.

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
            maps.append(map_of(shape_of(np.array(geometries)), coordinates or ("x", "y"), DETAIL))
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


def _along(maps: Sequence[MappedDomain]) -> list[int]:
    """Order zones as a grid over all of them is numbered, by the middle of their bounds."""
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
