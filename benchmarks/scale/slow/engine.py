"""What engine `slow` computes: the toy's totals of events with a key each."""

from __future__ import annotations

import dataclasses
import os
import time

import numpy as np
import numpy.typing as npt
from toy.engine import Anything, Totals

from engines.core.contract import Batch, Columns, Release
from engines.core.noise import NoiseSource, aggregate
from schemas.arrays import KeyArray
from schemas.blocks import Folded
from schemas.config import Stream

DIGITS = 8


class Numbered(Anything):
    """A key for each number: blocks are as large as those of a spatial stream."""

    def encode(self, columns: Columns) -> tuple[KeyArray, npt.NDArray[np.uint8]]:
        numbers = [int(text[-DIGITS:]) for text in columns.texts[self.field_name]]
        return np.array(numbers, np.uint64)[:, None], np.zeros(len(numbers), np.uint8)


@aggregate
def together(events: Folded) -> Folded:
    """All under one key; private."""
    return Folded(np.zeros((1, 1), np.uint64), np.array([int(events.counts.sum())], np.int64))


class SlowTotals(Totals):
    """A step takes `SLOW_STEP_S` seconds at least."""

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        begun = time.thread_time()
        while time.thread_time() - begun < float(os.environ["SLOW_STEP_S"]):
            np.sort(np.arange(100_000)[::-1])
        return super().step(dataclasses.replace(batch, events=together(batch.events)), noise)


def domain(stream: Stream) -> Numbered:
    return Numbered(*stream.domain.fields)


def build(stream: Stream) -> SlowTotals:
    return SlowTotals(stream.name, stream.event_epsilon)
