"""What all sections share: frozen, no unknown keys, and checks that look at several keys at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from schemas.errors import ConfigError, ConfigProblem

COLLECT = "collect"
"""In the validation context: the loader runs the checks of `problems` itself, to list everything at once."""
FOLDER = "folder"
"""In the validation context: the folder of the configuration, from which paths of public files go."""


class Section(BaseModel):
    """A TOML table. `problems` holds what types alone cannot say; keys in it are relative to the section."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def problems(self) -> Iterator[ConfigProblem]:
        """What is wrong with the keys of this section taken together."""
        return iter(())

    @model_validator(mode="after")
    def _refuse_problems(self, info: ValidationInfo) -> Self:
        if not (info.context or {}).get(COLLECT) and (found := tuple(self.problems())):
            raise ConfigError(found)
        return self


def refusal(reason: str, fix: str, *, at: str = "") -> PydanticCustomError:
    """An error for a validator to raise; `at` names a key below the one being validated."""
    return PydanticCustomError("refused", "{reason}; {fix}", {"reason": reason, "fix": fix, "at": at})


def below(prefix: str, problems: Iterable[ConfigProblem], *, stream: str | None = None) -> Iterator[ConfigProblem]:
    """The same problems seen from further up: keys get the prefix, reasons the name of the stream."""
    for problem in problems:
        joint = "." if prefix and problem.key and not problem.key.startswith("[") else ""
        reason = f'stream "{stream}": {problem.reason}' if stream is not None else problem.reason
        yield ConfigProblem(f"{prefix}{joint}{problem.key}", reason, problem.fix)
