"""`configure`, which makes a stream of the library from a configuration file or a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.local.library.journal import Journal, JournalEntry, open_file
from agents.local.library.stream import PrivateStream
from agents.protocol.fingerprint import Fingerprint
from agents.protocol.userhash import key_id, user_key
from engines.core.noise import fresh_seed
from schemas.config import Config, Stream
from schemas.config.load import NO_CLUSTER, config_from_mapping, load_config
from schemas.errors import ConfigError

NAME = "notebook"
"""Name of a stream without one. It is public, because releases depend on it."""


def configure(
    config: str | Path | Mapping[str, Any] | None = None,
    /,
    *,
    stream: str | None = None,
    state: str | Path | None = None,
    moved: bool = False,
    insecure_seed: int | None = None,
    **tables: Any,
) -> PrivateStream:
    """Return a stream of an installed engine, which reads rows of a notebook and releases one answer for each step.

    Args:
        config: a TOML file of the job; the same as a mapping; or a mapping of one of its `[[streams]]`.
        stream: name of the stream, if the configuration has several.
        state: file with the state of the stream. It is created if it does not exist; otherwise the stream continues
            from it. Without a file, the state lives as long as the object, and a new object gives second answers.
        moved: whether the file and its lock were copied, such as from another disk, and the originals are not used.
        insecure_seed: seed that makes noise repeatable and removes all privacy, for tests. Every release says so.
        tables: keys of the stream, such as `engine`, `privacy`, `time`, `domain`, `options`; they override a mapping.
    Guarantee: that of `PrivateStream`.
    Raises: ConfigError with every problem: key, reason, fix; StateFileError; FingerprintError if the file was started
        with another configuration.
    """
    chosen = _chosen(_config(config, tables), stream)
    if chosen.time.start == "now":
        raise ConfigError.of(
            "time.start",
            'is "now", but the library has no clock',
            'write the local time at which step 0 begins, such as "2024-01-01T00:00:00"',
        )
    # A step ends when it is requested, as by a tick of a replay; rows are JSON by then.
    timing = chosen.time.model_copy(update={"clock": "replay"})
    chosen = chosen.model_copy(update={"time": timing, "format": "json"})
    fields = {
        **chosen.fingerprint_from(timing.start),
        "seeds": "secure" if insecure_seed is None else "insecure",
    }

    def asked(key: bytes) -> Fingerprint:
        return Fingerprint(chosen.name, {**fields, "user_key_id": key_id(key)}, chosen.time.start)

    key = user_key(fresh_seed(), stream=chosen.name)
    begin = JournalEntry(fingerprint=asked(key).encode(), key=key)
    journal = Journal(begin) if state is None else open_file(Path(state), begin, moved=moved)
    try:
        Fingerprint.decode(journal.entry.fingerprint).check(asked(journal.entry.key))
        return PrivateStream(chosen, journal, insecure_seed=insecure_seed)
    except BaseException:
        journal.close()
        raise


def _config(config: str | Path | Mapping[str, Any] | None, tables: Mapping[str, Any]) -> Config:
    if isinstance(config, str | Path):
        if tables:
            raise ConfigError.of(
                sorted(tables)[0], "is said beside a file", "write it into the file, or pass a mapping"
            )
        return load_config(config, offline=True)
    document = dict(config or {})
    if "streams" not in document:
        name = str(tables.get("name", document.get("name", NAME)))
        document = {"streams": [{"name": name, "source": f"raw.{name}", **document}]}
    document["streams"] = [{**each, **tables} for each in document["streams"]]
    return config_from_mapping({"kafka": NO_CLUSTER, **document})


def _chosen(config: Config, name: str | None) -> Stream:
    names = [each.name for each in config.streams]
    if name is None and len(names) == 1:
        return config.streams[0]
    if name not in names:
        said = "none is chosen" if name is None else f'"{name}" is none of them'
        raise ConfigError.of(
            "streams",
            f"has {len(names)} streams, and {said}",
            f'pass stream="{names[0]}", or another of: {", ".join(names)}',
        )
    return config.stream(str(name))
