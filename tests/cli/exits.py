"""With which codes each command ends, as the table of docs/first-hour.md: `python -m tests.cli.exits`."""

from __future__ import annotations

import sys

from agents.cli.app import COMMANDS, command_of
from agents.cli.manual import manual_of


def table() -> str:
    """A row for each command that has a manual."""
    rows = ["| command | exit codes |", "|---|---|"]
    for name in COMMANDS:
        if (shown := manual_of(command_of(name))) is not None:
            codes = "; ".join(f"**{code}** {when}" for code, when in shown.exits.items())
            rows.append(f"| `privstream {name}` | {codes} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
