"""What `privstream query` does: measurements read from the public topics, one answer for each run of steps.

Conditions are written in the words of SQL. `sqlglot` reads them; of what it reads, comparisons of one field with
written values, and `and`, `or`, `not` are taken, as the tree that engines answer. Everything else is refused by name:
nothing here computes, calls or looks up. Regions are a box, or a file or text of GeoJSON or WKT, as WKB for the engine.
"""

from __future__ import annotations

import datetime
import difflib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import shapely
from shapely.errors import GEOSException

from agents.protocol.release.record_formats import record_format
from agents.readers.consume.ledger import FoldedTable, Ledger, instant_of
from agents.readers.consume.reader import ReadingProgress, read_ledger, read_steps
from engines.core.answers.contract import (
    RECORDS,
    Answerer,
    Asked,
    CountAnswer,
    CountQuestion,
    KeysAnswerer,
    LargestKey,
    Measured,
    QueryError,
)
from engines.core.answers.where import Atom, Both, Either, Not, Where, kind, same
from engines.core.registry import part
from schemas.config import ENGINES, Config, Stream
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from sqlglot import exp


FIX = (
    'Fix: name a file of GeoJSON or WKT with polygons, or write WKT such as "POLYGON((13.3 52.4, 13.5 52.4, 13.5 52.6, '
    '13.3 52.4))".'
)


def region_of_box(text: str) -> bytes:
    """Return the region of `xmin,ymin,xmax,ymax`, as WKB. Raises: QueryError."""
    try:
        xmin, ymin, xmax, ymax = (float(part) for part in text.split(","))
    except ValueError:
        raise QueryError(f"--box {text!r} is no box. Fix: four numbers, --box xmin,ymin,xmax,ymax.") from None
    if not (xmin < xmax and ymin < ymax):
        raise QueryError(f"--box {text!r} is empty. Fix: --box xmin,ymin,xmax,ymax with xmin < xmax and ymin < ymax.")
    found: bytes = shapely.box(xmin, ymin, xmax, ymax).wkb
    return found


def region_of_text(given: str) -> bytes:
    """Return the region of a file's name, or of the text itself. Raises: QueryError where it is no area."""
    try:
        path = Path(given)
        text = path.read_text(encoding="utf-8") if path.is_file() else given
    except (OSError, ValueError):
        text = given
    if text == given and not any(sign in given for sign in "({"):
        raise QueryError(f"there is no file {given}. {FIX}")
    try:
        read = shapely.from_geojson if text.lstrip().startswith("{") else shapely.from_wkt
        found = shapely.union_all(read(text))
    except (GEOSException, ValueError):
        raise QueryError(f"the region is neither GeoJSON nor WKT. {FIX}") from None
    if not found.is_valid:
        found = shapely.make_valid(found)
    if not found.area > 0:
        raise QueryError(f"the region has no area. {FIX}")
    wkb: bytes = found.wkb
    return wkb


