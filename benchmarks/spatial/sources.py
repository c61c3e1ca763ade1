"""Every stream that engines are compared on, by name."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.spatial.circles import CIRCLES
from benchmarks.spatial.cities import CITIES
from benchmarks.spatial.streams import Source

SOURCES: Mapping[str, Source] = {**CIRCLES, **CITIES}
"""Simulated ones first."""
