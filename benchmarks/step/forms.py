"""What one large step costs where each event is a record, and where records have weights."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np
from aiokafka.producer.message_accumulator import BatchBuilder

from agents.protocol.release.publisher import Publication
from benchmarks.scale.streams import ENGINES, side_events
from benchmarks.step.small import PARTS, LocalStream
from schemas.config import ENGINES as INSTALLED
from schemas.config.records import RecordForm
from schemas.releases import STEP_HEADER

BATCH_BYTES, AT_ONCE = 1 << 20, 10_000
ALL_PARTS = (*PARTS, "send")
"""And last, public records to the batches that a producer sends."""
FORMS: tuple[RecordForm, ...] = get_args(RecordForm)
MEASURED = tuple(engine for engine in ENGINES if INSTALLED[engine].facts.weighs_records)


@dataclass(frozen=True, slots=True)
class StepCost:
    """Of one step: seconds of processor time by part, as in `ALL_PARTS`, public records, and their bytes."""

    seconds: tuple[float, ...]
    records: int
    size: int


def costs(events: int, steps: int) -> Iterator[tuple[str, int, Mapping[RecordForm, StepCost]]]:
    """Yield engine, step and what the step costs in either form, which take turns with the same events."""
    for engine in MEASURED:
        chance = np.random.default_rng(1)
        streams = {form: LocalStream(engine, form=form) for form in FORMS}
        for step in range(steps):
            taken = dict.fromkeys(FORMS, 0.0)
            for first in range(0, events, AT_ONCE):
                count = min(AT_ONCE, events - first)
                values = _events(engine, chance, count, next(iter(streams.values())).begins_ms)
                for form, stream in streams.items():
                    taken[form] += stream.take(values)
            found: dict[RecordForm, StepCost] = {}
            for form, stream in streams.items():
                (closed, *others), publication = stream.release()
                start = time.process_time()
                records, size = _sent(publication)
                sent = time.process_time() - start
                found[form] = StepCost((taken[form] + closed, *others, sent), records, size)
            yield engine, step, found


def _events(engine: str, chance: np.random.Generator, count: int, at_ms: int) -> list[bytes]:
    """Make so many: of places clustered as in a city, or of rows."""
    if engine != "spatial":
        return side_events(engine, chance, count, at_ms, 0)
    spots = np.random.default_rng(2).random((40, 2))
    places = np.clip(spots[chance.integers(0, 40, count)] + chance.normal(0, 0.03, (count, 2)), 0, 0.99999)
    return [b'{"x":%.5f,"y":%.5f,"at":%d}' % (x, y, at_ms) for x, y in places.tolist()]


def _sent(publication: Publication) -> tuple[int, int]:
    """Put the records into batches as the publisher does; return how many they are and the bytes of all batches."""
    headers = [(STEP_HEADER, b"%d" % publication.step)]
    batch, records, size = _batch(), 0, 0
    for _, key, value in publication.data:
        records += 1
        if batch.append(timestamp=0, key=key, value=value, headers=headers) is None:
            size += batch.size()
            batch = _batch()
            batch.append(timestamp=0, key=key, value=value, headers=headers)
    return records, size + batch.size()


def _batch() -> BatchBuilder:
    return BatchBuilder(BATCH_BYTES, 0, is_transactional=True)
