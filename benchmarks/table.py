"""`make bench-table`: a table of 10^7 keys that nobody listed, in which no key is ever found: memory, state and steps.

Each step brings as many keys that nobody had before, one person each: what a table can be asked that costs most. All of
them are below `least_count`, so no noise is drawn, and what a step takes is the table alone.

Last line, JSON:

keys_held: at the end. bytes_per_key: what the engine holds on to then, by tracemalloc, in a run of a tenth of the size.
us_per_event: processor time of the engine, all steps over all keys. us_last_tenth, us_first_tenth: the median step of
    these. us_slowest: the step in which most hashes were merged.
written_per_key: bytes of pieces of the state that are new in a step, as a worker writes them, all steps over all keys;
    whole_per_key: what they would be if each step wrote all pieces.
encode_us_per_held: processor time of encoding the last state, for each key that is held.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Mapping
from fractions import Fraction
from statistics import median

import numpy as np

from benchmarks.size import QUICK, sized
from engines.core.contract import Batch, State
from engines.core.noise import seeded
from engines.keys.domain import KeysDomain
from engines.keys.engine import Keys, KeysConfig
from engines.keys.selection import KeySelection
from schemas.blocks import Folded
from schemas.config.engines.keys import LISTING_SHARE
from schemas.releases import Candidate, sha256

STEPS = sized(40, smallest=10)
KEYS = sized(250_000 if not QUICK else 25_000, smallest=100)
"""Of a step."""


def engine() -> Keys:
    """Return one of keys of up to 64 bytes, as is the default, in which `STEPS` steps are a period."""
    selection = KeySelection(
        epsilon=Fraction(1), delta=1e-6, share=LISTING_SHARE, contributions=8, tests=STEPS, least_count=5
    )
    domain = KeysDomain(fields=("key",))
    return Keys(KeysConfig(name="keys", domain=domain, selection=selection, renews=False, most=10**9))


def batch(step: int, keys: int, words: int) -> Batch:
    """Return so many new keys, with one person each; two random ones are the same with probability 2^-64."""
    some = np.random.default_rng(step).integers(0, 2**64, (keys, words), np.uint64)
    return Batch(step, Folded(some[np.argsort(some[:, 0])], np.ones(keys, np.int64)))


def pieces(step: int, state: State) -> tuple[dict[str, int], float]:
    """Return the bytes of the pieces of a state by their digests, and the seconds that encoding took."""
    candidate = Candidate("keys", step, "0" * 64, "1" * 64, sha256(b""), b"", b"{}", {"measured": -1}, state)
    begin = time.process_time()
    encoded = candidate.encode().state
    seconds = time.process_time() - begin
    return {piece.digest: len(piece.body) for piece in encoded.pieces}, seconds


def held(steps: int, keys: int) -> Mapping[str, float]:
    """Return the figures of so many steps of so many new keys, but `bytes_per_key`."""
    table, words = engine(), KeysDomain(fields=("key",)).words
    times, before, written, whole, seconds = list[float](), dict[str, int](), 0, 0, 0.0
    for step in range(steps):
        events = batch(step, keys, words)
        begin = time.process_time()
        table.step(events, seeded(step))
        times.append(1e6 * (time.process_time() - begin) / keys)
        now, seconds = pieces(step, table.state())
        written += sum(size for digest, size in now.items() if digest not in before)
        whole, before = whole + sum(now.values()), now
    tenth, total = max(1, steps // 10), steps * keys
    return {
        "keys_held": float(table.state()["table/numbers"][0]),
        "us_per_event": sum(times) / steps,
        "us_first_tenth": median(times[:tenth]),
        "us_last_tenth": median(times[-tenth:]),
        "us_slowest": max(times),
        "written_per_key": written / total,
        "whole_per_key": whole / total,
        "encode_us_per_held": 1e6 * seconds / total,
    }


def bytes_per_key(steps: int, keys: int) -> float:
    """Return what the engine holds on to after so many steps of so many new keys, for each key."""
    table, words = engine(), KeysDomain(fields=("key",)).words
    tracemalloc.start()
    for step in range(steps):
        table.step(batch(step, keys, words), seeded(step))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size / (steps * keys)


def figures() -> dict[str, float]:
    """Return all figures of the last line."""
    return {**held(STEPS, KEYS), "bytes_per_key": bytes_per_key(STEPS, max(KEYS // 10, 100))}


def main() -> None:
    print(json.dumps({name: float(f"{value:.3g}") for name, value in figures().items()}))


if __name__ == "__main__":
    main()
