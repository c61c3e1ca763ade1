"""What has been seen of one stream, from its public records alone. Sans-IO; bounded in memory.

What the public view shows is this and nothing else: counts, the picture, the ledger and whether it holds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson

from agents.readers.consume.ledger import PublicRecordsError, StepRecords, Verdict, entry_of, verdict
from agents.show.pictures import Picture
from schemas.config.timing import to_us
from schemas.ledger import LedgerEntry
from schemas.releases import GENESIS, STEP_LIMIT, Channel, PublicRecord

if TYPE_CHECKING:
    from schemas.config import Stream

MOST_ENTRIES = 10_000
"""Of the ledger that are kept for the page; older ones are counted."""
MOST_OPEN = 1_000
"""Steps beyond the ledger's last entry of which records are held. The job writes a step and its entry in one
transaction, and the ledger is read first: of a job there are one or two."""


@dataclass(slots=True)
class LedgerRow:
    """What is kept of an entry, and what became of the comparison."""

    step: int
    end: str
    added: int
    removed: int
    records: int
    spent: float
    gathered: bool
    digest: str
    chained: bool
    verdict: Verdict = "waiting"

    @staticmethod
    def of(entry: LedgerEntry, *, chained: bool) -> LedgerRow:
        return LedgerRow(
            entry.step, entry.end, entry.added, entry.removed, entry.synthetic_records, entry.epsilon_spent,
            entry.gathered, entry.digest, chained,
        )  # fmt: skip

    def row(self) -> list[Any]:
        """As the page reads it, see `assets/ledger.js`."""
        return [getattr(self, name) for name in self.__slots__]


class StreamSeen:
    """See the module.

    Args:
        stream: its declared part: name, engine, clock, horizon. Nothing of it is private.
        picture: of its kind.
    """

    def __init__(self, stream: Stream, picture: Picture) -> None:
        self.stream, self.picture = stream, picture
        self.positions: dict[str, int] = {}
        self.revision = 0
        self.read_at = 0.0
        self.unreadable = 0
        self._entries: deque[LedgerRow] = deque(maxlen=MOST_ENTRIES)
        self._waiting: dict[int, LedgerRow] = {}
        self._records: dict[int, StepRecords] = {}
        self._latest: Mapping[str, Any] = {}
        self._chain: str | None = None
        self._verdicts: Counter[str] = Counter()
        self._steps = 0
        self._broken: int | None = None
        self._twice: int | None = None
        self._settled = -1
        self._beyond: int | None = None
        self._newest: dict[Channel, int] = {"synthetic": -1, "measurements": -1}

    @property
    def step(self) -> int:
        """The last step of which everything was read; -1 before any."""
        return self._settled

    @property
    def open(self) -> int | None:
        """The last step that the ledger has and whose records may not all be read yet; None: all are."""
        return max(self._waiting, default=None)

    def take(self, channel: Channel, step: int | None, key: bytes | None, value: bytes | None) -> None:
        """A committed record of a public topic, in the topic's order."""
        if channel == "ledger":
            self._on_ledger(value)
            return
        if step is None or not 0 <= step < STEP_LIMIT:
            self.unreadable += 1
            return
        if step <= self._settled or step < self._newest[channel]:
            # The step was whole without it. Steps are in order on a topic: one that comes behind a later step was not
            # written by the job, whatever is known of the ledger yet.
            self._beyond = step if self._beyond is None else self._beyond
        if step > self._settled:
            if step not in self._records and self._held_beyond(step):
                self.unreadable += 1
                return
            self._records.setdefault(step, StepRecords()).take(PublicRecord(channel, key or b"", value))
        self._newest[channel] = max(self._newest[channel], step)
        if channel == "synthetic":
            self._on_synthetic(step, key, value)

    def _held_beyond(self, step: int) -> bool:
        """Whether as many steps as may be are held of which the ledger knows nothing, and this would be one more."""
        last = int(self._latest.get("step", -1))
        return (
            step > last and len(self._records) >= MOST_OPEN and sum(each > last for each in self._records) >= MOST_OPEN
        )

    def _on_synthetic(self, step: int, key: bytes | None, value: bytes | None) -> None:
        try:
            name = (key or b"").decode()
            if value is None:
                self.picture.remove(step, name)
            else:
                self.picture.add(step, name, orjson.loads(value))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self.unreadable += 1

    def _on_ledger(self, value: bytes | None) -> None:
        try:
            entry, linked = entry_of(value or b"", self.stream.name)
        except PublicRecordsError:
            self.unreadable += 1
            return
        last = int(self._latest.get("step", -1))
        if entry.step <= last:
            # A second entry for a step that is the same word for word is a retry; any other is a second answer.
            known = next((each for each in self._entries if each.step == entry.step), None)
            if known is not None and known.digest != entry.digest:
                self._twice = entry.step
            return
        before = self._chain if self._chain is not None else GENESIS if entry.step == 0 else entry.previous_chain
        chained = linked and entry.previous_chain == before and (last < 0 or entry.step == last + 1)
        if not chained and self._broken is None:
            self._broken = entry.step
        self._chain, self._latest = entry.chain, entry.as_json()
        row = self._waiting[entry.step] = LedgerRow.of(entry, chained=chained)
        self._entries.append(row)
        self._steps += 1

    def settle(self, now: float, upto: int = -1) -> bool:
        """Compare the next steps with the ledger, as far as all of them was read. Returns whether there was one.

        Args:
            now: seconds since 1970.
            upto: everything that the topics hold of steps up to this one was read.
        """
        before = self._settled
        for step in sorted(self._waiting):
            entry, records = self._waiting[step], self._records.get(step) or StepRecords()
            found = verdict(records, digest=entry.digest, published=entry.added + entry.removed)
            if found != "verified" and step > upto and not all(newest > step for newest in self._newest.values()):
                break  # more of it may come
            del self._waiting[step]
            entry.verdict = found
            self._verdicts[found] += 1
            self.picture.end(step)
            self._settled = step
        if self._settled == before:
            return False
        for step in [step for step in self._records if step <= self._settled]:
            self._records.pop(step).close()
        self.read_at = now
        self.revision += 1
        return True

    def close(self) -> None:
        """Nothing more comes."""
        for records in self._records.values():
            records.close()

    def summary(self) -> dict[str, Any]:
        """What the page shows of the stream, but for its picture and its ledger. JSON-able."""
        stream, latest = self.stream, self._latest
        guarantee = latest.get("guarantee", {})
        return {
            "stream": stream.name,
            "revision": self.revision,
            "engine": stream.engine,
            "mode": stream.mode,
            "kind": self.picture.kind,
            "step": self._settled,
            "until": latest.get("end"),
            "due": self._due(),
            "read_at": self.read_at or None,
            "records": latest.get("synthetic_records", 0),
            "gathered": latest.get("gathered"),
            "unit": stream.privacy.unit,
            "max_contributions": stream.privacy.max_contributions,
            "epsilon": latest.get("epsilon", float(stream.privacy.epsilon)),
            "epsilon_warning": stream.privacy.epsilon_warning,
            "epsilon_spent": latest.get("epsilon_spent", 0.0),
            "epsilon_per_us": latest.get("epsilon_per_us", stream.privacy.per_us),
            "delta": guarantee.get("delta", stream.privacy.delta),
            "private": bool(guarantee.get("private", True)),
            "note": guarantee.get("note", ""),
            "mechanisms": [
                {name: each.get(name) for name in ("name", "distribution", "scale", "epsilon", "uses")}
                for each in guarantee.get("mechanisms", ())
            ],
            "notes": latest.get("notes", {}),
            "horizon": stream.horizon,
            "steps": self._steps,
            "entries": len(self._entries),
            "verdicts": dict(self._verdicts),
            "chain_broken_at": self._broken,
            "twice": self._twice,
            "beyond": self._beyond,
            "first": self._entries[0].step if self._entries else None,
            "unreadable": self.unreadable,
            "picture": dict(self.picture.shown()),
            "timezone": stream.time.timezone,
        }

    def _due(self) -> str | None:
        """When the next step is to be public, by the wall clock; None where no clock says it."""
        time = self.stream.time
        if time.clock != "wall" or "end" not in self._latest:
            return None
        begin = datetime.fromisoformat(self._latest["end"])
        try:
            steps = time.steps_from(begin_us := to_us(begin))
            lasts_us = steps.begin(steps.of_one(begin_us) + 1) - begin_us
            later = timedelta(microseconds=lasts_us + self.stream.publish_delay_us) + time.grace
            return (begin + later).isoformat()
        except (ValueError, OverflowError):
            return None  # an end that no clock reaches

    def ledger(self, after: int) -> list[list[Any]]:
        """Entries after a step, oldest first."""
        return [entry.row() for entry in self._entries if entry.step > after]
