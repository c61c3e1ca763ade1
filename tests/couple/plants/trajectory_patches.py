"""How faults are planted in engine `trajectory`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from engines.core.noise import aggregate
from tests.couple.plants import Plant

MANY: Mapping[str, Any] = {"privacy": {"epsilon": 1000.0, "max_contributions": 1}}
"""Four trips are many: all twelve questions are asked."""


def plant(
    name: str,
    mode: str,
    planted: Callable[[], Any],
    variant: Mapping[str, Any] | None = None,
    *,
    dearest: bool = False,
    shown_by: int = 0,
) -> Plant:
    return Plant(
        name=name,
        engine="trajectory",
        mode=mode,
        planted=planted,
        variant=variant or {},
        dearest=dearest,
        shown_by=shown_by,
    )


def around(owner: Any, name: str, wrap: Callable[..., Any]) -> Any:
    """`wrap(original, *given)` stands in for a function."""
    original = getattr(owner, name)
    return patch.object(owner, name, lambda *given, **named: wrap(original, *given, **named))


def inside(owner: Any, name: str, wrap: Callable[..., Any]) -> Any:
    """The same inside of an aggregate, which it stays."""
    original = getattr(owner, name)
    return patch.object(owner, name, aggregate(lambda *given, **named: wrap(original, *given, **named)))


def both(*planted: Callable[[], Any]) -> Any:
    @contextmanager
    def all_of_them() -> Iterator[None]:
        with ExitStack() as stack:
            for each in planted:
                stack.enter_context(each())
            yield

    return all_of_them()
