"""`privstream init`: from answers to a file that is a valid configuration, and the key that it names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.local.offline.domains import check_streams
from agents.local.start.document import document
from agents.local.start.interview import OPTIONS, Interview, Person
from agents.local.start.public import PublicFacts
from agents.local.start.sample import FieldSeen
from agents.local.start.typed import read_setting
from engines.core.noise import fresh_seed
from schemas.config import Config, parse_config
from schemas.errors import ConfigError, ConfigProblem, PrivstreamError

HEAD = """Written by privstream init. It is yours: change what you like, then privstream validate {file}
Keys that are commented out are as they are by default, or examples."""
MOST_MENDED = 20
"""Answers that are asked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What is known before anything is asked.

    Attributes:
        out: the file to write. given: answers by their key below the stream. fields: of the raw events.
        person: who is asked; None: nobody is. usual_source: topic that is taken, or offered, where none is given.
    """

    out: Path
    given: Mapping[str, Any]
    fields: tuple[FieldSeen, ...]
    public: PublicFacts | None
    person: Person | None
    bootstrap: str
    usual_source: str = ""
    job: str = "privstream"
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """Attributes: made_key: the user key that was made; None if there was one, or none is needed."""

    config: Config
    made_key: Path | None


def begin(beginning: Beginning) -> Begun:
    """Ask, and write a configuration that is valid. Writes nothing where it is not.

    Raises: ConfigError that names what is missing or wrong; PrivstreamError if the file is there, or cannot be written.
    """
    out = beginning.out
    if out.exists() and not beginning.overwrite:
        raise PrivstreamError(f"{out} is there already. Fix: name another with --out, or say --overwrite.")
    folder = out.parent
    asked = Interview(
        dict(beginning.given), beginning.fields, beginning.person, beginning.public, folder, beginning.usual_source
    )
    asked.hold()
    if asked.missing:
        raise ConfigError(asked.missing)
    text, config = _valid(beginning, asked)
    made = _make_key(config)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PrivstreamError(
            f"{out} cannot be written: {error.strerror}. Fix: name a file in a folder of this user with --out."
        ) from None
    return Begun(config, made)


def _valid(beginning: Beginning, asked: Interview) -> tuple[str, Config]:
    """A person is told what is refused, and asked for it again."""
    for left in range(MOST_MENDED, -1, -1):
        text = ""
        try:
            text = _text(beginning, asked.answers)
            config = parse_config(text, {}, folder=beginning.out.parent)
            check_streams(config)
        except ConfigError as error:
            wrong = [each for each in error.problems if each.key.startswith("streams[0].")]
            if beginning.person is None or not wrong or not left:
                raise ConfigError([_by_option(each) for each in error.problems]) from None
            key = wrong[0].key.removeprefix("streams[0].").partition("[")[0]
            beginning.person.say(f"\n  {key}: {wrong[0].reason}\n  {wrong[0].fix}")
            typed = beginning.person.ask(f"{key} (- to leave it out)", None, ())
            asked.answers.pop(key, None)
            if typed.strip() != "-":
                asked.answers[key] = read_setting(typed.strip())
        else:
            return text, config
    raise AssertionError


def _text(beginning: Beginning, answers: Mapping[str, Any]) -> str:
    from schemas.config import ENGINES

    spec = ENGINES.get(str(answers.get("engine")))
    if spec is None:
        names = ", ".join(ENGINES)
        raise ConfigError(
            [ConfigProblem("streams[0].engine", f"there is no such engine; {names}", "write one of them")]
        )
    if answers.get("domain.kind") not in spec.domains:
        kinds = ", ".join(spec.domains)
        reason = f'engine "{spec.name}" has no such kind of domain; it has {kinds}'
        raise ConfigError([ConfigProblem("streams[0].domain.kind", reason, "write one of them")])
    head = HEAD.format(file=beginning.out.name)
    return document(answers, job=beginning.job, bootstrap=beginning.bootstrap, head=head)


def _by_option(problem: ConfigProblem) -> ConfigProblem:
    """With the option that mends it."""
    key = problem.key.removeprefix("streams[0].")
    how = OPTIONS.get(key, f"--set {key}=VALUE")
    return ConfigProblem(key, problem.reason, f"{problem.fix}: {how}" if key != problem.key else problem.fix)


def _make_key(config: Config) -> Path | None:
    """The file with the secret of the hash of user ids, where it is not there: read by this user alone."""
    path = config.streams[0].privacy.user_key_file
    if path is None or path.exists():
        return None
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as key:
            key.write(fresh_seed())
    except OSError as error:
        raise PrivstreamError(
            f"the user key {path} cannot be made: {error.strerror}. Fix: --user-key-file in a folder of this user."
        ) from None
    return path
