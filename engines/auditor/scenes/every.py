"""The scene of every engine, by name: an engine is audited by having one here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engines.auditor.scenes.markov import markov
from engines.auditor.scenes.scene import Scene
from engines.auditor.scenes.series import series
from engines.auditor.scenes.spatial import spatial
from engines.auditor.scenes.tabular import tabular
from engines.auditor.scenes.trajectory import trajectory

SCENES: Mapping[str, Callable[[str], Scene]] = {
    "spatial": spatial,
    "markov": markov,
    "series": series,
    "tabular": tabular,
    "trajectory": trajectory,
}