SHOWN = "sex = 'f' and age between 30 and 49"
DEEPEST = 100
_Operator = Literal["=", "<", "<=", ">", ">="]
_OPERATORS: Mapping[str, _Operator] = {"eq": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_TURNED: Mapping[_Operator, _Operator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def condition(text: str, fields: Mapping[str, Asked]) -> Where:
    """Read a condition that is written in SQL.

    Args: fields: those that may be named.
    Raises: QueryError that says what is not understood, or which fields and values there are.
    """
    try:
        import sqlglot
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
    except ImportError:
        raise PrivstreamError(
            "conditions are read by the library sqlglot, which is not installed. Fix: pip install 'privstream[query]'."
        ) from None
    try:
        tree = sqlglot.parse_one(text, into=exp.Condition)
    except (SqlglotError, RecursionError):
        raise QueryError(
            f'the condition cannot be read. Fix: write one as in SQL, such as "{SHOWN}"; a field whose name is no word '
            "stands in double quotes."
        ) from None
    return _Reader(fields).where(tree, depth=0)


class _Reader:
    def __init__(self, fields: Mapping[str, Asked]) -> None:
        self._fields = fields

    def where(self, node: exp.Expr, *, depth: int) -> Where:
        from sqlglot import exp

        if depth > DEEPEST:
            raise QueryError(f"the condition has more than {DEEPEST} levels. Fix: write lists as field in (1, 2, 3).")
        if isinstance(node, exp.Paren):
            return self.where(node.this, depth=depth + 1)
        if isinstance(node, exp.Not):
            return Not(self.where(node.this, depth=depth + 1))
        if isinstance(node, exp.And | exp.Or):
            parts = tuple(self.where(part, depth=depth + 1) for part in node.flatten())
            return Both(parts) if isinstance(node, exp.And) else Either(parts)
        if isinstance(node, exp.NEQ):
            return Not(self._compared(node, "="))
        if isinstance(node, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
            return self._compared(node, _OPERATORS[node.key])
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            field = self._field(node.this)
            low, high = (self._value(node.args[end], field, ordered=True) for end in ("low", "high"))
            return Both((Atom(field, ">=", (low,)), Atom(field, "<=", (high,))))
        if isinstance(node, exp.In) and node.expressions:
            field = self._field(node.this)
            return Atom(field, "in", tuple(self._value(each, field) for each in node.expressions))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return Atom(self._field(node.this), "null")
        if _is_name(node):
            field = self._field(node)
            if "boolean" in self._fields[field].kinds:
                return Atom(field, "=", (True,))
        raise QueryError(
            f"{node.sql()!r} is no condition that can be answered. Fix: compare a field with a value (=, <>, <, <=, "
            ">, >=, "
            f'between, in, is null), and join such conditions by and, or, not, as in "{SHOWN}".'
        )

    def _compared(self, node: exp.Expr, op: _Operator) -> Where:
        left, right = node.this, node.expression
        if _is_name(right) and not _is_name(left):
            left, right, op = right, left, _TURNED[op]
        field = self._field(left)
        return Atom(field, op, (self._value(right, field, ordered=op != "="),))

    def _field(self, node: exp.Expr) -> str:
        from sqlglot import exp

        if not _is_name(node):
            raise QueryError(f"{node.sql()!r} is no field. Fix: {self._names()}.")
        assert isinstance(node, exp.Column | exp.Dot)
        # SQL takes a path such as position.lat for a column of a table.
        name = ".".join(str(part.name) for part in node.parts)
        if name not in self._fields:
            near = difflib.get_close_matches(name, self._fields, n=1)
            raise QueryError(
                f"there is no field {name!r} to ask for. Fix: {f'name {near[0]}' if near else self._names()}."
            )
        return name

    def _names(self) -> str:
        return (
            f"name one of {', '.join(self._fields)}" if self._fields else "leave the condition out: there is one number"
        )

    def _value(self, node: exp.Expr, field: str, *, ordered: bool = False) -> Any:
        value, asked = _literal(node), self._fields[field]
        if kind(value) not in asked.kinds and not (
            asked.listed is not None and any(same(value, v) for v in asked.listed)
        ):
            raise QueryError(
                f"{field} is compared with a {kind(value)}, and its values are {' or '.join(sorted(asked.kinds))}s. "
                f"Fix: write {'a number without quotes' if 'number' in asked.kinds else 'the value in single quotes'}."
            )
        if not ordered and asked.listed is not None and not any(same(value, each) for each in asked.listed):
            if asked.others is not None:
                raise QueryError(
                    f"{field} has no value {value!r} that was found: its rows, if there are any, are counted as "
                    f"{asked.others!r}. Fix: one of {', '.join(repr(each) for each in asked.listed)}."
                )
            near = difflib.get_close_matches(str(value), [str(each) for each in asked.listed], n=1)
            known = ", ".join(repr(each) for each in asked.listed[:8]) + (", ..." if len(asked.listed) > 8 else "")
            raise QueryError(
                f"{field} has no value {value!r}, so the count would always be 0. Fix: "
                f"write {f'{near[0]!r}' if near else f'one of {known}'}."
            )
        return value


def _is_name(node: exp.Expr) -> bool:
    """Return whether this is the name of a field, or a path to one."""
    from sqlglot import exp

    return isinstance(node, exp.Column | exp.Dot) and all(
        isinstance(part, exp.Identifier | exp.Literal) for part in node.parts
    )


def _literal(node: exp.Expr) -> Any:
    """Return a text, a number or a boolean. Raises: QueryError."""
    from sqlglot import exp

    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        value = _literal(node.this)
        if kind(value) == "number":
            return -value
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        try:
            value = int(node.this)
        except ValueError:
            value = float(node.this)
        if abs(value) <= sys.float_info.max:
            return value
        raise QueryError(
            "a number in the condition is too large to compare with. Fix: write one up "
            f"to {sys.float_info.max:.1e}, or leave the comparison out."
        )
    raise QueryError(f"{node.sql()!r} is no written value. Fix: a number, a text in single quotes, true or false.")


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked for, as it was given.

    Attributes:
        where, region, series: see `engines.core.answers.contract.CountQuestion`.
        steps: `FIRST..LAST`, each a step or a time, either may be left out; None: all.
        every: an answer for each so many steps; None: one for all.
        top: in place of counts so many of the keys with most people, after the last of the steps; None: counts.
    """

    where: str | None = None
    region: bytes | None = None
    series: str | None = None
    steps: str | None = None
    every: int | None = None
    top: int | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer for steps `first` to `last`, which is the time from `start` to `end`.

    Attributes: key: the fields of the key that it is of, and the step that listed it first, where keys are asked for.
    """

    first: int
    last: int
    start: str
    end: str
    answer: CountAnswer
    key: LargestKey | None = None


@dataclass(frozen=True, slots=True)
class Queried:
    """All answers to a question.

    Attributes:
        settled: the last step up to which everything is measured.
        verified, compacted: steps whose digests were checked, and that could not be.
        counted_share: what of all events the bounds on users let in, as a 90 % interval, where it is published.
        note: of an engine of keys, whom counts are of, and what a key needs to be listed.
    """

    stream: str
    answers: tuple[Answered, ...]
    settled: int
    verified: int
    compacted: int
    counted_share: tuple[float, float] | None
    note: str | None = None


async def query(
    config: Config,
    stream: Stream,
    ask: Ask,
    *,
    progress: ReadingProgress = lambda done, total: None,
) -> Queried:
    """Read the public topics and answer. Raises: PrivstreamError; QueryError where the engine cannot answer."""
    check_answers(stream)
    ledger = await read_ledger(config.kafka, stream.name)
    latest = ledger.at(None)
    folded = await read_steps(
        config.kafka,
        ledger,
        until=latest.step,
        read=record_format(stream).read,
        measured=True,
        progress=progress,
    )
    measured: Measured = folded.measured
    if stream.facts.records_are_counts:
        measured = [*measured, *counts_of(folded)]
    answerer: Answerer = part(stream.engine, "answers")(stream, measured, latest.step)
    share = latest.notes.get("counted_share_90")
    found = tuple(answers_of(ledger, answerer, ask))
    return Queried(
        stream=stream.name,
        answers=found,
        settled=answerer.settled,
        verified=folded.verified,
        compacted=len(folded.compacted),
        counted_share=None if share is None else (float(share[0]), float(share[1])),
        note=answerer.note(steps_of(ask.steps, ledger)[1]) if isinstance(answerer, KeysAnswerer) else None,
    )


def counts_of(folded: FoldedTable) -> Measured:
    """Return the records of each step that has some, as measurements."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for _, step, record in folded.records():
        found.setdefault(step, []).append(record)
    return [(step, {RECORDS: records}) for step, records in found.items()]


def check_answers(stream: Stream) -> None:
    """Raise QueryError where the engine offers no answers."""
    if "answers" not in ENGINES[stream.engine].references:
        raise QueryError(
            f"engine {stream.engine} does not answer questions from its measurements: they are steps on the way to its "
            "synthetic records, and no count of events by place or attribute. Fix: count the synthetic records "
            "(privstream export), whose error privstream simulate tells for your settings."
        )


def answers_of(ledger: Ledger, answerer: Answerer, ask: Ask) -> Iterator[Answered]:
    """Yield the answers to what is asked. Raises: QueryError, PublicRecordsError."""
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
    if ask.top is not None:
        if not isinstance(answerer, KeysAnswerer):
            raise QueryError("--top is for keys, and this stream counts none. Fix: leave it out.")
        if ask.every is not None:
            raise QueryError("--top is of one moment, and --every asks for several. Fix: leave one out.")
        for each in answerer.largest(last, ask.top, where, ask.series):
            yield _answered(ledger, first, last, each.answer, each)
        return
    every = ask.every or last - first + 1
    for begin in range(first, last + 1, every):
        end = min(begin + every - 1, last)
        yield _answered(ledger, begin, end, answerer.answer(CountQuestion(begin, end, where, ask.region, ask.series)))


def _answered(ledger: Ledger, first: int, last: int, answer: CountAnswer, key: LargestKey | None = None) -> Answered:
    first = first if answer.since is None else answer.since
    start, until = ledger.entries[first].begins, ledger.entries[last].ends
    return Answered(first, last, start.isoformat(), until.isoformat(), answer, key)


def steps_of(text: str | None, ledger: Ledger) -> tuple[int, int]:
    """Return the first and the last step of a range. Raises: QueryError, PublicRecordsError."""
    newest = ledger.at(None).step
    if text is None:
        return 0, newest
    parts = [each.strip() for each in text.split("..")]
    if len(parts) > 2:
        raise QueryError(f"--steps {text} is no range. Fix: --steps FIRST..LAST, each a step or a time.")
    if len(parts) == 1:
        step = ledger.at(parts[0]).step
        return step, step
    begin, end = parts
    first = 0 if not begin else ledger.at(begin).step if begin.isdigit() else _from(begin, ledger)
    last = newest if not end else ledger.at(end).step
    if first > last:
        raise QueryError(f"--steps {text} names no step. Fix: --steps FIRST..LAST, the earlier one first.")
    return first, last


def _from(text: str, ledger: Ledger) -> int:
    """Return the first step that begins at or after a time."""
    when: datetime.datetime = instant_of(text, ledger.entries[0].begins)
    for entry in ledger.entries:
        if entry.begins >= when:
            return entry.step
    raise QueryError(
        f"no step begins at or after {text}. Fix: an earlier time, or a step up to {ledger.at(None).step}."
    )
