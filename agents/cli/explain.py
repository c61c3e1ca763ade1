"""`privstream explain`: what a configuration promises, what it costs, and what it does not protect."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import (
    AsJson,
    Bars,
    ConfigFile,
    OnlyStream,
    chosen_stream,
    config_of,
    print_json,
    say,
    working,
)
from schemas.errors import PrivstreamError


@manual(
    Example("privstream explain job.toml", "the guarantee in words and symbols, and every part of the budget"),
    Example("privstream explain job.toml --stream rides --html rides.html", "one stream, as a page to send on"),
)
def explain(
    config: ConfigFile,
    stream: OnlyStream = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one self-contained page, with a plot.")
    ] = None,
    earlier: Annotated[
        list[Path] | None,
        typer.Option("--earlier", metavar="CONFIG", help="A file with which streams released before: it adds up too."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is promised to whom, in words and in symbols, and where every part of the budget goes.

    Every split with its sensitivity and its noise, what is public by assumption, what is not protected, the error to
    expect, and what another epsilon would do. Asks the configuration and the engines; touches no cluster and no data.
    """
    from agents.show.explain import explain as explained
    from agents.show.explain.render import render_page, render_text

    loaded = config_of(config, offline=True)
    names = None if stream is None else [chosen_stream(loaded, stream, as_configured=True).name]
    before = [config_of(path, offline=True) for path in earlier or ()]
    with Bars(quiet=as_json or len(loaded.streams) < 2) as bars:
        explanation = explained(loaded, names, earlier=before, progress=partial(bars, "streams"))
    if html is not None:
        try:
            with working("drawing", quiet=as_json):
                html.write_text(render_page(explanation), encoding="utf-8")
        except OSError as error:
            raise PrivstreamError(
                f"{html} cannot be written: {error.strerror}. Fix: name a file in a folder that exists and that you "
                "may write to."
            ) from None
        say(f"wrote {html}")
    if as_json:
        print_json(explanation.as_json())
    elif html is None:
        typer.echo(render_text(explanation))
