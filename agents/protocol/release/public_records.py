"""A release as the bytes that consumers read: records with the raw events' field names, and the ledger entry.

Written once, before the candidate is committed; afterwards these bytes are only copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec
import orjson

from agents.protocol.release.dating import fixed_width
from engines.core.accounting.streams import StreamCost, price_of_periods
from engines.core.contract import Release
from engines.core.many_records import RecordColumns, parts_of
from schemas.byte_columns import ByteColumn, Piece
from schemas.config import Stream
from schemas.config.records import WEIGHT
from schemas.config.timing import NUMERIC_FORMATS
from schemas.errors import EngineInputError
from schemas.guarantee import Guarantee
from schemas.ledger import LedgerEntry, LedgerGuarantee, LedgerRenewal
from schemas.releases import PublicRecord, frame_column, frame_records
from schemas.steps import CalendarLength, instant
from schemas.zones import zone

MOST_BYTES = 900_000
"""Of a measurement's record: Kafka's topics take 1 MiB unless they are told otherwise."""


def raw_time(at_us: int, *, time_format: str, timezone: str) -> str | int | float:
    """Return a public instant written as the raw events write their time field."""
    if time_format in NUMERIC_FORMATS:
        return at_us * 1000 // NUMERIC_FORMATS[time_format]
    local = instant(at_us).astimezone(zone(timezone))
    return local.isoformat() if time_format == "iso" else local.strftime(time_format)


def framed_release(
    release: Release,
    *,
    time_field: str,
    steps_of: Callable[[RecordColumns], Sequence[int]],
    time_of: Callable[[int], str | int | float],
    rows: Callable[[Mapping[str, Sequence[Any]]], Sequence[Piece]],
) -> bytes:
    """Return synthetic records, tombstones and measurements of a step, framed in the order in which they are published.

    Tombstones come first: a reader that stops in between holds too few records, never withdrawn ones.

    Args:
        steps_of: the steps that some added records are of; asked once for each, in order.
        time_of: the value of the time field for a step.
        rows: values of synthetic records from columns, as `agents.protocol.release.record_formats` writes them.
    """
    framed = [frame_column("synthetic", ByteColumn.without_nul(fixed_width(release.removed)), None)]
    values: dict[int, str | int | float] = {}
    for part in parts_of(release.added):
        steps = steps_of(part)
        values |= {step: time_of(step) for step in set(steps) - values.keys()}
        weights = {} if part.weights is None else {WEIGHT: part.weights}
        written = rows({time_field: [values[step] for step in steps], **part.fields, **weights})
        framed.append(frame_column("synthetic", ByteColumn.without_nul(fixed_width(part.ids)), written))
    framed.append(
        frame_records(
            PublicRecord("measurements", b"%d" % release.step, words)
            for measurement in release.measurements
            for words in measurement_records({"step": release.step, **measurement})
        )
    )
    return b"".join(framed)


def measurement_records(measurement: Mapping[str, Any]) -> list[bytes]:
    """Return a measurement as records of at most `MOST_BYTES`: one, nearly always.

    A larger one is cut into `parts`, see `MEASUREMENT_FIELDS`: each has all fields, and a run of the longest list, or
    lists, where several are as long. Sizes follow from released values alone.

    Raises: EngineInputError if there is no list to cut: before a candidate is committed that could not be published.
    """
    words = orjson.dumps(measurement)
    if len(words) <= MOST_BYTES:
        return [words]
    lists = dict(_lists(measurement))
    longest = max(lists.values(), default=0)
    cut = [path for path, length in lists.items() if length == longest]
    parts = 1
    pieces = [words]
    while max(map(len, pieces)) > MOST_BYTES:
        parts *= 2
        if parts > longest:
            raise EngineInputError("a measurement is larger than a record of Kafka and holds no list to be cut")
        runs = [slice(part * longest // parts, (part + 1) * longest // parts) for part in range(parts)]
        pieces = [
            orjson.dumps({**_run(measurement, (), cut, run), "part": part, "parts": parts, "cut": cut})
            for part, run in enumerate(runs)
        ]
    return pieces


def _lists(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the path to each list in a measurement, and its length."""
    if isinstance(value, list | tuple):
        yield path, len(value)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _lists(inner, (*path, name))


def _run(value: Any, path: tuple[str, ...], cut: Sequence[tuple[str, ...]], run: slice) -> Any:
    """Return a measurement with a run of each list that is cut."""
    if isinstance(value, Mapping):
        return {name: _run(inner, (*path, name), cut, run) for name, inner in value.items()}
    return value[run] if path in cut else value


def ledger_entry(
    release: Release,
    stream: Stream,
    guarantee: Guarantee,
    *,
    spent: Fraction,
    start_us: int,
    end_us: int,
    digest: str,
    previous_chain: str,
    draw: str,
    witness: str = "",
) -> tuple[bytes, str]:
    """Return the ledger record of a step, whose fields `LedgerEntry` explains, and the chain that goes on from it.

    Args:
        spent: what the engine's accountants were charged so far, of one contribution, in a gathering step as in any
            other: an upper bound over all users. It can be the whole epsilon from the first release on.
        draw: names the noise of the step, so that a second answer has another chain even where it says the same.
        witness: where the job has no witness outside the cluster, or one that was told to trust the ledger: which.
    """
    per = stream.privacy.per
    entry = LedgerEntry(
        version=1,
        stream=stream.name,
        step=release.step,
        start=instant(start_us).isoformat(),
        end=instant(end_us).isoformat(),
        digest=digest,
        previous_chain=previous_chain,
        chain="",
        draw=draw,
        engine=stream.engine,
        mode=stream.mode,
        gathered=release.gathered,
        synthetic_records=release.total,
        added=len(release.added),
        removed=len(release.removed),
        unit=stream.privacy.unit,
        max_contributions=stream.privacy.max_contributions,
        epsilon=float(guarantee.epsilon * stream.contributions),
        epsilon_per_us=stream.privacy.per_us,
        epsilon_per=str(per) if isinstance(per, CalendarLength) else msgspec.UNSET,
        epsilon_spent=float(spent * stream.contributions),
        renewal=_renewal(stream, release.step),
        guarantee=msgspec.convert(guarantee.as_json(), LedgerGuarantee),
        notes={**release.notes, **({} if release.weight is None else {WEIGHT: release.weight})},
        witness=witness or msgspec.UNSET,
    ).with_chain()
    return entry.encode(), entry.chain


def _renewal(stream: Stream, step: int) -> LedgerRenewal | msgspec.UnsetType:
    """Return what the periods up to a step cost together; nothing where the bound never renews."""
    if stream.period_steps is None:
        return msgspec.UNSET
    cost, periods = StreamCost.from_stream(stream), step // stream.period_steps + 1
    (epsilon, delta), window = price_of_periods(cost, periods).stated, price_of_periods(cost, 2).stated
    return LedgerRenewal(
        periods=periods, epsilon=epsilon, delta=delta, window_epsilon=window[0], window_delta=window[1]
    )
