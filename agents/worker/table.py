"""A Faust table from which a restarted worker has each stream's state: RocksDB, and the changelog that fills it.

A body is kept in pieces, each in a slot. Its head names the slots and the digests of the pieces, and the digest of the
whole; whatever does not fit together is as good as absent. The pieces of the next body go to slots that the head does
not name, and a piece that it has already stays where it is and is not written again. The first body of a name after a
start is written whole, so that what a changelog has lost is there again. A state of the engine comes to the changelog
in the transaction of its candidate, and to RocksDB behind the commit; the checkpoint of an audit is sent by itself, its
head last.

RocksDB says up to which offset it has the changelog, and `catch_up` reads the rest, committed records alone: once the
engine has fenced its predecessor, that is all there will ever be of it. Only what was committed comes in, so what is
here was committed, whatever the changelog has lost since; which state is the right one says the release log.

Faust's own recovery does nothing here: it comes before the fence, and waits for ever for a record behind a changelog
that ends with the mark of a transaction. Faust's `table[key] = value` returns before the changelog has the record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any

import faust
import orjson
import rocksdict
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.types import TP
from faust.types.tables import CollectionT

from agents.kafka.clients import log_reader
from agents.worker.failpoints import failpoint
from agents.worker.state_store import OPTIONS, StateStore
from schemas.config import Kafka
from schemas.releases import SavedState, StatePiece, pieces_of, sha256

log = logging.getLogger(__name__)

SAVE_TIMEOUT_S = 20.0
HEAD_VERSION = 1
Records = Sequence[tuple[bytes, bytes]]
"""Keys and values of the changelog."""


class DurableTable(faust.Table):
    """Named bodies of any size, by partition."""

    def records(
        self, partition: int, name: str, pieces: Sequence[StatePiece], *, digest: str, step: int, position: int
    ) -> Records:
        """Return the records that store a body under `name` once all of it is on the changelog, the head last. See
        `SavedState`.

        Args:
            pieces: of the body, in order.
            position: offset from which the topic is to be read that the body was made of.
        """
        head = self._head(partition, name)
        held = [] if head is None else head["pieces"]
        there = {known: slot for slot, known in held} if name in self._written[partition] else {}
        used = {slot for slot, _ in held}
        free = (slot for slot in count() if slot not in used)
        new, places = dict[str, bytes](), list[tuple[int, str]]()
        for piece in pieces:
            if piece.digest not in there:
                there[piece.digest] = next(free)
                new[piece.digest] = piece.body
            places.append((there[piece.digest], piece.digest))
        stored = [(_piece_key(name, there[known]), body) for known, body in new.items()]
        said = {"v": HEAD_VERSION, "pieces": places, "digest": digest, "step": step, "position": position}
        return [*stored, (name.encode(), orjson.dumps(said))]

    async def save(self, partition: int, name: str, body: bytes, *, step: int, position: int) -> None:
        """Store `body` under `name`; it is durable, and found by the next `load`, when this returns.

        Raises: TimeoutError, KafkaError: then either the old or the new body is there.
        """
        *pieces, head = self.records(
            partition, name, pieces_of(body), digest=sha256(body), step=step, position=position
        )
        for piece in pieces:
            await self._put(partition, piece)
            failpoint("table_chunk")
        failpoint("table_before_head")
        await self._put(partition, head)
        self._written[partition].add(name)
        failpoint("table_after_head")

    async def committed(self, partition: int, bodies: Mapping[str, Records], offset: int) -> None:
        """Take in the records of bodies that a transaction has committed; `offset` is that of the last of them."""
        async with self._writing[partition]:
            self._write(partition, [record for records in bodies.values() for record in records], offset)
        self._written[partition].update(bodies)

    async def catch_up(self, kafka: Kafka, partition: int, *, anew: bool = False) -> None:
        """Take in what is committed on the changelog behind what is here. Afterwards the table is not behind anything
        that was committed before the call.

        Args: anew: read all of the changelog, as what is here is not what its offset says.
        Raises: BrokerError.
        """
        async with self._writing[partition], log_reader(kafka, self.changelog, partition) as changelog:
            self._written[partition].clear()
            stored = -1 if anew else self._stored(partition)
            if stored >= changelog.end:
                log.warning(
                    "changelog %s of partition %d has lost records: states come from the store at hand, and are "
                    "written to it again with the next step",
                    self.changelog, partition,
                )  # fmt: skip
                return
            async for records in changelog.read(stored + 1):
                if records:
                    items = [(record.key, record.value) for record in records]
                    self._write(partition, items, records[-1].offset)

    def load(self, partition: int, name: str) -> SavedState | None:
        """Return what was saved last under a name, or None where there is nothing or where it is torn."""
        head = self._head(partition, name)
        if head is None:
            return None
        pieces = list[bytes]()
        for slot, digest in head["pieces"]:
            piece = self._get(partition, _piece_key(name, slot))
            if piece is None or sha256(piece) != digest:
                self.log.warning("state table: %s of partition %s is torn and is left aside", name, partition)
                return None
            pieces.append(piece)
        return SavedState(head["step"], head["digest"], b"".join(pieces))

    def position(self, partition: int, name: str) -> int:
        """Return the offset from which to read on behind what was saved last under a name; 0: from the beginning."""
        head = self._head(partition, name)
        return 0 if head is None else int(head["position"])

    @property
    def changelog(self) -> str:
        """Name of the topic."""
        return str(self.changelog_topic.get_topic_name())

    @cached_property
    def _writing(self) -> dict[int, asyncio.Lock]:
        """A lock for each partition, so that nothing older is written over what is newer."""
        return defaultdict(asyncio.Lock)

    @cached_property
    def _written(self) -> dict[int, set[str]]:
        """Names of which all pieces were written by this process, by partition."""
        return defaultdict(set)

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

    def _stored(self, partition: int) -> int:
        """Return the offset up to which the changelog is here; -1: nothing of it."""
        stored = self.data.persisted_offset(TP(self.changelog, partition))
        return -1 if stored is None else int(stored)

    async def _put(self, partition: int, record: tuple[bytes, bytes]) -> None:
        """Write to the changelog first, and wait for it. How far the changelog is here stays: a state that was
        committed before it may not have come in yet.
        """
        key, value = record
        sent = await self.changelog_topic.send(
            key=key, value=value, partition=partition, key_serializer="raw", value_serializer="raw"
        )
        # Not `wait_for`: on Python 3.11 it loses a cancellation that comes with the answer; a revoked task would go on
        # and open the store of its former partition again.
        async with asyncio.timeout(SAVE_TIMEOUT_S):
            await sent
        async with self._writing[partition]:
            self._write(partition, [record])

    def _write(self, partition: int, records: Records, offset: int | None = None) -> None:
        """Write all in one batch, with the offset up to which the changelog is here."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in records:
            batch.put(key, value)
        if offset is not None:
            batch.put(self.data.offset_key, str(offset).encode())
        self.data.use(partition, lambda db: db.write(batch))


class NoRecovery(Recovery):
    """Faust's recovery with nothing to do, see the module."""

    def add_active(self, table: CollectionT, tp: TP) -> None:
        """Leave the changelog to `DurableTable.catch_up`."""


class EagerTables(TableManager):
    """Faust's manager waits a second for tables that are declared late. Ours is declared before the start."""

    _recovery: Recovery | None

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = NoRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    async def on_start(self) -> None:
        if not self.should_stop:
            await self._update_channels()
            await self.recovery.start()


def durable_table(app: faust.App, name: str, partitions: int) -> DurableTable:
    """Declare the table. Its changelog topic must exist, with `partitions` partitions."""
    make: Callable[..., DurableTable] = app.Table
    return make(name, partitions=partitions, key_type=bytes, value_type=bytes, options=OPTIONS)


def _piece_key(name: str, slot: int) -> bytes:
    return f"{name}/{slot}".encode()
