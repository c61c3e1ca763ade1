"""Stored states: their head and identity, events that wait or fall due, and what a batch must be.

A head says which version of the code wrote a state, for which stream, and a few whole numbers. An identity is a hash of
public settings written as text: a stored state outlives the code that wrote it, so the text holds no name of a class. A
dataclass is written under its `written_as`, which stays as it is when the class is renamed. Names and order of its
fields are in the text too.
`stored` and `loaded` write and read the arrays of a class under a prefix, by its annotations.
`Gathered` are events that wait for the first release, and `Expiry` deletes that `ttl` makes of inserts: PRIVATE.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import cache
from typing import Any, get_args, get_type_hints

import numpy as np

from engines.core.contract import Batch, State
from engines.core.noise import aggregate
from schemas.arrays import IntArray, KeyArray, under
from schemas.blocks import Folded
from schemas.errors import EngineInputError

_DELETE = np.uint64(1)
_PLAIN = (str, bytes, int, float, Fraction, type(None))


def written(value: object) -> str:
    """Return a value as `repr` wrote it when the first states were stored; fields with `repr=False` are left out.

    Raises: TypeError for what is neither plain nor a dataclass with `written_as`.

    >>> written(("series", 1, Fraction(1, 2), None))
    "('series', 1, Fraction(1, 2), None)"
    >>> written(("alone",))
    "('alone',)"
    """
    if isinstance(value, tuple):
        parts = [written(part) for part in value]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if is_dataclass(value):
        name = getattr(value, "written_as", None)
        if isinstance(name, str):
            told = [f"{field.name}={written(getattr(value, field.name))}" for field in fields(value) if field.repr]
            return f"{name}({', '.join(told)})"
    if isinstance(value, _PLAIN):
        return repr(value)
    raise TypeError(f"{type(value).__name__} has no stable text: give it `written_as`")


def identity_of(text: str, more: bytes = b"") -> np.ndarray:
    """Return the identity of a configuration, `(32,)` uint8. A state of another one means something else.

    Args: text: what decides how a state is read, as text. more: the part of it that is bytes.
    """
    return np.frombuffer(hashlib.sha256(text.encode() + more).digest(), np.uint8)


def head(version: int, identity: np.ndarray, *numbers: int) -> State:
    """Return the first arrays of a state: `header` `(1 + numbers,)` int64, and the identity of the configuration."""
    return {"header": np.array([version, *numbers], np.int64), "identity": identity.copy()}


def numbers_of(state: Mapping[str, np.ndarray], version: int, identity: np.ndarray, *, count: int) -> list[int]:
    """Return the numbers of a head. Raises: EngineInputError where another version or another stream wrote it."""
    with reading():
        header, found = state["header"], state["identity"]
    if header.shape != (1 + count,) or int(header[0]) != version:
        raise EngineInputError("state is of another version")
    if not np.array_equal(found, identity):
        raise EngineInputError("state is of another stream, mode, domain or budget")
    return [int(number) for number in header[1:]]


def flag_of(number: int) -> bool:
    """Return what a number of a head says, yes or no. Raises: EngineInputError where it says neither."""
    if number not in (0, 1):
        raise EngineInputError("state has a number where it should say yes or no")
    return bool(number)


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Around what takes arrays out of a state.

    Raises: EngineInputError that names the array that is not there, or says that one has another shape.
    """
    try:
        yield
    except KeyError as error:
        raise EngineInputError(f"state lacks {error}") from None
    except EngineInputError:
        raise
    except ValueError:
        raise EngineInputError("an array of the state has another shape") from None


@cache
def arrays_of(kind: type[Any]) -> Mapping[str, type[np.generic]]:
    """Return the names of a class's arrays and the types of their entries; all that it annotates are arrays.

    >>> arrays_of(Folded)
    {'keys': <class 'numpy.uint64'>, 'counts': <class 'numpy.int64'>}
    """
    # An array's annotation is ndarray[shape, dtype[entries]].
    return {name: get_args(get_args(hint)[1])[0] for name, hint in get_type_hints(kind).items()}


def stored(prefix: str, value: Any) -> State:
    """Return copies of all arrays of a value, as `<prefix>/<name>`."""
    return under(f"{prefix}/", {name: getattr(value, name).copy() for name in arrays_of(value.__class__)})


