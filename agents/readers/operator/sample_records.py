"""What ingest would make of sample records of a stream, one by one, without a cluster.

The records are the owner's, and so are the values that come out: for the owner's own terminal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from agents.protocol.clock import StepClock
from agents.protocol.ingest.events import PureFilter, RawRecord, reason_fields
from agents.readers.operator.source_findings import filters_of
from schemas.config import Stream
from schemas.events import Reason

TEXT = ("json", "csv")
"""Formats of which a record is a line of a file; of the others a line is the JSON that a record stands for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one event of the record in a line, or of a record without one. PRIVATE.

    Attributes:
        field: the configured field at fault; "" where the record as a whole is.
        fields: name -> value, as far as the record could be read.
    """

    line: int
    reason: Reason
    field: str
    fields: Mapping[str, Any]


def outcomes(stream: Stream, lines: Iterable[bytes]) -> Iterator[Outcome]:
    """Yield what becomes of the record in each line that is not empty. Bounds on users, and ticks, are left out.

    Where there is no envelope a field such as `$key` is one of that very name, as in files.

    Args: lines: of CSV without configured columns, the first one is the header of all.
    Raises: ConfigError, EngineInputError, as building the stream does.
    """
    if stream.format not in TEXT:
        stream = stream.model_copy(update={"format": "json", "key_format": "text"})
    rows = stream.format == "json" and stream.envelope == "none"
    spec = filters_of(stream, partitions=1, start_us=stream.time.start_us, rows=rows)
    # No tick says how far the stream has come.
    spec = dataclasses.replace(spec, clock=StepClock(spec.clock.steps, max_ahead=1 << 40))
    decoder, pure, about = spec.decoder(), PureFilter(spec, 0), reason_fields(spec.fields)
    header = b"" if stream.format == "csv" and (stream.csv is None or stream.csv.columns is None) else None
    for number, line in enumerate(lines, 1):
        if not (value := line.rstrip(b"\r\n")):
            continue
        if header == b"":
            header = value + b"\n"
            continue
        record = RawRecord(0, -1, None, (header or b"") + value)
        decoded, reasons, at_fault = decoder.decode_unfolded(decoder.unfold([record]))
        filtered = pure.run(decoded, np.full(len(decoded), -1), None) if decoded else None
        place = 0
        for row, reason in enumerate(map(Reason, reasons.tolist())):
            field, fields = at_fault.get(row, ""), {}
            if filtered is not None and reason == Reason.ACCEPTED:
                fields, field = msgspec.to_builtins(decoded[place]), filtered.at_fault.get(place, "")
                reason = Reason(int(filtered.reasons[place]))
                place += 1
            yield Outcome(number, reason, about.get(reason) or field, fields)
