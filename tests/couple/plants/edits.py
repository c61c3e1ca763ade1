"""Faults as edits of the source of one function, so that everything else in it stays the real code."""

from __future__ import annotations
import __future__

import inspect
import sys
import textwrap
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any
from unittest import mock


def edited(owner: Any, name: str, old: str, new: str, **names: Any) -> AbstractContextManager[Any]:
    """Replace `old` by `new` in the source of a method, property or function of `owner`.

    Args:
        names: what `new` refers to and the function's module lacks.
    Raises: AssertionError if `old` is not there exactly once: the real code has changed, and so must the fault.
    """
    found = inspect.getattr_static(owner, name)
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
    return mock.patch.object(owner, name, made[name])
