"""How engine `spatial` is shown and tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents.presentation.contract import Fields, Known, Presentation, Rehearsal
from agents.presentation.spatial_error import error_model
from agents.presentation.spatial_report import sections, tiles
from engines.auditor.scenes import DENSE, Focus, spatial_focus
from schemas.config import BoxDomain, Stream
from schemas.config.engines import measures_expiry

_AT = {"dense cell": (0.28, 0.28), "empty cell": (0.91, 0.91)}
_BESIDE = 3


def _domain(stream: Stream) -> str:
    domain = stream.domain
    assert isinstance(domain, BoxDomain)
    (xmin, ymin), (xmax, ymax) = domain.bounds[:2], domain.bounds[2:]
    return (
        f"{domain.x} in [{xmin:g}, {xmax:g}) and {domain.y} in [{ymin:g}, {ymax:g}), halved {stream.options.depth} "
        "times, by declaration and not from the data."
    )


def _rehearsal(stream: Stream) -> Rehearsal:
    """`DENSE` events in one place and a few beside it, each step; the audited unit joins them or is alone."""
    domain = stream.domain
    assert isinstance(domain, BoxDomain)
    xmin, ymin, xmax, ymax = domain.bounds
    width, height = xmax - xmin, ymax - ymin
    places = {name: {domain.x: xmin + fx * width, domain.y: ymin + fy * height} for name, (fx, fy) in _AT.items()}
    dense = places["dense cell"]
    beside = {domain.x: dense[domain.x] + width / 16, domain.y: dense[domain.y] + height / 16}

    def focuses(places: Mapping[str, Fields], known: Sequence[Known]) -> Mapping[str, Focus]:
        located = [(step, fields[domain.x], fields[domain.y], count) for step, fields, count in known]
        return {name: spatial_focus(at[domain.x], at[domain.y], located) for name, at in places.items()}

    return Rehearsal(
        places=places,
        crowd=((dense, DENSE), (beside, _BESIDE)),
        late=stream.options.initial_steps + 1,
        held=3,
        expiries_known=measures_expiry(stream.engine, stream.mode),
        focuses=focuses,
    )


PRESENTATION = Presentation(
    domain=_domain, error_model=error_model, sections=sections, tiles=tiles, rehearsal=_rehearsal
)
