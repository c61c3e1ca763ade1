"""Commands of `privstream`, run in this process."""

from __future__ import annotations

from functools import cache
from typing import Any

import typer.main
import typer.testing

from agents.cli.app import build_app

# At each call of an app typer works its commands and their options out anew: forty of them cost a CPU second.
vars(typer.testing)["_get_command"] = cache(typer.main.get_command)
program = cache(build_app)


def invoked(*arguments: object, **given: Any) -> typer.testing.Result:
    """Run a command line. Args: given: what `CliRunner.invoke` takes beside: `input`, `env`."""
    return typer.testing.CliRunner().invoke(program(), [str(argument) for argument in arguments], **given)


def call(*arguments: object) -> typer.testing.Result:
    """Run a command line. Raises: whatever the program does not turn into an exit code."""
    result = invoked(*arguments)
    assert "Traceback" not in result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
