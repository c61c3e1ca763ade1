"""The tree of exceptions. `stops` says what an error stops, so that no caller matches on the text of a message.

An error stops what its class says at its head, or what the class above it does; at the root that is the job.
No message holds a private value: only positions, names and sizes.
"""

from __future__ import annotations

import contextlib
import re
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
def without_context() -> Iterator[None]:
    """Remove `__cause__` and `__context__` from errors of privstream that leave the block.

    Messages of libraries may repeat a private value. `from None` does not remove them: it hides them from a traceback,
    but `__context__` keeps them, and error collectors read it.
    """
    try:
        yield
    except PrivstreamError as error:
        error.__cause__ = error.__context__ = None
        raise


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One refusal: the refused key, the reason, the fix, and the line of the file if it is known."""

    key: str
    reason: str
    fix: str
    line: int | None = None

    @property
    def where(self) -> str:
        """The key, with the line of the file if it is known."""
        return self.key if self.line is None else f"{self.key} (line {self.line})"

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}\n    fix: {self.fix}"


class ConfigError(PrivstreamError):
    """The configuration is refused; `problems` lists everything that is wrong with it, not only the first problem."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(cls, key: str, reason: str, fix: str) -> ConfigError:
        """Return the error of one problem."""
        return cls([ConfigProblem(key, reason, fix)])


def problems_of(error: Exception) -> tuple[ConfigProblem, ...]:
    """Return an error as key, reason and fix; our messages put the fix behind "Fix:", or as in a log "What to do:".

    >>> [(each.reason, each.fix) for each in problems_of(BrokerError("nobody listens. What to do: start it"))]
    [('nobody listens.', 'start it')]
    """
    if isinstance(error, ConfigError):
        return error.problems
    reason, _, fix = re.sub(r"\bWhat to do: ", "Fix: ", str(error), count=1).partition("Fix: ")
    return (ConfigProblem("", reason.strip(), fix.strip()),)


class RecordError(PrivstreamError, stops="record"):
    """One input record cannot be used: it is counted and dead-lettered. `reason` is a `schemas.events.Reason`."""

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
    """A state machine of one stream failed with an unexpected error: a bug of this program, or of a library."""


class EncodedSizeError(PrivstreamError, stops="stream"):
    """A private record would be larger than any that is read back; it was not written."""


class PromiseError(PrivstreamError, stops="stream"):
    """The stored history contradicts itself. The stream stops, because going on could answer a step a second time."""


class GapError(PromiseError):
    """A range of source offsets is missing, overlaps, or is out of order."""


class ForkError(PromiseError):
    """A step has two different seeds, candidates or publications, or the digest chain is broken."""


class LostTopicError(PromiseError):
    """A topic that holds a stream's history is gone, or another topic has its name."""


class WitnessError(PromiseError):
    """The witness has seen answers that the cluster does not have, or cannot vouch for those that it has."""


class FingerprintError(PromiseError):
    """The source, key or guarantee differs from the one with which the stream was started."""


class SourceError(FingerprintError):
    """A source topic is gone, was created anew, or has more or fewer partitions than when the stream was started."""


class BatchError(PrivstreamError, stops="record"):
    """The library refuses a batch as a whole. None of its rows was added."""


class StepOrderError(PrivstreamError, stops="stream"):
    """The requested step is already released, or is not the next one."""


class StateFileError(PrivstreamError, stops="stream"):
    """A state file of the library is in use, damaged, or an older copy: a step could get a second answer."""


class WitnessAwayError(PrivstreamError, stops="stream"):
    """The witness cannot be read or written now: its folder is gone, or its server fails or does not answer in time."""


class StoreError(PrivstreamError):
    """The folder of the state tables, a cache, cannot be written or read: a full disk, or missing permissions."""


class DescriptorsError(PrivstreamError):
    """This process or its machine has no file descriptor left, so that no file or connection can be opened."""


class BrokerError(PrivstreamError):
    """The cluster cannot be reached, or its topics are not what the job needs."""


class TopicError(BrokerError):
    """A topic is missing or has other settings than the job needs: waiting does not help."""


class RecordSizeError(TopicError):
    """A topic accepts no record of the size that the job must write there."""


class AccessError(BrokerError):
    """The cluster refuses this worker: its password, certificate or permissions are wrong. Waiting does not help."""


class OutcomeUnknownError(BrokerError):
    """A transactional request was not answered. Nothing more is sent in its epoch; a new producer reads the outcome."""


class ForgottenIdError(OutcomeUnknownError):
    """The cluster has forgotten a transactional id. The topics show whether its last transaction was committed."""


class HangingTransactionError(BrokerError):
    """A transaction stays open, and records committed behind it cannot be read until it ends."""


class RefusalError(BrokerError):
    """The cluster keeps answering a request with an error that usually passes."""


class UnforeseenAnswerError(RefusalError):
    """The cluster answers a request with an error that no rule of this job knows."""


class StrayCancellationError(BrokerError):
    """A library cancelled what a part of the worker waited for. That part starts again, as after a crash."""


class ReplacedError(BrokerError):
    """Another process took the place of this worker in its consumer groups; the newer process stays."""
