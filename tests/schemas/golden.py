"""Samples of every private record, and the files that hold their bytes: `python -m tests.schemas.golden` writes
them.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from schemas.blocks import Block, Folded
from schemas.releases import GENESIS, Candidate, Chunk, Seed, link, sha256

FOLDER = Path(__file__).parent.parent / "golden"
_DIGEST = sha256(b"payload")
_LEDGER = b'{"step":6}'
_STATE = "a58b221eb4fc15365559bb8d840d242ac6418ce0f6a63e91da291968ddf39d28"
SAMPLES: dict[str, Any] = {
    "block-v1": Block(
        "taxi", 3, 10, 25, 4,
        {5: Folded(np.array([[2], [9]], np.uint64), np.array([1, 4])), 7: Folded.empty(1)},
        np.array([[1, 2, 0], [2**64 - 1, 5, 1]], np.uint64), np.array([1, 2]),
        {"ACCEPTED": 5, "OUTSIDE_DOMAIN": 10}, 17,
    ),
    "block-snapshots-v1": Block(
        "taxi", 3, 10, 25, 4, {5: Folded(np.array([[2]], np.uint64), np.array([5]))},
        np.array([[1, 2, 0]], np.uint64), np.array([1]), {"ACCEPTED": 5}, 17, np.repeat(np.array([0, 25]), 128),
    ),
    "block-totals-v1": Block(
        "taxi", 3, 10, 25, 4, {}, counts={"ACCEPTED": 5, "BAD_TIME": 9, "LOST": 1}, refused={"BAD_TIME": {"at": 9}},
        totals={"ACCEPTED": {"": 5}, "BAD_TIME": {"at": 9}, "LOST": {"": 1}}, began=10,
    ),
    "block-live-v1": Block("taxi", 3, 10, 25, 900, {901: Folded.empty(1)}, counts={"ACCEPTED": 0}, live_from=5),
    "seed-v1": Seed("taxi", 6, bytes(range(32))),
    "chunk-v1": Chunk("taxi", 6, 1, 3, _DIGEST, b"\x00\x01part"),
    "candidate-v1": Candidate(
        "taxi", 6, GENESIS, link(GENESIS, stream="taxi", step=6, digest=_DIGEST, ledger=_LEDGER), _DIGEST, b"payload",
        _LEDGER,
        {"position": 12, "next_offsets": [3], "ticks": [6], "floors": [None], "pending": []},
        {"engine/nodes": np.array([[1, 2], [3, 4]])}, _STATE,
    ),
}  # fmt: skip


def same(left: Any, right: Any) -> bool:
    """Equality of types and values that looks into arrays, and whatever holds them."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    if dataclasses.is_dataclass(left):
        return all(same(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, sample in SAMPLES.items():
        encoded = sample.encode()
        if isinstance(sample, Candidate):
            (FOLDER / f"{name}.state.bin").write_bytes(encoded.state.body)
            encoded = encoded.release
        (FOLDER / f"{name}.bin").write_bytes(encoded)
