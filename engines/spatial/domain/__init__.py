"""What spatial events can be: a box, polygons or lines on a map, named zones. All are trees of cells, see `base`."""

from engines.spatial.domain.base import SpatialDomain, nodes_to
from engines.spatial.domain.box import MAX_DEPTH, BoxDomain, spread_table
from engines.spatial.domain.geojson import Shape, parsed, shape_of
from engines.spatial.domain.lines import LineDomain
from engines.spatial.domain.polygons import PolygonDomain
from engines.spatial.domain.zones import ZoneDomain

__all__ = [
    "MAX_DEPTH",
    "BoxDomain",
    "LineDomain",
    "PolygonDomain",
    "Shape",
    "SpatialDomain",
    "ZoneDomain",
    "nodes_to",
    "parsed",
    "shape_of",
    "spread_table",
]
