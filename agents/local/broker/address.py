"""Where the embedded broker listens, and whether it does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor


@contextlib.contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Ports that nobody uses now.

    From below the range that systems give to outgoing connections: a broker that was killed must find its port free
    when it is started again.
    """
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            port = 20_000 + int.from_bytes(os.urandom(2)) % 12_000
            listener = held.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
        yield ports


def listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers(bootstrap: str) -> bool:
    """A round trip that only a registered broker passes. In a thread, so that it works with an event loop running."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: asyncio.run(_describe(bootstrap))).result()


async def _describe(bootstrap: str) -> bool:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaError

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=5000)
    try:
        await asyncio.wait_for(admin.start(), timeout=10)
        cluster = await asyncio.wait_for(admin.describe_cluster(), timeout=10)
    except (KafkaError, OSError, TimeoutError):
        return False
    finally:
        await admin.close()
    return bool(cluster["brokers"])
