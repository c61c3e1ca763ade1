"""What `privstream query` does: measurements read from the public topics, one answer for each run of steps."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.readers.consume.ledger import Ledger, instant_of
from agents.readers.consume.parts import measurements_of
from agents.readers.consume.reader import ReadingProgress, read_ledger, read_steps
from agents.readers.query.conditions import condition
from engines.core.answers.contract import Answerer, CountAnswer, CountQuestion, Measured, QueryError
from engines.core.registry import part
from schemas.config import ENGINES
from schemas.ledger import LedgerEntry
from schemas.releases import PublicRecord

if TYPE_CHECKING:
    from schemas.config import Config, Stream


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked for, as it was given.

    Attributes:
        where, region, series: see `engines.core.answers.contract.CountQuestion`.
        steps: `FIRST..LAST`, each a step or a time, either may be left out; None: all.
        every: an answer for each so many steps; None: one for all.
    """

    where: str | None = None
    region: bytes | None = None
    series: str | None = None
    steps: str | None = None
    every: int | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer for steps `first` to `last`, which is the time from `start` to `end`."""

    first: int
    last: int
    start: str
    end: str
    answer: CountAnswer


@dataclass(frozen=True, slots=True)
class Queried:
    """Attributes:

    settled: the last step up to which everything is measured.
    verified, compacted: steps whose digests were checked, and that could not be. counted_share: what of all events the
    bounds on users let in, as a 90 % interval, where the stream publishes it.
    """

    stream: str
    answers: tuple[Answered, ...]
    settled: int
    verified: int
    compacted: int
    counted_share: tuple[float, float] | None


async def query(
    config: Config, stream: Stream, ask: Ask, *, verify: bool = True, progress: ReadingProgress | None = None
) -> Queried:
    """Raises: PrivstreamError; QueryError where the engine cannot answer."""
    check_answers(stream)
    ledger = await read_ledger(config.kafka, stream.name)
    latest = ledger.at(None)
    measured: list[tuple[int, Mapping[str, Any]]] = []

    def keep(of: LedgerEntry, records: list[PublicRecord]) -> None:
        measured.extend((of.step, told) for told in measurements_of(records))

    folded = await read_steps(config.kafka, ledger, until=latest.step, verify=verify, measured=keep, progress=progress)
    answerer = answerer_of(stream, measured, latest.step)
    share = latest.notes.get("counted_share_90")
    return Queried(
        stream=stream.name,
        answers=tuple(answers_of(ledger, answerer, ask)),
        settled=answerer.settled,
        verified=folded.verified,
        compacted=len(folded.compacted),
        counted_share=None if share is None else (float(share[0]), float(share[1])),
    )


def check_answers(stream: Stream) -> None:
    """Raises: QueryError where the engine offers no answers."""
    if "answers" not in ENGINES[stream.engine].references:
        raise QueryError(
            f"engine {stream.engine} does not answer questions from its measurements: they are steps on the way to its "
            "synthetic records, and no count of events by place or attribute. Fix: count the synthetic records "
            "(privstream "
            "export), whose error privstream simulate tells for your settings."
        )


def answerer_of(stream: Stream, measured: Measured, latest: int) -> Answerer:
    """Raises: QueryError where the engine, or its mode, answers nothing."""
    check_answers(stream)
    made: Answerer = part(stream.engine, "answers")(stream, measured, latest)
    return made


def answers_of(ledger: Ledger, answerer: Answerer, ask: Ask) -> Iterator[Answered]:
    """Pure. Raises: QueryError, PublicRecordsError."""
    if ask.series is not None and ask.series not in answerer.series:
        known = f"one of {', '.join(answerer.series)}" if answerer.series else "leave --series out: there is one count"
        raise QueryError(f"there is no series {ask.series!r}. Fix: {known}.")
    if ask.region is not None and not answerer.regions:
        names = ", ".join(answerer.fields)
        raise QueryError(
            "this stream has no coordinates to compare a region with. Fix: "
            + (f"a condition on {names}, as in SQL." if names else "leave the region out.")
        )
    where = None if ask.where is None else condition(ask.where, answerer.fields)
    first, last = steps_of(ask.steps, ledger)
    every = ask.every or last - first + 1
    for begin in range(first, last + 1, every):
        end = min(begin + every - 1, last)
        answer = answerer.answer(CountQuestion(begin, end, where, ask.region, ask.series))
        start, until = ledger.entries[begin].begins, ledger.entries[end].ends
        yield Answered(begin, end, start.isoformat(), until.isoformat(), answer)


def steps_of(text: str | None, ledger: Ledger) -> tuple[int, int]:
    """The first and the last step of a range. Raises: QueryError, PublicRecordsError."""
    newest = ledger.at(None).step
    if text is None:
        return 0, newest
    parts = _split(text)
    if len(parts) == 1:
        step = ledger.at(parts[0]).step
        return step, step
    begin, end = parts
    first = 0 if not begin else ledger.at(begin).step if begin.isdigit() else _from(begin, ledger)
    last = newest if not end else ledger.at(end).step
    if first > last:
        raise QueryError(f"--steps {text} names no step. Fix: --steps FIRST..LAST, the earlier one first.")
    return first, last


def _split(text: str) -> list[str]:
    parts = text.split("..")
    if len(parts) > 2:
        raise QueryError(f"--steps {text} is no range. Fix: --steps FIRST..LAST, each a step or a time.")
    return [part.strip() for part in parts]


def _from(text: str, ledger: Ledger) -> int:
    """The first step that begins at or after a time."""
    when: datetime.datetime = instant_of(text, ledger.entries[0].begins)
    for entry in ledger.entries:
        if entry.begins >= when:
            return entry.step
    raise QueryError(
        f"no step begins at or after {text}. Fix: an earlier time, or a step up to {ledger.at(None).step}."
    )
