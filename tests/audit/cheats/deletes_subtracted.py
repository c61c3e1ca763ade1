"""Deletes subtracted instead of added: deletes beside a path lift a child above its parent."""

from __future__ import annotations

from engines.audited.paths import PathScores, TreePaths
from engines.auditor.cases import Case
from schemas.arrays import IntArray
from tests.audit.cheats import negative_counts


class SubtractedDeletes(PathScores):
    """Counts gains where it should count moves."""

    def moves(self, paths: TreePaths) -> IntArray:
        return super().moves(TreePaths(paths.held, paths.inserted, 0 * paths.deleted)) - super().moves(
            TreePaths(paths.held, paths.deleted, 0 * paths.deleted)
        )


def cheat() -> Case:
    return negative_counts._case("partition with deletes subtracted", SubtractedDeletes())


def honest() -> Case:
    return negative_counts._case("partition with deletes added", PathScores())
