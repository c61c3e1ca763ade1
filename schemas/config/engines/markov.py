"""Keys of engine `markov`: `kind = "states"`, its options, and a public transition matrix from a CSV file.

The file holds either the rows of the whole matrix, or `from,to,probability` for each possible transition.
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
from pydantic import Field, StrictBool, StrictInt

from schemas.arrays import FloatArray, IntArray
from schemas.config.domain import TEXTS, DomainSection, Question
from schemas.config.engines.options import OnlyIn, OptionsSection
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import FieldName, PublicFileAt, must
from schemas.errors import ConfigProblem
from schemas.steps import steps_in

UNSEEN = "(unseen)"
"""Name of the state of users in no state, in a file of transitions."""
HEADER = ["from", "to", "probability"]
TOLERANCE = 1e-6
_FIX = "write a row of probabilities for each state, in the order of values, without a header; or from,to,probability"


@dataclass(frozen=True, slots=True, eq=False)
class TransitionEntries:
    """The nonzero entries of a transition matrix, `(entries,)` each; states are numbered in the order of `values`."""

    states: int
    rows: IntArray
    columns: IntArray
    probabilities: FloatArray


class MatrixFileError(ValueError):
    """A file does not hold a transition matrix; the message is the reason of a `ConfigProblem`."""


def read_matrix(content: bytes, values: Sequence[str], *, unseen: bool) -> TransitionEntries:
    """Return the matrix in a file. Rows must sum to 1 within `TOLERANCE`, and no transition may be listed twice.

    >>> read_matrix(b"0.5,0.5\\n0,1\\n", ("a", "b"), unseen=False).probabilities.tolist()
    [0.5, 0.5, 1.0]
    >>> read_matrix(b"0.5,0.4\\n0,1\\n", ("a", "b"), unseen=False)
    Traceback (most recent call last):
    schemas.config.engines.markov.MatrixFileError: line 1 sums to 0.9, but a row of probabilities sums to 1

    Raises: MatrixFileError.
    """
    states = len(values) + unseen
    try:
        lines = [line for line in csv.reader(io.StringIO(content.decode("utf-8-sig"))) if line]
        transitions = bool(lines) and [cell.strip() for cell in lines[0]] == HEADER
        entries = list(_transitions(lines[1:], values, unseen=unseen) if transitions else _rows(lines, states))
        table = np.array(entries, np.float64).reshape(-1, 3)
        matrix = TransitionEntries(states, table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2])
        sums = np.bincount(matrix.rows, matrix.probabilities, minlength=states)
        if (wrong := np.flatnonzero(np.abs(sums - 1) > TOLERANCE)).size:
            row = int(wrong[0])
            name = f'state "{[*values, UNSEEN][row]}"' if transitions else f"line {row + 1}"
            raise MatrixFileError(f"{name} sums to {sums[row]:.6g}, but a row of probabilities sums to 1")
    except (UnicodeDecodeError, csv.Error):
        raise MatrixFileError("is not a CSV file in UTF-8") from None
    return matrix


def _probability(text: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0 + TOLERANCE:
        raise MatrixFileError(f"line {line} holds a value that is not a probability")
    return value


def _rows(lines: Sequence[Sequence[str]], states: int) -> Iterator[tuple[int, int, float]]:
    if len(lines) != states:
        raise MatrixFileError(f"has {len(lines)} rows, but there are {states} states")
    for row, line in enumerate(lines):
        if len(line) != states:
            raise MatrixFileError(f"line {row + 1} has {len(line)} entries, but there are {states} states")
        for column, text in enumerate(line):
            if (probability := _probability(text, row + 1)) > 0:
                yield row, column, probability


def _transitions(
    lines: Sequence[Sequence[str]], values: Sequence[str], *, unseen: bool
) -> Iterator[tuple[int, int, float]]:
    numbers = {value: number for number, value in enumerate([*values, UNSEEN] if unseen else values)}
    seen = set()
    for number, line in enumerate(lines, start=2):
        if len(line) != len(HEADER) or line[0] not in numbers or line[1] not in numbers:
            raise MatrixFileError(f"line {number} does not name two states and a probability")
        transition = numbers[line[0]], numbers[line[1]]
        if transition in seen:
            raise MatrixFileError(f"line {number} lists a transition for the second time")
        seen.add(transition)
        if (probability := _probability(line[2], number)) > 0:
            yield *transition, probability


class StatesDomainSection(DomainSection):
    """`kind = "states"`: a record says in which state its user is in the step of its time."""

    kind: Literal["states"] = "states"
    field: Annotated[FieldName, Question(field_kinds=TEXTS, hints=("state", "zone", "status", "place"))] = Field(
        examples=["zone"]
    )
    """Field of the raw event that holds the state of its user, a text."""
    values: Annotated[
        tuple[Annotated[str, Field(strict=True)], ...],
        Field(min_length=1, max_length=100_000),
        must(lambda values: len(set(values)) == len(values), "name one state twice", "write every state once"),
        must(all, "hold an empty text", "name every state; leave out events without one"),
        Question(public="values", field_keys=("field",)),
    ] = Field(examples=[["north", "south"]])
    """All states, in order."""
    population: StrictInt = Field(ge=1, le=2**40, examples=[5000])
    """Number of all users; declared, never counted. Estimates, but not privacy, depend on its being right."""
    transition: PublicFileAt | None = Field(None, examples=["matrix.csv"])
    """CSV file with the transition probabilities between states; absent: they are learnt from released counts."""
    unseen: StrictBool = Field(False, examples=[False])
    """Whether users may be in no state in a step; the matrix then has a last row and column for them."""

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)

    @cached_property
    def matrix(self) -> TransitionEntries | None:
        """The transition matrix, checked by `problems`; None if it is to be learnt."""
        return (
            None if self.transition is None else read_matrix(self.transition.content, self.values, unseen=self.unseen)
        )

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse a file that does not hold a transition matrix of these states."""
        try:
            _ = self.matrix
        except MatrixFileError as error:
            yield ConfigProblem("transition", str(error), _FIX)


