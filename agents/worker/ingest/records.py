"""Fetched records as aiokafka's parser makes them, without a second object around each.

Wrapping every record into an eleven-field `ConsumerRecord` is more than half of what `getmany` costs; what the parser
hands out has the four fields that ingest reads. One consumer is told so, no other in this process (Faust's reads on).
`PartitionRecords` has no interface for it: a fetch result gets its own `_consumer_record` as it is put into the
fetcher's buffer. A release of aiokafka in which that does nothing costs speed, no result.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from aiokafka import AIOKafkaConsumer


def hand_out_bare_records(consumer: AIOKafkaConsumer) -> None:
    """Let a started consumer's `getmany` return records with `offset`, `timestamp`, `key`, `value`, `headers` only."""
    fetcher = consumer._fetcher
    fetcher._records = _Buffer(fetcher._records)


class _Buffer(OrderedDict[Any, Any]):
    def __setitem__(self, source: Any, result: Any) -> None:
        records = getattr(result, "_partition_records", None)
        if records is not None:
            records._consumer_record = _bare
        super().__setitem__(source, result)


def _bare(source: Any, record: Any) -> Any:
    return record
