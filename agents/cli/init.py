"""`privstream init`: a configuration for a topic or a file that nobody has described yet."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import FOUND, AllowRefused, AsJson, Bars, Overwrite, print_json, say, warn
from schemas.errors import ConfigError, ConfigProblem, PrivstreamError

if TYPE_CHECKING:
    from agents.local.start.sample import FieldSeen
    from schemas.config import Kafka, Stream

BOOTSTRAP = "localhost:9092"


def _engines(incomplete: str) -> list[str]:
    """Complete the name of an engine in a shell."""
    from schemas.config import ENGINES

    return [name for name in ENGINES if name.startswith(incomplete)]


@manual(
    Example("privstream init --engine spatial --from history.csv", "fields as the file names them; then fill in"),
    Example("privstream init --engine series --topic app.rides --bootstrap kafka:9092", "the same with a topic"),
    Example(
        "privstream init --engine tabular --topic app.rides --bootstrap kafka:9092 --set format=avro "
        "--set kafka.registry.url=https://registry:8081",
        "a topic of another format than JSON",
    ),
    Example(
        "privstream init --engine spatial --from rides.csv --set privacy.user=rider --set privacy.max_contributions=20 "
        "--set 'domain.bounds=[13.08, 52.33, 13.77, 52.68]'",
        "nothing is left to fill in",
    ),
    Example(
        "privstream init --engine tabular --from rows.csv --set privacy.unit=event --public census.csv",
        "categories and bins of a file that is public",
    ),
    exits={FOUND: "the file is written, and lines in it are to be filled in"},
)
def init(
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="What a stream is; a wrong name lists all.", autocompletion=_engines)
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The configuration to write.")] = Path(
        "privstream.toml"
    ),
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Events as a file, PRIVATE: of it only names and types of fields are used. .csv, .parquet, .jsonl. "
            "Keys that all objects of a .jsonl have are taken as names that may be public; others are refused unseen.",
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="The source; with --bootstrap, and without --from, its first records tell names and types of fields. "
            "Where they are no JSON: --set format=FORMAT, and --set kafka.registry.url=URL.",
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help=f"The cluster. Default: PRIVSTREAM_BOOTSTRAP, or {BOOTSTRAP}."),
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A PUBLIC file with such fields: bounds and categories are taken as it has them."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any key of the stream, or of job and kafka, in TOML, as domain.bounds=[0, 0, 1, 1]. "
            "It wins over what would be guessed.",
        ),
    ] = None,
    allow_refused: AllowRefused = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented configuration, with the names of your fields in it.

    What is usual, or follows from names and types of fields, is written; what nobody can guess stands there as a line
    TO FILL IN, unless --set says it. Engines, and what each needs to know, are those that are installed.

    Bounds, categories and dates are PUBLIC: you write them, or name a file that you declare public. Of private events
    nothing is used but the names and types of their fields, and how times are written. A configuration that leaves
    nothing to fill in is run over the first of them, and refused where most would be: nothing is written then.
    """
    from agents.local.offline.files import rows_for
    from agents.local.start.public import public_facts
    from agents.local.start.sample import check_sample, fields_of, fields_of_file, rows_of_topic
    from agents.local.start.template import csv_layout, read_setting, section_of, source_form, write_template
    from agents.protocol.replay import beside_the_value

    if out.exists() and not overwrite:
        raise PrivstreamError(f"{out} is there already. Fix: name another with --out, or say --overwrite.")
    servers = bootstrap or os.environ.get("PRIVSTREAM_BOOTSTRAP", "").strip() or BOOTSTRAP
    given: dict[str, Any] = {} if topic is None else {"source": topic}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals:
            raise PrivstreamError(
                f"--set {setting} has no value. Fix: write --set KEY=VALUE, as --set time.grace=1min."
            )
        given[key.strip()] = read_setting(value.strip())
    fields: tuple[FieldSeen, ...] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    if from_ is not None:
        fields = fields_of_file(from_, csv_layout(given))
    elif topic is not None and (bootstrap or os.environ.get("PRIVSTREAM_BOOTSTRAP")):
        rows = rows_of_topic(_cluster(servers, section_of("kafka", given)), topic, source_form(given))
        fields = fields_of(rows)

    def tried(stream: Stream) -> None:
        if allow_refused or not fields or beside_the_value(stream):
            return
        if from_ is not None:
            check_sample(stream, (row for batch in rows_for(from_, stream).batches() for row in batch))
        elif stream.format == "json" and stream.envelope == "none":
            check_sample(stream, rows)

    facts = None
    if public is not None:
        with Bars() as bars:
            facts = public_facts(public, partial(bars, f"rows of {public.name}"))
    usual_source = "" if from_ is None else f"raw.{re.sub(r'[^A-Za-z0-9_-]', '-', from_.name.split('.')[0])}"
    done = write_template(
        out, engine, given, fields=fields, public=facts, bootstrap=servers, usual_source=usual_source, tried=tried
    )
    name, source = (done.values.get(key, "(to fill in)") for key in ("name", "source"))
    if as_json:
        made = None if done.made_key is None else str(done.made_key)
        print_json({
            "ok": not done.to_fill, "config": str(out), "stream": name, "engine": engine, "user_key": made,
            "to_fill": dict(done.to_fill),
        })  # fmt: skip
    else:
        if fields:
            say(_folded("fields: " + ", ".join(map(str, fields)), first=""))
        typer.echo(f"wrote {out}: stream {name}, {source} -> {name}.synthetic, engine {engine}")
        if fields and "time.field" in done.values:
            say(f"time of an event: {done.values['time.field']}; another one: --set time.field=FIELD")
        if done.made_key is not None:
            warn(
                f"{done.made_key} is the secret of the hash of user ids: back it up, and keep it for as long as the "
                "stream"
            )
        for key, asked in done.to_fill.items():
            typer.echo(_folded(f"to fill in, or --set {key}=VALUE: {asked}"))
        file = from_ or Path("history.csv")
        say("next:")
        say(f"  privstream validate {out}\n      what is promised, and how large the noise is")
        say(f"  privstream simulate {out} {file} --out try\n      what would come out, without Kafka; NOT private")
        if rows:
            say(f"  privstream doctor {out}\n      what becomes of the newest records of {source}")
        else:
            say(f"  privstream dev {out} {file}\n      all of it on this machine")
    if done.to_fill:
        raise typer.Exit(FOUND)


