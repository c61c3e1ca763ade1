"""A configuration as it runs on this machine: the same streams and promises, on another cluster, which goes away again.

Nothing of what is copied leads back to the configured cluster, collector, secrets or state folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tomlkit

from schemas.config import Config
from schemas.config.values import PublicFile, Section

KEPT_OF_JOB = ("name", "max_clock_skew", "keep_private_log", "retired")
SESSION_S = 6
"""Nobody waits for a worker that is killed here."""


def local_copy(
    text: str,
    config: Config,
    *,
    bootstrap: str,
    folder: Path,
    user_key: Path,
    times: Mapping[str, Mapping[str, str]],
    audits: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The text of a configuration file that runs on this machine.

    Args:
        text, config: the file, and what was read from it.
        folder: for the state tables. user_key: takes the place of every key file.
        times: stream -> keys of its `[streams.time]` that are others here. audits: stream -> its audit topic, where it
            has none of its own.
    """
    document: Any = tomlkit.parse(text.removeprefix("\ufeff"))
    job = tomlkit.table()
    configured = document.get("job", {})
    for key in KEPT_OF_JOB:
        if key in configured:
            job[key] = configured[key]
    job["data_dir"] = str(folder / "state")
    document["job"] = job
    kafka = tomlkit.table()
    kafka["bootstrap"] = bootstrap
    kafka["partitions"] = config.kafka.partitions
    kafka["replication_factor"] = 1
    kafka["session_timeout_s"] = SESSION_S
    document["kafka"] = kafka
    for table, stream in zip(document["streams"], config.streams, strict=True):
        _name_files(table, stream)
        if stream.privacy.bounds_users:
            table["privacy"]["user_key_file"] = str(user_key)
        if stream.name in audits:
            table["audit"] = audits[stream.name]
        for key, value in times.get(stream.name, {}).items():
            table["time"][key] = value
    return tomlkit.dumps(document)


def _name_files(table: Any, section: Section) -> None:
    """Public files by their whole path: the copy lies in another folder."""
    for name, field in type(section).model_fields.items():
        key, value = field.alias or name, getattr(section, name)
        if key not in table:
            continue
        if isinstance(value, PublicFile):
            table[key] = str(Path(value.path).absolute())
        elif isinstance(value, Section):
            _name_files(table[key], value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Section):
            for inner, each in zip(table[key], value, strict=True):
                _name_files(inner, each)
