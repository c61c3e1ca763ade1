"""`privstream init`: a configuration for a topic or a file that nobody has described yet."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agents.cli.output import AsJson, print_json, say, warn
from agents.cli.terminal.manual import Example, manual
from agents.cli.terminal.progress import PartsProgress
from schemas.errors import ConfigError, ConfigProblem, PrivstreamError

if TYPE_CHECKING:
    from agents.local.start.sample import FieldSeen
    from schemas.config import Kafka

BOOTSTRAP = "localhost:9092"


def _engines(incomplete: str) -> list[str]:
    """For the shell's completion."""
    from schemas.config import ENGINES

    return [name for name in ENGINES if name.startswith(incomplete)]


@manual(
    Example("privstream init --from history.csv", "ask; fields are offered as the file names them"),
    Example("privstream init --topic app.rides --bootstrap kafka:9092 --out rides.toml", "the same with a topic"),
    Example(
        "privstream init --yes --engine spatial --from rides.csv --user rider --max-contributions 20 "
        "--set 'domain.bounds=[13.08, 52.33, 13.77, 52.68]'",
        "ask nothing: what has no usual answer must be said",
    ),
    Example(
        "privstream init --yes --engine tabular --from rows.csv --unit event --public census.csv",
        "categories and bins of a file that is public",
    ),
)
def init(
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
            help="The source; with --bootstrap, and without --from, its first records tell names and types of fields.",
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help=f"The cluster. Default: PRIVSTREAM_BOOTSTRAP, or {BOOTSTRAP}."),
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A PUBLIC file with such fields: bounds and categories are offered as it has them."
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="What a stream is.", autocompletion=_engines)
    ] = None,
    kind: Annotated[str | None, typer.Option(metavar="NAME", help="Kind of the domain.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of the public stream.")] = None,
    time_field: Annotated[str | None, typer.Option(metavar="NAME", help="Field with an event's time.")] = None,
    time_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="iso, s, ms, us, or a pattern such as %Y-%m-%d.")
    ] = None,
    timezone: Annotated[str | None, typer.Option(metavar="ZONE", help="Of times that name none.")] = None,
    step: Annotated[
        str | None, typer.Option(metavar="DURATION", help="One release in each, such as 15min, 1d.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of the first step: a local time that may be public, or now.")
    ] = None,
    unit: Annotated[str | None, typer.Option(metavar="user|event", help="Who is protected.")] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Field with the user's id.")] = None,
    max_contributions: Annotated[int | None, typer.Option(metavar="N", help="Events of one user that count.")] = None,
    user_key_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Secret of the hash of user ids; made where it is missing.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(metavar="NUMBER", help="Of one unit, for all releases.")] = None,
    delta: Annotated[float | None, typer.Option(metavar="NUMBER", help="Where the engine promises one.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any key of the stream, in TOML, as domain.bounds=[0, 0, 1, 1]."
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask nothing: take what is usual, refuse where there is none.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented configuration that validates, from a few answers.

    Every question has an option, and --set answers any key; --yes asks nothing. Engines, and what each needs to know,
    are those that are installed.

    Bounds, categories and dates are PUBLIC: they are asked, or read from a file that you declare public. Of private
    events nothing is used but the names and types of their fields, and how times are written.
    """
    from agents.local.start.begin import Beginning, begin
    from agents.local.start.public import public_facts
    from agents.local.start.sample import fields_of_file, fields_of_topic
    from agents.local.start.typed import read_setting

    if out.exists() and not overwrite:
        raise PrivstreamError(f"{out} is there already. Fix: name another with --out, or say --overwrite.")
    servers = bootstrap or os.environ.get("PRIVSTREAM_BOOTSTRAP", "").strip() or BOOTSTRAP
    fields: tuple[FieldSeen, ...] = ()
    if from_ is not None:
        fields = fields_of_file(from_)
    elif topic is not None and (bootstrap or os.environ.get("PRIVSTREAM_BOOTSTRAP")):
        fields = fields_of_topic(_cluster(servers), topic)
    told = {
        "engine": engine,
        "domain.kind": kind,
        "source": topic,
        "name": name,
        "time.field": time_field,
        "time.format": time_format,
        "time.timezone": timezone,
        "time.step": step,
        "time.start": start,
        "privacy.unit": unit,
        "privacy.user": user,
        "privacy.max_contributions": max_contributions,
        "privacy.user_key_file": user_key_file,
        "privacy.epsilon": epsilon,
        "privacy.delta": delta,
    }
    given: dict[str, Any] = {key: value for key, value in told.items() if value is not None}
    for setting in settings or ():
        key, equals, value = setting.partition("=")
        if not equals:
            raise PrivstreamError(
                f"--set {setting} has no value. Fix: write --set KEY=VALUE, as --set time.grace=1min."
            )
        given[key.strip()] = read_setting(value.strip())
    usual_source = "" if from_ is None else f"raw.{re.sub(r'[^A-Za-z0-9_-]', '-', from_.name.split('.')[0])}"
    if not yes and fields:
        say("fields: " + ", ".join(f"{each.name} ({each.kind or 'unknown'})" for each in fields))
    facts = None
    if public is not None:
        bar = PartsProgress()
        facts = public_facts(public, lambda rows, of: bar.at(f"rows of {public.name}", rows, of))
        bar.close()
    done = begin(
        Beginning(
            out=out, given=given, fields=fields, public=facts,
            person=None if yes else _Terminal(), bootstrap=servers, usual_source=usual_source,
            overwrite=overwrite,
        )
    )  # fmt: skip
    stream = done.config.streams[0]
    if as_json:
        made = None if done.made_key is None else str(done.made_key)
        print_json({"ok": True, "config": str(out), "stream": stream.name, "engine": stream.engine, "user_key": made})
        return
    typer.echo(f"wrote {out}: stream {stream.name}, {stream.source} -> {stream.name}.synthetic, engine {stream.engine}")
    if done.made_key is not None:
        warn(
            f"{done.made_key} is the secret of the hash of user ids: back it up, and keep it for as long as the stream"
        )
    file = from_ or Path("history.csv")
    say("next:")
    say(f"  privstream validate {out}     what is promised, and how large the noise is")
    say(f"  privstream simulate {out} {file} --out try     what would come out, without Kafka; NOT private")
    say(f"  privstream dev {out} {file}     all of it on this machine")


def _cluster(servers: str) -> Kafka:
    """With the security settings of the environment, PRIVSTREAM_KAFKA__<KEY>: a file has none yet."""
    from schemas.config import Kafka
    from schemas.config.load import overridden

    problems: list[ConfigProblem] = []
    told = overridden({"kafka": {"bootstrap": servers}}, os.environ, problems)["kafka"]
    if problems:
        raise ConfigError(problems)
    try:
        return Kafka.model_validate({**told, "bootstrap": servers})
    except ValueError:
        raise PrivstreamError(
            "the cluster cannot be asked: --bootstrap or a variable PRIVSTREAM_KAFKA__<KEY> is wrong. "
            "Fix: write --bootstrap host:9092, and what [kafka] would have as variables."
        ) from None


class _Terminal:
    """A person at a terminal: questions go to standard error, so that standard output stays the result."""

    def ask(self, text: str, default: str | None, choices: Sequence[tuple[str, str]]) -> str:
        if choices:
            say(f"  of {', '.join(name for name, _ in choices)}")
        try:
            answer: str = typer.prompt(text, default=default, err=True)
        except typer.Abort:
            raise PrivstreamError(
                "no answer came, and nothing is written. Fix: answer at a terminal, or say --yes and give options."
            ) from None
        return answer

    def say(self, text: str) -> None:
        say(text)
