"""`privstream run`: one worker of the job, in the foreground."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import ConfigFile, InsecureSeed, config_of, warn
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from schemas.config import Config


@manual(
    Example("privstream run job.toml", "a worker, in the foreground"),
    Example("privstream run job.toml --log-format json", "with a log for machines"),
    exits={
        0: "left after SIGTERM or Ctrl-C",
        1: "every stream has stopped, or an error of the program; the last line of the log says what to do",
        130: None,
    },
)
def run(
    config: ConfigFile,
    insecure_seed: InsecureSeed = None,
    trust_ledger: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STREAM=STEP",
            help="Go on where the witness has not seen a stream: you say that its public ledger, which ends at STEP, "
            "has lost nothing. May be repeated.",
        ),
    ] = None,
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"],
        typer.Option(case_sensitive=False, help="The least that is logged."),
    ] = "INFO",
    log_format: Annotated[Literal["text", "json"], typer.Option(help="Lines for people, or a JSON object a line.")] = (
        "text"
    ),
) -> None:
    """Run a worker until SIGTERM or Ctrl-C.

    Start as many as you like, on any machines: they share the partitions, and each step is still answered once. A
    worker that fails ends with a code other than 0; let a supervisor start it again: it goes on behind the last commit.
    """
    # Before the imports, which take seconds on a busy machine: a signal meanwhile must not kill in silence.
    from agents.kafka.lifecycle.leaving import Leaving
    from agents.kafka.lifecycle.logs import set_up

    set_up(log_level, log_format)
    leaving = Leaving()
    leaving.install()
    loaded = config_of(config)
    if insecure_seed is not None:
        warn("--insecure-seed makes the noise repeatable. What this worker publishes is NOT PRIVATE.")
    trusted = trusted_steps(loaded, trust_ledger or [])
    from agents.local.offline.domains import check_streams
    from agents.worker.process import run_worker

    check_streams(loaded)
    for stream in loaded.streams:
        if (said := stream.privacy.epsilon_warning) is not None:
            warn(f"stream {stream.name}: {said}")
    run_worker(loaded, insecure_seed=insecure_seed, trusted=trusted, leaving=leaving)


def trusted_steps(config: Config, given: Sequence[str]) -> dict[str, int]:
    """Return stream -> step of `--trust-ledger`; a job's only stream need not be named. Raises: PrivstreamError."""
    names = [stream.name for stream in config.streams]
    found: dict[str, int] = {}
    for each in given:
        name, _, step = each.rpartition("=")
        name = name or (names[0] if len(names) == 1 else "")
        if name not in names or not (step.isascii() and step.isdigit()) or name in found:
            raise PrivstreamError(
                f"--trust-ledger {each} names no stream and step. Fix: write STREAM=STEP, once for each stream: one of "
                f"{', '.join(names)}, and the last step of its public ledger (privstream status)."
            )
        found[name] = int(step)
    if found and config.job.witness is None:
        raise PrivstreamError(
            "--trust-ledger has nothing to do: no [job] witness is configured, so ledgers are taken on their word. "
            "Fix: leave it out, or configure a witness."
        )
    return found
