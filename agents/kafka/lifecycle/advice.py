"""What to do about an error that stops a stream or a worker: one entry for each kind, each a section of
docs/operations.md.

`python -m agents.kafka.lifecycle.advice` prints the table of that page; tests/agents/test_advice.py compares it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from aiokafka.errors import KafkaError, ProducerFenced

from schemas.errors import (
    AccessError,
    BrokerError,
    BudgetError,
    ConfigError,
    DescriptorsError,
    EncodedSizeError,
    EngineInputError,
    FingerprintError,
    ForkError,
    GapError,
    HangingTransactionError,
    LostTopicError,
    PrivstreamError,
    RecordSizeError,
    RefusalError,
    ReplacedError,
    SourceError,
    StepError,
    StoreError,
    TopicError,
    UnforeseenAnswerError,
    WireError,
    WitnessAwayError,
    WitnessError,
)

PAGE = "docs/operations.md"
WHAT_TO_DO = "What to do:"


@dataclass(frozen=True, slots=True)
class Advice:
    """What an operator does about some kinds of errors.

    Attributes:
        section: heading in docs/operations.md.
        do: in a sentence or two, as it stands in the log.
    """

    section: str
    kinds: tuple[type[BaseException], ...]
    do: str


ADVICE = (
    Advice(
        "Two answers",
        (ForkError,),
        "keep all topics as they are, stop every worker, and compare the release log with the public ledger",
    ),
    Advice(
        "A lost topic",
        (LostTopicError,),
        "put the topic back as it was and restart the workers, or start the stream anew under another name",
    ),
    Advice(
        "Missing records",
        (GapError,),
        "find out who deleted records or reset offsets, restore them and restart the workers, or start the stream anew "
        "under another name",
    ),
    Advice(
        "The witness",
        (WitnessError, WitnessAwayError),
        "do what the message says. A witness that cannot be reached is waited for: bring it back",
    ),
    Advice(
        "A source has changed",
        (SourceError,),
        "where partitions were added, stop all workers and run privstream topics CONFIG --add-partitions; else start a "
        "new stream under another name: what is left of the old one stays as it is, and its budget spent",
    ),
    Advice(
        "Changed configuration",
        (FingerprintError,),
        "do what the message says for each field",
    ),
    Advice(
        "A foreign record",
        (WireError,),
        "check who may write to the topic, and which version wrote last",
    ),
    Advice(
        "A step that cannot be computed",
        (StepError, EngineInputError, BudgetError),
        "report it with the line of the log; keep the topics: a version that is corrected goes on behind the last step",
    ),
    Advice(
        "A state that is too large",
        (EncodedSizeError,),
        'start the stream anew under another name, with less that stays alive (ttl), or with time.records = "released"',
    ),
    Advice(
        "The configuration is refused",
        (ConfigError,),
        "correct the keys that the message names, and try privstream validate CONFIG",
    ),
    Advice(
        "The state folder",
        (StoreError,),
        "give the disk room, or job.data_dir to the user of the worker, then start it again",
    ),
    Advice(
        "Too few file descriptors",
        (DescriptorsError,),
        "raise the limit of open files (ulimit -n, LimitNOFILE= of systemd), at best to 65536, and start the worker "
        "again",
    ),
    Advice(
        "A record that is too large",
        (RecordSizeError,),
        "raise max.message.bytes of the topic by the command of privstream topics CONFIG --check, and restart the "
        "workers",
    ),
    Advice(
        "A topic that is not as needed",
        (TopicError,),
        "do what the message says for each topic; privstream topics CONFIG --check shows the same",
    ),
    Advice(
        "Refused by the cluster",
        (AccessError,),
        "correct [kafka] and its secret files, or grant what privstream topics CONFIG --acls prints",
    ),
    Advice(
        "Another process in its place",
        (ReplacedError,),
        "where that is a copy of this machine, give it a host name or a data_dir of its own; else it is this worker's "
        "successor, and there is nothing to do",
    ),
    Advice(
        "A transaction that hangs",
        (HangingTransactionError,),
        "wait for its producer to end it, at most its transaction.timeout.ms; one that stays is ended by hand: "
        "kafka-transactions.sh find-hanging, then abort",
    ),
    Advice(
        "An answer that nobody foresaw",
        (UnforeseenAnswerError,),
        "look the error up by its name and at the logs of the brokers; if nothing there explains it, report it",
    ),
    Advice(
        "The cluster refuses a request for now",
        (RefusalError,),
        "look at the brokers for what the error names: partitions without a leader or with too few replicas "
        "(kafka-topics.sh --describe --unavailable-partitions), a coordinator that does not load",
    ),
    Advice(
        "The cluster does not answer",
        (BrokerError, KafkaError, ProducerFenced),
        "look at the brokers, and at what privstream doctor CONFIG says",
    ),
    Advice(
        "An error of the program",
        (BaseException,),
        "start the worker again: it goes on behind the last commit. If it comes again, report it with the log",
    ),
)


def advice(error: BaseException) -> Advice:
    """Return what to do about an error."""
    return next(each for each in ADVICE if isinstance(error, each.kinds))


def what_happened(error: BaseException) -> str:
    """Return what an error says: our own hold no private value; of others, type and place alone are told."""
    what = str(error).rstrip(".") if isinstance(error, PrivstreamError) else type(error).__name__ + place_of(error)
    return "; ".join([what, *getattr(error, "__notes__", ())])


def place_of(error: BaseException) -> str:
    """Return where it was raised, as a part of a sentence; empty where it never was."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" in {trace.tb_frame.f_globals.get('__name__', '?')}, line {trace.tb_lineno}"


def what_to_do(error: BaseException) -> str:
    found = advice(error)
    return f'{found.do} ({PAGE}, "{found.section}")'


def explain(error: BaseException) -> str:
    """Return what happened and what to do, for a log line. A message that says what to do is not advised again."""
    happened = what_happened(error)
    if WHAT_TO_DO in happened:
        return f'{happened} ({PAGE}, "{advice(error).section}")'
    return f"{happened}. {WHAT_TO_DO} {what_to_do(error)}"


def table() -> str:
    """Return the table of docs/operations.md."""
    lines = ["| section | the log says `What to do:` |", "|---|---|"]
    lines += [f"| [{each.section}](#{anchor(each.section)}) | {each.do} |" for each in ADVICE]
    return "\n".join(lines)


def anchor(section: str) -> str:
    return section.lower().replace(" ", "-")


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
