"""What the job's commands show of an engine, and how they try it: one `Presentation` and one file for each engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.pictures.contract import CountPicture, Picture
from agents.presentation.error import ErrorModel
from engines.auditor.fixture import Focus
from schemas.config import Stream
from schemas.guarantee import Guarantee

if TYPE_CHECKING:
    from agents.pages.metrics import Metric, Term
    from agents.pages.report import StepRow
    from agents.pages.verdict import Judged
    from agents.protocol.release.held_out import HeldOutAudit

Fields = Mapping[str, Any]
"""Fields of a raw event, but for its time, its user and its operation."""

Known = tuple[int, Fields, int]
"""Step, fields and number (negative: deleted) of events that both inputs of an audit have."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AuditPlan:
    """How `privstream audit CONFIG` tries a stream: what others send in every step, and where the audited unit goes.

    Attributes:
        places: name -> fields of an event there. crowd: fields and number of what others send each step.
        late: a step of late events; the early one is the first.
        held: steps after the last event, for engines that hold events before they count them.
        expiries_known: True where the engine measures the expiry of a `ttl` event as a delete.
        focuses: from what both inputs have, what to look at in each place.
        moved: fields of the crowd's events where one user is taken out of all of them; None where users send events of
            their own. Then `places` names what to look at only.
    """

    places: Mapping[str, Fields]
    crowd: Sequence[tuple[Fields, int]]
    late: int
    held: int
    expiries_known: bool
    focuses: Callable[[Mapping[str, Fields], Sequence[Known]], Mapping[str, Focus]]
    moved: Fields | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    """Attributes:

    domain: the public domain in a sentence, for `explain`.
    error_model: the error to expect, for `explain`. Raises: PrivstreamError where there is none.
    sections: HTML of `report.html` after the verdict: plots and tables of truth beside releases, after the last step.
    audit_plan: for `privstream audit CONFIG`.
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
    audit_plan: Callable[[Stream], AuditPlan]
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
