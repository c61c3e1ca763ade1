"""A stream whose ledger entry holds the exact number of a step's events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from agents.offline.audit_stream import StreamAudit
from engines.auditor.cases import Case
from engines.noise import NoiseSource
from schemas.blocks import Block
from tests.audit.small_stream import stream


class Counting(StreamAudit):
    def publish(self, blocks: Sequence[Block], source: NoiseSource) -> Iterator[tuple[int, bytes, bytes]]:
        for step, payload, ledger in super().publish(blocks, source):
            events = sum(block.steps[step].total for block in blocks if step in block.steps)
            yield step, payload, orjson.dumps({**orjson.loads(ledger), "events": events})


def cheat() -> Case:
    return Counting(stream(unit="event", name="counts")).case(fresh=False)


def honest() -> Case:
    return StreamAudit(stream(unit="event", name="silent")).case(fresh=False)
