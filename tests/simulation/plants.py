"""Faults of the protocol, built in one at a time, so that the simulation can be seen to find them.

Each is a change of the program as somebody could make it: what stands there while a seed lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import aiokafka

from agents.kafka import clients
from agents.kafka.transactions import OneChanceProducer
from agents.kafka.witness.streams import StreamWitness
from agents.protocol.ingest.bounds import ADMITTED, Bounds
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.snapshots import BucketLog
from agents.protocol.ingest.user_table import BUCKETS
from agents.protocol.partitioner import bounds_partition
from agents.protocol.release.candidates import StreamCandidates
from agents.protocol.release.witness import Mark, judge
from agents.worker.engine import EngineTask
from agents.worker.ingest.partition_task import AwaitedTicks, SourceTask

Patches = dict[str, Any]


def late_seed() -> Patches:
    """The seed is committed with the candidate, and not before anything is computed."""
    commit = EngineTask._commit

    async def changed(self: Any, records: Any, states: Any) -> None:
        drawn = [*getattr(self, "drawn", []), *records]
        self.drawn = [] if states else drawn
        if states:
            await commit(self, drawn, states)

    return {"agents.worker.engine.EngineTask._commit": changed}


def state_outside() -> Patches:
    """The state is committed in a transaction of its own, behind that of its candidate."""
    transact = EngineTask._transact

    async def changed(self: Any, records: Any, states: Any) -> int:
        offset = await transact(self, records, {})
        return await transact(self, (), states) if states else offset

    return {"agents.worker.engine.EngineTask._transact": changed}


def older_state() -> Patches:
    """What the store holds passes for the state of the newest candidate, and its changelog is not read."""

    async def nothing(*_: Any, **__: Any) -> None:
        pass

    return {
        "tests.simulation.worker.Table.catch_up": nothing,
        "agents.protocol.release.candidates.StreamCandidates.recover": _unpinned,
    }


def aborted_state() -> Patches:
    """A state is stored before its transaction is committed, and passes for that of the newest candidate."""
    transact = EngineTask._transact

    async def changed(self: Any, records: Any, states: Any) -> int:
        if states:
            await self._table.committed(self.partition, states, None)
        return await transact(self, records, states)

    return {
        "agents.worker.engine.EngineTask._transact": changed,
        "agents.protocol.release.candidates.StreamCandidates.recover": _unpinned,
    }


_recover = StreamCandidates.recover


def _unpinned(self: Any, saved: Any, **settings: Any) -> Any:
    newest = self._view.newest
    if saved is not None and newest is not None:
        candidate = self._view.newest = replace(newest, state_digest=saved.digest)
        self._view._states[candidate.step] = saved.digest
        saved = saved._replace(step=candidate.step)
    return _recover(self, saved if newest is not None else None, **settings)


def ledger_not_read() -> Patches:
    """The publisher does not read the public ledger after fencing."""

    @contextlib.asynccontextmanager
    async def nothing(*_: Any) -> AsyncIterator[Any]:
        async def read() -> AsyncIterator[list[Any]]:
            yield []

        yield SimpleNamespace(read=read)

    return {"agents.worker.publish.log_reader": nothing}


def stale_snapshot() -> Patches:
    """Contribution bounds are restored from the first snapshot of a bucket, not from the last one."""
    return {"agents.worker.ingest.restore._load_snapshots": _first_snapshots}


async def _first_snapshots(config: Any, topics: Any, tasks: Any) -> None:
    for machine in (machine for task in tasks for machine in task.machines):
        if machine.spec.bounds is None:
            continue
        partition = bounds_partition(machine.spec.stream, machine.partition, topics.partitions)
        keys = {BucketLog.key(machine.spec.stream, machine.partition, bucket) for bucket in range(BUCKETS)}
        first: dict[bytes, bytes] = {}
        records = await clients.read_to_end(config.kafka, topics.bounds, partition)
        for record in records:
            if record.key in keys:
                first.setdefault(record.key, record.value)
        if first:
            machine.load(list(first.values()))


def pairs_forgotten() -> Patches:
    """Who goes on where another worker was knows how many keys its users have had, and not which."""
    fold, fill = BucketLog.fold, Bounds.fill

    def folded(self: Any, block: Any, *, at: int) -> None:
        kept = block.users[:, 2] < ADMITTED
        fold(self, replace(block, users=block.users[kept], increments=block.increments[kept]), at=at)

    def filled(self: Any, kind: Any, slot: int, buckets: Any) -> None:
        if slot < ADMITTED:
            fill(self, kind, slot, buckets)

    return {
        "agents.protocol.ingest.snapshots.BucketLog.fold": folded,
        "agents.protocol.ingest.bounds.Bounds.fill": filled,
    }


def parts_overlap() -> Patches:
    """Each part of a split stream has the events of the first one."""
    return {"schemas.config.split.SplitPart.number": property(lambda self: 0)}


def offset_outside() -> Patches:
    """The source offset is committed in a transaction of its own, behind that of the blocks."""
    commit = OneChanceProducer.commit_transaction
    send = OneChanceProducer.send_offsets_to_transaction

    async def later(self: Any, offsets: Any, group: str) -> None:
        self.offsets_of = offsets, group

    async def changed(self: Any) -> None:
        await commit(self)
        if (offsets := self.__dict__.pop("offsets_of", None)) is not None:
            await self.begin_transaction()
            await send(self, *offsets)
            await commit(self)

    return {
        "agents.kafka.transactions.OneChanceProducer.commit_transaction": changed,
        "agents.kafka.transactions.OneChanceProducer.send_offsets_to_transaction": later,
    }


def copies_outside() -> Patches:
    """Copies of a router are written outside of the transaction that says how far they reach."""
    send = SourceTask._send_copies

    async def changed(self: Any, sealed: Any) -> list[Any]:
        outside = aiokafka.AIOKafkaProducer(bootstrap_servers=self._config.kafka.bootstrap)
        await outside.start()
        try:
            await asyncio.gather(
                *await send(cast(SourceTask, SimpleNamespace(producer=outside, _topics=self._topics)), sealed)
            )
        finally:
            await outside.stop()
        return []

    return {"agents.worker.ingest.partition_task.SourceTask._send_copies": changed}


def copies_uncommitted() -> Patches:
    """Ingest reads copies of routers that died before they committed them."""
    return {"agents.worker.ingest.service.AIOKafkaConsumer": _isolated("read_uncommitted")}


def trimmed_too_early() -> Patches:
    """The release log is deleted up to the last public step, its candidate included."""

    def changed(self: Any) -> int | None:
        later = [at for step, at in self._first_offsets.items() if step > self.machine.last_step]
        return min(later, default=None)

    return {"agents.worker.publish.PublishStreamTask.first_needed": changed}


def trimmed_by_position() -> Patches:
    """Blocks are deleted once they are folded, though bounds may still need them."""
    return {"agents.protocol.release.merge.BlockMerge.floor": property(lambda self: self.position)}


def no_fencing() -> Patches:
    """Every producer has a transactional id of its own."""
    numbers = itertools.count()
    fenced = clients.fenced_producer

    async def changed(kafka: Any, transactional_id: str, **settings: Any) -> Any:
        return await fenced(kafka, f"{transactional_id}-{next(numbers)}", **settings)

    users = ("worker.engine", "worker.publish", "worker.ingest.partition_task", "local.offline.replay")
    return {f"agents.{module}.fenced_producer": changed for module in users}


def tick_forgotten() -> Patches:
    """A restored partition does not remember its last tick, and asks the clock again."""
    apply = PartitionIngest.apply

    def changed(self: Any, *args: Any, **settings: Any) -> None:
        apply(self, *args, **settings)
        self.ticked = self._sealed_tick = -1

    return {"agents.protocol.ingest.partition.PartitionIngest.apply": changed}


def live_forgotten() -> Patches:
    """A restored partition does not remember that it has gone live, and waits for ticks again."""
    apply = PartitionIngest.apply

    def changed(self: Any, *args: Any, **settings: Any) -> None:
        apply(self, *args, **settings)
        self.live_from = None

    return {"agents.protocol.ingest.partition.PartitionIngest.apply": changed}


def live_in_vain() -> Patches:
    """The wall clock closes no step of a stream that was replayed, though it has gone live."""
    reached = AwaitedTicks.reached

    def changed(self: Any, machine: Any, offset: int) -> Any:
        due = list(reached(self, machine, offset))
        return iter(() if machine.spec.replay else due)

    return {"agents.worker.ingest.partition_task.AwaitedTicks.reached": changed}


def uncommitted_restore() -> Patches:
    """Logs are read back with whatever transactions left behind."""
    return {"agents.kafka.clients.AIOKafkaConsumer": _isolated("read_uncommitted")}


def _isolated(level: str) -> Callable[..., Any]:
    def consumer(*args: Any, **settings: Any) -> Any:
        return aiokafka.AIOKafkaConsumer(*args, **{**settings, "isolation_level": level})

    return consumer


def retry() -> Patches:
    """An EndTxn that timed out is sent again with the same epoch (KAFKA-17754), as aiokafka does by itself."""
    once = "OneChanceProducer"  # what stands in the way of that, where it does
    return {f"agents.kafka.clients.{once}": aiokafka.AIOKafkaProducer} if hasattr(clients, once) else {}


def witness_late() -> Patches:
    """The mark of a transaction is written behind its commit: with the next one."""
    note = StreamWitness.note

    async def changed(self: Any, step: int, chain: str) -> None:
        before, self.left = self.__dict__.get("left"), (step, chain)
        if before is not None:
            await note(self, *before)

    return {"agents.kafka.witness.streams.StreamWitness.note": changed}


def witness_read_once() -> Patches:
    """The first publisher of a stream looks at the witness; those that take over believe the cluster."""
    seen: set[str] = set()

    def changed(stream: str, mark: Any, terms: Any, *, last: int, last_chain: str, **found: Any) -> Any:
        if stream not in seen:
            seen.add(stream)
            return judge(stream, mark, terms, last=last, last_chain=last_chain, **found)
        return None if last < 0 else Mark(stream, last, last_chain)

    return {"agents.kafka.witness.streams.judge": changed}


def witness_digest_ignored() -> Patches:
    """Any answer of the step that the witness has seen will do."""

    def changed(stream: str, mark: Any, terms: Any, *, ledger: Any, logged: Any, **facts: Any) -> Any:
        found = ledger or logged
        mark = mark if mark is None or found is None else replace(mark, chain=found)
        return judge(stream, mark, terms, ledger=ledger, logged=logged, **facts)

    return {"agents.kafka.witness.streams.judge": changed}


def witness_believes_the_log() -> Patches:
    """A mark that is ahead of the ledger is a crash between both, and nobody looks for its step on the log."""

    def changed(stream: str, mark: Any, terms: Any, *, last: int, logged: Any, **facts: Any) -> Any:
        ahead = mark is not None and mark.step > last
        return judge(stream, mark, terms, last=last, logged=mark.chain if ahead else logged, **facts)

    return {"agents.kafka.witness.streams.judge": changed}


def _frozen(name: str) -> Patches:
    """Something that is waited for never comes, and nothing says so."""

    async def changed(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    return {name: changed}


def frozen_engine() -> Patches:
    return _frozen("agents.worker.engine.EngineTask._commit")


def frozen_publisher() -> Patches:
    return _frozen("agents.worker.publish.PublishStreamTask.publish")


def frozen_audit() -> Patches:
    return _frozen("agents.worker.audit.AuditStreamTask._advance")


def frozen_ingest() -> Patches:
    return _frozen("agents.worker.ingest.partition_task.SourceTask.flush")


def frozen_clock() -> Patches:
    return _frozen("agents.worker.ingest.service.IngestService._place_ticks")


FROZEN = (frozen_engine, frozen_publisher, frozen_audit, frozen_ingest, frozen_clock)
"""A probe must find these, not only what comes of them."""
PLANTS: dict[str, Callable[[], Patches]] = {
    plant.__name__.replace("_", " "): plant
    for plant in (
        retry, late_seed, state_outside, older_state, aborted_state, ledger_not_read, stale_snapshot,
        pairs_forgotten, parts_overlap, offset_outside, copies_outside, copies_uncommitted, trimmed_too_early,
        trimmed_by_position, no_fencing, tick_forgotten, live_forgotten, live_in_vain, uncommitted_restore,
        witness_late, witness_read_once, witness_digest_ignored, witness_believes_the_log, *FROZEN,
    )
}  # fmt: skip
"""Name -> what makes its patches."""
