"""Up to where the blocks of each stream reach on one source partition, as text beside the offset that the consumer
group commits with them.

Streams that share a source topic have one offset. A stream that has stopped, or was taken out of the configuration,
stays behind it; its place here tells that from blocks that somebody has lost.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import orjson

from schemas.errors import GapError, PromiseError

VERSION = 1
MOST_BYTES = 4_000  # a broker takes 4,096 by default
PACKED = "z"  # first character of places that would be too long as they are

OTHERS = ""
"""Name under which the place of those stands that are not named: where the group stood when places were first noted.
Absent where they were noted from the group's first offset on: then blocks that are not named are older than that offset
(offsets expire while a job is down), and prove by themselves where they end."""
NEW = "new:"
"""Before the name of a stream that has committed no block yet: the source offset at which it begins."""


class Places(dict[str, int]):
    """Name of a stream's role -> source offset of its next block. A stream that never had one stands there as `NEW`."""

    def encode(self) -> str:
        """Return the text; empty if it would be too long, and then offsets alone decide."""
        content = orjson.dumps({"v": VERSION, "next": self}, option=orjson.OPT_SORT_KEYS)
        if len(content) <= MOST_BYTES:
            return content.decode()
        packed = PACKED + base64.b85encode(zlib.compress(content, 9)).decode()
        return packed if len(packed) <= MOST_BYTES else ""

    @staticmethod
    def decode(text: str | None) -> Places:
        """Decode them; what another program wrote there says nothing."""
        try:
            plain = zlib.decompress(base64.b85decode(text[1:])) if text and text[0] == PACKED else text
            content = orjson.loads(plain or "{}")
        except (orjson.JSONDecodeError, ValueError, zlib.error):
            return Places()
        if not isinstance(content, Mapping) or content.get("v") != VERSION:
            return Places()
        return Places({str(name): int(place) for name, place in content["next"].items()})

    def with_blocks(self, ends: Mapping[str, int]) -> Places:
        """Return the places after a transaction with blocks of these streams."""
        kept = {name: place for name, place in self.items() if name.removeprefix(NEW) not in ends}
        return Places({**kept, **ends})


class Starts(NamedTuple):
    """The source offset from which each stream goes on, or why it must not.

    Attributes:
        begin: where a stream begins of which nothing is known.
    """

    offsets: Mapping[str, int]
    refused: Mapping[str, PromiseError]
    begin: int


def starts(
    ends: Mapping[str, int | None], *, committed: int | None, places: Places, beginning: int, where: str, group: str
) -> Starts:
    """Compare the blocks of each stream with what the group says of it; they are committed together and must agree.

    Args:
        ends: name of a stream's role -> source offset at which its own blocks end, None where it has no block at all.
        committed: the group's offset, None where it has none.
        beginning: first source offset that is there.

    A stream of which the group says nothing, because its offsets have expired, goes on where its own blocks end. Any
    difference between the two means that somebody changed offsets or blocks.
    """
    known = [end for end in ends.values() if end is not None]
    others = places.get(OTHERS, None if places else committed)
    begin = max(known, default=beginning if committed is None else committed)
    offsets: dict[str, int] = {}
    refused: dict[str, PromiseError] = {}
    for name, end in ends.items():
        expected = places.get(name, others)
        if end is None:
            if name in places or (committed is not None and not places and not known):
                refused[name] = GapError(
                    f"ingest of {where}: the group stands at offset {expected}, but no block of {name} is left. "
                    f"Restore the private topics; or, if the stream is new, delete this topic's offsets of group "
                    f"{group}"
                )
            else:
                offsets[name] = places.get(NEW + name, begin)
        elif expected is None or end == expected:
            offsets[name] = end
        else:
            refused[name] = GapError(
                f"ingest of {where}: the blocks of {name} end at {end}, the group stands at {expected}; they are "
                f"committed together and must agree. Somebody changed the offsets of group {group} or the private "
                "topics"
            )
    return Starts(offsets, refused, begin)
