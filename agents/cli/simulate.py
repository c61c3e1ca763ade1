"""`privstream simulate`: what a configuration does to a file, without a broker."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import (
    FOUND,
    AllowRefused,
    AsJson,
    Bars,
    ConfigFile,
    InsecureSeed,
    OnlyStream,
    Overwrite,
    RowsFile,
    chosen_stream,
    config_of,
    print_json,
    say_refused,
    warn,
)
from agents.show.text import number_of


@manual(
    Example("privstream simulate job.toml history.csv --out try", "what would come out; read try/report.html"),
    Example("privstream simulate job.toml history.csv --out half --epsilon 0.5 --mode paper", "with other settings"),
    exits={FOUND: "fewer than half of the rows are used"},
)
def simulate(
    config: ConfigFile,
    file: RowsFile,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the results; with several streams, one in it for each.")
    ],
    mode: Annotated[str | None, typer.Option(help="Another mode of the engine than the configuration's.")] = None,
    epsilon: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Another epsilon than the configuration's.")
    ] = None,
    insecure_seed: InsecureSeed = None,
    stream: OnlyStream = None,
    overwrite: Overwrite = False,
    allow_refused: AllowRefused = False,
    as_json: AsJson = False,
) -> None:
    """Run the job's own code over a file and write steps.csv, ledger.jsonl, synthetic.csv and report.html.

    Try out epsilon, depth and steps before anything goes live. NOT PRIVATE: steps.csv and report.html hold true values,
    and looking at them to choose settings uses the data without accounting for it. For the operator only.
    """
    from agents.kafka.lifecycle.refusals import OUTCOMES
    from agents.local.offline.simulate import INSECURE
    from agents.local.offline.simulate import simulate as run
    from agents.show.view import metrics_of, tiles
    from schemas.config import with_overrides

    loaded = config_of(config, offline=True)
    if mode is not None or epsilon is not None:
        given, loaded = loaded, with_overrides(loaded, mode=mode, epsilon=epsilon)
        for before, after in zip(given.streams, loaded.streams, strict=True):
            for option in sorted(before.options.explicit.keys() - after.options.explicit.keys()):
                warn(f"stream {after.name}: options.{option} has no effect in mode {after.mode} and is left out")
    name = chosen_stream(loaded, stream).name if stream is not None else None
    with Bars(quiet=as_json) as bars:
        done = run(loaded, file, out, seed=insecure_seed, overwrite=overwrite, stream=name, progress=bars)
    if as_json:
        fit = not any(each.misfit for each in done)
        print_json({"ok": fit, "private": False, "streams": [asdict(each) for each in done]})
    else:
        for each in done:
            figures = tiles(metrics_of(loaded.stream(each.stream)), each.metrics)
            typer.echo(
                f"{each.stream}: {number_of(each.steps, 'step')}, {each.events:,} of "
                f"{number_of(each.rows, 'row')} accepted, {number_of(each.records, 'synthetic record')}, "
                f"epsilon {each.epsilon:g}"
            )
            for said in (loaded.stream(each.stream).privacy.epsilon_warning, each.warning):
                if said is not None:
                    warn(f"stream {each.stream}: {said}")
            say_refused(each.stream, each.refused, share=each.refused_share)
            for reason, outcome in OUTCOMES.items():
                if count := each.counts.get(reason):
                    typer.echo(f"  {number_of(count, 'row')} {outcome}")
            for said in each.left_out:
                warn(f"stream {each.stream}: {said}")
            for sentence in each.verdict:
                typer.echo(f"  {sentence}")
            if figures and each.events:  # an error of 0 % of nothing would look well
                told = ", ".join(f"{name} {text}" for name, text in figures)
                typer.echo(f"  after the last step: {told}; explained at the end of the report")
            typer.echo(f"  {each.folder / 'report.html'}")
    if insecure_seed is not None:
        warn(INSECURE)
    warn("these numbers are NOT PRIVATE: steps.csv and report.html hold true values. For the operator only.")
    misfits = [each.stream for each in done if each.misfit]
    if misfits and not allow_refused:
        warn(
            f"fewer than half of the rows are used ({', '.join(misfits)}): exit code {FOUND}. Fix what is said "
            "above, or say --allow-refused"
        )
        raise typer.Exit(FOUND)
