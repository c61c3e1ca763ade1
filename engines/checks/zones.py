"""A file of zones, which engines of several kinds are tried on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

ZONES = 5


def named_zones(name_property: str) -> Mapping[str, Any]:
    """Return a file of polygons of several sizes with names, as a configuration holds it."""
    features = [
        {
            "type": "Feature",
            "properties": {name_property: f"zone {at}"},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[at, 40.0], [at + 1.0, 40.0], [at + 1.0, 40.0 + at], [at, 41.0], [at, 40.0]]],
            },
        }
        for at in range(1, ZONES + 1)
    ]
    content = json.dumps({"type": "FeatureCollection", "features": features}).encode()
    return {"path": "zones.geojson", "sha256": hashlib.sha256(content).hexdigest(), "content": content}
