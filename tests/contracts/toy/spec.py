"""Engine `toy`: how many events a step had. All that the job knows of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.config.domain import DomainSection
from schemas.config.engines.options import OptionsSection
from schemas.config.engines.spec import INTEGER, EngineFacts, EngineSpec
from schemas.config.values import FieldName


class AnythingDomain(DomainSection):
    """`kind = "anything"`: events of which it only counts that they are there."""

    kind: Literal["anything"] = "anything"
    field: FieldName = Field(examples=["what"])
    """Field of the raw event that holds a text, any text."""

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)


class ToyOptions(OptionsSection):
    """`[streams.options]` of engine `toy`: none."""


SPEC = EngineSpec(
    name="toy",
    summary="how many events a step had",
    facts=EngineFacts(modes=("default",), dates_records=True),
    domains={"anything": AnythingDomain},
    options=ToyOptions,
    domain="toy.engine:domain",
    build="toy.engine:build",
    evaluator="toy.engine:evaluator",
    view="toy.view:VIEW",
    records=lambda _: {"count": INTEGER},
    contract_case="toy.fixture:CONTRACT",
)
