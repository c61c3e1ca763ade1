"""The command line as one table of commands. A command's module is read at once, what it needs only when it runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated

import typer

from agents.cli.manual import ManualCommand
from agents.cli.output import clean

# In the order in which a newcomer needs them. Each is a module here with a function of its name.
COMMANDS = (
    "demo",
    "init",
    "dev",
    "validate",
    "explain",
    "topics",
    "run",
    "replay",
    "simulate",
    "tune",
    "audit",
    "export",
    "query",
    "watch",
    "status",
    "dead-letters",
    "doctor",
)

EPILOG = (
    "Start with: privstream demo, then privstream init. Every command has examples in its own --help. Exit codes: 0 "
    "well, 1 a check found something, 2 refused with a reason, 130 interrupted."
)


def build_app() -> typer.Typer:
    app = typer.Typer(
        name="privstream",
        help="Differentially private synthetic streams on Kafka: private events in, synthetic records out.",
        epilog=EPILOG,
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # a pretty traceback prints local variables, and those hold events
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in COMMANDS:
        command = command_of(name)
        app.command(name, cls=ManualCommand, help=_paragraphs(command.__doc__ or ""))(clean(command))
    return app


def command_of(name: str) -> Callable[..., None]:
    """Return the function behind a command."""
    module = name.replace("-", "_")
    command: Callable[..., None] = getattr(importlib.import_module(f"agents.cli.{module}"), module)
    return command


def _paragraphs(text: str) -> str:
    """Return a docstring with its lines joined, so that the terminal breaks them where it ends."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"privstream {version('privstream')}")
        raise typer.Exit


def _options(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None: ...
