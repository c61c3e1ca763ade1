"""`privstream doctor`: what keeps the job from running here."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import FOUND, AsJson, OnlyStream, chosen_stream, config_of, print_json, say, working
from schemas.errors import ConfigError, PrivstreamError

if TYPE_CHECKING:
    from schemas.config import Stream

SIGNS = {"ok": ("ok", "green"), "warning": ("look", "yellow"), "problem": ("FIX", "red")}


@manual(
    Example("privstream doctor", "Python, libraries and Java"),
    Example("privstream doctor job.toml", "its files, cluster and topics too"),
    Example("privstream doctor job.toml --record sample.jsonl", "what becomes of each record; asks no cluster"),
    exits={FOUND: "there is a problem, or a record is refused; warnings do not count"},
)
def doctor(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="Also check this configuration, its files and its cluster."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Only say what each record of this file becomes; - for standard input."),
    ] = None,
    stream: OnlyStream = None,
    as_json: AsJson = False,
) -> None:
    """Check Python, libraries, Java, and with a configuration its key files, cluster and topics too.

    Every problem comes with its fix. Exit code 1 if there is one; warnings do not count. With --record it asks no
    cluster: each line of a file is a record of the stream, and is shown by field as the event that it becomes, or with
    why it is refused.
    """
    if record is not None:
        if config is None:
            raise PrivstreamError("--record needs a configuration. Fix: write privstream doctor CONFIG --record FILE.")
        _try_records(chosen_stream(config_of(config, offline=True), stream), record, as_json=as_json)
        return
    from agents.readers.operator.doctor import cluster_findings, config_findings, local_findings, witness_findings
    from agents.readers.operator.findings import Finding, of_error

    findings = list(local_findings())
    if config is not None:
        try:
            loaded = config_of(config)
        except ConfigError as error:
            findings += of_error("configuration", error)
        else:
            findings.append(Finding("configuration", "ok", str(config)))
            findings += config_findings(loaded)
            with working("asking the cluster", quiet=as_json):
                findings += [*asyncio.run(cluster_findings(loaded)), *asyncio.run(witness_findings(loaded))]
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


def _try_records(stream: Stream, path: Path, *, as_json: bool) -> None:
    """Show what each record of a file becomes. Raises: typer.Exit where one is refused; PrivstreamError."""
    from agents.kafka.lifecycle.refusals import BESIDE, UNREFUSED, UNUSED, WHAT_TO_DO
    from agents.readers.operator.sample_records import TEXT, outcomes
    from schemas.events import Reason

    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise PrivstreamError(f"{path} cannot be read: {error.strerror}. Fix: name a file of records.") from None
    if stream.format == "csv" and (csv := stream.csv) is not None and csv.encoding != "utf-8":
        try:
            data = data.decode(csv.encoding).encode()  # lines are told apart in UTF-8
        except UnicodeError:
            raise PrivstreamError(
                f"{path} is not {csv.encoding}, as encoding in [streams.csv] says. Fix: correct the key."
            ) from None
        stream = stream.model_copy(update={"csv": csv.model_copy(update={"encoding": "utf-8"})})
    lines = data.splitlines()
    if stream.format not in TEXT:
        say(f'records of format "{stream.format}" are no text: each line is read as the JSON of one')
    found = list(outcomes(stream, lines))
    refused = [each for each in found if each.reason.name not in (*UNREFUSED, *BESIDE)]
    if as_json:
        records = [{**asdict(each), "reason": each.reason.name} for each in found]
        print_json({"ok": not refused, "records": records})
    else:
        for each in found:
            fields = ", ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in each.fields.items())
            said = "" if each.reason == Reason.ACCEPTED else UNUSED.get(each.reason.name)
            if said is None:
                about = f" of {each.field}" if each.field else ""
                said = f"refused: {each.reason.name}{about}. What to do: {WHAT_TO_DO[each.reason.name]}"
            typer.echo(f"line {each.line}: {'; '.join(filter(None, (fields, said)))}")
        say(f"{len(found) - len(refused):,} well, {len(refused):,} refused")
    if refused:
        raise typer.Exit(FOUND)
