"""Keys of engine `markov`: `kind = "states"`, its options, and a public transition matrix from a CSV file.

A matrix is written as all of it in rows, or as `from,to,probability` for the moves that happen.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from schemas.arrays import FloatArray, IntArray
from schemas.config.domain import TEXTS, DomainSection, Each, Question
from schemas.config.options import OptionsSection
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import FieldName, PublicFileAt, Whole, must
from schemas.errors import ConfigProblem
from schemas.steps import steps_in

UNSEEN = "(unseen)"
"""What users in no state are called in a file of moves."""
HEADER = ["from", "to", "probability"]
TOLERANCE = 1e-6
_MEND = "write a row of probabilities for each state, in the order of values, without a header; or from,to,probability"


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The entries that are not zero, `(entries,)` each; states are numbered in the order of `values`."""

    states: int
    rows: IntArray
    columns: IntArray
    probabilities: FloatArray


class NoMatrixError(ValueError):
    """A file is no transition matrix; the text says why."""


def entries(content: bytes, values: Sequence[str], *, unseen: bool) -> Entries:
    """Read a file. Rows must sum to 1 within a millionth; a move that comes twice in a file of moves is refused.

    >>> entries(b"0.5,0.5\\n0,1\\n", ("a", "b"), unseen=False).probabilities.tolist()
    [0.5, 0.5, 1.0]
    >>> entries(b"0.5,0.4\\n0,1\\n", ("a", "b"), unseen=False)
    Traceback (most recent call last):
    schemas.config.markov.NoMatrixError: line 1 sums to 0.9, and a row of probabilities sums to 1

    Raises: NoMatrixError.
    """
    states = len(values) + unseen
    try:
        lines = [line for line in csv.reader(io.StringIO(content.decode("utf-8-sig"))) if line]
        moves = bool(lines) and [cell.strip() for cell in lines[0]] == HEADER
        found = list(_moves(lines[1:], values, unseen=unseen) if moves else _rows(lines, states))
        table = np.array(found, np.float64).reshape(-1, 3)
        made = Entries(states, table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2])
        sums = np.bincount(made.rows, made.probabilities, minlength=states)
        if (off := np.flatnonzero(np.abs(sums - 1) > TOLERANCE)).size:
            row = int(off[0])
            name = f'state "{[*values, UNSEEN][row]}"' if moves else f"line {row + 1}"
            raise NoMatrixError(f"{name} sums to {sums[row]:.6g}, and a row of probabilities sums to 1")
    except (UnicodeDecodeError, csv.Error):
        raise NoMatrixError("is no CSV file in UTF-8") from None
    return made


