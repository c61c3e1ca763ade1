"""How many examples a property test draws: a share of what the profile says, so that by night each draws more."""

from __future__ import annotations

import hypothesis


def examples(times: float) -> int:
    """Return how many examples are `times` as many as most tests draw, at least one."""
    return max(1, round(times * hypothesis.settings().max_examples))
