"""The one source of randomness: a 32-byte seed, expanded by SHAKE-256 into words that can be drawn again.

Guarantee: none of its own. Every mechanism is private under the assumption that SHAKE-256 with a secret uniform seed
    can not be told from uniform words (FIPS 202, 256-bit strength), and that no word is used twice: words are an
    expansion of (labels, number of the call), and a source and all its children count the calls of a path together.
Source: the release log commits the seed of a step before anything is computed from it, so a step that is computed
    again after a crash draws the same noise (design: architecture, "seed first").
"""

import hashlib
import secrets
from typing import Self

import numpy as np

from engines.core.noise.arguments import check_count
from schemas.arrays import WordArray
from schemas.errors import EngineInputError

SEED_BYTES = 32
WORD_BYTES = 8
MAX_WORDS = 2**25
"""Words of one call: 256 MiB. The samplers draw in smaller chunks."""

# Old releases are recomputed from old seeds: changing the expansion below needs a new name here.
_DOMAIN = b"privstream/noise/1"

Label = str | int | bytes


def repeated_seed(number: int, stream: str, step: int) -> bytes:
    """Return the seed of a step whose noise can be repeated, and subtracted: NOT PRIVATE. For tests and comparisons.

    The job, `simulate` and the library agree on it, so that with one number they release the same bytes.
    """
    return hashlib.sha256(f"privstream/insecure/{number}/{stream}/{step}".encode()).digest()


def fresh_seed() -> bytes:
    """Return 32 bytes of the operating system's cryptographic source: the only such call in the code base."""
    return secrets.token_bytes(SEED_BYTES)


def _check_seed(seed: object) -> None:
    if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
        raise EngineInputError(f"a seed must be {SEED_BYTES} bytes: use fresh_seed()")


def _encode(label: object) -> bytes:
    """Encode one label so that a concatenation of labels can be read in one way only: kind, length, bytes."""
    match label:
        case bool():
            raise EngineInputError("a context label must be str, int or bytes, not bool")
        case str():
            kind, payload = b"s", label.encode("utf-8", "surrogatepass")
        case int():
            kind, payload = b"i", str(label).encode()
        case bytes():
            kind, payload = b"b", label
        case _:
            raise EngineInputError(f"a context label must be str, int or bytes, not {type(label).__name__}")
    return kind + len(payload).to_bytes(8, "little") + payload


class NoiseSource:
    """A deterministic stream of uniform 64-bit words for one seed and one context.

    Each call of `words` is a SHAKE-256 stream of its own, over the domain name, the seed, the context and the number
    of the call. So the k-th call depends on k and not on how much earlier calls took, and a longer request begins
    with the words of a shorter one. Equal seed, context and number give equal words on every platform. A number is
    given once: a source counts the calls of each context for itself and all its children.

    Args:
        seed: 32 bytes, secret until the end of time: whoever knows it subtracts the noise.
        context: labels that separate this use of the seed from all others, e.g. stream name, step, mechanism.
    Raises: EngineInputError if the seed is not 32 bytes or a label is none of str, int and bytes.

    >>> NoiseSource(bytes(32), "docs", 1).words(2)
    array([4377933093429605968, 1524391797222202299], dtype=uint64)
    """

    __slots__ = ("_calls", "_context", "_labels", "_path", "_seed", "_state")

    def __init__(self, seed: bytes, *context: Label) -> None:
        _check_seed(seed)
        self._seed = seed
        self._calls: dict[bytes, int] = {}
        self._begin(context, b"".join(map(_encode, context)))

    def _begin(self, context: tuple[Label, ...], labels: bytes) -> None:
        """Args: labels: those of the context, encoded."""
        self._context, self._labels = context, labels
        # The number of labels and their lengths come first, so no context is the beginning of another one's bytes.
        self._path = len(context).to_bytes(8, "little") + labels
        self._state = hashlib.shake_256(_DOMAIN + self._seed + self._path)

    def words(self, count: int) -> WordArray:
        """Draw `(count,)` uniform uint64 words, read-only.

        Raises: EngineInputError if `count` is negative or above MAX_WORDS.
        """
        check_count(count)
        if count > MAX_WORDS:
            raise EngineInputError(f"count must be at most {MAX_WORDS} words: draw in chunks")
        number = self._calls.get(self._path, 0)
        self._calls[self._path] = number + 1
        stream = self._state.copy()
        stream.update(number.to_bytes(8, "little"))
        return np.frombuffer(stream.digest(count * WORD_BYTES), dtype="<u8").astype(np.uint64, copy=False)

    def child(self, *labels: Label) -> Self:
        """Return the source of the longer context: independent of this one, however much this one has drawn.

        The same labels give the same context, and its words go on: none comes twice.

        Raises: EngineInputError if there are no labels, since that would be this source again.

        >>> parent = seeded(1)
        >>> bool(parent.child("left").words(1) == parent.child("right").words(1))
        False
        >>> bool(parent.child("left").words(1) == seeded(1).child("left").words(1))
        False
        """
        if not labels:
            raise EngineInputError("a child needs at least one label")
        child = self._alike()
        child._begin((*self._context, *labels), self._labels + b"".join(map(_encode, labels)))
        return child

    def _alike(self) -> Self:
        """Return a source that counts calls with this one, before its context is begun."""
        made = object.__new__(type(self))
        made._seed, made._calls = self._seed, self._calls
        return made

    def __repr__(self) -> str:
        """Show the context, never the seed."""
        return f"NoiseSource(<seed>, context={self._context!r}, draws={self._calls.get(self._path, 0)})"


def seeded(n: int) -> NoiseSource:
    """Return the source number `n`, for tests and benchmarks: anyone can repeat it, so nothing it touches is private.

    A running job refuses such a seed without `--insecure-seed`, and then marks every release as not private.

    >>> seeded(7)
    NoiseSource(<seed>, context=(), draws=0)
    """
    return NoiseSource(hashlib.shake_256(b"privstream/insecure/" + str(n).encode()).digest(SEED_BYTES))
