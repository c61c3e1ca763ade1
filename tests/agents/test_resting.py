"""Partitions that rest while records come together are read again: one that is not woken is a stream that stands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka import TopicPartition

from agents.worker.ingest.service import IngestService
from tests.agents.test_ingest_ticks import task_of

SOURCES = [TopicPartition("raw.s", partition) for partition in range(4)]
HELD, *OTHERS = SOURCES


class Consumer:
    """Its side of `pause` and `resume`: of a partition that is not assigned it raises, as aiokafka does."""

    def __init__(self) -> None:
        self.assigned, self.still = set(SOURCES), {HELD}

    def assignment(self) -> set[TopicPartition]:
        return self.assigned

    def paused(self) -> set[TopicPartition]:
        return self.still

    def pause(self, *sources: TopicPartition) -> None:
        assert self.assigned.issuperset(sources)
        self.still = self.still | {*sources}

    def resume(self, *sources: TopicPartition) -> None:
        assert self.assigned.issuperset(sources)
        self.still = self.still - {*sources}


def rested(kind: type[IngestService], *turns: Iterable[TopicPartition], lost: Iterable[TopicPartition] = ()) -> Any:
    """Return a consumer whose partitions rested, and were read in these turns, but for those that were taken away."""
    task = task_of()
    service, consumer = kind(task._config, {"raw.s": [task.machines[0].spec]}), Consumer()
    service._rest(consumer)
    assert consumer.still == set(SOURCES)
    consumer.assigned -= {*lost}
    consumer.still -= {*lost}
    for sources in turns:
        service._wake(consumer, sources)
        assert not consumer.still.intersection(sources) - {HELD}, "what is read now is not still"
    return consumer


class ForgetsOne(IngestService):
    def _wake(self, consumer: Any, sources: Iterable[TopicPartition]) -> None:
        super()._wake(consumer, sorted(sources)[:-1])


TURNS = ([OTHERS], [[OTHERS[0]], OTHERS], [[], SOURCES], [[each] for each in SOURCES], [OTHERS, OTHERS])


@pytest.mark.parametrize("turns", TURNS)
def test_all_that_rest_are_woken_and_no_other(turns: list[list[TopicPartition]]) -> None:
    """One that stood before, as for a schema, is not woken: whoever holds it lets it go."""
    assert rested(IngestService, *turns).still == {HELD}


def test_what_was_taken_away_meanwhile_is_not_asked_for() -> None:
    assert rested(IngestService, SOURCES, lost=[OTHERS[0]]).still == {HELD}


@pytest.mark.parametrize("turns", TURNS)
def test_one_that_is_forgotten_is_found(turns: list[list[TopicPartition]]) -> None:
    with pytest.raises(AssertionError):
        assert rested(ForgetsOne, *turns).still == {HELD}
