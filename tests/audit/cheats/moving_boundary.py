"""A step boundary that moves with the number of events: one more event pushes another's into the next step."""

from __future__ import annotations

from collections.abc import Sequence

from agents.offline.audit_units import Sent
from agents.protocol.ingest.partition import PartitionIngest, SourceRecord
from agents.protocol.ingest.spec import SourceSpec
from engines.auditor.cases import Case
from tests.audit.small_stream import SmallStream, stream

PAIR = ("insert, early step, empty cell",)
EVENTS = 6
STEPS = 8


class CountedSteps(PartitionIngest):
    """Closes a step after every `EVENTS` events."""

    def __init__(self, spec: SourceSpec, partition: int) -> None:
        super().__init__(spec, partition)
        self._counted = 0

    def take(self, records: Sequence[SourceRecord]) -> None:
        for record in records:
            super().take([record])
            self._counted += not record.headers
            if not record.headers and self._counted % EVENTS == 0:
                self.tick(self.ticked + 1)


class TimedSteps(SmallStream):
    """Events of two places, in turn by step: what moves on to the next step is of another place than what it pushes."""

    def __init__(self, name: str) -> None:
        super().__init__(stream(unit="event", name=name, partitioner="none"), steps=STEPS)
        self.late = STEPS - 2
        self.places |= {
            f"{which} place": {"x": x, "y": y}
            for which, x, y in (("first", 0.2, 0.2), ("second", 0.2, 0.8), ("third", 0.8, 0.2))
        }

    def others(self) -> list[Sent]:
        places = [self.places[f"{which} place"] for which in ("first", "second", "third")]
        return [
            Sent(step, f"other-{step}-{index}", places[step % len(places)])
            for step in range(STEPS - 1)
            for index in range(EVENTS)
        ]


class CountedStream(TimedSteps):
    def blocks(self, sent: Sequence[Sent]) -> list[bytes]:
        """By one worker, whose count goes on; the event that is more comes first. All steps end with the topic."""
        first = sorted(sent, key=lambda each: (each.step, each.user.startswith("other")))
        machine = CountedSteps(self._spec, 0)
        events = [record for record in self.records(first, 0) if not record.headers]
        machine.take([record._replace(offset=offset) for offset, record in enumerate(events)])
        machine.tick(self.steps)
        block, _ = machine.seal()
        assert block is not None
        return [block.encode()]


def cheat() -> Case:
    return CountedStream("counted").case(units=PAIR, fresh=False)


def honest() -> Case:
    return TimedSteps("timed").case(units=PAIR, fresh=False)