def _folded(text: str, *, first: str = "  ") -> str:
    """Return a text in lines that fit a terminal. A setting is typed as it stands, so it stays in one."""
    from agents.show.text import wrapped

    whole = re.sub(r'--set (?:"[^"]*"|\S+)', lambda setting: setting[0].replace(" ", "\xa0"), text)
    return "\n".join(wrapped(whole, first=first, rest=" " * 6)).replace("\xa0", " ")


def _cluster(servers: str, told: Mapping[str, Any]) -> Kafka:
    """Return `[kafka]` as `--set` and the variables PRIVSTREAM_KAFKA__<KEY> say: there is no file yet."""
    from schemas.config import Kafka
    from schemas.config.load import with_environment

    problems: list[ConfigProblem] = []
    merged = with_environment({"kafka": {**told, "bootstrap": servers}}, os.environ, problems)["kafka"]
    if problems:
        raise ConfigError(problems)
    try:
        return Kafka.model_validate({**merged, "bootstrap": servers})
    except ConfigError as error:
        raise ConfigError([_to_be_said(problem) for problem in error.problems]) from None


def _to_be_said(problem: ConfigProblem) -> ConfigProblem:
    """Return what is wrong with a key of `[kafka]`, with the option that mends it."""
    option = "--bootstrap host:9092" if problem.key == "bootstrap" else f"--set kafka.{problem.key}=VALUE"
    variable = f"PRIVSTREAM_KAFKA__{problem.key.upper().replace('.', '__')}"
    return ConfigProblem(f"kafka.{problem.key}", problem.reason, f"{problem.fix}: {option}, or {variable}")
