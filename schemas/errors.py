"""The error tree. `stops` says how far an error reaches, so that nobody has to match on text.

PrivstreamError                     stops
├── ConfigError                     job       the configuration is refused before anything starts
├── RecordError                     record    one input record is unusable: counted and dead-lettered
├── EngineInputError (ValueError)   stream    an engine was called with arguments that break its contract
├── BudgetError                     stream    a release would cost more than what is left
├── StepError                       stream    a state machine of one stream failed in a way that nobody foresaw
├── WireError                       stream    bytes of an unknown kind, version or checksum
├── PromiseError                    stream    history is not what it must be: at most one answer per step is at stake
│   ├── GapError                              a source offset range is missing or counted twice
│   ├── ForkError                             two different seeds, candidates or publications of one step
│   ├── LostTopicError                        a topic of the stream's history is gone, or was made again
│   ├── WitnessError                          the witness knows of answers that the cluster does not have, or of none
│   └── FingerprintError                      guarantee-relevant configuration or source changed under a running stream
│       └── SourceError                       the source is another topic than the one that the stream was started with
├── BatchError                      record    a batch of the library is not rows, or was taken in before: none of it is
├── StepOrderError                  stream    the library was asked for a step that is released, or not yet the next
├── StateFileError                  stream    a state file of the library is in use, damaged, or an older copy
├── WitnessAwayError                stream    the witness cannot be read or written now: its stream waits
├── StoreError                      job       the folder of the state tables cannot be used; a cache, never the truth
├── DescriptorsError                job       this process may open no further file or connection
└── BrokerError                     job       the Kafka cluster cannot be used as it is
    ├── TopicError                            a topic is not as the job needs it: waiting does not help
    │   └── RecordSizeError                   it takes no record of the size that the job must write
    ├── AccessError                           it refuses this worker: password, certificate or ACL
    ├── OutcomeUnknownError                   a transactional request was not answered: only a successor can tell
    │   └── ForgottenIdError                  the cluster has forgotten a transactional id that nobody used for long
    ├── HangingTransactionError               a transaction that nobody ends hides what stands behind it
    ├── RefusalError                          a request is answered with an error, for longer than may pass by itself
    │   └── UnforeseenAnswerError             with one that nobody foresaw
    └── ReplacedError                         another process works under this one's name

No message ever holds a private value: positions, names and sizes only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

Reach = Literal["record", "stream", "job"]


class PrivstreamError(Exception):
    """Root of every error that privstream raises on purpose."""

    stops: ClassVar[Reach] = "job"

    def __init_subclass__(cls, *, stops: Reach | None = None) -> None:
        super().__init_subclass__()
        if stops is not None:
            cls.stops = stops


@contextlib.contextmanager
def said_alone() -> Iterator[None]:
    """Let errors of privstream out without those of libraries behind them, whose messages may repeat a private value.

    `from None` hides these from a traceback alone: they stay in `__context__`, where what collects errors finds them.
    """
    try:
        yield
    except PrivstreamError as error:
        error.__cause__ = error.__context__ = None
        raise


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One refusal: the key it is about, why it is refused, what to write instead, and its line where it is known."""

    key: str
    reason: str
    fix: str
    line: int | None = None

    @property
    def where(self) -> str:
        """The key, and the line of the file."""
        return self.key if self.line is None else f"{self.key} (line {self.line})"

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}\n    fix: {self.fix}"


class ConfigError(PrivstreamError):
    """The configuration is refused; `problems` lists everything that is wrong with it, not only the first."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class RecordError(PrivstreamError, stops="record"):
    """One input record cannot be used. `reason` is a `schemas.events.Reason`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class EngineInputError(PrivstreamError, ValueError, stops="stream"):
    """An engine, counter or mechanism was called with arguments outside its contract."""


class BudgetError(PrivstreamError, stops="stream"):
    """A release would exceed the configured budget and was refused before noise was drawn."""


class WireError(PrivstreamError, stops="stream"):
    """Bytes that are not a record of the expected kind and a known version."""


class StepError(PrivstreamError, stops="stream"):
    """A state machine of one stream failed with an error that is not ours: a fault of the program, or of a library."""


class PromiseError(PrivstreamError, stops="stream"):
    """The stored history contradicts itself. The stream stops: going on could give a second answer for a step."""


class GapError(PromiseError):
    """A range of source offsets is missing, overlaps, or is out of order."""


class ForkError(PromiseError):
    """A step has two different seeds, candidates or publications, or the digest chain is broken."""


class LostTopicError(PromiseError):
    """A topic that a stream's history rests on is gone, or another topic has its name."""


class WitnessError(PromiseError):
    """The witness has seen answers that the cluster does not have, or cannot vouch for those that it has."""


class FingerprintError(PromiseError):
    """The stream was started with another source, key or guarantee than the one it is asked to go on with."""


class SourceError(FingerprintError):
    """A source topic is gone, was made again or has other partitions than when the stream was started."""


class BatchError(PrivstreamError, stops="record"):
    """A batch that the library refuses as a whole. Nothing of it was taken in."""


class StepOrderError(PrivstreamError, stops="stream"):
    """A step has one answer, and steps come in order: the one asked for is over, or is not the next."""


class StateFileError(PrivstreamError, stops="stream"):
    """A state file that must not be gone on with: a second answer for one of its steps could come of it."""


class WitnessAwayError(PrivstreamError, stops="stream"):
    """The witness cannot be read or written now: a folder that is gone, a server that fails, or no answer in time."""


class StoreError(PrivstreamError):
    """The folder of the state tables cannot be written or read: a full disk, or rights."""


class DescriptorsError(PrivstreamError):
    """This process, or its machine, has no file descriptor left: no file or connection can be opened."""


class BrokerError(PrivstreamError):
    """The cluster cannot be reached, or its topics are not what the job needs."""


class TopicError(BrokerError):
    """A topic is missing or has other settings than the job needs."""


class RecordSizeError(TopicError):
    """A topic takes no record of the size that the job must write there."""


class AccessError(BrokerError):
    """The cluster answers and refuses: wrong password, certificate or rights. Waiting does not help."""


class OutcomeUnknownError(BrokerError):
    """A transactional request was not answered: nothing more is sent with its epoch; a new producer reads on."""


class ForgottenIdError(OutcomeUnknownError):
    """The cluster no longer knows a transactional id: what was under way is judged by what is on the topics."""


class HangingTransactionError(BrokerError):
    """A transaction stays open: what was committed behind it cannot be read until somebody ends it."""


class RefusalError(BrokerError):
    """The cluster keeps answering a request with an error that mostly passes."""


class UnforeseenAnswerError(RefusalError):
    """The cluster answers a request with an error that no rule of this job knows."""


class StrayCancellationError(BrokerError):
    """A part of the worker ended because a library cancelled what it waited for: it begins anew, as after a crash."""


class ReplacedError(BrokerError):
    """Another process took this worker's place in its consumer groups; the newer one stays."""
