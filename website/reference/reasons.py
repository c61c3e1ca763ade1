"""Why a record is refused, by number, and the tree of errors."""

from __future__ import annotations

from collections.abc import Iterator

from agents.kafka.lifecycle.refusals import BESIDE, WHAT_TO_DO
from agents.protocol.ingest.dead_letters import UNLETTERED, DeadLetter
from schemas.errors import PrivstreamError
from schemas.events import Reason
from website.reference.source import cell, summary, table

COUNTED = {*UNLETTERED, *(Reason[name] for name in BESIDE)}


def page() -> str:
    """Return reasons, a dead letter, and errors."""
    rows = [
        [
            f"`{reason.name}`",
            str(int(reason)),
            "no, counted" if reason in COUNTED else "yes",
            cell(reason.meaning),
            cell(WHAT_TO_DO.get(reason.name, "")),
        ]
        for reason in Reason
    ]
    letter = DeadLetter("taxi", "raw.taxi", 0, 7, Reason.MISSING_FIELD, "lat")
    headers = "\n".join(f"{name}: {value.decode()}" for name, value in letter.headers)
    return (
        "# Reasons and errors\n\n## Why a record is not used\n\nOf a record to which several apply the first is told. Names are in dead letters, "
        "metrics and reports; numbers never change.\n\n"
        + table(["reason", "number", "dead letter", "means", "what to do"], rows)
        + "\n## A dead letter\n\nOn `<job>.dead-letters`, for operators only. It says where the record is and what is wrong with "
        f"it, never what was in it. Key `{letter.key.decode()}`, value\n\n```json\n{letter.encode().decode()}\n```\n\nand headers"
        f"\n\n```text\n{headers}\n```\n\n`privstream dead-letters CONFIG` counts them by reason and field.\n\n"
        f"## Errors\n\nWhat each stops: one record, one stream, or the whole job.\n\n"
        + table(["error", "stops", "means"], list(_errors(PrivstreamError)))
    )


def _errors(error: type[PrivstreamError], depth: int = 0) -> Iterator[list[str]]:
    """Yield a row for an error and those below it, each behind as many dots as it has others above it."""
    yield [f"{'· ' * depth}`{error.__name__}`", error.stops, cell(summary(error))]
    for each in error.__subclasses__():
        if each.__module__ == PrivstreamError.__module__:
            yield from _errors(each, depth + 1)