def loaded(kind: Any, prefix: str, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return copies of the arrays that `stored` wrote for such a class, by name.

    Raises: EngineInputError if one is missing, or they are of different lengths.
    """
    with reading():
        arrays = {name: np.array(state[f"{prefix}/{name}"], entries) for name, entries in arrays_of(kind).items()}
    if len({array.shape[:1] for array in arrays.values()}) > 1:
        raise EngineInputError(f"the state's {', '.join(arrays)} under '{prefix}' are of different lengths")
    return arrays


def check_step(batch: Batch, step: int) -> None:
    """Refuse a step that is not the next one, `step`. Raises: EngineInputError."""
    if batch.step != step:
        raise EngineInputError(f"step {batch.step} is not the next one, {step}")


@aggregate
def check_events(events: Folded, *, keys_below: int) -> None:
    """Refuse events unless each key is one word below `keys_below` and has a positive count.

    Raises: EngineInputError, which names what is wrong and never a value.
    """
    keys, counts = events.keys, events.counts
    if keys.ndim != 2 or keys.shape[1] != 1 or counts.shape != keys.shape[:1]:
        raise EngineInputError("events must have one word a key and one count each")
    if keys.dtype != np.uint64 or counts.dtype != np.int64:
        raise EngineInputError("keys must be uint64 and counts int64")
    if len(keys) and (int(keys.max()) >= keys_below or int(counts.min()) < 1):
        raise EngineInputError("a key is outside the domain or a count is not positive")


def signs_of(keys: KeyArray) -> IntArray:
    """Return +1 for each insert and -1 for each delete, `(keys,)`: the lowest bit of the first word says which."""
    return 1 - 2 * (keys[:, 0] & _DELETE).astype(np.int64)


@aggregate
def check_batch(batch: Batch, *, step: int, depth: int) -> None:
    """Refuse events that are not of a domain of this depth, or not of the next step. Raises: EngineInputError."""
    check_step(batch, step)
    check_events(batch.events, keys_below=2 << depth)
    keys = batch.events.keys
    if (keys[1:] <= keys[:-1]).any():
        raise EngineInputError("keys must be distinct and ascending")


merged = aggregate(Folded.merge)
"""Events of several sources as one; private."""


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """Events of the first steps, PRIVATE. Attributes:

    keys: `(rows, 1)` uint64. counts: `(rows,)` int64. steps: `(rows,)` int64, when they came.
    """

    keys: KeyArray
    counts: IntArray
    steps: IntArray

    @staticmethod
    def empty() -> Gathered:
        return Gathered(np.zeros((0, 1), np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @aggregate
    def with_batch(self, batch: Batch, *, ttl: int | None) -> Gathered:
        """Return these with a step's events, less those too old by then, unseen; without a ttl steps do not matter."""
        if ttl is None:
            both = self.all().merge(batch.events)
            return Gathered(both.keys, both.counts, np.zeros(len(both.counts), np.int64))
        steps = np.concatenate([self.steps, np.full(len(batch.events.counts), batch.step)])
        young = steps > batch.step - ttl
        return Gathered(
            np.concatenate([self.keys, batch.events.keys])[young],
            np.concatenate([self.counts, batch.events.counts])[young],
            steps[young],
        )

    @aggregate
    def all(self) -> Folded:
        """Return all events, folded."""
        return Folded.from_keys(self.keys, self.counts)


@dataclass(frozen=True, slots=True, eq=False)
class Expiry:
    """Deletes by step, in the order in which they fall due. Attributes:

    words: of a key; the lowest bit of the first one says delete.
    """

    due: tuple[tuple[int, Folded], ...]
    words: int = 1

    @staticmethod
    def empty(words: int = 1) -> Expiry:
        return Expiry((), words)

    @aggregate
    def scheduled(self, events: Folded, *, due: int) -> Expiry:
        """Return what is due once the inserts among `events` are deleted at step `due`, later than all before."""
        inserts = (events.keys[:, 0] & _DELETE) == 0
        if not inserts.any():
            return self
        keys = events.keys[inserts]
        keys[:, 0] |= _DELETE
        return Expiry((*self.due, (due, Folded(keys, events.counts[inserts]))), self.words)

    @aggregate
    def taken(self, step: int) -> tuple[Folded, Expiry]:
        """Return what is due at `step` or before, and the rest."""
        now = [folded for due, folded in self.due if due <= step]
        return Folded.empty(self.words).merge(*now), Expiry(self.due[len(now) :], self.words)

    def arrays(self) -> State:
        parts = [folded for _, folded in self.due]
        return {
            "expiry/due": np.array([due for due, _ in self.due], np.int64),
            "expiry/rows": np.array([len(part.counts) for part in parts], np.int64),
            "expiry/keys": np.concatenate([np.zeros((0, self.words), np.uint64), *(part.keys for part in parts)]),
            "expiry/counts": np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)]),
        }

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> Expiry:
        """Return what `arrays` were of. Raises: EngineInputError if some are missing or do not fit together."""
        with reading():
            due, rows = arrays["expiry/due"].tolist(), arrays["expiry/rows"].tolist()
            keys, counts = arrays["expiry/keys"].copy(), arrays["expiry/counts"].copy()
        if len(due) != len(rows) or sum(rows) != len(keys) or len(keys) != len(counts):
            raise EngineInputError("the state's deletes to come do not fit together")
        parts, start = [], 0
        for step, size in zip(due, rows, strict=True):
            parts.append((step, Folded(keys[start : start + size], counts[start : start + size])))
            start += size
        return Expiry(tuple(parts), keys.shape[1])


def with_expired(events: Folded, expiry: Expiry, *, step: int, ttl: int | None) -> tuple[Folded, Expiry]:
    """Return the PRIVATE events of a step with the deletes that fall due in it, and those to come; ttl: None: never."""
    if ttl is None:
        return events, expiry
    due, left = expiry.scheduled(events, due=step + ttl).taken(step)
    return merged(events, due), left
