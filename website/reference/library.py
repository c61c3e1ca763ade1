"""What `from engines import` gives: signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import engines


def page() -> str:
    """Return each name of the door, with its public methods."""
    parts = [
        "# Library\n",
        "`from engines import ...`: see [As a library](../library.md) for what it is, and what stays your responsibility.\n",
    ]
    for name in ("configure", "PrivateStream", "StepRelease", "Taken", "Promise", "PrivstreamError"):
        thing = getattr(engines, name)
        parts.append(f"## `{name}`\n")
        if not inspect.isclass(thing):
            parts.append(f"```python\n{_signature(name, thing)}\n```\n")
        parts.append(_text(thing))
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            parts += _methods(thing)
    return "\n".join(parts)


def _methods(cls: type) -> Iterator[str]:
    for name, thing in vars(cls).items():
        if name.startswith("_") or not (inspect.isfunction(thing) or isinstance(thing, property)) or not thing.__doc__:
            continue
        shown = name if isinstance(thing, property) else _signature(name, thing)
        yield f"### `{cls.__name__}.{name}`\n\n```python\n{shown}\n```\n\n{_text(thing)}"


def _signature(name: str, function: Any) -> str:
    return f"{name}{inspect.signature(function)}".replace("(self, ", "(").replace("(self)", "()")


def _text(thing: Any) -> str:
    """Return a docstring; its parts with names and meanings stay as they are laid out."""
    paragraphs = inspect.cleandoc(thing.__doc__ or "").split("\n\n")
    return (
        "\n\n".join(
            f"```text\n{each}\n```" if "\n  " in each or each.startswith(("Args:", "Attributes:")) else each
            for each in paragraphs
        )
        + "\n"
    )
