"""What a figure is called, what it means and which way is better: said once, and shown wherever the figure is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal


def plain(value: float) -> str:
    return f"{value:.3g}"


def percent(share: float) -> str:
    """A share as a person reads it.

    >>> percent(0.0834), percent(1.4), percent(0.004), percent(0.0)
    ('8.3 %', '140 %', '0.4 %', '0 %')
    """
    value = 100 * share
    return f"{value:,.0f} %" if value >= 10 else f"{value:.2g} %"


@dataclass(frozen=True, slots=True)
class Term:
    """A word of a page, explained at its end."""

    name: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure of a step.

    Attributes:
        keys: what it is worked out from: names of an `Evaluator`, as in steps.csv and on the utility topic.
        label: in words. short: its abbreviation, as papers have it; empty where there is none.
        meaning: in a sentence or two. better: which way; empty where neither is. baseline: what to compare it with.
        of: from the values of `keys`. text: how it is written.
        tile: whether it is shown by itself. error: whether `tune` compares it: 0 is exact, less is better.
    """

    keys: tuple[str, ...]
    label: str
    meaning: str
    short: str = ""
    better: Literal["less", "more", ""] = "less"
    baseline: str = ""
    of: Callable[..., float] = lambda value: value
    text: Callable[[float], str] = plain
    tile: bool = True
    error: bool = True

    @property
    def name(self) -> str:
        return f"{self.label} ({self.short})" if self.short else self.label

    @property
    def explained(self) -> str:
        """The meaning, which way is better, and what to compare it with."""
        better = {"less": " Less is better; 0 is exact.", "more": " More is better.", "": ""}[self.better]
        return f"{self.meaning}{better}{f' {self.baseline}' if self.baseline else ''}"

    @property
    def term(self) -> Term:
        """For a glossary, with the names that files and topics have for it."""
        keys = ", ".join(self.keys)
        return Term(self.name, f"{self.explained} In steps.csv and on the utility topic: {keys}.")

    def value(self, metrics: Mapping[str, float | None]) -> float | None:
        """Of a step; None where nothing was compared."""
        values = [value for key in self.keys if known(value := metrics.get(key))]
        return self.of(*values) if len(values) == len(self.keys) else None

    def said(self, metrics: Mapping[str, float | None]) -> str:
        value = self.value(metrics)
        return "nothing compared" if value is None else self.text(value)


def known(value: float | None) -> bool:
    """False for what is missing: JSON has no NaN, so it comes back as null."""
    return value is not None and not isnan(value)


def of_keys(declared: Sequence[Metric], keys: Iterable[str], *, engine: str) -> Sequence[Metric]:
    """The declared metrics, and one for each key that they leave out: no figure is shown without a word on it."""
    explained = {key for metric in declared for key in metric.keys}
    return [
        *declared,
        *(
            Metric(
                keys=(key,),
                label=key.replace("_", " "),
                meaning=f"A figure of engine {engine}, whose distribution does not explain it.",
                better="",
            )
            for key in keys
            if key not in explained
        ),
    ]


COMMON = (
    Term("true", "What the private events say. Not for anybody but the operator."),
    Term("synthetic", "What the job publishes: made of noisy measurements, and of nothing else."),
    Term("step", "The time between two releases. Each step has one release."),
    Term(
        "epsilon", "The price in privacy: the less, the more is hidden. The guarantee says of whom, and for how long."
    ),
    Term(
        "error of counts",
        "Differences between synthetic and true counts, without their signs, added up over all answers of a size; "
        "divided by the sum of the true counts. Less is better; 0 % is exact, and above 100 % an answer says nothing.",
    ),
)
"""Words of every report."""


__all__ = ["COMMON", "Metric", "Term", "known", "of_keys", "percent", "plain"]
