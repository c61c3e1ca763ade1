"""Every command with its arguments and options, from the command line itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from agents.cli.app import COMMANDS, EPILOG, build_app
from agents.cli.output import FOUND, INTERRUPTED, REFUSED
from website.reference.source import cell, table

CODES = {
    0: "well",
    FOUND: "a check found something: `topics --check`, `doctor`, `audit`, or a `simulate` of which fewer than half of the "
    "rows could be used",
    REFUSED: "refused, with the reason and the fix: a configuration, a file, a cluster that says no",
    INTERRUPTED: "interrupted from the keyboard",
}


def page() -> str:
    """Return exit codes, then all commands in the order in which a newcomer needs them."""
    root: Any = typer.main.get_command(build_app())
    parts = [
        "# Commands\n",
        f"{EPILOG.replace('--help', '`--help`')} `privstream COMMAND --help` says the same as this page. With `--json` a command prints one JSON object, and an "
        "error is one too.\n",
        "## Exit codes\n",
        table(["code", "means"], [[f"`{code}`", meaning] for code, meaning in CODES.items()]),
        "How a worker (`privstream run`) ends: [operations](../operations.md).\n",
    ]
    for name in COMMANDS:
        parts += _command(name, root.commands[name])
    return "\n".join(parts)


def _command(name: str, command: Any) -> list[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join(
        ["privstream", name, *(["[OPTIONS]"] if options else []), *(_argument(each) for each in arguments)]
    )
    rows = [[f"`{_argument(each)}`", "", cell(each.help or "")] for each in arguments]
    rows += [[_names(each), _default(each), cell(each.help or "")] for each in options if not each.hidden]
    return [
        f"## `{name}`\n",
        f"```\n{usage}\n```\n",
        f"{command.help}\n",
        table(["argument or option", "default", "what it does"], rows),
    ]


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    name = f"{name}..." if parameter.nargs == -1 else name
    return name if parameter.required else f"[{name}]"


def _names(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    kind = option.type_descriptor.annotation
    value = option.metavar or {Path: "PATH", int: "NUMBER", float: "NUMBER"}.get(kind, "TEXT")
    return names if option.is_flag or kind is bool else f"{names} {cell(value)}"


def _default(option: Any) -> str:
    value = option.default
    plain = value is None or value is False or value == [] or value == () or callable(value) or value is ...
    return "" if plain or "UNSET" in repr(value).upper() else f"`{value}`"
