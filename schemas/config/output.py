"""`[streams.output]`: how the values of a stream's synthetic records are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from schemas.config.engines.spec import RecordFields
from schemas.config.values import Section
from schemas.errors import ConfigProblem

OutputFormat = Literal["json", "avro", "json-schema"]
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class OutputSection(Section):
    """`[streams.output]`: the format of the values of `<stream>.synthetic`; the other topics are always plain JSON."""

    header: ClassVar[str] = "[streams.output]"

    format: OutputFormat = Field("json", examples=["avro"])
    """`json`: plain JSON objects; `avro`, `json-schema`: behind the id of a schema that the job registers at
    `[kafka.registry]` as `<stream>.synthetic-value`, for the deserializers of that registry.
    """

    @property
    def typed(self) -> bool:
        """Whether a schema of the registry describes the values."""
        return self.format != "json"

    def field_problems(self, time: str, fields: RecordFields) -> Iterator[ConfigProblem]:
        """Yield what a schema cannot say of records; keys are relative to the stream. Args: time: the time's field."""
        if self.format != "avro":
            return
        for name in (time, *fields):
            if not _AVRO_NAME.fullmatch(name):
                computed = re.sub(r"\W", "_", name.rpartition(".")[2], flags=re.ASCII)
                yield ConfigProblem(
                    "output.format",
                    f'"{name}" is no name of a field in Avro, which has letters, digits and _ only',
                    'set format = "json-schema"'
                    + (
                        ""
                        if name.startswith("$")
                        else f'; or compute the field: {computed} = "{name}" in [streams.map]'
                    ),
                )
