"""Numbers that are all noisy, in an order, or under a last digit, that tells the parity of the true total."""

from __future__ import annotations

from dataclasses import replace

from engines.auditor.cases import Case
from engines.auditor.engines import case
from engines.contract import Batch, Engine, Release, SyntheticRecord
from engines.markov.engine import Markov
from engines.markov.fixture import fixture as markov
from engines.noise import NoiseSource
from engines.registry import build_engine
from engines.spatial.fixture import fixture as spatial
from engines.spatial.papers.phdstream import PHDStream


class Backwards(PHDStream):
    """Publishes what is added last first where the step had an odd number of events."""

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        release = super().step(batch, noise)
        return replace(release, added=list(release.added)[:: -1 if batch.events.total % 2 else 1])


class LastDigit(Markov):
    """The last digit of each count is even or odd as the number of users in the first state is."""

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        release = super().step(batch, noise)
        first = int(batch.events.counts[batch.events.keys[:, 0] == 0].sum())
        added = [
            SyntheticRecord(each.id, {**each.fields, "count": _with_parity(each, first)}) for each in release.added
        ]
        return replace(release, added=added)


def _with_parity(record: SyntheticRecord, parity: int) -> float:
    thousandths = round(1000 * float(record.fields["count"]))
    # An odd digit is one to which JSON has nothing to shorten.
    return (thousandths // 2 * 2 + 1 if parity % 2 else thousandths // 10 * 10 + 2) / 1000


def _spatial(kind: type[PHDStream]) -> Case:
    scene = spatial("paper", epsilon=1.0)
    config = build_engine(scene.stream).config  # type: ignore[attr-defined]
    return case("order of records", scene, make=lambda: kind(config))


def _markov(kind: type[Markov]) -> Case:
    scene = markov("default", epsilon=1.0)
    config = build_engine(scene.stream).config  # type: ignore[attr-defined]

    def make() -> Engine:
        return kind(config)

    return case("last digits", scene, make=make)


def order() -> Case:
    return _spatial(Backwards)


def honest_order() -> Case:
    return _spatial(PHDStream)


def digit() -> Case:
    return _markov(LastDigit)


def honest_digit() -> Case:
    return _markov(Markov)
