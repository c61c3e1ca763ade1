"""The errors behind an error."""

from __future__ import annotations

from collections.abc import Iterator


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, what it was raised from, and so on: each once, since a chain can lead back into itself.

    What stopped a stream and then ends the worker is the reason for its own context.
    """
    seen: BaseException | None = error
    before: list[BaseException] = []
    while seen is not None and not any(each is seen for each in before):
        yield seen
        before.append(seen)
        seen = seen.__cause__ or seen.__context__
