"""One stream that must stop stops alone.

What may stop alone, and why the others may go on: docs/notes/0019-a-stream-stops-alone.md. In short: state machines and
decoders of one stream send nothing, so whatever fails inside of them has no effect that somebody would have to know.
`alone` marks these places. An error anywhere else may be one of unknown effect and ends the worker, as before.

A stream that has stopped stays so in this process, through every rebalance. After a restart it is checked again from
committed records, which nobody trims meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import Gauge

from agents.kafka.lifecycle.advice import place_of, what_happened, what_to_do
from agents.kafka.lifecycle.logs import Subject, about
from schemas.errors import ForkError, PrivstreamError, ReplacedError, StepError

log = logging.getLogger(__name__)

Part = Literal["start", "topics", "ingest", "engine", "publish", "audit", "worker"]
ANSWERS: frozenset[Part] = frozenset({"start", "topics", "engine", "publish"})
"""Where one of these has stopped, nothing more of the stream is answered. Its ingest may go on: what it
takes in is counted once, and is there when the stream goes on."""
NEEDED: frozenset[Part] = ANSWERS | {"ingest"}
SILENT: frozenset[Part] = ANSWERS - {"engine"}
"""Where one of these has stopped, nothing more of the stream is published. Where only its engine has, what was answered
before is, when it is due."""

STOPPED = Gauge("privstream_stopped", "Public. Streams that have stopped and wait for a person", ["stream", "part"])


class StreamStoppedError(Exception):
    """Raised from inside of one stream's own work; whoever serves several streams catches it."""

    def __init__(self, stream: str, cause: PrivstreamError) -> None:
        super().__init__(stream)
        self.stream = stream
        self.cause = cause


@contextlib.contextmanager
def alone(stream: str) -> Iterator[None]:
    """Do work of one stream from which nothing is sent: a fault in it stops that stream and nothing else.

    Raises: StreamStoppedError. Errors that reach further (`stops = "job"`), and those of the machine, as they are.
    """
    try:
        with about(stream=stream):
            yield
    except PrivstreamError as error:
        if error.stops != "stream":
            raise
        raise StreamStoppedError(stream, error) from error
    except (MemoryError, OSError, StreamStoppedError):
        raise
    except Exception as error:
        raise StreamStoppedError(stream, unforeseen(stream, error)) from error


def unforeseen(stream: str, error: Exception) -> StepError:
    """Return an error of the program as its type and place alone: its text may hold values."""
    return StepError(f"stream {stream}: {type(error).__name__}{place_of(error)}")


@dataclass(frozen=True, slots=True)
class Stop:
    """A part of a stream that has stopped in this process.

    Attributes:
        stream: "" where part is "worker": what ends a worker reaches all that it serves.
        partition: of the private topics, or for the ingest of the source; None: the stream as a whole.
        step: that would have come next, None where that is not known.
    """

    stream: str
    part: Part
    partition: int | None
    reason: str
    what_to_do: str
    at_ms: int
    step: int | None = None

    @property
    def where(self) -> str:
        return self.part if self.partition is None else f"{self.part} of partition {self.partition}"

    def about(self) -> contextlib.AbstractContextManager[None]:
        """Mark lines of the log that say it."""
        subject: Subject = {"stream": self.stream, "role": self.part}
        if self.partition is not None:
            subject["partition"] = self.partition
        if self.step is not None:
            subject["step"] = self.step
        return about(**subject)

    def __str__(self) -> str:
        if self.part == "worker":
            return f"a worker: {self.reason}. What to do: {self.what_to_do}"
        reason = self.reason.removeprefix(f"stream {self.stream}: ")
        return f"stream {self.stream} ({self.where}): {reason}. What to do: {self.what_to_do}"


