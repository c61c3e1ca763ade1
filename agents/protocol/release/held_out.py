"""The audit: true events of each published step beside the synthetic records as any consumer sees them. Operator only.

Not private in any way, and nothing flows back: the engine and the publisher know nothing of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import orjson

from agents.protocol.release.merge import BlockMerge
from agents.protocol.release.record_formats import JsonRecords, RecordFormat
from engines.core.contract import Evaluator
from engines.core.registry import build_evaluator
from schemas.arrays import below, under
from schemas.blocks import Block, Folded
from schemas.config import Stream
from schemas.config.records import WEIGHT
from schemas.errors import WireError
from schemas.ledger import LedgerEntry
from schemas.wire import Kind, decode, encode


class HeldOutAudit:
    """Merges the held-out events as the engine merges its own, and applies the public records in step order.

    Attributes:
        step: the step that is measured next.
        synthetic_offset: first record of the synthetic topic that is not yet applied.
    """

    def __init__(self, stream: Stream, source_partitions: int, *, records: RecordFormat | None = None) -> None:
        """Begin before the first step. Args: records: as of `Stepper.from_stream`."""
        self.stream = stream
        self._records = JsonRecords(stream) if records is None else records
        self.evaluator: Evaluator = build_evaluator(stream)
        self.merge = BlockMerge(stream.name, source_partitions, self.evaluator.domain.words)
        self.step = 0
        self.synthetic_offset = 0
        self._truth = Folded.empty(self.evaluator.domain.words)
        self._events = 0
        self._reasons: dict[str, int] = {}
        self._alive: dict[str, dict[str, Any]] = {}
        self._ledger: dict[int, LedgerEntry] = {}
        self._waiting: deque[tuple[int, int, str, dict[str, Any] | None]] = deque()
        self._ttl_steps = stream.ttl_steps
        self._expiring: deque[tuple[int, Folded]] = deque()

    @property
    def truth(self) -> Folded:
        """All events alive, or those of the last step (see `Evaluator.scope`), encoded by its domain. Private."""
        return self._truth

    @property
    def alive(self) -> Mapping[str, Mapping[str, Any]]:
        """The synthetic records alive, by id."""
        return self._alive

    @property
    def points(self) -> list[Mapping[str, Any]]:
        """The synthetic records alive, each as often as it says: what stands for the events alive, one for one."""
        rows = self._alive.values()
        return [row for row in rows for _ in range(row[WEIGHT])] if self.stream.weighted else list(rows)

    @property
    def position(self) -> int:
        """The offset of the truth topic from which to read on."""
        return self.merge.position

    def fold(self, offset: int, block: Block) -> None:
        """Take in a block of held-out events. Raises: GapError."""
        if offset < self.merge.position:
            return
        self.merge.fold(offset, block)
        for reason, count in block.counts.items():
            self._reasons[reason] = self._reasons.get(reason, 0) + count

    def on_ledger(self, value: bytes) -> None:
        """Take in a public ledger entry. Raises: WireError."""
        entry = LedgerEntry.decode(value, self.stream.name)
        if entry.step >= self.step:
            self._ledger[entry.step] = entry

    def on_synthetic(self, offset: int, step: int, key: bytes, value: bytes | None) -> None:
        """Take in a public synthetic record or tombstone of `step`. Raises: WireError."""
        if offset >= self.synthetic_offset and (not self._waiting or offset > self._waiting[-1][0]):
            self._waiting.append((offset, step, key.decode(), None if value is None else self._records.read(value)))

    @property
    def ready(self) -> bool:
        """Whether the next step is over in the held-out topic, public, and read to its last synthetic record."""
        facts = self._ledger.get(self.step)
        if facts is None or not self.merge.closed(self.step):
            return False
        # The ledger's partition can show a transaction before the synthetic one does. A record of a later step proves
        # it is all there, also where compaction has taken some.
        if self._waiting and self._waiting[-1][1] > self.step:
            return True
        return sum(1 for _, step, _, _ in self._waiting if step == self.step) >= facts.records

    def measure(self) -> bytes:
        """Return the utility record of the step ready, and move on to the next. May take long: call it in a thread."""
        facts = self._ledger.pop(self.step)
        events, added = self.advance()
        points = self.points
        rows = points if self.evaluator.scope == "alive" else added
        metrics = {} if facts.gathered else self.evaluator.measure(self._truth, self.columns(rows))
        record = {
            "step": facts.step,
            "time": facts.end,
            "events_total": self._events,
            "events": events.total,
            "events_alive": self.evaluator.size(self._truth) if self.evaluator.scope == "alive" else None,
            "synthetic_points": len(points),
            "gathered": facts.gathered,
            "metrics": metrics,
            "counts": dict(sorted(self._reasons.items())),
        }
        return orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY)

    def advance(self) -> tuple[Folded, list[Mapping[str, Any]]]:
        """Move on to the end of the next step, which is closed: its events and the records that it added. Private."""
        added: list[Mapping[str, Any]] = []
        while self._waiting and self._waiting[0][1] <= self.step:
            offset, _, key, value = self._waiting.popleft()
            self.synthetic_offset = offset + 1
            if value is None:
                self._alive.pop(key, None)
            else:
                self._alive[key] = value
                added.append(value)
        events = self.merge.take(self.step)
        self._age(events)
        self._events += events.total
        self.step += 1
        return events, added

    def _age(self, events: Folded) -> None:
        """Add this step's events and take away those whose life is over."""
        if self.evaluator.scope == "step":
            self._truth = events
            return
        if self.stream.counts_pairs and self.stream.period_steps and self.step % self.stream.period_steps == 0:
            self._truth = Folded.empty(self.evaluator.domain.words)  # who has a key is counted anew in each period
        self._truth = self._truth.merge(events)
        if self._ttl_steps is None:
            return
        self._expiring.append((self.step, events))
        while self._expiring[0][0] <= self.step - self._ttl_steps:
            _, old = self._expiring.popleft()
            left = self._truth.merge(Folded(old.keys, -old.counts))
            alive = left.counts > 0
            self._truth = Folded(left.keys[alive], left.counts[alive])

    def columns(self, rows: Collection[Mapping[str, Any]]) -> Mapping[str, list[Any]]:
        """Return synthetic records column by column, as the evaluator takes them."""
        return {name: [row.get(name) for row in rows] for name in self.evaluator.fields}

    def encode(self) -> bytes:
        """Return everything that later steps need. Private."""
        header = {
            "stream": self.stream.name,
            "step": self.step,
            "synthetic_offset": self.synthetic_offset,
            "events": self._events,
            "reasons": self._reasons,
            "progress": self.merge.progress(),
            "expiring": [step for step, _ in self._expiring],
        }
        arrays = under("merge/", self.merge.arrays())
        arrays["truth/keys"], arrays["truth/counts"] = self._truth.keys, self._truth.counts
        for step, folded in self._expiring:
            arrays[f"expiring/{step}/keys"], arrays[f"expiring/{step}/counts"] = folded.keys, folded.counts
        arrays["alive"] = np.frombuffer(orjson.dumps(self._alive), np.uint8)
        return encode(Kind.TRUTH, header, arrays, level=3)

    def restore(self, body: bytes) -> None:
        """Go on after `encode`. Raises: WireError, GapError."""
        header, arrays = decode(Kind.TRUTH, body)
        if header["stream"] != self.stream.name:
            raise WireError(f"audit state of stream {header['stream']} where {self.stream.name} was expected")
        self.merge.restore(header["progress"], below("merge/", arrays))
        self.step, self.synthetic_offset = header["step"], header["synthetic_offset"]
        self._events, self._reasons = header["events"], dict(header["reasons"])
        self._truth = Folded(arrays["truth/keys"], arrays["truth/counts"])
        self._expiring = deque(
            (step, Folded(arrays[f"expiring/{step}/keys"], arrays[f"expiring/{step}/counts"]))
            for step in header["expiring"]
        )
        self._alive = orjson.loads(arrays["alive"].tobytes())
