"""What plants share: they look where nobody may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from tests.couple.plants import peeked

Planted = Callable[[], AbstractContextManager[Any]]


def replaced(owner: Any, name: str, by: Any) -> Planted:
    """Patch one function, property or number."""
    return partial(patch.object, owner, name, by)


@contextmanager
def remembered(owner: Any, name: str) -> Iterator[list[Any]]:
    """Patch an aggregate so that what it gave last can be read: `[value]`."""
    original, seen = getattr(owner, name), [None]

    def watched(self: Any, *arguments: Any) -> Any:
        counts = original(self, *arguments)
        seen[0] = peeked(counts)
        return counts

    with patch.object(owner, name, watched):
        yield seen
