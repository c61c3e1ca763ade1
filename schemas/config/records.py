"""`[streams.records]`: what one synthetic record stands for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from schemas.config.values import Section
from schemas.errors import ConfigProblem

RecordForm = Literal["single", "weighted"]
WEIGHT = "weight"
"""Field of a weighted record that holds how many events it stands for."""


class RecordsSection(Section):
    """`[streams.records]`: what a record of `<stream>.synthetic` stands for."""

    header: ClassVar[str] = "[streams.records]"

    form: RecordForm = Field("single", examples=["weighted"])
    """`single`: each record stands for one event; `weighted`: for as many as its field `weight` says, with one record
    for each cell or distinct row, changed in place. For streams of 10^5 events a step and more (docs/consumers.md).
    """

    @property
    def weighted(self) -> bool:
        """Whether records have weights."""
        return self.form == "weighted"

    def engine_problems(self, engine: str, *, able: bool, others: str) -> Iterator[ConfigProblem]:
        """Refuse weights of an engine that has none. Args: others: the engines that have them, in words."""
        if self.weighted and not able:
            yield ConfigProblem(
                "form",
                f'"weighted" is for records of which several can be alike, and no two of engine "{engine}" are',
                f"remove the key; records have weights with engine {others}",
            )