class MarkovOptions(OptionsSection):
    """`[streams.options]` of engine `markov`."""

    horizon: StrictInt | None = Field(None, ge=1, le=1_000_000_000, examples=[1000])
    """Number of steps with a release; required unless `privacy.per` renews the bound."""
    lag: Annotated[StrictInt, OnlyIn("default")] = Field(5, ge=0, le=50, examples=[5])
    """Mode `default` with a declared chain: age in steps at which a step is revised, once."""
    prior: Annotated[Literal["frequency", "uniform"], OnlyIn("paper")] = Field("frequency", examples=["frequency"])
    """Mode `paper`: prior of the first step, its released frequencies or the uniform distribution."""
    allocation: Literal["even", "leakage"] = Field("even", examples=["even"])
    """`leakage`: with `per` = one step, budgets that keep temporal privacy leakage at epsilon or below (alpha-DP_T)."""

    def stream_problems(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Refuse a mode that needs a declared chain without one, and occupancy without a bound in time."""
        learnt = isinstance(domain, StatesDomainSection) and domain.transition is None
        if learnt and mode == "paper":
            yield ConfigProblem(
                "domain.transition",
                'missing: mode "paper" needs a declared chain',
                'name a CSV file with the transition matrix, or set mode = "default", which learns one',
            )
        if privacy is None or time is None:
            return
        if self.horizon is None and privacy.per is None:
            yield ConfigProblem(
                "options.horizon",
                "missing: every user is charged in every step, so the stream must end or the bound must renew",
                'set horizon = 1000 (steps), or privacy.per = "1d" for a bound that renews',
            )
        elif privacy.max_contributions is not None:
            yield from self._bound_problems(privacy, time, domain)
        if self.allocation == "leakage":
            if privacy.per is None or steps_in(privacy.per, time.step) != 1:
                yield ConfigProblem(
                    "options.allocation",
                    '"leakage" bounds what ONE step leaks to somebody who knows the chain, so epsilon must be per step',
                    "set privacy.per to time.step and max_contributions = 1",
                )
            if learnt:
                yield ConfigProblem(
                    "domain.transition", 'missing: allocation = "leakage" needs the chain', "name a CSV file"
                )

    def _bound_problems(self, privacy: Privacy, time: Timing, domain: DomainSection | None) -> Iterator[ConfigProblem]:
        """Refuse a bound below the number of steps, in each of which a user is counted, or above it."""
        assert privacy.max_contributions is not None
        steps = (steps_in(privacy.per, time.step) or 0) if privacy.per is not None else self.horizon or 1
        if self.horizon is not None:
            steps = min(steps, self.horizon)
        if steps < 1:
            return  # `per` is no multiple of the step, which is refused elsewhere
        if privacy.max_contributions > steps:
            yield ConfigProblem(
                "privacy.max_contributions",
                f"{privacy.max_contributions} is more than the {steps} steps, and each step takes one",
                f"set max_contributions = {steps}: every record then gets a larger share of epsilon",
            )
        elif privacy.max_contributions < steps and not (isinstance(domain, StatesDomainSection) and domain.unseen):
            yield ConfigProblem(
                "privacy.max_contributions",
                f"users would no longer be counted after {privacy.max_contributions} of {steps} steps, and the "
                "declared population would be wrong",
                f"set max_contributions = {steps}, shorten the horizon, or set domain.unseen = true",
            )
