"""What a picture is: it takes in public records one by one, keeps a bounded amount, and tells the page what to draw.

Nothing private can come here: a picture sees what consumers of the public topics see, and the declared domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from schemas.releases import STEP_LIMIT

HISTORY = 400
"""Steps back to which the page's slider goes. Older ones are in the totals, and in the topics."""


def told_step(value: Any) -> int:
    """A step that a record names in its fields. Raises: TypeError or ValueError if it is none."""
    step = int(value)
    if not 0 <= step < STEP_LIMIT:
        raise ValueError("no step")
    return step


class Picture(Protocol):
    """Of one stream. Raises: KeyError, TypeError or ValueError on a record that is not of its kind."""

    @property
    def kind(self) -> str:
        """How the page draws it: "points", "trips", "table", "series", "states"; of any other it shows counts."""
        ...

    @property
    def binary(self) -> bool:
        """Whether `body` is other than JSON."""
        ...

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        """A record that appears in `step`; one that is there comes again, and is passed over."""
        ...

    def remove(self, step: int, key: str) -> None:
        """A record that is withdrawn in `step`; unknown ones are passed over, since topics are compacted."""
        ...

    def end(self, step: int) -> None:
        """All records of `step` have been taken in."""
        ...

    def about(self) -> Mapping[str, Any]:
        """What does not change: fields, bounds, labels. JSON-able."""
        ...

    def shown(self) -> Mapping[str, Any]:
        """`shown` of `total`, and `what` these are: how much of the stream the picture holds. JSON-able."""
        ...

    def body(self, query: Mapping[str, int]) -> bytes:
        """What the page draws. Raises: KeyError where there is nothing for this query."""
        ...


class CountPicture:
    """Of an engine that has no picture: the ledger's counts are all that is drawn."""

    kind = "counts"
    binary = False

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        """See `Picture`."""

    def remove(self, step: int, key: str) -> None:
        """See `Picture`."""

    def end(self, step: int) -> None:
        """See `Picture`."""

    def about(self) -> Mapping[str, Any]:
        return {}

    def shown(self) -> Mapping[str, Any]:
        return {}

    def body(self, query: Mapping[str, int]) -> bytes:
        return b"{}"
