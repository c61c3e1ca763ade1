"""`privstream`: the command line. One command per file; `main` is the entry point of the installed program."""

from __future__ import annotations


def main() -> None:
    """Run the command line with the process' arguments."""
    from agents.cli.app import build_app
    from agents.kafka.lifecycle.logs import unless_set_up

    unless_set_up()
    build_app()(prog_name="privstream")
