"""`EngineSpec`: the description of an engine, which an entry point of its distribution names.

A spec imports nothing heavy. It refers to code by name, and `engines.core.registry` loads the code on demand, so that
`validate` loads no engine, and a worker only the engines of its streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from schemas.config.domain import DomainSection, Question
from schemas.config.engines.options import OptionsSection
from schemas.guarantee import Unit

Reference = str
"""`package.module:attribute`, as in an entry point."""

RecordKind = Literal["text", "number", "integer", "boolean", "null"]
"""What a field of synthetic records can hold; `null` also where the field may be absent. Integers are of 64 bits."""
RecordFields = Mapping[str, frozenset[RecordKind]]
"""All fields of an engine's synthetic records but their time, in order, each with the kinds of its values."""
NUMBER: frozenset[RecordKind] = frozenset({"number"})
INTEGER: frozenset[RecordKind] = frozenset({"integer"})
TEXT: frozenset[RecordKind] = frozenset({"text"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine can do; configurations are checked against it.

    Attributes:
        modes: names of its modes, `default` first.
        units: units of privacy that it supports.
        uses_delta: modes with an (epsilon, delta) guarantee; the others refuse a delta.
        needs_delta: modes among `uses_delta` that have no guarantee without a delta, but for counts alone
            (`DomainSection.all_counts`).
        gaussian: modes among `uses_delta` whose noise is Gaussian, accounted for by mu squared.
        thresholds: share of delta, by mode among `gaussian`, that is no noise's: the probability that what one user
            alone has passes a threshold. It adds up from period to period, beside mu squared. Only where the domain
            finds values (`DomainSection.finds_values`), for which every mode needs a delta.
        periods_apart: modes in which no draw hides events of two periods of a bound that renews (docs/guarantee.md,
            theorem P). What a unit does in other modes in several periods may be in one draw.
        whole_unit: whether the engine itself accounts for all contributions of a unit, because the loss of several
            contributions is not a multiple of that of one; it then runs at the epsilon and delta of the unit.
        measured_expiry: modes in which the expiry of a `ttl` is measured as a delete; in the other modes it is
            post-processing and costs nothing.
        counts_surplus: modes that scale their release up by what the bounds refuse (`engines.core.surplus`).
        noise_versions: version of the noise distribution by mode, if it is not 1. The fingerprint holds it, so that
            a stream that was started with another distribution does not silently continue with this one.
        contribution: what one contribution of a user is. `event`: one record, or one trip where the domain has them.
            `pair`: a user with a key in a period of the bound, by the first record that says so, where the key is what
            the domain encodes (`engines.core.contract.PairDomain`). Ingest passes on as many records of a pair as
            `OptionsSection.pair_events`, and counts the others.
        dates_records: whether each synthetic record belongs to one step, which it names. If not, the records together
            stand for everything alive, and the job dates them where it can (`Stream.record_times`, docs/time.md).
        records_are_counts: whether synthetic records are noisy counts, of which questions are answered.
        weighs_records: whether the engine can release one record with a weight in place of many that are alike
            (`[streams.records] form = "weighted"`).
    """

    modes: tuple[str, ...]
    units: tuple[Unit, ...] = ("user", "event")
    uses_delta: frozenset[str] = frozenset()
    needs_delta: frozenset[str] = frozenset()
    gaussian: frozenset[str] = frozenset()
    thresholds: Mapping[str, Fraction] = field(default_factory=dict)
    periods_apart: frozenset[str] = frozenset()
    whole_unit: bool = False
    measured_expiry: frozenset[str] = frozenset()
    counts_surplus: frozenset[str] = frozenset()
    noise_versions: Mapping[str, int] = field(default_factory=dict)
    contribution: Literal["event", "pair"] = "event"
    dates_records: bool = False
    records_are_counts: bool = False
    weighs_records: bool = False

    def requires_delta(self, mode: str | None, domain: DomainSection) -> bool:
        """Say whether a mode has no guarantee for this domain without a delta."""
        return (mode in self.needs_delta and not domain.all_counts) or self.threshold_share(mode, domain) > 0

    def threshold_share(self, mode: str | None, domain: DomainSection) -> Fraction:
        """Return the share of delta that thresholds have, which is 0 where no values are found."""
        return self.thresholds.get(mode or "", Fraction(0)) if domain.finds_values else Fraction(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Everything that the job, its commands and its tests know about one engine.

    Attributes:
        name: value of `engine` in a configuration, and name of the entry point.
        summary: one line on what a stream of this engine is and what it releases, for users who choose an engine.
        facts: what the engine can do.
        domains: the models of `[streams.domain]` that it supports, by `kind`. Engines may share a kind and its model.
        options: the model of `[streams.options]`.
        domain, build, evaluator: functions that return, for a `Stream`, its `engines.core.contract.Domain`, its
            `Engine` before the first step, and its `Evaluator`.
        view: the `agents.show.view.View` for reports, `explain` and the live page.
        records: a function that returns, for the section of the domain, the fields of synthetic records, of
            which schemas are made. It imports nothing but sections.
        contract_case: the `engines.checks.contract_case.EngineCase` of the contract tests and coupled runs.
        answers: a function that returns, for a `Stream` and its measurements, an
            `engines.core.answers.contract.Answerer` for `privstream query`; None if the engine answers no queries.
        asks: questions of `privstream init` in addition to those about every stream and about the domain
            (`DomainSection.questions`).
    """

    name: str
    summary: str
    facts: EngineFacts
    domains: Mapping[str, type[DomainSection]]
    options: type[OptionsSection]
    domain: Reference
    build: Reference
    evaluator: Reference
    view: Reference
    records: Callable[[Any], RecordFields]
    contract_case: Reference
    answers: Reference | None = None
    asks: tuple[Question, ...] = ()

    @property
    def references(self) -> Mapping[str, Reference]:
        """The references to code, by the name of the attribute."""
        names = ("domain", "build", "evaluator", "view", "contract_case", "answers")
        return {name: reference for name in names if (reference := getattr(self, name)) is not None}
