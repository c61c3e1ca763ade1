"""`privstream tune`: which bound on a user's contributions errs least, on a file of the past, without a broker."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import (
    REFUSED,
    AsJson,
    Bars,
    ConfigFile,
    RowsFile,
    StreamName,
    chosen_stream,
    config_of,
    print_json,
    print_table,
    problems_of,
    say,
    warn,
)
from schemas.errors import PrivstreamError


@manual(
    Example("privstream tune job.toml old.csv --out bound", "which max_contributions errs least, with a page of plots"),
    Example("privstream tune job.toml old.csv --bounds 1,5,20 --epsilons 0.5,1 --runs 5", "these, and no others"),
)
def tune(
    config: ConfigFile,
    file: RowsFile,
    stream: StreamName = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            metavar="M,M,...",
            help="Bounds to try; absent: some of 1, 2, 5, 10, ... from a twentieth to five times the configured one.",
        ),
    ] = None,
    epsilons: Annotated[
        str | None,
        typer.Option(metavar="E,E,...", help="Epsilons to try; absent: half, all and twice of the configured one."),
    ] = None,
    runs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Runs of each bound and epsilon: how much do they differ?")
    ] = 3,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder for a page with plots.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the job's own code over a file with several max_contributions, and show which errs least.

    A small bound drops events (bias), a large one drowns them in noise; the table tells the two apart, at each epsilon.
    NOT PRIVATE: it prints true values, and a bound that is chosen from private data is a function of private data that
    no guarantee covers. Use a public file, or an old one. For the operator only.
    """
    from agents.local.offline import tune as tuning

    loaded = config_of(config, offline=True)
    chosen = chosen_stream(loaded, stream)
    tuning.check_bounded(loaded, chosen)
    some_bounds, some_epsilons, left_out = tuning.what_to_try(
        chosen,
        bounds=None if bounds is None else tuning.parse_bounds(bounds),
        epsilons=None if epsilons is None else tuning.parse_epsilons(epsilons),
    )
    with Bars(quiet=as_json) as bars:
        tuned = tuning.tune(
            loaded,
            file,
            stream=chosen.name,
            bounds=some_bounds,
            epsilons=some_epsilons,
            runs=runs,
            progress=partial(bars, "tune"),
        )
    page = None if out is None else tuning.write_page(tuned, out)
    unknown = PrivstreamError(tuned.problem) if tuned.problem else None
    if as_json:
        print_json(tuning.as_json(tuned) | ({"problems": problems_of(unknown)} if unknown else {}))
    else:
        typer.echo(
            f"{tuned.stream}: engine {tuned.engine} ({tuned.mode}), {tuned.usable:,} of {tuned.rows:,} rows "
            f"usable, {tuned.steps:,} steps, runs of each: {tuned.runs}"
        )
        for sentence in tuning.explanation(tuned):
            typer.echo(sentence)
        for recommended, cells in tuning.by_epsilon(tuned):
            typer.echo(f"\nepsilon {recommended.epsilon}")
            rows = list(tuning.table_rows(tuned, recommended, cells))
            print_table(tuning.table_head(tuned), rows)
        typer.echo("")
        for term in tuning.explained(tuned):
            typer.echo(f"{term.name}: {term.meaning}")
        typer.echo("")
        for recommended in tuned.recommended:
            typer.echo(recommended.sentence())
        if page is not None:
            typer.echo(str(page))
    for sentence in left_out:
        say(sentence)
    for warning in tuning.warnings(tuned):
        warn(warning)
    if unknown is not None:
        if as_json:
            raise typer.Exit(REFUSED)
        raise unknown
