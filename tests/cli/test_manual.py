"""The help of every command has examples that can be typed, and says with which codes it ends; completion is there."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from agents.cli.app import COMMANDS, build_app, command_of
from agents.cli.manual import Example, Manual, manual, manual_of
from agents.cli.output import FOUND, INTERRUPTED, REFUSED, Bars
from tests.cli.exits import table
from tests.commands import invoked

ROOT = Path(__file__).parents[2]
NOT_COMMANDS = {"__init__", "__main__", "app", "manual", "output"}


def faults(name: str, shown: Manual | None, command: Any) -> list[str]:
    """What is missing or wrong in the manual of a command, which is the parsed one of the program."""
    if shown is None:
        return [f"{name}: has no manual"]
    found = []
    if not shown.examples:
        found.append(f"{name}: no example")
    for example in shown.examples:
        words = shlex.split(example.line)
        if words[:2] != ["privstream", name]:
            found.append(f"{name}: {example.line}: is of another command")
            continue
        try:
            command.make_context(name, words[2:], resilient_parsing=False)
        except Exception as error:  # of whatever parser is below typer
            found.append(f"{name}: {example.line}: {error}")
        if example.what[:1] == example.what[:1].upper() and example.what[:1].isalpha() and example.what[:2].islower():
            found.append(f"{name}: {example.what}")
    if 0 not in shown.exits or REFUSED not in shown.exits:
        found.append(f"{name}: says not when it ends with 0, or with {REFUSED}")
    return found


@cache
def program() -> Any:
    return typer.main.get_command(build_app())


def parsed(name: str) -> Any:
    return program().commands[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_parse_and_exit_codes(name: str) -> None:
    assert faults(name, manual_of(command_of(name)), parsed(name)) == []


def test_a_missing_or_wrong_manual_is_found() -> None:
    command = parsed("validate")
    assert faults("validate", None, command) == ["validate: has no manual"]
    assert "no example" in faults("validate", Manual((), {0: "well", REFUSED: "refused"}), command)[0]
    wrong = Manual((Example("privstream validate job.toml --no-such", "x"),), {0: "well"})
    assert len(faults("validate", wrong, command)) == 2
    assert (
        "another command" in faults("validate", Manual((Example("privstream run x", "y"),), {0: "", 2: ""}), command)[0]
    )


def test_the_help_shows_them() -> None:
    for name in COMMANDS:
        shown = manual_of(command_of(name))
        assert shown is not None
        text = invoked(name, "--help").output
        assert all(example.line in text for example in shown.examples)
        assert "Exit codes" in text
        assert all(when in text for when in shown.exits.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_all_of_every_option(name: str) -> None:
    """Square brackets are markup of the terminal's library: what stands in them would not be seen."""
    text = invoked(name, "--help", env={"COLUMNS": "400"}).output
    for parameter in parsed(name).params:
        assert " ".join((parameter.help or "").replace("\\[", "[").split()) in text, parameter.name
    assert "[[" not in text


def test_a_command_whose_checks_find_something_says_so() -> None:
    """Whoever ends with 1 says when."""
    for name in COMMANDS:
        source = Path(sys.modules[command_of(name).__module__].__file__ or "").read_text()
        shown = manual_of(command_of(name))
        assert shown is not None
        if "typer.Exit(FOUND)" in source:
            assert FOUND in shown.exits, name


def test_every_module_is_a_command() -> None:
    """A command that nobody put into the table would be missed by no other test."""
    modules = {
        path.stem.replace("_", "-") for path in (ROOT / "agents/cli").glob("*.py") if path.stem not in NOT_COMMANDS
    }
    assert modules == set(COMMANDS)


def test_exits_are_the_usual_ones_unless_said() -> None:
    @manual(Example("privstream x", "y"), exits={0: "once", INTERRUPTED: None, 1: "never"})
    def command() -> None: ...

    shown = manual_of(command)
    assert shown is not None
    assert list(shown.exits) == [0, 1, REFUSED]
    assert shown.exits[0] == "once"


def test_the_exit_codes_of_the_documentation_are_those_of_the_commands() -> None:
    page = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- exit codes: .*? -->\n(.*?)\n<!-- end of exit codes -->", page, re.DOTALL)
    assert found
    assert found[1] == table(), "python -m tests.cli.exits prints the table as it should be"


def test_completion_is_there() -> None:
    """In zsh; below bash is asked."""
    script = subprocess.run(
        [sys.executable, "-m", "agents.cli"],
        env={**os.environ, "_PRIVSTREAM_COMPLETE": "source_zsh"}, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert "_PRIVSTREAM_COMPLETE" in script.stdout, script.stderr


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("privstream dead", {"dead-letters"}), ("privstream init --engine sp", {"spatial"})],
)
def test_commands_and_engines_are_completed(typed: str, completed: set[str]) -> None:
    asked = {"_PRIVSTREAM_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "agents.cli"], env={**os.environ, **asked}, capture_output=True, text=True, cwd=ROOT
    )
    assert set(done.stdout.split()) == completed, done.stderr


def on_terminal(*command: str) -> str:
    """What a command writes where its output is a terminal."""
    outside, inside = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, *command], stdin=inside, stdout=inside, stderr=inside, cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(inside)
    text = b""
    reading: Callable[[], bytes] = lambda: os.read(outside, 65536)  # noqa: E731
    while True:
        try:
            part = reading()
        except OSError:  # the other side is closed
            break
        if not part:
            break
        text += part
    running.wait()
    os.close(outside)
    return text.decode(errors="replace")


BARS = """
import time
from agents.cli.output import Bars, working
with working("asking the cluster"):
    time.sleep(0.3)
bar = Bars()
for done in range(4):
    bar("rows replayed", done, 3)
    bar.echo(f"step [{done}]")
bar.close()
print("below")
"""


def test_bars_are_shown_on_a_terminal_and_nothing_of_them_elsewhere() -> None:
    shown = on_terminal("-c", BARS)
    assert "asking the cluster" in shown
    assert "3/3" in shown
    assert "left" in shown
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", shown).replace("\r", "\n").split("\n")
    assert [line for line in lines if line.startswith("step [")] == [f"step [{done}]" for done in range(4)]
    plain = subprocess.run([sys.executable, "-c", BARS], capture_output=True, text=True, cwd=ROOT)
    assert (plain.stdout, plain.stderr) == ("".join(f"step [{done}]\n" for done in range(4)) + "below\n", "")


def test_what_takes_long_says_a_plain_line_now_and_then_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seconds = iter([0, 4, 11, 15, 22])
    bars, quiet = Bars(clock=lambda: next(seconds)), Bars(quiet=True, clock=lambda: 1e9)
    for done in range(4):
        bars("tune", 1000 * done, 4000)
        quiet("tune", done, 4)
    assert capsys.readouterr() == ("", "tune: 1,000 of 4,000 (25%)\ntune: 3,000 of 4,000 (75%)\n")


def test_help_is_plain_where_it_is_no_terminal() -> None:
    plain = subprocess.run(
        [sys.executable, "-m", "agents.cli", "init", "--help"], capture_output=True, text=True, cwd=ROOT
    )
    assert plain.returncode == 0
    assert "\x1b[" not in plain.stdout
