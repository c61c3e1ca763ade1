"""`privstream topics`: what the job needs on the cluster, made and checked, and who may read it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agents.cli.manual import Example, manual
from agents.cli.output import FOUND, AsJson, ConfigFile, config_of, print_json, print_table, say, working

if TYPE_CHECKING:
    from schemas.config import Config


@manual(
    Example("privstream topics job.toml", "what the job needs, and who may read it; asks no cluster"),
    Example("privstream topics job.toml --create --source-partitions 4", "make what is missing, raw topics too"),
    Example("privstream topics job.toml --register", "schemas of the public topics, at the schema registry"),
    Example("privstream topics job.toml --check --acls --reader User:maps", "compare, and print who gets which rights"),
    exits={FOUND: "a topic must be put right (--check)"},
)
def topics(
    config: ConfigFile,
    create: Annotated[
        bool, typer.Option("--create", help="Create what is missing; nothing that exists is changed.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the cluster; exit code 1 if something must be fixed.")
    ] = False,
    acls: Annotated[
        bool, typer.Option("--acls", help="Print kafka-acls.sh commands: workers all, readers the public topics only.")
    ] = False,
    source_partitions: Annotated[
        int | None,
        typer.Option(min=1, help="With --create: make missing source and audit topics too, with so many partitions."),
    ] = None,
    add_partitions: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC=NUMBER",
            help="Raise a source or audit topic to so many partitions, bounds of users too. Stop all workers first.",
        ),
    ] = None,
    reader: Annotated[str, typer.Option(help="With --acls: the principal that reads synthetic data.")] = "User:reader",
    reader_group: Annotated[
        str | None,
        typer.Option(help="With --acls: the readers' consumer group.", show_default="as the principal is called"),
    ] = None,
    worker: Annotated[str, typer.Option(help="With --acls: the principal of the job.")] = "User:privstream",
    register: Annotated[
        bool,
        typer.Option("--register", help=r"Register the schemas of values at the schema registry of \[kafka.registry]."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the topics of the job, with who may see them; create or check them on the cluster.

    Without options nothing is asked of the cluster. Public topics are the only ones that anybody outside may read.
    """
    loaded = config_of(config)
    result: dict[str, Any] = {"ok": True}
    if create:
        from agents.kafka.topics import create_topics

        with working("creating topics", quiet=as_json):
            result["created"] = asyncio.run(create_topics(loaded, source_partitions=source_partitions))
        for line in [f"created {name}" for name in result["created"]] or ["nothing to create: all topics exist"]:
            say(line)
    if add_partitions is not None:
        result["added"] = _add(loaded, add_partitions)
    if register:
        from agents.readers.consume.value_schemas import register as put

        with working("registering schemas", quiet=as_json):
            result["registered"] = asyncio.run(put(loaded))
        for subject, number in result["registered"].items():
            say(f"{subject} is schema {number}")
    problems = []
    if check:
        from agents.kafka.topics import check_topics

        with working("asking the cluster", quiet=as_json):
            found = asyncio.run(check_topics(loaded, bounds=True))
        problems = [asdict(each) for each in found]
    result |= {"ok": not problems, "problems": problems}
    if acls:
        from agents.kafka.topics import ADMIN_PROPERTIES, acl_lines

        result["acls"] = acl_lines(loaded, reader=reader, worker=worker, reader_group=reader_group)
        if loaded.kafka.security_protocol != "PLAINTEXT":
            say(f"{ADMIN_PROPERTIES} holds the client settings of a principal that may change access rules")
    if as_json:
        print_json(result | {"topics": _listed(loaded)})
    else:
        _show(loaded, result, listed=not (create or check or acls or add_partitions or register), checked=check)
    if problems:
        raise typer.Exit(FOUND)


def _add(config: Config, asked: str) -> dict[str, Any]:
    topic, _, number = asked.rpartition("=")
    if not topic or not number.isascii() or not number.isdigit():
        raise typer.BadParameter("write the topic, = and how many partitions it is to have, as raw.taxi=12")
    from agents.worker.ingest.add_partitions import add_partitions

    done = asyncio.run(add_partitions(config, topic, int(number)))
    if done.streams:
        say(f"{topic} has {done.partitions} partitions; start the workers: {', '.join(done.streams)} go on with them")
        say("then start the producers, each anew: one that has not heard of the new partitions places users wrongly")
    elif done.before != done.partitions:
        say(f"{topic} has {done.partitions} partitions in place of {done.before}; no stream had begun to read it")
    else:
        say(f"{topic} has {done.partitions} partitions, and every stream goes on with them: nothing to do")
    return {"topic": topic, "before": done.before, "partitions": done.partitions, "streams": list(done.streams)}


def _listed(config: Config) -> list[dict[str, Any]]:
    from agents.kafka.topics import needed_topics

    return [asdict(topic) for topic in needed_topics(config)]


def _show(config: Config, result: dict[str, Any], *, listed: bool, checked: bool) -> None:
    if listed:
        rows = [
            [topic["name"], topic["audience"], str(topic["partitions"] or "its own"), topic["purpose"]]
            for topic in _listed(config)
        ]
        print_table(["topic", "for", "partitions", "holds"], rows)
    for problem in result["problems"]:
        typer.echo(f"{problem['topic']}: {problem['reason']}\n    fix: {problem['fix']}")
    if checked and result["ok"]:
        typer.echo("all topics are as the job needs them")
    for line in result.get("acls", ()):
        typer.echo(line)
