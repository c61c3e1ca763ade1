"""Planted faults: changes to the real code that break a promise, each of which the coupling test must find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A fault in an engine.

    Attributes:
        name: what is wrong, in a few words.
        engine, mode: where it is.
        planted: patches the code while it is entered.
        variant: changes to the tables of the engine's contract case, where it shows only there.
    """

    name: str
    engine: str
    mode: str
    planted: Callable[[], AbstractContextManager[Any]]
    variant: Mapping[str, Any] = field(default_factory=dict)
