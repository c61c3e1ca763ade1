"""What a worker's log holds: our own lines, and of the libraries' one line a minute for each of them.

While a cluster is away, clients say so some thousand times a minute; when a worker ends, libraries print the same error
with several tracebacks. What matters of it, this job says itself: WAITING, STOPPED. That holds for level DEBUG too, at
which clients would print the records that they read.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Literal, TypedDict, Unpack

log = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LIBRARIES = ("aiokafka", "faust", "mode", "asyncio")
EVERY_S = 60.0


class OncePerCause(logging.Filter):
    """Filter that lets one line of a library through in `every_s`, without its traceback, and counts the rest.

    What asyncio has to say of futures that nobody asks any more, and other reports of errors with a traceback, is left
    out: such an error ends the worker or is dealt with, and both are said.
    """

    def __init__(self, every_s: float = EVERY_S, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._reminder = Reminder(every_s, now)
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # By the file too: a service of ours is logged by `mode` under the name of our module.
        named = {record.name.split(".", 1)[0], _package(record)}
        library = next((each for each in LIBRARIES if each in named), None)
        if library is None:
            return True
        if library == "asyncio" or record.exc_info or record.levelno < logging.WARNING:
            return False
        if not self._reminder.due(library):
            self._left_out[library] = self._left_out.get(library, 0) + 1
            return False
        left_out = self._left_out.pop(library, 0)
        text = record.getMessage().partition("\n")[0]
        record.msg, record.args = (f"{text} (and {left_out} lines before)" if left_out else text), ()
        return True


def _package(record: logging.LogRecord) -> str:
    """Return the installed package whose code logged this."""
    return (
        record.pathname.rpartition("site-packages/")[2].partition("/")[0] if "site-packages/" in record.pathname else ""
    )


LogFormat = Literal["text", "json"]
_SUBJECT: ContextVar[Mapping[str, object]] = ContextVar("subject", default=MappingProxyType({}))


class Subject(TypedDict, total=False):
    """What a line of the log may be about."""

    stream: str
    role: str
    topic: str
    partition: int
    step: int


@contextlib.contextmanager
def about(**fields: Unpack[Subject]) -> Iterator[None]:
    """Say what lines that are logged meanwhile are about, also of tasks that begin meanwhile."""
    token = _SUBJECT.set({**_SUBJECT.get(), **fields})
    try:
        yield
    finally:
        _SUBJECT.reset(token)


def _with_subject(record: logging.LogRecord) -> bool:
    for name, value in _SUBJECT.get().items():
        if not hasattr(record, name):
            setattr(record, name, value)
    return True


def _formatter(style: LogFormat) -> logging.Formatter:
    if style == "text":
        return logging.Formatter(LOG_FORMAT)
    from pythonjsonlogger.orjson import OrjsonFormatter

    names = {"levelname": "level", "name": "logger", "asctime": "time"}
    made = OrjsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names)
    made.default_time_format, made.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    made.converter = time.gmtime
    return made


def set_up(level: str, style: LogFormat = "text") -> None:
    """Log to standard error from `level` on. Libraries only from WARNING on: below it they print records.

    Args: style: lines for people, or a JSON object a line, with the fields of `Subject` where they are known.
    """
    logging.basicConfig(level=level, stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_formatter(style))
        handler.addFilter(_with_subject)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.getLevelName(level), logging.WARNING))
    for handler in logging.getLogger().handlers:
        handler.addFilter(OncePerCause())
    # A library's thread that ends with an error, and what is thrown while objects are collected, print to the terminal.
    threading.excepthook = lambda hook: _quietly("a thread", hook.exc_type)
    sys.unraisablehook = lambda hook: _quietly("an object that was given up", hook.exc_type)


def unless_set_up() -> None:
    """Print one line a minute of each library, for commands that keep no log: Python would print all that they log as a
    warning, tracebacks of errors that are dealt with among them.
    """
    if isinstance(logging.lastResort, logging.Handler) and not logging.lastResort.filters:
        logging.lastResort.addFilter(OncePerCause())


def _quietly(what: str, kind: type[BaseException] | None) -> None:
    log.debug("%s ended with %s", what, "an error" if kind is None else kind.__name__)


class Reminder:
    """Whether it is time to say something again: at most once in `every_s`, for as long as it lasts."""

    def __init__(self, every_s: float = EVERY_S, now: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._now = now
        self._next: dict[str, float] = {}

    def due(self, text: str) -> bool:
        if self._now() < self._next.get(text, float("-inf")):
            return False
        self._next[text] = self._now() + self._every_s
        return True
