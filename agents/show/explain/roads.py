"""Two roads to one promise: the noise under pure epsilon, and under epsilon with a delta, for modes that take both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from agents.show.presentation import expected_error
from schemas.config import Stream
from schemas.errors import EngineInputError

SUGGESTED_DELTA = 1e-6
"""What the road with a delta is shown at, where the stream has none."""
Road = Literal["pure", "gaussian"]


@dataclass(frozen=True, slots=True)
class Compared:
    """One kind of answer: the standard deviation of its noise after one release, by either road."""

    name: str
    pure: float
    gaussian: float

    @property
    def less(self) -> Road:
        """Which has less noise."""
        return "gaussian" if self.gaussian < self.pure else "pure"


@dataclass(frozen=True, slots=True)
class Roads:
    """Attributes:

    configured: the one that the stream takes.
    delta: of the other one, or of it. answers: as the engine's error model has them. unit: of the deviations.
    """

    configured: Road
    delta: float
    answers: tuple[Compared, ...]
    unit: str

    @staticmethod
    def of(stream: Stream) -> Roads | None:
        """None where there is one road only."""
        facts = stream.facts
        if stream.mode not in facts.uses_delta or stream.mode in facts.needs_delta:
            return None
        delta = stream.privacy.delta or SUGGESTED_DELTA
        try:
            pure, gaussian = (_noise(stream, each) for each in (0.0, delta))
        except EngineInputError:
            # One of them would need more noise than can be drawn.
            return None
        names = [name for name in pure if name in gaussian]
        answers = tuple(Compared(name, pure[name][0], gaussian[name][0]) for name in names)
        unit = next((unit for _, unit in pure.values()), "")
        return Roads("gaussian" if stream.privacy.delta else "pure", delta, answers, unit)

    def sentences(self) -> Iterator[str]:
        """For a person who chooses."""
        told = "; ".join(
            f"{answer.name} {answer.pure:.4g} and {answer.gaussian:.4g}, less {_TOLD[answer.less]}"
            for answer in self.answers
        )
        yield (
            f"Noise by the two roads to this epsilon, pure and with delta = {self.delta:g} (standard deviation after "
            f"one release, in {self.unit}): {told}. This stream is {_CONFIGURED[self.configured]}."
        )
        if self.configured == "pure" and all(answer.less == "gaussian" for answer in self.answers):
            yield (
                f"privacy.delta = {self.delta:g} would give less noise everywhere, for a promise that is weaker: "
                "choose a delta far below one in your users."
            )

    def as_json(self) -> dict[str, Any]:
        return {
            "configured": self.configured,
            "delta": self.delta,
            "unit": self.unit,
            "answers": [
                {
                    "name": answer.name,
                    "pure_standard_deviation": answer.pure,
                    "gaussian_standard_deviation": answer.gaussian,
                    "less_noise": answer.less,
                }
                for answer in self.answers
            ],
        }


_TOLD = {"pure": "without a delta", "gaussian": "with delta"}
_CONFIGURED = {"pure": "pure", "gaussian": "configured with the delta"}


def _noise(stream: Stream, delta: float) -> dict[str, tuple[float, str]]:
    """Deviations of the answers, and their unit, by name."""
    other = stream.model_copy(update={"privacy": stream.privacy.model_copy(update={"delta": delta})})
    model = expected_error(other)
    return {answer.name: (answer.deviations[0], model.unit) for answer in model.answers}
