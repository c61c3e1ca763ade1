"""Dead letters: which record was refused, and why. Never what was in it.

A dead letter says where the record is; whoever may read the raw topic can look it up there.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from schemas.errors import WireError
from schemas.events import Reason

VERSION = 1
UNLETTERED = frozenset({Reason.ACCEPTED, Reason.OVER_BOUND})
"""Reasons without a dead letter: the bound at work is no fault of the record."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused record."""

    stream: str
    topic: str
    partition: int
    offset: int
    reason: Reason

    @property
    def key(self) -> bytes:
        return f"{self.stream}/{self.partition}/{self.offset}".encode()

    def encode(self) -> bytes:
        """
        >>> DeadLetter("taxi", "raw.taxi", 0, 7, Reason.NOT_JSON).encode()
        b'{"offset":7,"partition":0,"reason":"NOT_JSON","stream":"taxi","topic":"raw.taxi","version":1}'
        """
        content = {
            "stream": self.stream,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "reason": self.reason.name,
            "version": VERSION,
        }
        return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)

    @staticmethod
    def decode(data: bytes) -> DeadLetter:
        """Raises: WireError."""
        try:
            content = orjson.loads(data)
            if content["version"] != VERSION:
                raise WireError(f"dead letter of format version {content['version']}; this release reads {VERSION}")
            reason = Reason[content["reason"]]
            return DeadLetter(content["stream"], content["topic"], content["partition"], content["offset"], reason)
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise WireError(f"damaged dead letter of {len(data)} bytes: {type(error).__name__}") from None
