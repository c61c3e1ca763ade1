"""What the help of a command says beyond its options: examples, and what it ends with. `build_app` puts it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import typer
from typer.core import TyperCommand

from agents.cli.output import INTERRUPTED, REFUSED

P = ParamSpec("P")
R = TypeVar("R")

USUAL: Mapping[int, str] = MappingProxyType(
    {0: "well", REFUSED: "refused, with the reason and the fix", INTERRUPTED: "interrupted by Ctrl-C"}
)
"""What an exit code means where a command says nothing else."""
ATTRIBUTE = "__manual__"


@dataclass(frozen=True, slots=True)
class Example:
    """A whole command line, and what it is for: begins in lower case, no full stop."""

    line: str
    what: str


@dataclass(frozen=True, slots=True)
class Manual:
    """Attributes: exits: exit code -> when the command ends with it, in their order."""

    examples: tuple[Example, ...]
    exits: Mapping[int, str]

    def text(self) -> str:
        """Return the end of the help."""
        lines = [" Examples"]
        for each in self.examples:
            lines += [f"   {each.line}", f"       {each.what}"]
        lines += ["", " Exit codes", *(f"   {code:<4} {when}" for code, when in self.exits.items()), ""]
        return "\n".join(lines)


def manual(
    *examples: Example, exits: Mapping[int, str | None] = MappingProxyType({})
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Give a command its examples and exit codes.

    Args: exits: beside the usual ones, or in their place; None takes one away.
    """

    def mark(command: Callable[P, R]) -> Callable[P, R]:
        told = {**USUAL, **exits}
        kept = {code: text for code, text in sorted(told.items()) if text is not None}
        setattr(command, ATTRIBUTE, Manual(examples, kept))
        return command

    return mark


def manual_of(command: Callable[..., object]) -> Manual | None:
    """Return what `manual` said of a command, None if nothing."""
    found: Manual | None = getattr(command, ATTRIBUTE, None)
    return found


class ManualCommand(TyperCommand):
    """A command whose help ends with its manual."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        if self.callback is not None and (shown := manual_of(self.callback)) is not None:
            typer.echo(shown.text())
