"""Commands of `privstream`, run in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from agents.cli.app import build_app


def call(*arguments: object) -> Result:
    """Run a command line. Raises: whatever the program does not turn into an exit code."""
    result = CliRunner().invoke(build_app(), [str(argument) for argument in arguments])
    assert "Traceback" not in result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
