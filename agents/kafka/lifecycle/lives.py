"""How often in a row a worker has begun anew for the same reason: goes with the process from one life to the next.

Beginning anew helps where something passes. What is met again each time must be said, with what to do, and seen by
`privstream status`; and what nobody foresaw ends the worker after a few times instead of turning for ever.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import asdict, dataclass, replace

import orjson

from agents.kafka.lifecycle.advice import advice
from schemas.errors import HangingTransactionError, RefusalError, UnforeseenAnswerError

SHORT_S = 60.0  # a life that is shorter makes the next one wait
MOST_S = 30.0
LONG_S = 600.0
"""A life that was longer has come further: what ended it is not what ended the one before."""
MOST_ALIKE = 5
VARIABLE = "_PRIVSTREAM_LIVES"


@dataclass(frozen=True, slots=True)
class Lives:
    """The lives of this worker before the present one.

    Attributes:
        short: in a row that were short. alike: in a row that ended for the same reason, soon; `kind` tells which.
        told: whether `privstream status` is to say what this worker meets again and again.
    """

    short: int = 0
    alike: int = 0
    kind: str = ""
    told: bool = False

    @classmethod
    def before(cls, environment: MutableMapping[str, str] = os.environ) -> Lives:
        """Return those that an earlier image of this process has lived."""
        return cls(**orjson.loads(environment.get(VARIABLE, "{}")))

    def keep(self, environment: MutableMapping[str, str] = os.environ) -> None:
        """Keep them for the next image of this process."""
        environment[VARIABLE] = orjson.dumps(asdict(self)).decode()

    def ended(self, error: BaseException, life_s: float) -> Lives:
        """Return them with one more, which an error ended after so many seconds."""
        kind = f"{advice(error).section}: {type(error).__name__}"
        alike = self.alike + 1 if kind == self.kind and life_s < LONG_S else 1
        now = Lives(self.short + 1 if life_s < SHORT_S else 0, alike, kind)
        lasts = isinstance(error, (HangingTransactionError, RefusalError))  # for long before it was an error
        return replace(now, told=alike >= (1 if lasts else MOST_ALIKE))

    def over(self, error: BaseException) -> bool:
        """Whether there is to be no further one."""
        return self.alike >= MOST_ALIKE and isinstance(error, UnforeseenAnswerError)

    @property
    def pause_s(self) -> float:
        """Seconds to wait between two short lives, more each time."""
        return min(2.0 ** min(self.short - 1, 10), MOST_S) if self.short > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.alike} times in a row"
