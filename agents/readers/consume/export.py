"""What `privstream export` does: public topics to a file, checked on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from agents.readers.consume.files import FORMATS, check_free, write
from agents.readers.consume.geometry import Placing
from agents.readers.consume.parts import measurements_of
from agents.readers.consume.reader import ReadingProgress, read_ledger, read_steps
from agents.readers.consume.table import ledger_table, measurement_table, synthetic_table
from schemas.ledger import LedgerEntry
from schemas.releases import PublicRecord

if TYPE_CHECKING:
    from schemas.config import Config, Stream

What = Literal["synthetic", "measurements", "ledger"]
WHAT: tuple[What, ...] = get_args(What)


@dataclass(frozen=True, slots=True)
class Exported:
    """Attributes:

    step, until: the last step in the file, and when it ended. verified: steps whose digest was checked.
    compacted: steps that were there in part only, so that their digest could not be.
    """

    stream: str
    what: What
    path: Path
    rows: int
    columns: tuple[str, ...]
    step: int
    until: str
    verified: int
    compacted: int


async def export(
    config: Config,
    stream: Stream,
    *,
    what: What,
    file_format: str,
    at: str | None,
    path: Path | None,
    overwrite: bool,
    progress: ReadingProgress | None = None,
) -> Exported:
    """Write what is public of a stream after a step.

    Args:
        at: a step, or a time by which it ended; None: the last one.
        path: None names the file by stream and step, in the working folder.
    Raises: PrivstreamError: the topics are not those of the ledger, the step is not there whole, or the file is.
    """
    if path is not None:
        check_free(path, overwrite=overwrite)
    ledger = await read_ledger(config.kafka, stream.name)
    entry = ledger.at(at)
    if path is None:
        ending = FORMATS[file_format][0]
        path = Path(f"{stream.name}{'' if what == 'synthetic' else '.' + what}-step-{entry.step:06d}.{ending}")
        check_free(path, overwrite=overwrite)
    measured: list[tuple[int, Mapping[str, Any]]] = []

    def keep(of: LedgerEntry, records: list[PublicRecord]) -> None:
        measured.extend((of.step, told) for told in measurements_of(records))

    folded = await read_steps(
        config.kafka,
        ledger,
        until=entry.step,
        measured=keep if what == "measurements" else None,
        progress=progress,
    )
    if what == "synthetic":
        folded.whole(entry)
        table = synthetic_table(folded, (stream.time.field, *stream.domain.fields) if entry.synthetic_records else ())
    elif what == "measurements":
        table = measurement_table(measured)
    else:
        table = ledger_table(ledger.entries[: entry.step + 1])
    write(table, path, file_format=file_format, places=places_of(stream, table))
    return Exported(
        stream=stream.name,
        what=what,
        path=path,
        rows=table.num_rows,
        columns=tuple(table.column_names),
        step=entry.step,
        until=entry.ends.isoformat(),
        verified=folded.verified,
        compacted=len(folded.compacted),
    )


def places_of(stream: Stream, table: pa.Table) -> Placing | None:
    """Where rows are: at the coordinates of the domain, or in the `cell` that was measured."""
    domain = stream.domain
    fields = domain.coordinates
    if fields is not None and set(fields) <= set(table.column_names):
        return Placing(fields, domain.in_degrees)
    return Placing(("cell",), domain.in_degrees) if "cell" in table.column_names else None