@dataclass(eq=False)
class Stops:
    """What has stopped in this process: nothing stops a stream, or the worker, but by `add` or `end`.

    Args: streams: all that this job is to serve.
    Attributes:
        watched: whether somebody ends the worker when nothing is left to publish (`agents.worker.topic_watch`). If not,
            it ends when every stream has stopped.
        error: of what stopped last.
        news: set by each stop, for whoever writes it down (`agents.kafka.stop_log`).
    """

    streams: frozenset[str]
    watched: bool = False
    error: PrivstreamError | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    _stops: dict[tuple[str, Part, int | None], Stop] = field(default_factory=dict)
    _kept: set[Stop] = field(default_factory=set)
    _doubtful: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, streams: Iterable[str]) -> Stops:
        return cls(frozenset(streams))

    def __iter__(self) -> Iterator[Stop]:
        return iter(list(self._stops.values()))

    def add(
        self, stream: str, part: Part, partition: int | None, error: PrivstreamError, *, step: int | None = None
    ) -> None:
        """Note and say that a part of a stream stops. Raises: `error`, if nothing is left to do in this job."""
        stop = self._note(stream, part, partition, error, step)
        self.error = error
        if isinstance(error, ForkError):
            self._doubtful.add(stream)
        left = len(self.streams) - len({each.stream for each in self if each.part in NEEDED})
        with stop.about():
            log.critical("STOPPED: %s. %s", stop, f"The other streams go on ({left})" if left else "No stream is left")
        if self.nothing_left and not (self.watched and not all(map(self.silent, self.streams))):
            raise error

    def end(self, error: BaseException) -> None:
        """Note what ends the worker; not a second time where a stop of a stream does, and not of one whose place
        another process has: that one says how it is.
        """
        if error is not self.error and not isinstance(error, ReplacedError):
            self._note("", "worker", None, error, None)

    def _note(self, stream: str, part: Part, partition: int | None, error: BaseException, step: int | None) -> Stop:
        stop = Stop(stream, part, partition, what_happened(error), what_to_do(error), int(time.time() * 1000), step)
        stop = self._stops.setdefault((stream, part, partition), stop)
        STOPPED.labels(stream, part).set(1)
        self.news.set()
        return stop

    @property
    def unkept(self) -> list[Stop]:
        """Stops that are not written down yet."""
        return [stop for stop in self if stop not in self._kept]

    def kept(self, stops: Iterable[Stop]) -> None:
        """Note that these are written down."""
        self._kept.update(stops)

    def stopped(self, stream: str) -> bool:
        """Return whether nothing more of the stream may be answered."""
        return any(stop.stream == stream and stop.part in ANSWERS for stop in self)

    def silent(self, stream: str) -> bool:
        """Return whether nothing more of the stream may be published: also where two answers were found."""
        return stream in self._doubtful or any(stop.stream == stream and stop.part in SILENT for stop in self)

    def waits(self, stream: str, *, published: int, closed: int) -> bool:
        """Return whether something is left to publish of a stream that has stopped.

        Args:
            published: its last public step.
            closed: the last step that every source partition has closed.
        """
        if self.silent(stream):
            return False
        engine = [stop for stop in self if stop.stream == stream and stop.part == "engine"]
        last = min((-1 if stop.step is None else stop.step - 1 for stop in engine), default=closed)
        return published < last

    def among(self, streams: Iterable[str]) -> list[str]:
        """Return the streams that have stopped."""
        return [stream for stream in streams if self.stopped(stream)]

    def has(self, stream: str, part: Part, partition: int | None) -> bool:
        return (stream, part, partition) in self._stops

    def remind(self, stream: str) -> None:
        """Say again why a stream is not served, when its partition comes back."""
        for stop in self:
            if stop.stream == stream:
                with stop.about():
                    log.critical("STOPPED before, and still: %s", stop)

    @property
    def nothing_left(self) -> bool:
        """Whether every stream has stopped in a part that it cannot do without. What was taken in before may still be
        answered, and what was answered published.
        """
        return self.streams <= {stop.stream for stop in self if stop.part in NEEDED}
