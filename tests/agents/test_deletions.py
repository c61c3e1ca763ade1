"""Private records are deleted together, and a partition that refuses keeps no other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import KafkaError

from agents.protocol.ingest.events import RawRecord
from agents.worker import trimming
from agents.worker.ingest.counters import IngestCounters
from agents.worker.ingest.partition_task import IngestOptions, SourceTask
from agents.worker.ingest.specs import source_specs
from agents.worker.trimming import Deletions, Trimmer
from tests.kafka.support import job_config, stream_table

BLOCKS, LOG = TopicPartition("j.blocks", 0), TopicPartition("j.releases", 3)


class Cluster:
    """Attributes: requests: below which offsets each asked to delete. refuses: partitions that no request may name."""

    def __init__(self) -> None:
        self.clients, self.requests = 0, list[dict[TopicPartition, int]]()
        self.refuses: set[TopicPartition] = set()
        self.topics: list[list[str]] = []

    async def _get_cluster_metadata(self, topics: list[str] | None = None) -> None:
        self.topics.append(sorted(topics or ["all"]))

    async def delete_records(self, records: Mapping[TopicPartition, RecordsToDelete]) -> None:
        await self._get_cluster_metadata()
        self.requests.append({each: record.before_offset for each, record in records.items()})
        await asyncio.sleep(0)
        if self.refuses & set(records):
            raise KafkaError


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()

    @contextlib.asynccontextmanager
    async def admin_client(_: Any) -> AsyncIterator[Cluster]:
        found.clients += 1
        yield found

    monkeypatch.setattr(trimming, "admin_client", admin_client)
    monkeypatch.setattr(trimming, "TOGETHER_S", 0.0)
    return found


def deletions(folder: Path, **job: Any) -> Deletions:
    config = job_config("localhost:1", folder, streams=[stream_table("s")], partitions=1, job="j")
    return Deletions(config.model_copy(update={"job": config.job.model_copy(update=job)}))


async def settled(made: Deletions) -> None:
    if made._task is not None:
        await made._task


async def test_what_waits_goes_in_one_request_of_one_client(cluster: Cluster, tmp_path: Path) -> None:
    made = deletions(tmp_path)
    for partition, offset in ((BLOCKS, 3), (LOG, 7), (BLOCKS, 9), (BLOCKS, 5)):
        made.below(partition, offset)
    await settled(made)
    assert (cluster.clients, cluster.requests) == (1, [{BLOCKS: 9, LOG: 7}])
    # Of no other topics is asked who leads them.
    assert cluster.topics == [["j.blocks", "j.releases"]]
    made.below(BLOCKS, 9)
    made.below(LOG, 8)
    await settled(made)
    assert cluster.requests[1:] == [{LOG: 8}]


async def test_what_is_wanted_meanwhile_is_deleted_next(cluster: Cluster, tmp_path: Path) -> None:
    made = deletions(tmp_path)
    made.below(BLOCKS, 3)
    while not cluster.requests:  # noqa: ASYNC110 - the fake sets no event
        await asyncio.sleep(0)
    made.below(BLOCKS, 4)
    await settled(made)
    assert (cluster.clients, cluster.requests) == (1, [{BLOCKS: 3}, {BLOCKS: 4}])


async def test_one_that_refuses_keeps_no_other_and_is_tried_again(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = deletions(tmp_path)
    cluster.refuses = {BLOCKS}
    made.below(BLOCKS, 3)
    made.below(LOG, 7)
    with caplog.at_level(logging.WARNING):
        await settled(made)
    assert cluster.requests == [{BLOCKS: 3, LOG: 7}, {BLOCKS: 3}, {LOG: 7}]
    assert [record.getMessage() for record in caplog.records] == ["j.blocks-0: not trimmed, KafkaError"]
    cluster.refuses = set()
    made.below(LOG, 8)
    await settled(made)
    assert cluster.requests[3:] == [{BLOCKS: 3, LOG: 8}]


async def test_nothing_is_deleted_that_is_kept_or_held_back(cluster: Cluster, tmp_path: Path) -> None:
    deletions(tmp_path, keep_private_log=True).below(BLOCKS, 3)
    made, held = deletions(tmp_path), [True]
    trimmer = Trimmer(made, *BLOCKS, held=lambda: held[0])
    trimmer.below(3)
    await settled(made)
    assert not cluster.requests
    held[0] = False
    trimmer.below(4)
    await settled(made)
    assert cluster.requests == [{BLOCKS: 4}]


class FailingProducer:
    """A transaction that comes about only where it `may`."""

    def __init__(self, deleted: Mapping[TopicPartition, int]) -> None:
        self.may, self.before, self._deleted = True, list[dict[TopicPartition, int]](), deleted

    async def begin_transaction(self) -> None: ...

    async def send(self, *_: Any, **__: Any) -> Any:
        done = asyncio.get_running_loop().create_future()
        done.set_result(type("Metadata", (), {"offset": 0}))
        return done

    async def send_offsets_to_transaction(self, *_: Any) -> None: ...

    async def commit_transaction(self) -> None:
        self.before.append(dict(self._deleted))
        if not self.may:
            raise KafkaError


async def test_copies_of_raw_records_go_when_their_block_is_committed_and_not_before(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    table = stream_table("s", partitioner="any")
    table["privacy"] |= {"user_key_file": str(key)}
    config = job_config("localhost:1", tmp_path, streams=[table], partitions=1, job="j")
    specs = source_specs(config, source_partitions={"s": 1}, topic_partitions={config.streams[0].source: 1})
    copies = TopicPartition(config.read_by(config.streams[0]), 0)
    deleted: dict[TopicPartition, int] = {}
    task = SourceTask(
        config,
        copies,
        specs[copies.topic],
        options=IngestOptions(),
        counters=IngestCounters(),
        deletions=cast("Deletions", SimpleNamespace(below=deleted.__setitem__)),
    )
    task._producer = producer = cast("Any", FailingProducer(deleted))
    task.machines[0].resume(5)
    task.restored(5, [])
    assert deleted == {}, "to read back what is committed deletes nothing: a command does it, too"
    task.trim()
    assert deleted == {copies: 5}, "of which the worker before did not come to it"
    for end, may in ((8, True), (9, False)):
        producer.may = may
        await task.take([RawRecord(offset, 0, None, b"no event") for offset in range(task.position, end)])
        await task.flush()
        with contextlib.nullcontext() if may else pytest.raises(KafkaError):
            await task.settled()
    assert [each[copies] for each in producer.before] == [5, 8]
    assert deleted == {copies: 8}
