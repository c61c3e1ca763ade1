"""The guarantee of a stream of the library: the explanation of `privstream explain`, worded for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from agents.show.explain import explain_stream
from agents.show.explain.parts import StreamExplanation, decimal, exact, plain
from agents.show.text import wrapped
from schemas.config import Stream, format_length
from schemas.guarantee import Mechanism


@dataclass(frozen=True, slots=True)
class Promise:
    """The guarantee of one stream. Public.

    Attributes:
        epsilon, delta: budget of the protected unit, over the whole stream or one period; epsilon is exact.
        unit, neighbouring: the unit of privacy, and which inputs are neighbours, in words.
        private: False if there is no guarantee; `alerts` say why.
        words: the guarantee in sentences.
        symbols: the guarantee as formulas.
        alerts: warnings.
        mechanisms: the mechanisms, with scale, sensitivity and epsilon of one event.
        assumed: what the proof assumes to be public.
        unprotected: what the guarantee does not cover.
    """

    epsilon: Fraction
    delta: float
    unit: str
    neighbouring: str
    private: bool
    words: tuple[str, ...]
    symbols: tuple[str, ...]
    alerts: tuple[str, ...]
    mechanisms: tuple[Mechanism, ...]
    assumed: tuple[str, ...]
    unprotected: tuple[str, ...]

    @staticmethod
    def from_stream(stream: Stream, *, caveat: str = "") -> Promise:
        """Return the guarantee of a stream.

        Args:
            caveat: why there is no guarantee after all; empty if there is one.
        Raises: BudgetError, EngineInputError; see `explain_stream`.
        """
        explanation = explain_stream(stream, job="library")
        return Promise(
            epsilon=explanation.budget.unit_epsilon,
            delta=explanation.budget.delta,
            unit=explanation.unit,
            neighbouring=_for_notebook(explanation.neighbouring),
            private=not caveat,
            words=tuple(map(_for_notebook, explanation.plain)),
            symbols=tuple(map(_for_notebook, explanation.symbols)),
            alerts=(*([f"NOT PRIVATE: {caveat}"] if caveat else []), *explanation.alerts),
            mechanisms=tuple(share.mechanism for share in explanation.budget.shares),
            assumed=_assumed(stream, explanation),
            unprotected=_unprotected(stream),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the guarantee as a JSON object; an exact number is a float and a text."""
        return plain(self)

    def __str__(self) -> str:
        blocks = ["\n".join(_lines(alert, "!! ") for alert in self.alerts)] if self.alerts else []
        parts = (("The guarantee", self.words, ""), ("In symbols", self.symbols, ""), *self._lists())
        blocks += ["\n".join([head.upper(), *(_lines(line, mark) for line in lines)]) for head, lines, mark in parts]
        return "\n\n".join(blocks)

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        blocks = [*(f"> **{alert}**" for alert in self.alerts), *self.words, "\n".join(["```", *self.symbols, "```"])]
        blocks += [f"**{head}**\n\n" + "\n".join(mark + line for line in lines) for head, lines, mark in self._lists()]
        return "\n\n".join(blocks)

    def _lists(self) -> tuple[tuple[str, Sequence[str], str], ...]:
        """Return head, lines and mark of each list."""
        noise = [
            f"{mechanism.name}: {mechanism.distribution} noise of scale {exact(mechanism.scale)}; "
            f"{_cost(mechanism)} there"
            for mechanism in self.mechanisms
        ]
        return (
            ("Where the budget goes", noise, "- "),
            ("Public by assumption", self.assumed, "- "),
            ("Not protected", self.unprotected, "- "),
        )


def _cost(mechanism: Mechanism) -> str:
    if mechanism.mu_squared is not None:
        return f"the unit pays mu^2 = {decimal(float(mechanism.mu_squared))}"
    return f"one event costs epsilon {exact(mechanism.epsilon * mechanism.uses)}"


_NOTEBOOK_WORDS = (
    ("every public topic of this stream", "every release of this stream"),
    ("every record of the public topics", "every release"),
    (
        "their positions in the source topic, their arrival times and the ticks among them",
        "the order of their rows and the steps at which they are handed in",
    ),
    ("at the same positions", "in the same order"),
)
"""Phrases about topics in the explanation of the job, and what replaces them in a notebook."""


def _for_notebook(text: str) -> str:
    for phrase, replacement in _NOTEBOOK_WORDS:
        text = text.replace(phrase, replacement)
    return text


def _assumed(stream: Stream, explanation: StreamExplanation) -> tuple[str, ...]:
    by_title = {point.title: point.text for point in explanation.public}
    return (
        f"Steps: step 0 begins at {stream.time.start} {stream.time.timezone}, a step lasts "
        f"{format_length(stream.time.step)}. How many steps you release, and when, must not depend on the rows.",
        f"The domain and its bounds: {by_title['domain and bounds']} Write them down; never take them from the data.",
        f"The settings: {by_title['privacy settings']}",
    )


def _unprotected(stream: Stream) -> tuple[str, ...]:
    who = stream.privacy.user
    ids = (f"Somebody with several values of {who} counts as several people.",) if stream.privacy.bounds_users else ()
    return (
        *ids,
        "Every other release over the same people adds its own epsilon: another stream, another notebook, and this one "
        "run again from its beginning.",
        "What you look at beside the releases: the rows, `taken` of a release, a plot of the truth. Settings that were "
        "chosen by looking at the rows have spent privacy that nobody accounts for.",
        "The state file: it holds exact counts and the seeds of the noise. Keep it like the raw rows.",
    )


def _lines(text: str, mark: str) -> str:
    return "\n".join(wrapped(text, first=f"  {mark}", rest="  " + " " * len(mark)))
