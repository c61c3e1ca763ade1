"""`privstream watch`: the live page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import AsJson, ConfigFile, config_of, print_json, say, warn

if TYPE_CHECKING:
    from agents.readers.watch import LivePage

PORT = 8765


@manual(
    Example("privstream watch job.toml", "both views, for this machine"),
    Example(
        "privstream watch job.toml --host 0.0.0.0 --public-only --public-without-token", "the public view, for anyone"
    ),
)
def watch(
    config: ConfigFile,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0: any that is free.")] = PORT,
    public_only: Annotated[bool, typer.Option("--public-only", help="Without the operator's view.")] = False,
    public_without_token: Annotated[
        bool,
        typer.Option(
            "--public-without-token", help="Off loopback and with --name, too, anyone may see the public view."
        ),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="32 random bytes or more, from which the tokens are made: addresses then outlive a restart.",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name by which it may be called, as of a proxy; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve a live page of every stream: the public view, and one for operators.

    The public view reads public topics alone, and shows what any consumer can see: it may be shown to anyone. The
    operator's view adds the truth, errors, lag and refusals. It is NOT PRIVATE and always needs its token, which is in
    the address that is printed. Ctrl-C ends it.
    """
    loaded = config_of(config)
    secret = None
    if token_file is not None:
        from agents.kafka.security import read_secret

        secret = read_secret(token_file, key="--token-file")
        if token_file.stat().st_mode & 0o077:
            warn(
                f"{token_file} is open to others, and whoever reads it has the operator's view: chmod 600 {token_file}"
            )
    from agents.readers.watch import serve
    from agents.readers.watch.guard import is_loopback

    async def run() -> None:
        async with serve(
            loaded,
            host=host,
            port=port,
            operator=not public_only,
            public_without_token=public_without_token,
            token=secret,
            names=name or [],
        ) as page:
            if as_json:
                print_json({"ok": True, "public": page.public, "operator": page.operator, "port": page.port})
            else:
                _say(page)
            if not is_loopback(host):
                warn("what the page shows, and its tokens, travel without encryption: put a proxy with TLS before it")
            await asyncio.Event().wait()

    asyncio.run(run())


def _say(page: LivePage) -> None:
    typer.echo(f"public    {page.public}")
    if page.operator is not None:
        typer.echo(f"operator  {page.operator}")
        say("the operator's view is not private, and whoever has its address can open it. Ctrl-C ends both")
    else:
        say("Ctrl-C ends it")
