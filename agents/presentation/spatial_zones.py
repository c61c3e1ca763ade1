"""How streams over named zones are shown and tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.pages.plots import GREY, SYNTHETIC, TRUE, figure, image, quiet
from agents.presentation.contract import Fields, Known
from engines.auditor.features import Features
from engines.auditor.fixture import Focus
from engines.registry import build_domain
from engines.spatial.domain import ZoneDomain
from engines.spatial.zones import ZoneEvaluator
from schemas.config import Stream, ZonesDomainSection

if TYPE_CHECKING:
    from agents.protocol.release.held_out import HeldOutAudit

MOST_SHOWN = 30
ERRORS = (
    "<h2>Error of zone counts over time</h2><p class=sub>Mean relative error of the counts of all single zones "
    "(small), and of all runs of a tenth (medium) and a third (large) of the zones. Lower is better.</p>"
)


def domain_sentence(domain: ZonesDomainSection) -> str:
    """The public domain, for `explain`."""
    names = domain.names
    where = "as listed" if domain.file is None else f"with the outlines of SHA-256 {domain.file.sha256[:12]}..."
    return f"{domain.field} is one of {len(names):,} zones, {names[0]} to {names[-1]}, {where}, and not from the data."


def places(stream: Stream, domain: ZonesDomainSection) -> tuple[dict[str, Fields], Fields]:
    """Where an audit goes, and the zone beside the dense one."""
    built = build_domain(stream)
    assert isinstance(built, ZoneDomain)
    names = built.names
    dense = len(names) // 4
    beside = names[min(dense + 1, len(names) - 1)]
    return {"dense cell": {domain.field: names[dense]}, "empty cell": {domain.field: names[-1]}}, {domain.field: beside}


def focuses(domain: ZonesDomainSection, places: Mapping[str, Fields], known: Sequence[Known]) -> Mapping[str, Focus]:
    """What a release says of each place, beyond the events that both inputs have."""
    located = [(step, fields[domain.field], count) for step, fields, count in known]
    return {name: _focus(at[domain.field], located) for name, at in places.items()}


def _focus(zone: str, known: Sequence[tuple[int, str, int]]) -> Focus:
    def focus(step: int, measurements: Sequence[Mapping[str, Any]]) -> Features:
        for measurement in measurements:
            zones = measurement["zones"]
            if zone in zones:
                since = measurement.get("since", step - 1)
                there = sum(count for at, name, count in known if since < at <= step and name in zones)
                return {"depth": float(measurement["depth"]), "residual": float(measurement["increment"] - there)}
        return {}

    return focus


def bars(audit: HeldOutAudit) -> str:
    """True and released counts of the zones that hold most."""
    evaluator = audit.evaluator
    assert isinstance(evaluator, ZoneEvaluator)
    true = evaluator.true_counts(audit.truth)
    released = evaluator.synthetic_counts([row[evaluator.domain.field] for row in audit.alive.values()])
    shown = np.argsort(-np.maximum(true, released), kind="stable")[:MOST_SHOWN][::-1]
    made, axes = figure(6.0, 1.0 + 0.24 * len(shown))
    rows = np.arange(len(shown))
    axes.barh(rows + 0.2, true[shown], height=0.38, color=TRUE, label="true (private)")
    axes.barh(rows - 0.2, released[shown], height=0.38, color=SYNTHETIC, label="synthetic (what the job publishes)")
    axes.set_yticks(rows, [evaluator.domain.names[zone] for zone in shown.tolist()])
    axes.tick_params(axis="y", labelsize=7, colors=GREY)
    axes.legend(frameon=False, loc="lower right")
    quiet(axes)
    more = f" The {MOST_SHOWN} zones that hold most." if len(true) > MOST_SHOWN else ""
    return f"<h2>Where the events are</h2><p class=sub>After the last step.{more}</p>{image(made, 'png')}"
