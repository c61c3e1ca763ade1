"""A Faust table whose writes are durable when they return: where a restarted worker looks first for a stream's state.

It is a cache and not the truth, which is the release log: a worker that lost its partition can still write the
table's changelog. So a body is kept in one of two slots, as chunks, and its head is written last, with a digest.
Whatever does not fit together is as good as absent.

Faust's own `table[key] = value` returns before the changelog has the record, and can mark the local store ahead of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import faust
import orjson
import rocksdict
from faust.tables.manager import TableManager
from faust.types import TP

from agents.worker.failpoints import failpoint
from agents.worker.state_store import StateStore
from schemas.releases import CHUNK_BYTES

log = logging.getLogger(__name__)

SAVE_TIMEOUT_S = 20.0
# The defaults are a cache of 2 GiB and a write buffer of 64 MiB for each partition.
STORE_OPTIONS = {"block_cache_size": 16 << 20, "write_buffer_size": 8 << 20}
HEAD_VERSION = 1


class DurableTable(faust.Table):
    """Named bodies of any size, by partition. Keys are never deleted: a deleted tail hangs Faust's recovery."""

    async def save(self, partition: int, name: str, body: bytes, *, facts: dict[str, Any] | None = None) -> None:
        """Store `body` under `name`; durable, and found by the next `load`, when this returns.

        Args:
            facts: small JSON-able facts kept beside it, readable without the body.
        Raises: TimeoutError, KafkaError: then either the old or the new body is there.
        """
        head = self._head(partition, name)
        slot = 0 if head is None else 1 - head["slot"]
        parts = [body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES)]
        for index, part in enumerate(parts):
            await self._put(partition, [(_chunk_key(name, slot, index), part)])
            failpoint("table_chunk")
        failpoint("table_before_head")
        digest = hashlib.sha256(body).hexdigest()
        new = {"v": HEAD_VERSION, "slot": slot, "chunks": len(parts), "digest": digest, "facts": facts or {}}
        await self._put(partition, [(name.encode(), orjson.dumps(new))])
        failpoint("table_after_head")

    def load(self, partition: int, name: str) -> bytes | None:
        """The body that was saved last, or None where there is none or where it is torn."""
        head = self._head(partition, name)
        if head is None:
            return None
        parts = [self._get(partition, _chunk_key(name, head["slot"], index)) for index in range(head["chunks"])]
        body = b"".join(part for part in parts if part is not None)
        if hashlib.sha256(body).hexdigest() != head["digest"]:
            self.log.warning("state table: %s of partition %s is torn and is left aside", name, partition)
            return None
        return body

    def facts(self, partition: int, name: str) -> dict[str, Any] | None:
        """The facts beside a body that is whole."""
        head = self._head(partition, name)
        if head is None or self.load(partition, name) is None:
            return None
        return dict(head["facts"])

    def _head(self, partition: int, name: str) -> dict[str, Any] | None:
        value = self._get(partition, name.encode())
        if value is None:
            return None
        head: dict[str, Any] = orjson.loads(value)
        return head if head.get("v") == HEAD_VERSION else None

    def _get(self, partition: int, key: bytes) -> bytes | None:
        # The database is looked up each time: a reference kept here would hold the lock on a revoked partition's files.
        value: bytes | None = self.data.use(partition, lambda db: db.get(key))
        return value

    def _new_store_by_url(self, url: Any) -> StateStore:
        return StateStore(
            url,
            self.app,
            self,
            table_name=self.name,
            key_type=self.key_type,
            key_serializer=self.key_serializer,
            value_serializer=self.value_serializer,
            value_type=self.value_type,
            loop=self.loop,
            options=self.options,
        )

    def notice_lost_changelog(self, ends: Mapping[TP, int]) -> None:
        """Say where the changelog ends before what is stored here. Both are caches: the release log has the truth.

        Args: ends: last offset of each partition.
        """
        for tp, last in ends.items():
            stored = self.data.persisted_offset(tp)
            if stored is not None and stored > last:
                log.warning(
                    "changelog %s of partition %d has lost records: states come from the store at hand and the release "
                    "log, and are written to it again",
                    tp.topic,
                    tp.partition,
                )

    async def _put(self, partition: int, items: Sequence[tuple[bytes, bytes]]) -> None:
        """Changelog first, awaited; then values and offset in ONE write batch, so that the store is never ahead."""
        futures = [
            await self.changelog_topic.send(
                key=key, value=value, partition=partition, key_serializer="raw", value_serializer="raw"
            )
            for key, value in items
        ]
        # Not `wait_for`: on Python 3.11 it loses a cancellation that comes with the answer; a revoked task would go on
        # and open the store of its former partition again.
        async with asyncio.timeout(SAVE_TIMEOUT_S):
            records = await asyncio.gather(*futures)
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in items:
            batch.put(key, value)
        batch.put(self.data.offset_key, str(max(record.offset for record in records)).encode())
        self.data.use(partition, lambda db: db.write(batch))


class EagerTables(TableManager):
    """Faust's manager waits a second for tables that are declared late. Ours is declared before the start."""

    async def on_start(self) -> None:
        if not self.should_stop:
            await self._update_channels()
            await self.recovery.start()


def durable_table(app: faust.App, name: str, partitions: int) -> DurableTable:
    """Declare the table. Its changelog topic must exist, with `partitions` partitions."""
    make: Callable[..., DurableTable] = app.Table
    return make(name, partitions=partitions, key_type=bytes, value_type=bytes, options=dict(STORE_OPTIONS))


def _chunk_key(name: str, slot: int, index: int) -> bytes:
    return f"{name}/{slot}/{index}".encode()
