"""`privstream audit`: try to break what is claimed, and say how far that came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agents.cli.output import FOUND, AsJson, RowsProgress, config_of, print_json, rows_progress, say
from agents.cli.terminal.manual import Example, manual
from agents.pages.text import table
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from engines.auditor import AuditFinding, Case


LOOK_S = 0.2
"""After which the bar is moved by what other processes have done."""


@manual(
    Example("privstream audit job.toml", "the streams of a configuration, from raw records to public bytes"),
    Example("privstream audit --only laplace --runs 1000 --plot audit.svg", "some of all that privstream has"),
    exits={FOUND: "a bound exceeds its claim, a row cannot fail in so few runs, or something was never tried"},
)
def audit(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="Audit the streams of this file end to end; absent: all of privstream."),
    ] = None,
    runs: Annotated[
        int, typer.Option(min=40, metavar="N", help="Runs of an engine or stream; mechanisms make many times as many.")
    ] = 200,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw claims and lower bounds: .png, .svg or .pdf.")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only what has NAME in its name, such as Laplace, counter, spatial."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeat an audit; absent: seeds of the operating system, as the job uses.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; absent: one for each core.")] = None,
) -> None:
    """Run inputs with and without single units many times, guess which, and bound epsilon by how often that is right.

    Needs no cluster and no data. Each row states its confidence, its ceiling (the bound that a total leak would give in
    so many runs) and from which true epsilon on it would have seen a fault. A bound below its claim proves nothing: it
    says that these inputs and these guesses showed no more. A row whose ceiling is not above its claim has said nothing
    at all. Losses that can be computed are, and say "exact". Exits with 1 if a bound exceeds a claim, a row cannot fail
    in so few runs, or no run came across what had to be tried.
    """
    names = case_names(config, only)
    if not names:
        raise PrivstreamError(f"nothing has {only!r} in its name. Fix: leave --only out to see what there is.")
    findings: list[AuditFinding] = []
    with rows_progress("audit", quiet=as_json, unit="cases" if config is None else "runs") as rows:
        for some in audited(names, runs=runs, config=config, seed=seed, workers=workers, progress=rows):
            findings += some
    from engines.auditor import HEAD, powerless, remedies, silences, table_rows, violations

    broken = [found for found in findings if found.failed]
    if as_json:
        print_json({"ok": not broken, "findings": [found.as_json() for found in findings]})
    else:
        typer.echo(table(HEAD, table_rows(findings)))
        weak = len(powerless(findings))
        say(f"{len(findings)} rows, {len(violations(findings))} violated, {weak} without power")
    for line in (*remedies(findings), *silences(findings)):
        say(line)
    if plot is not None:
        draw(findings, plot)
    if broken:
        raise typer.Exit(FOUND)


def case_names(config: Path | None, only: str | None) -> list[str]:
    """Names of what is audited. Raises: ConfigError."""
    return [case.name for case in _cases(config) if only is None or only.casefold() in case.name.casefold()]


def audited(
    names: Sequence[str],
    *,
    runs: int,
    config: Path | None = None,
    seed: int | None = None,
    workers: int | None = None,
    progress: RowsProgress | None = None,
) -> Iterator[list[AuditFinding]]:
    """Findings of each case, in the order of `names`, worked out by several processes.

    Args: progress: over the runs of a configuration's streams, in whatever process they are; else over cases.
    """
    import os
    from concurrent.futures import wait

    from agents.offline.processes import process_pool, shared_counts

    tell = RowsProgress(None, "") if progress is None else progress
    expected = [1] * len(names) if config is None else _expected(names, runs, config)
    tell.begun(sum(expected))
    done: set[int] = set()

    def look(ran: Sequence[int]) -> None:
        tell.at(sum(all_ if at in done else min(ran[at], all_) for at, all_ in enumerate(expected)))

    tasks = [(name, runs, config, seed) for name in names]
    count = min(workers or os.cpu_count() or 1, len(names))
    if count <= 1:
        here = [0] * len(names)
        for at, task in enumerate(tasks):

            def ran(at: int = at) -> None:
                here[at] += 1
                look(here)

            found = audit_case(task, ran)
            done.add(at)
            look(here)
            yield found
        return
    counts = shared_counts(len(names))
    with process_pool(count, counts) as pool:
        futures = [pool.submit(_audit_in_pool, at, task) for at, task in enumerate(tasks)]
        try:
            for future in futures:
                while wait([future], timeout=LOOK_S).not_done:
                    done.update(at for at, each in enumerate(futures) if each.done())
                    look(counts)
                yield future.result()
        finally:  # of whoever is interrupted, nothing more is begun
            for future in futures:
                future.cancel()
        done.update(range(len(names)))
        look(counts)


def _expected(names: Sequence[str], runs: int, config: Path) -> list[int]:
    """About how many runs the audit of each stream has."""
    found = {}
    for case in _cases(config):
        # Pairs of neighbours have one side in common, which is run once.
        pairs = len(case.neighbours) + 1 if case.neighbours else 0
        found[case.name] = runs * (pairs + sum(canaries.times for canaries in case.canaries))
    return [found[name] for name in names]


Task = tuple[str, int, Path | None, int | None]
"""Name of a case, runs, configuration and seed."""


def audit_case(task: Task, ran: Callable[[], None] = lambda: None) -> list[AuditFinding]:
    """All findings of one case, by name, so that another process can be asked for it.

    Args: ran: called after each run of a stream.
    """
    from engines.auditor import audit as run
    from engines.noise import seeded

    name, runs, config, seed = task
    case = next(case for case in _cases(config, ran=ran) if case.name == name)
    return list(run(case, runs=runs, source=None if seed is None else seeded(seed)))


def _audit_in_pool(at: int, task: Task) -> list[AuditFinding]:
    from agents.offline.processes import count_one

    return audit_case(task, lambda: count_one(at))


def _cases(config: Path | None, ran: Callable[[], None] = lambda: None) -> list[Case]:
    if config is None:
        from engines.audited.every import cases

        return cases()
    from agents.offline.audit_stream import StreamAudit

    return [StreamAudit(stream, ran=ran).case() for stream in config_of(config, offline=True).streams]


def draw(findings: Sequence[AuditFinding], path: Path) -> None:
    """Every claim as a line, every lower bound as a dot: exact ones filled, those of runs open.

    Raises: PrivstreamError if the file cannot be written.
    """
    import math

    from matplotlib.figure import Figure

    shown = [found for found in findings if found.detector != "fresh seeds"]
    figure = Figure(figsize=(10, 1.5 + 0.22 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for row, found in enumerate(shown):
        axes.plot([1, 1], [row - 0.4, row + 0.4], color="black", linewidth=1.5)
        share = found.lower_bound / found.claimed if math.isfinite(found.lower_bound) else 2.0
        axes.plot(
            share,
            row,
            marker="o",
            color="tab:red" if found.violated else "tab:blue",
            fillstyle="full" if found.detector == "exact" else "none",
        )
    axes.set_yticks(range(len(shown)), [f"{found.case}: {found.check}" for found in shown], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("lower bound of epsilon, as a share of the claimed one (line)")
    axes.grid(axis="x", alpha=0.3)
    axes.set_title("full: exact; open: from runs, at the confidence in the table; red: violated", fontsize=9)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PrivstreamError(f"{path}: {reason}. Fix: name a .png, .svg or .pdf in a folder that exists.") from None
