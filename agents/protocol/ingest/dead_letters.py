"""Dead letters: which record was refused, why, and for which of the configured fields. Never what was in it.

A dead letter says where the record is; whoever may read the raw topic can look it up there.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from schemas.errors import WireError
from schemas.events import Reason

VERSION = 1
UNLETTERED = frozenset(
    {Reason.ACCEPTED, Reason.OVER_BOUND, Reason.REPEATED, Reason.NO_EVENT, Reason.DROPPED, Reason.OTHER_PART}
)
"""Reasons without a dead letter: neither the bound at work nor what is no event here is a fault of the record."""


class DeadLetter(NamedTuple):
    """One refused record. `field` is a name from the configuration, "" where the record as a whole is at fault."""

    stream: str
    topic: str
    partition: int
    offset: int
    reason: Reason
    field: str = ""

    @property
    def key(self) -> bytes:
        return f"{self.stream}/{self.partition}/{self.offset}".encode()

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """Headers, named as Kafka Streams names those of its dead letters (KIP-1034); never a message or a value.

        >>> DeadLetter("taxi", "raw.taxi", 0, 7, Reason.MISSING_FIELD, "lat").headers[0]
        ('__streams.errors.exception', b'MISSING_FIELD')
        """
        named = {"exception": self.reason.name, "topic": self.topic, "partition": self.partition, "offset": self.offset}
        return [(f"__streams.errors.{name}", str(value).encode()) for name, value in named.items()]

    def encode(self) -> bytes:
        """Return the value of its record.

        >>> DeadLetter("taxi", "raw.taxi", 0, 7, Reason.MISSING_FIELD, "lat").encode()
        b'{"field":"lat","offset":7,"partition":0,"reason":"MISSING_FIELD","stream":"taxi","topic":"raw.taxi","version":1}'
        """
        content = {**self._asdict(), "reason": self.reason.name, "version": VERSION}
        return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)

    @staticmethod
    def decode(data: bytes) -> DeadLetter:
        """Raises: WireError."""
        try:
            content = orjson.loads(data)
            if (version := content.pop("version")) != VERSION:
                raise WireError(f"dead letter of format version {version}; this release reads {VERSION}")
            return DeadLetter(**{**content, "reason": Reason[content["reason"]]})
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            raise WireError(f"damaged dead letter of {len(data)} bytes: {type(error).__name__}") from None
