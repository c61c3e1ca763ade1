"""Noise re-drawn on replay, and both answers published: the average of a step's answers has less noise than claimed."""

from __future__ import annotations

from engines.auditor.cases import Case
from schemas.releases import LogRecord, Seed
from tests.audit.small_stream import CrashingStream, stream

PAIR = ("insert, early step, empty cell",)


class RedrawsOnReplay(CrashingStream):
    """A new worker forgets the committed seed of the step that was not answered."""

    def remembered(self, log: list[tuple[int, LogRecord]]) -> list[tuple[int, LogRecord]]:
        return [(offset, record) for offset, record in log if not isinstance(record, Seed)]


def cheat() -> Case:
    return RedrawsOnReplay(stream(name="redraws"), steps=2).case(units=PAIR, fresh=False)


def honest() -> Case:
    return CrashingStream(stream(name="repeats"), steps=2).case(units=PAIR, fresh=False)
