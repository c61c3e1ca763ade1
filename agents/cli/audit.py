"""`privstream audit`: try to break what is claimed, and say how far that came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import FOUND, AsJson, Bars, config_of, print_json, print_table, say
from agents.show.text import number_of
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from agents.local.coupling.audit import Audit
    from schemas.config import Stream

BESIDE = 8
"""Pairs of a stream beside the random ones, about: the bar counts them."""
HEAD = ("stream", "claimed", "pairs", "largest share used", "half the noise", "verdict")


@manual(
    Example("privstream audit job.toml", "the streams of a configuration, from raw records to public bytes"),
    Example("privstream audit --only spatial/paper --runs 100", "small streams of one engine and mode"),
    exits={FOUND: "one unit costs more than is claimed, public bytes differ, or half the noise would not have shown"},
)
def audit(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="Audit the streams of this file; absent: small ones of every engine."),
    ] = None,
    runs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Random pairs of neighbouring inputs for each stream.")
    ] = 20,
    as_json: AsJson = False,
    only: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only streams with NAME in their name; without CONFIG: series/default, say."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the first pair; repeats an audit. Absent: a fresh one.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; absent: one for each core.")] = None,
) -> None:
    """Run neighbouring inputs from raw records to public bytes, and compute what the difference costs.

    Needs no cluster and no data. Two inputs differ in one protected unit, at random or as dearly as can be. Each
    mechanism of the second run is made to give what it gave in the first one, whatever the unit has changed: then all
    public bytes must be equal, and what that takes of the noise, by its exact laws, may be no more than is claimed. The
    largest share of the claim that a pair used is shown: 1 says that the claim is tight, less that these inputs came no
    further. At last the stream runs with half the noise somewhere, which must be found, or the audit could not have
    failed.
    """
    streams = audited_streams(config, only)
    if not streams:
        raise PrivstreamError(f"no stream has {only!r} in its name. Fix: leave --only out to see what there is.")
    from agents.local.coupling.audit import fresh_seed

    begin = fresh_seed() if seed is None else seed
    found = audits(streams, pairs=runs, seed=begin, workers=workers, quiet=as_json)
    broken = [each for each in found if each.failed]
    if as_json:
        print_json(
            {"ok": not broken, "seed": begin, "streams": [{**asdict(each), "verdict": each.verdict} for each in found]}
        )
    else:
        print_table(HEAD, [_row(each) for each in found])
        for each in found:
            for line in each.violations:
                say(f"{each.name}: {line}")
        say(f"{number_of(len(found), 'stream')}, {len(broken)} failed; pairs from --seed {begin}")
    if broken:
        raise typer.Exit(FOUND)


def audited_streams(config: Path | None, only: str | None) -> list[tuple[str, Stream]]:
    """Return name and stream of what is audited. Raises: ConfigError."""
    if config is None:
        from agents.local.coupling.runs import settings

        streams = list(settings())
    else:
        streams = [(stream.name, stream) for stream in config_of(config, offline=True).streams]
    return [each for each in streams if only is None or only.casefold() in each[0].casefold()]


def audits(
    streams: Sequence[tuple[str, Stream]], *, pairs: int, seed: int, workers: int | None, quiet: bool
) -> list[Audit]:
    """Audit streams, in processes of their own where several are audited at a time."""
    import os
    from concurrent.futures import as_completed

    from agents.local.coupling.audit import audit
    from agents.local.offline.processes import process_pool

    processes = min(workers or os.cpu_count() or 1, len(streams))
    with Bars(quiet=quiet) as bars:
        if processes == 1:
            made, total = count(1), (pairs + BESIDE) * len(streams)

            def pair_made() -> None:
                bars("pairs of runs", min(next(made), total), total)

            return [audit(name, stream, pairs=pairs, seed=seed, each_pair=pair_made) for name, stream in streams]
        with process_pool(processes) as pool:
            futures = [pool.submit(audit, name, stream, pairs=pairs, seed=seed) for name, stream in streams]
            bars("streams audited", 0, len(futures))
            try:
                for done, _ in enumerate(as_completed(futures), 1):
                    bars("streams audited", done, len(futures))
                return [future.result() for future in futures]
            finally:  # of whoever is interrupted, nothing more is begun
                for future in futures:
                    future.cancel()


def _row(found: Audit) -> tuple[str, ...]:
    claimed = f"{found.epsilon:g}" + (f", {found.delta:g}" if found.delta else "")
    halved = f"found: {found.halved}" if found.halved else "NOT FOUND"
    return found.name, claimed, str(found.pairs), f"{found.share:.4f}", halved, found.verdict
