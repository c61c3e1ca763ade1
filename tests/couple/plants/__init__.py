"""Planted faults: changes to the real code that break a promise, each of which the coupling test must find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from unittest.mock import patch

from engines.core import registry
from engines.core.noise import NoiseSource, private

T = TypeVar("T")


def peeked(value: T) -> T:
    """A private value, taken behind the guard's back: what is left then is the coupling of runs."""
    return cast("T", private._opened(value))


def anew(source: NoiseSource) -> NoiseSource:
    """A source that counts its calls from 0 once more: it and its children give words that were given before."""
    again = copy(source)
    again._calls = {}
    return again


def unasked() -> AbstractContextManager[Any]:
    """Engines are built without being asked what they cost: what a forced run finds, it finds by itself."""
    return patch.object(registry, "check_promise", lambda *_: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A fault in an engine.

    Attributes:
        name: what is wrong, in a few words.
        engine, mode: where it is.
        planted: patches the code while it is entered.
        variant: changes to the tables of the engine's contract case, where it shows only there.
        shown_by: the seed that is tried first, where the first ones do not show it. All others are tried after it.
        dearest: it shows on the dearest pairs, which are tried in place of random ones.
        wide: the wide variant of the mode in which it shows; None: it shows in `variant`.
    """

    name: str
    engine: str
    mode: str
    planted: Callable[[], AbstractContextManager[Any]]
    variant: Mapping[str, Any] = field(default_factory=dict)
    shown_by: int = 0
    dearest: bool = False
    wide: int | None = None
