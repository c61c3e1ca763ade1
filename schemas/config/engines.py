"""What an engine says of itself, in one object: `EngineSpec`. An entry point of its distribution names it.

A spec imports nothing heavy: what computes stands in it as a reference, loaded when it is asked for
(`engines.core.registry`), so that `validate` loads no engine and a worker those of its own streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.config.domain import DomainSection, Question
from schemas.config.options import OptionsSection
from schemas.guarantee import Unit

Reference = str
"""`package.module:attribute`, as in an entry point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """Attributes:

    modes: names that `mode` may have, `default` first.
    units: of privacy that it can promise.
    uses_delta: modes that promise (epsilon, delta); the others refuse a delta.
    needs_delta: of those, the ones that have no promise without.
    whole_unit: True where the engine itself accounts for all that one unit may contribute, because several
        contributions are not simply several times one: it then runs at the unit's epsilon and delta.
    measured_expiry: modes in which a `ttl` expiry is measured as a delete; elsewhere it is post-processing and free.
    counts_surplus: modes that scale their release up by what the bounds refuse (`engines.core.surplus`).
    noise_versions: mode -> version of the noise's law, where it is no longer the first one; in the fingerprint, so that
        a stream which was started with another law does not silently go on with this one.
    dates_records: True where each synthetic record is of one step and says which; False where records together stand
        for what is alive, and the time of one says when it was released (see docs/time.md).
    """

    modes: tuple[str, ...]
    units: tuple[Unit, ...] = ("user", "event")
    uses_delta: frozenset[str] = frozenset()
    needs_delta: frozenset[str] = frozenset()
    whole_unit: bool = False
    measured_expiry: frozenset[str] = frozenset()
    counts_surplus: frozenset[str] = frozenset()
    noise_versions: Mapping[str, int] = field(default_factory=dict)
    dates_records: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One engine: everything that the job, its commands and its tests know of it.

    Attributes:
        name: as `engine` in a configuration and as its entry point.
        summary: what a stream of it is and what comes out, in one line, for whoever has to choose.
        facts: what a configuration is checked against.
        domains: the models of `[streams.domain]` that it works on, by `kind`. Engines may share a kind and its model.
        options: the model of `[streams.options]`.
        domain, build, evaluator: functions of a `Stream` that give its `engines.core.contract.Domain`, its `Engine`
            before the first step, and its `Evaluator`.
        view: the `agents.show.view.View`, which reports, `explain` and the live page show.
        contract_case: the `engines.checks.contract_case.EngineCase` of the contract tests and coupled runs.
        answers: a function of a `Stream` and what was measured that gives its `engines.core.answers.contract.Answerer`,
            for `privstream query`; None: it answers no questions.
        asks: what `privstream init` asks beside what every stream and the domain (`DomainSection.questions`) are asked.
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
    contract_case: Reference
    answers: Reference | None = None
    asks: tuple[Question, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds of domain that it works on."""
        return tuple(self.domains)

    @property
    def references(self) -> Mapping[str, Reference]:
        """References to what is loaded later, by the attribute's name."""
        names = ("domain", "build", "evaluator", "view", "contract_case", "answers")
        return {name: found for name in names if (found := getattr(self, name)) is not None}