def _probability(text: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0 + TOLERANCE:
        raise NoMatrixError(f"line {line} holds something that is no probability")
    return value


def _rows(lines: Sequence[Sequence[str]], states: int) -> Iterator[tuple[int, int, float]]:
    if len(lines) != states:
        raise NoMatrixError(f"has {len(lines)} rows, and there are {states} states")
    for row, line in enumerate(lines):
        if len(line) != states:
            raise NoMatrixError(f"line {row + 1} has {len(line)} entries, and there are {states} states")
        for column, text in enumerate(line):
            if (probability := _probability(text, row + 1)) > 0:
                yield row, column, probability


def _moves(lines: Sequence[Sequence[str]], values: Sequence[str], *, unseen: bool) -> Iterator[tuple[int, int, float]]:
    numbers = {value: number for number, value in enumerate([*values, UNSEEN] if unseen else values)}
    seen = set()
    for number, line in enumerate(lines, start=2):
        if len(line) != len(HEADER) or line[0] not in numbers or line[1] not in numbers:
            raise NoMatrixError(f"line {number} does not name two states and a probability")
        move = numbers[line[0]], numbers[line[1]]
        if move in seen:
            raise NoMatrixError(f"line {number} gives a move for the second time")
        seen.add(move)
        if (probability := _probability(line[2], number)) > 0:
            yield *move, probability


class StatesDomainSection(DomainSection):
    """`kind = "states"`. A record says that its user is in a state in the step of its time."""

    kind: Literal["states"] = "states"
    field: FieldName = Field(examples=["zone"])
    """Field of the raw event that holds the state, a text."""
    values: Annotated[
        tuple[Annotated[str, Field(strict=True)], ...],
        Field(min_length=1, max_length=100_000),
        must(lambda values: len(set(values)) == len(values), "name one state twice", "write every state once"),
        must(all, "hold an empty text", "name every state; leave out events without one"),
    ] = Field(examples=[["north", "south"]])
    """All states, in order."""
    population: Whole = Field(ge=1, le=2**40, examples=[5000])
    """Users in all; declared, never counted. Privacy does not rest on its being true, the estimates do."""
    transition: PublicFileAt | None = Field(None, examples=["matrix.csv"])
    """CSV file with the probabilities of moving from one state to another; absent: learnt from released counts."""
    unseen: Annotated[bool, Field(strict=True)] = Field(False, examples=[False])
    """True where users may be in no state in a step; the matrix then has a last row and column for them."""

    @classmethod
    def questions(cls) -> tuple[Question | Each, ...]:
        return (
            Question(
                key="field",
                kind="field",
                text="Which field holds the state that a user is in?",
                of=TEXTS,
                hints=("state", "zone", "status", "place"),
            ),
            Question(
                key="values",
                kind="texts",
                text="Which states are there? All of them",
                public="values",
                about=("field",),
            ),
            Question(key="population", kind="whole", text="How many users are there in all? Declared, never counted"),
        )

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)

    @cached_property
    def matrix(self) -> Entries | None:
        """The transition matrix, checked by `problems`; None where it is to be learnt."""
        return None if self.transition is None else entries(self.transition.content, self.values, unseen=self.unseen)

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse a file that is no transition matrix of these states."""
        try:
            _ = self.matrix
        except NoMatrixError as error:
            yield ConfigProblem("transition", str(error), _MEND)


class MarkovOptions(OptionsSection):
    """`[streams.options]` of engine `markov`."""

    horizon: Whole | None = Field(None, ge=1, le=1_000_000_000, examples=[1000])
    """Steps that are released; nothing is, after them. Needed unless `privacy.per` renews the bound."""
    lag: Whole = Field(5, ge=0, le=50, examples=[5])
    """Mode `default` with a declared chain: a step is revised once, when it is so many steps old."""
    prior: Literal["frequency", "uniform"] = Field("frequency", examples=["frequency"])
    """Mode `paper`: the first step's distribution, its released frequencies or an even one."""
    allocation: Literal["even", "leakage"] = Field("even", examples=["even"])
    """`leakage`: with `per` = one step, budgets that keep temporal privacy leakage at epsilon or below (alpha-DP_T)."""

    def in_stream(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """A chain that is missing, and occupancy that nothing bounds in time."""
        learnt = isinstance(domain, StatesDomainSection) and domain.transition is None
        if learnt and mode == "paper":
            yield ConfigProblem(
                "domain.transition",
                'missing: mode "paper" rests on a declared chain',
                'name a CSV file with the transition matrix, or set mode = "default", which learns one',
            )
        if privacy is None or time is None:
            return
        if self.horizon is None and privacy.per is None:
            yield ConfigProblem(
                "options.horizon",
                "missing: occupancy charges every user in every step, so something must end or renew the bound",
                'set horizon = 1000 (steps), or privacy.per = "1d" for a bound that renews',
            )
        elif privacy.max_contributions is not None:
            yield from self._steps(privacy, time, domain)
        if self.allocation == "leakage":
            if privacy.per is None or steps_in(privacy.per, time.step) != 1:
                yield ConfigProblem(
                    "options.allocation",
                    '"leakage" bounds what ONE step loses to somebody who knows the chain: epsilon must be of a step',
                    "set privacy.per to time.step and max_contributions = 1",
                )
            if learnt:
                yield ConfigProblem(
                    "domain.transition", 'missing: allocation = "leakage" needs the chain', "name a CSV file"
                )

    def _steps(self, privacy: Privacy, time: Timing, domain: DomainSection | None) -> Iterator[ConfigProblem]:
        """Refuse bounds by which a user may not speak in every step, or in more steps than there are."""
        assert privacy.max_contributions is not None
        steps = (steps_in(privacy.per, time.step) or 0) if privacy.per is not None else self.horizon or 1
        if self.horizon is not None:
            steps = min(steps, self.horizon)
        if steps < 1:
            return  # `per` is no multiple of the step, which is refused elsewhere
        if privacy.max_contributions > steps:
            yield ConfigProblem(
                "privacy.max_contributions",
                f"{privacy.max_contributions} is more than the {steps} steps there are, and each takes one",
                f"set max_contributions = {steps}: every record then gets a larger share of epsilon",
            )
        elif privacy.max_contributions < steps and not (isinstance(domain, StatesDomainSection) and domain.unseen):
            yield ConfigProblem(
                "privacy.max_contributions",
                f"users would no longer be counted after {privacy.max_contributions} of {steps} steps, and the "
                "declared population would be wrong",
                f"set max_contributions = {steps}, shorten the horizon, or set domain.unseen = true",
            )
