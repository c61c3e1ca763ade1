"""The head of a stored state: which version of the code wrote it, for which stream, and a few whole numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np

from schemas.errors import EngineInputError

State = Mapping[str, np.ndarray]


def head(version: int, identity: np.ndarray, *numbers: int) -> dict[str, np.ndarray]:
    """The first two arrays of a state: `header` `(1 + numbers,)` int64, and the identity of the configuration."""
    return {"header": np.array([version, *numbers], np.int64), "identity": identity.copy()}


def numbers_of(state: State, version: int, identity: np.ndarray, *, count: int) -> list[int]:
    """The numbers of a head. Raises: EngineInputError where another version or another stream wrote it."""
    with reading():
        header, found = state["header"], state["identity"]
    if header.shape != (1 + count,) or int(header[0]) != version:
        raise EngineInputError("state is of another version")
    if not np.array_equal(found, identity):
        raise EngineInputError("state is of another stream, mode, domain or budget")
    return [int(number) for number in header[1:]]


def flag_of(number: int) -> bool:
    """A number of a head that says yes or no. Raises: EngineInputError where it says neither."""
    if number not in (0, 1):
        raise EngineInputError("state has a number where it should say yes or no")
    return bool(number)


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Around what takes arrays out of a state. Raises: EngineInputError that names the array that is not there."""
    try:
        yield
    except KeyError as error:
        raise EngineInputError(f"state lacks {error}") from None
