"""Seconds from the SIGKILL of a worker to the next public step, when it is started again at once.

    python -m tests.crash.takeover --kills 5
    python -m tests.crash.takeover --kills 5 --session 10

One worker, so that nobody else publishes meanwhile; the start of the process is part of it.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from aiokafka import AIOKafkaConsumer

from agents.local.broker.embedded import broker_from_env
from schemas.topics import Topics
from tests.crash.field import Field

QUIET_MS = 150  # without a public step: what the dead worker had committed has come by then
WORKING_S = 3.0
WORKER = "w0"


async def run(kills: int, *, session_s: int, folder: Path) -> list[float]:
    """Of each kill, the seconds until the slowest stream has published again."""
    took: list[float] = []
    with broker_from_env() as broker:
        field = Field(broker.bootstrap, folder, session_timeout_s=session_s)
        ledgers = [Topics.ledger(stream.name) for stream in field.config.streams]
        try:
            await field.open(pause_s=0.3)
            field.start(WORKER)
            await field.until_public(5)
            reader = AIOKafkaConsumer(
                *ledgers, bootstrap_servers=broker.bootstrap, isolation_level="read_committed", fetch_max_wait_ms=20
            )
            await reader.start()
            try:
                for _ in range(kills):
                    await asyncio.sleep(WORKING_S)
                    took.append(await _once(field, reader, set(ledgers)))
            finally:
                await reader.stop()
        finally:
            await field.close()
    return took


async def _once(field: Field, reader: AIOKafkaConsumer, waiting: set[str]) -> float:
    began = time.monotonic()
    field.workers[WORKER].kill()
    field.start(WORKER)
    while await reader.getmany(timeout_ms=QUIET_MS):
        pass
    while waiting:
        waiting -= {tp.topic for tp in await reader.getmany(timeout_ms=20)}
    return time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser(description="Seconds from a worker's SIGKILL to the next public step.")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--session", type=int, default=30, help="kafka.session_timeout_s")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="privstream-takeover-") as folder:
        took = asyncio.run(run(options.kills, session_s=options.session, folder=Path(folder)))
    print(" ".join(f"{seconds:.1f}" for seconds in took))
    print(f"kills {len(took)}, median {statistics.median(took):.1f} s, longest {max(took):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
