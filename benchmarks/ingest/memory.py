"""Memory of contribution bounds: bytes a user, against the least that is possible, and the longest wait as they fill.

The least: a set of n hashes of b bits, and a count each, cannot be told from another in less than
log2((2^b)! / (n! (2^b - n)!)) + n log2(largest count + 1) bits, which is b - log2(n) + log2(e) a user and the count's.
"""

from __future__ import annotations

import math
import time

import numpy as np
import psutil

from benchmarks.ingest.source import PARTITIONS

LARGEST = 20
BATCH = 5_000


def least_bytes(users: int, *, largest: int = LARGEST, hash_bits: int = 128) -> float:
    """Bytes a user, of one table with that many."""
    return (hash_bits - math.log2(users) + math.log2(math.e) + math.log2(largest + 1)) / 8


def memory(users: int) -> dict[str, float]:
    """What that many users take in the bounds of four partitions, and the longest that a batch of new ones waited."""
    from agents.protocol.ingest.bounds import Bounds, BoundSpec

    process = psutil.Process()
    before = process.memory_info().rss
    random = np.random.default_rng(1)
    tables = [Bounds(BoundSpec(max_contributions=LARGEST)) for _ in range(PARTITIONS)]
    slowest = computed = 0.0
    for _ in range(0, users // PARTITIONS, BATCH):
        for table in tables:
            hashes = random.integers(1, 1 << 63, (BATCH, 2), dtype=np.uint64) << np.uint64(1)
            begun, began = time.perf_counter(), time.thread_time()
            table.accept(hashes, np.zeros(BATCH, np.int64))
            slowest = max(slowest, time.perf_counter() - begun)
            computed = max(computed, time.thread_time() - began)
    held = sum(table.users for table in tables)
    return {
        "users": held,
        "rss_mb": process.memory_info().rss / 1e6,
        "growth_mb": (process.memory_info().rss - before) / 1e6,
        "bytes_per_user": sum(table.nbytes for table in tables) / held,
        "slowest_batch_ms": slowest * 1e3,
        "slowest_batch_cpu_ms": computed * 1e3,
    }
