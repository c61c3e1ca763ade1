"""Planted faults: changes to the real code that break a promise, each of which the coupling test must find.

A fault is a function that returns a context manager, within which the code has the fault. The modules beside this one
list faults by engine and mode; what several of them are made with is here.
"""

from __future__ import annotations
import __future__

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar, cast
from unittest.mock import patch

from engines.core import registry
from engines.core.noise import NoiseSource, aggregate, private

T = TypeVar("T")
Planted = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and where it shows.

    Attributes:
        planted: patches the code while it is entered.
        variant: changes to the tables of the engine's contract case, where it shows only there.
        shown_by: the seed that is tried first; None: the short pairs come first. All others are tried after it.
        dearest: it shows on the dearest pairs, which are tried in place of random ones.
        wide: the wide variant of the mode in which it shows; None: it shows in `variant`.
    """

    planted: Planted
    variant: Mapping[str, Any] = field(default_factory=dict)
    shown_by: int | None = None
    dearest: bool = False
    wide: int | None = None


@dataclass(frozen=True, slots=True)
class Plant:
    """A fault planted in a mode of an engine. `name` says what is wrong, in a few words."""

    engine: str
    mode: str
    name: str
    fault: Fault


def plants(engine: str, mode: str, faults: Mapping[str, Planted | Fault]) -> tuple[Plant, ...]:
    """Return the faults of a mode, by name."""
    return tuple(
        Plant(engine, mode, name, fault if isinstance(fault, Fault) else Fault(fault)) for name, fault in faults.items()
    )


def peeked(value: T) -> T:
    """Return a private value, taken behind the guard's back: what is left then is the coupling of runs."""
    return cast("T", private._opened(value))


def anew(source: NoiseSource) -> NoiseSource:
    """Return a source that counts its calls from 0 once more: it and its children repeat earlier words."""
    again = copy(source)
    again._calls = {}
    return again


def unasked() -> AbstractContextManager[Any]:
    """Build engines without asking what they cost: what a forced run finds, it finds by itself."""
    return patch.object(registry, "check_promise", lambda *_: None)


def replaced(owner: Any, name: str, by: Any) -> Planted:
    """Patch one function, property or number."""
    return partial(patch.object, owner, name, by)


def around(owner: Any, name: str, wrap: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Let `wrap(original, *given)` stand in for a function."""
    original = getattr(owner, name)
    return patch.object(owner, name, lambda *given, **named: wrap(original, *given, **named))


def inside(owner: Any, name: str, wrap: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Let `wrap(original, *given)` stand in for an aggregate, which it stays."""
    original = getattr(owner, name)
    return patch.object(owner, name, aggregate(lambda *given, **named: wrap(original, *given, **named)))


@contextmanager
def together(*faults: AbstractContextManager[Any]) -> Iterator[None]:
    """Enter several patches as one."""
    with ExitStack() as stack:
        for fault in faults:
            stack.enter_context(fault)
        yield


@contextmanager
def remembered(owner: Any, name: str) -> Iterator[list[Any]]:
    """Patch an aggregate so that what it returned last can be read: `[value]`."""
    original, seen = getattr(owner, name), [None]

    def watched(self: Any, *arguments: Any) -> Any:
        counts = original(self, *arguments)
        seen[0] = peeked(counts)
        return counts

    with patch.object(owner, name, watched):
        yield seen


def edit(owner: Any, name: str, old: str, new: str, **names: Any) -> Planted:
    """Return the fault that `edited` enters."""
    return partial(edited, owner, name, old, new, **names)


def edited(owner: Any, name: str, old: str, new: str, **names: Any) -> AbstractContextManager[Any]:
    """Replace `old` by `new` in the source of a method, property or function; all else in it stays the real code.

    Args:
        names: what `new` refers to and the function's module lacks.
    Raises: AssertionError if `old` is not there exactly once: the real code has changed, and so must the fault.
    """
    found: Any = inspect.getattr_static(owner, name)
    if isinstance(found, cached_property):
        found = found.func
    found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    function = inspect.unwrap(found)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {name}"
    scope = vars(sys.modules[function.__module__])
    code = compile(source.replace(old, new), f"<fault in {name}>", "exec", __future__.annotations.compiler_flag)
    made: dict[str, Any] = {}
    exec(code, {**scope, **names} if names else scope, made)
    if isinstance(made[name], cached_property):
        made[name].__set_name__(owner, name)
    return patch.object(owner, name, made[name])
