"""`privstream doctor`: what keeps the job from running here."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import FOUND, AsJson, config_of, print_json, problems_of, working
from schemas.errors import ConfigError

SIGNS = {"ok": ("ok", "green"), "warning": ("look", "yellow"), "problem": ("FIX", "red")}


@manual(
    Example("privstream doctor", "Python, libraries and Java"),
    Example("privstream doctor job.toml", "its files, cluster and topics too"),
    exits={FOUND: "there is a problem; warnings do not count"},
)
def doctor(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="Also check this configuration, its files and its cluster."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check Python, libraries, Java, and with a configuration its key files, cluster and topics too.

    Every problem comes with its fix. Exit code 1 if there is one; warnings do not count.
    """
    from agents.readers.operator.doctor import cluster_findings, config_findings, local_findings, witness_finding
    from agents.readers.operator.findings import Finding

    findings = list(local_findings())
    if config is not None:
        try:
            loaded = config_of(config)
        except ConfigError as error:
            findings += [
                Finding("configuration", "problem", f"{each['key']}: {each['reason']}", each["fix"])
                for each in problems_of(error)
            ]
        else:
            findings.append(Finding("configuration", "ok", str(config)))
            findings += config_findings(loaded)
            with working("asking the cluster", quiet=as_json):
                findings += [*asyncio.run(cluster_findings(loaded)), asyncio.run(witness_finding(loaded))]
    bad = any(finding.verdict == "problem" for finding in findings)
    if as_json:
        print_json({"ok": not bad, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            sign, colour = SIGNS[finding.verdict]
            typer.echo(f"{typer.style(sign.ljust(4), fg=colour, bold=True)}  {finding.what}: {finding.detail}")
            if finding.fix:
                typer.echo(f"      fix: {finding.fix}")
    if bad:
        raise typer.Exit(FOUND)
