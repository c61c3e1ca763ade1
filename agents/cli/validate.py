"""`privstream validate`: every mistake of a configuration at once, or what it promises."""

from __future__ import annotations

import time

from agents.cli.manual import Example, manual
from agents.cli.output import AsJson, ConfigFile, config_of, print_json, warn, working
from agents.show.text import number_of


@manual(
    Example("privstream validate job.toml", "every mistake at once, each with its fix; or what is promised"),
    Example("privstream validate job.toml --json", "the same for a pipeline"),
)
def validate(config: ConfigFile, as_json: AsJson = False) -> None:
    """Check a configuration without touching the cluster.

    Lists every problem with its key, the reason and the fix (exit code 2), or says what each stream promises to whom,
    and how large its noise is.
    """
    import typer

    from agents.kafka.schema_registry import check_files
    from agents.local.offline.domains import check_streams
    from agents.protocol.clock import backlog_remark
    from agents.protocol.formats.build import InputFormat, check_installed
    from agents.show.explain.words import promise, step_warning
    from agents.show.view import expected_error, view_of
    from agents.worker.ingest.specs import user_keys
    from schemas.config import format_length
    from schemas.topics import Topics

    loaded = config_of(config)
    user_keys(loaded)  # what `run` would refuse is refused here
    check_files(loaded.kafka.registry)
    for stream in loaded.streams:
        InputFormat.from_stream(stream)
        check_installed(stream, "output.format", stream.output.format)
    with working("building domains and engines", quiet=as_json):
        check_streams(loaded)
        remarks = {stream.name: list(view_of(stream).warnings(stream)) for stream in loaded.streams}
    for stream in loaded.streams:
        if remark := backlog_remark(stream, time.time_ns() // 1000):
            remarks.setdefault(stream.name, []).append(remark)
        for remark in (stream.privacy.epsilon_warning, stream.privacy.delta_warning, step_warning(stream)):
            if remark is not None:
                remarks.setdefault(stream.name, []).append(remark)
    if as_json:
        streams = [
            {
                "name": stream.name,
                "engine": stream.engine,
                "mode": stream.mode,
                "source": stream.source,
                "audit": stream.audit,
                "public": [topic.name for topic in loaded.topics.public(stream.name) if topic.audience == "public"],
                "epsilon": str(stream.privacy.epsilon_fraction),
                "delta": stream.privacy.delta,
                "unit": stream.privacy.unit,
                "promise": promise(stream),
                "expected_error": expected_error(stream).first(),
            }
            for stream in loaded.streams
        ]
        for entry in streams:
            entry["remarks"] = list(remarks.get(str(entry["name"]), ()))
        print_json({"ok": True, "job": loaded.job.name, "streams": streams})
        return
    typer.echo(f"{config}: well. Job {loaded.job.name}, {number_of(len(loaded.streams), 'stream')}.")
    for stream in loaded.streams:
        typer.echo(
            f"\n{stream.name}: {stream.source} -> {Topics.synthetic(stream.name)}, "
            f"engine {stream.engine} ({stream.mode}), a release every {format_length(stream.time.step)}"
        )
        typer.echo(f"  {promise(stream)}")
        typer.echo(f"  Noise of one release, 95 %: {expected_error(stream).within()}.")
        for remark in remarks.get(stream.name, ()):
            warn(f"stream {stream.name}: {remark}")
        if stream.privacy.unit == "event":
            warn(f'stream {stream.name}: unit = "event". Where the data has a user id, set unit = "user".')
