"""The seed expansion: repeatable, separated by context and by call."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.noise import NoiseSource, fresh_seed, seeded
from schemas.errors import EngineInputError

LABELS = st.one_of(st.text(max_size=4), st.just("\ud800"), st.integers(), st.binary(max_size=4))
CONTEXTS = st.lists(LABELS, max_size=4).map(tuple)
# Near misses are what an ambiguous encoding would confuse: few letters, cut in all ways, in three types.
CLOSE_LABELS = st.one_of(st.text("1s", max_size=3), st.sampled_from([1, 11, -1]), st.binary(max_size=2))
CLOSE_CONTEXTS = st.lists(CLOSE_LABELS, max_size=3).map(tuple)


def typed(context: tuple[object, ...]) -> list[tuple[type, object]]:
    return [(type(label), label) for label in context]


def test_words_are_the_documented_bytes() -> None:
    """The wire of old seeds: whoever recomputes an old step must get the same words, on every platform."""
    seed = bytes(range(32))
    source = NoiseSource(seed, "taxi", -7, b"\x00")
    source.words(5)
    encoded = (
        b"privstream/noise/1" + seed + (3).to_bytes(8, "little")
        + b"s" + (4).to_bytes(8, "little") + b"taxi"
        + b"i" + (2).to_bytes(8, "little") + b"-7"
        + b"b" + (1).to_bytes(8, "little") + b"\x00"
        + (1).to_bytes(8, "little")
    )  # fmt: skip
    digest = hashlib.shake_256(encoded).digest(16)
    expected = [int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")]
    assert source.words(2).tolist() == expected


@given(st.binary(min_size=32, max_size=32), CONTEXTS, st.lists(st.integers(0, 20), max_size=5))
def test_same_seed_context_and_calls_give_the_same_words(seed: bytes, context: tuple, counts: list[int]) -> None:
    one, two = NoiseSource(seed, *context), NoiseSource(seed, *context)
    for count in counts:
        words = one.words(count)
        assert words.dtype == np.uint64
        assert words.shape == (count,)
        assert words.tolist() == two.words(count).tolist()


@given(CLOSE_CONTEXTS, CLOSE_CONTEXTS)
def test_different_contexts_share_no_words(one: tuple, two: tuple) -> None:
    same = typed(one) == typed(two)
    left, right = NoiseSource(bytes(32), *one), NoiseSource(bytes(32), *two)
    assert (left.words(2).tolist() == right.words(2).tolist()) is same


@given(CONTEXTS, LABELS, st.lists(st.integers(0, 5), max_size=4))
def test_a_child_does_not_depend_on_what_its_parent_drew(context: tuple, label: str, counts: list[int]) -> None:
    parent = NoiseSource(bytes(32), *context)
    for count in counts:
        parent.words(count)
    fresh = NoiseSource(bytes(32), *context, label)
    child = parent.child(label)
    assert child.words(3).tolist() == fresh.words(3).tolist()
    assert child.words(3).tolist() != parent.words(3).tolist()


@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 30))
def test_a_call_depends_on_its_number_and_not_on_the_size_of_others(count: int, before: int, more: int) -> None:
    one, two = seeded(3), seeded(3)
    first = one.words(before)
    assert two.words(before + more)[:before].tolist() == first.tolist()
    assert one.words(count).tolist() == two.words(count + more)[:count].tolist()


def test_a_path_goes_on_however_its_source_is_come_by() -> None:
    """One child after the other, or a child of a child: the calls of a path are counted in one place."""
    one, two = seeded(4), seeded(4)
    parts = [one.child("a", 1).words(2), one.child("a").child(1).words(3), one.child("b").words(1)]
    parts += [one.child("a", 1).words(1)]
    path = two.child("a", 1)
    expected = [path.words(2), path.words(3), two.child("b").words(1), path.words(1)]
    assert [part.tolist() for part in parts] == [part.tolist() for part in expected]


def any_twice(words: np.ndarray) -> bool:
    """Whether two are equal, in sorted order: numpy finds unique numbers by hashes, which takes three times as long."""
    return bool((np.diff(np.sort(words)) == 0).any())


def all_words(source: NoiseSource) -> np.ndarray:
    """Words of more calls than any field of 8, 16 or 17 bits counts; of calls across chunks; and of paths as long."""
    words = [source.words(1) for _ in range(2**17 + 2**8 + 2)]
    words += [source.words(size) for size in (2**8 + 1, 2**16 + 1, 2**17 + 1, 2**18 + 1)]
    for size in (1, 2, 3, 5, 9, 17, 33, 2**8 + 1):
        words += [source.child(*range(size - 1), last).words(2) for last in ("x", "y", b"x", 0)]
    for size in (2**8, 2**16, 2**17):
        words += [source.child("x" * size + more).words(2) for more in ("", "x", "y")]
        words += [source.child(size + more).words(2) for more in (0, 1)]
    return np.concatenate(words)


def test_no_word_comes_twice_beyond_any_width_of_a_counter() -> None:
    """Of 590,000 words two are equal by chance with probability 10^-8, and the seed is fixed."""
    words = all_words(seeded(8))
    assert len(words) > 580_000
    assert not any_twice(words)


def masked(bits: int) -> type[NoiseSource]:
    class Masked(NoiseSource):
        __slots__ = ()

        def words(self, count: int) -> np.ndarray:
            self._calls[self._path] = self._calls.get(self._path, 0) % 2**bits
            return super().words(count)

    return Masked


class Forgetful(NoiseSource):
    """Expands the first 300 bytes of a path: a child of many labels, or of a long one, is its sister too."""

    __slots__ = ()

    def _begin(self, context: tuple, labels: bytes) -> None:
        super()._begin(context, labels)
        self._state = hashlib.shake_256(self._seed + self._path[:300])


@pytest.mark.parametrize("fault", [masked(8), masked(16), masked(17), Forgetful])
def test_planted_sources_give_words_twice(fault: type[NoiseSource]) -> None:
    words = all_words(fault(bytes(32)))
    assert any_twice(words)


def test_calls_seeds_and_numbers_are_separate() -> None:
    source = seeded(1)
    drawn = [source.words(4), source.words(4), seeded(2).words(4), seeded(-1).words(4), source.child(0).words(4)]
    assert len(set(np.concatenate(drawn).tolist())) == 20


def test_words_cannot_be_overwritten_and_the_seed_is_not_shown() -> None:
    with pytest.raises(ValueError, match="read-only"):
        seeded(1).words(1)[0] = 0
    seed = b"this is a secret seed of 32 byte"
    assert "secret" not in repr(NoiseSource(seed, "a"))


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33), "0" * 32, bytearray(32), None])
def test_a_seed_is_32_bytes(seed: bytes) -> None:
    with pytest.raises(EngineInputError, match="32 bytes"):
        NoiseSource(seed)


@pytest.mark.parametrize("label", [True, 1.0, None, ("a",)])
def test_labels_are_str_int_or_bytes(label: str) -> None:
    with pytest.raises(EngineInputError, match="label"):
        NoiseSource(bytes(32), label)


def test_limits() -> None:
    with pytest.raises(EngineInputError, match="label"):
        seeded(1).child()
    with pytest.raises(EngineInputError, match="negative"):
        seeded(1).words(-1)
    with pytest.raises(EngineInputError, match="chunks"):
        seeded(1).words(2**25 + 1)


def test_fresh_seeds_differ() -> None:
    seeds = {fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert {len(seed) for seed in seeds} == {32}


SEEDED_ONCE = "import random, secrets; secrets.token_bytes = random.Random(20160101).randbytes; "
"""A generator that each process begins anew: its seeds differ within a process, and everybody can draw them again."""


@pytest.mark.parametrize(("fault", "different"), [("", 2), (SEEDED_ONCE, 1)])
def test_another_process_has_other_seeds(fault: str, different: int) -> None:
    told = fault + "from engines.core.noise import fresh_seed; print(fresh_seed().hex())"
    seeds = [
        subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout for _ in "ab"
    ]
    assert len(set(seeds)) == different
