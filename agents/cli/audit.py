"""`privstream audit`: try to break what is claimed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agents.cli.output import FOUND
from agents.cli.terminal.manual import Example, manual
from schemas.errors import PrivstreamError


@manual(
    Example("privstream audit job.toml", "the streams of a configuration, from raw records to public bytes"),
    exits={FOUND: "one unit costs more than is claimed, public bytes differ, or half the noise would not have shown"},
)
def audit(config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The streams of this file.")]) -> None:
    """Not there yet."""
    raise PrivstreamError(f"{config} is not audited yet. Fix: run `make couple`.")
