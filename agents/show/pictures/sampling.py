"""A sample of keys that is the same whenever it is taken: a key is in it, or not, by its hash alone.

So a record that is withdrawn is found in the sample if it was put there, and a smaller sample is a part of a larger
one.
"""

from __future__ import annotations

import hashlib

_WORD = 1 << 64


def place(key: str) -> int:
    """64 bits of a hash of the key."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")


def limit(level: int) -> int:
    """Keys whose `place` is below are in a sample of one in 2**level."""
    return _WORD >> level
