"""What the job's commands show of an engine: one `Presentation` and one file for each engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.show.pictures.contract import CountPicture, Picture
from agents.show.presentation.error import ErrorModel
from schemas.config import Stream
from schemas.guarantee import Guarantee

if TYPE_CHECKING:
    from agents.protocol.release.held_out import HeldOutAudit
    from agents.show.pages.metrics import Metric, Term
    from agents.show.pages.report import StepRow
    from agents.show.pages.verdict import Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    """Attributes:

    domain: the public domain in a sentence, for `explain`.
    error_model: the error to expect, for `explain`. Raises: PrivstreamError where there is none.
    sections: HTML of `report.html` after the verdict: plots and tables of truth beside releases, after the last step.
    metrics: what the evaluator's figures are called and mean. One that is left out is shown by its key, and its
        explanation says that there is none.
    judged: what releases are good for, from coarse answers to fine ones. Without it the verdict is the last figures.
    frame: what to keep of a step that was just answered, to show how things went: some 8 of them are kept in
        `StepRow.frame`, evenly over all steps. None: nothing.
    events, records: what one calls those that come in and those that go out, in the plural.
    terms: other words of the sections, explained.
    error_unit: of the metrics that are errors; "%" of shares that are read in percent.
    remarks: what else `explain` must say in plain words.
    warnings: what `validate` says of a stream that is well, where its answers may disappoint.
    picture: what the live page draws of the public records (`privstream watch`); by default their counts alone.
    """

    domain: Callable[[Stream], str]
    error_model: Callable[[Stream, Guarantee], ErrorModel]
    sections: Callable[[Stream, HeldOutAudit, Sequence[StepRow]], Sequence[str]]
    metrics: Callable[[Stream], Sequence[Metric]] = lambda stream: ()
    judged: Callable[[Stream, HeldOutAudit, Sequence[StepRow]], Sequence[Judged]] = lambda stream, audit, steps: ()
    frame: Callable[[Stream, HeldOutAudit], Any] | None = None
    events: Callable[[Stream], str] = lambda stream: "events"
    records: Callable[[Stream], str] = lambda stream: "synthetic records"
    terms: Sequence[Term] = ()
    error_unit: str = ""
    remarks: Callable[[Stream], Iterator[str]] = lambda stream: iter(())
    warnings: Callable[[Stream], Iterator[str]] = lambda stream: iter(())
    picture: Callable[[Stream], Picture] = lambda stream: CountPicture()
