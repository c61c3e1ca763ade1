"""`tune`: a stream's engine over a file, at several bounds and epsilons. FOR THE OPERATOR: it finds true values.

The file goes through `PartitionIngest` once for each bound, as in `simulate`, and its blocks through a `Stepper` once
for each epsilon and run. Events that pass the bound are encoded for the evaluator too, by an ingest with the same user
hash and the same bound: that is the truth without noise with which `agents.local.offline.tune` splits the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from agents.local.offline.domains import check_streams
from agents.local.offline.rows.columns import rows_for
from agents.local.offline.rows.files import FileError, FileSummary, RowFile
from agents.local.offline.rows.seen import RowsSeen, read_back
from agents.local.offline.simulate import driven_by_ticks, planned
from agents.local.offline.tune import ErrorSplit, Recommendation, TuneCell, compare, last_third, mean, recommend, shares
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.held_out import HeldOutAudit
from agents.protocol.release.merge import BlockMerge
from agents.protocol.release.stepper import Stepper
from agents.protocol.replay import Planned
from agents.protocol.userhash import user_key
from agents.show.view import metrics_of, view_of
from engines.core.contract import Columns, Domain, Evaluator, FilledDomain, FilledWords
from engines.core.noise import fresh_seed
from engines.core.registry import build_domain
from schemas.arrays import KeyArray, ReasonArray
from schemas.blocks import Block, Folded
from schemas.config import config_from_mapping
from schemas.errors import ConfigError, ConfigProblem
from schemas.releases import unframe_records

if TYPE_CHECKING:
    from schemas.config import Config, Stream
    from schemas.config.timing import Timing

_ALL = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """What to try. `runs` is of each bound and epsilon; all in ascending order."""

    bounds: tuple[int, ...]
    epsilons: tuple[Decimal, ...]
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What was found. True values.

    Attributes:
        configured: bound in the configuration. unit: of the errors, see `View.error_unit`.
        compared: which steps the errors are of, in words. explained: name of an error -> what it is.
        refused: rows that are not usable, by reason and configured field; in a sentence, and what to do about it.
        cells: by epsilon, then by bound. recommended: one for each epsilon.
    """

    stream: str
    engine: str
    mode: str
    source: str
    contribution: str
    configured: int
    runs: int
    unit: str
    compared: str
    explained: Mapping[str, str]
    rows: int
    usable: int
    steps: int
    refused: Mapping[str, int]
    refusals: str
    what_to_do: str
    cells: tuple[TuneCell, ...]
    recommended: tuple[Recommendation, ...]


def tune(
    config: Config,
    path: Path,
    options: TuneOptions,
    *,
    stream: str,
    begun: Callable[[int], None] = lambda rows: None,
    progress: Callable[[int], None] = lambda rows: None,
    draw: Callable[[], bytes] = fresh_seed,
) -> Tuned:
    """Try every bound at every epsilon.

    Args:
        stream: its name.
        begun: told once how many rows there are to go through, each as often as it is gone through.
        progress: told the rows that were gone through since it was last called.
        draw: seeds, of 32 bytes; tests repeat runs by it.
    Raises: ConfigError for a stream that bounds nobody, or a bound or epsilon that it cannot have; FileError;
        ReplayError.
    """
    chosen = config.stream(stream)
    check_bounded(config, chosen)
    grid = {
        (bound, epsilon): at(config, chosen, bound, epsilon) for bound in options.bounds for epsilon in options.epsilons
    }
    file = rows_for(path, chosen)
    summary = file.summary()
    if summary.rows == 0:
        raise FileError.empty(file.path)
    runs = len(options.epsilons) * options.runs
    begun(summary.rows * (1 + len(options.bounds) * (1 + runs)))
    driven = driven_by_ticks(chosen, file)
    history = History(driven, file, summary, progress)
    cells = []
    for bound in options.bounds:
        streams = [_timed(grid[bound, epsilon], driven) for epsilon in options.epsilons]
        bounded = history.bounded(streams[0], progress)
        for each, epsilon in zip(streams, options.epsilons, strict=True):
            splits = [bounded.run(each, progress, draw) for _ in range(options.runs)]
            found = tuple(split for split in splits if split.known)
            cells.append(
                TuneCell(
                    bound, epsilon, *shares(bounded.sizes, history.sizes), found if len(found) == len(splits) else ()
                )
            )
    cells.sort(key=lambda cell: (cell.epsilon, cell.bound))
    return Tuned(
        stream=chosen.name,
        engine=chosen.engine,
        mode=chosen.mode,
        source=file.path.name,
        contribution=chosen.contribution,
        configured=chosen.privacy.max_contributions or 0,
        runs=options.runs,
        unit=view_of(chosen).error_unit,
        explained={metric.name: metric.explained for metric in metrics_of(chosen) if metric.error},
        compared=history.compared,
        rows=history.rows,
        usable=sum(history.sizes),
        steps=len(history.sizes),
        refused={
            f"{reason} of {name}" if name else reason: n for (reason, name), n in history.rows_seen.seen.refused.items()
        },
        refusals=history.rows_seen.seen.sentence(),
        what_to_do=next((each.what_to_do for each in history.rows_seen.refused), ""),
        cells=tuple(cells),
        recommended=recommend(cells),
    )


def check_bounded(config: Config, stream: Stream) -> None:
    """Raises: ConfigError where no user is bounded, so that there is no bound to choose."""
    if stream.privacy.bounds_users:
        return
    key = f"streams[{config.streams.index(stream)}].privacy"
    if stream.privacy.unit == "event":
        problem = ConfigProblem(
            f"{key}.unit",
            f'stream "{stream.name}": unit = "event" bounds nobody, so there is no bound to choose',
            'set unit = "user", user and max_contributions; or choose another stream with --stream',
        )
    else:
        problem = ConfigProblem(
            f"{key}.max_contributions",
            f'stream "{stream.name}": its records name no user, so nobody is bounded',
            "choose a stream whose records name a user, with --stream",
        )
    raise ConfigError([problem])


def at(config: Config, stream: Stream, bound: int, epsilon: Decimal) -> Stream:
    """The stream with another bound and epsilon, checked again. Raises: ConfigError."""
    document = config.model_dump()
    (table,) = (table for table in document["streams"] if table["name"] == stream.name)
    document["streams"] = [table]
    privacy = table["privacy"]
    privacy["max_contributions"], privacy["epsilon"] = bound, epsilon
    if privacy["max_per_step"] is not None:
        # More a step than in all says nothing, and is refused.
        privacy["max_per_step"] = min(privacy["max_per_step"], bound)
    changed = config_from_mapping(document)
    check_streams(changed)
    return changed.streams[0]


def possible(config: Config, stream: Stream, bounds: Sequence[int]) -> tuple[tuple[int, ...], Mapping[int, str]]:
    """The bounds that a stream can have, and why it cannot have the others."""
    refused: dict[int, str] = {}
    for bound in bounds:
        try:
            at(config, stream, bound, stream.privacy.epsilon)
        except ConfigError as error:
            refused[bound] = error.problems[0].reason
    return tuple(bound for bound in bounds if bound not in refused), refused


class History:
    """The file, with all that is true of it whatever the bound.

    Attributes:
        sizes: usable rows by step.
        rows_seen: the rows by what became of them, as if nobody were bounded.
        compared: in words, see `Tuned`.
    """

    def __init__(self, stream: Stream, file: RowFile, summary: FileSummary, progress: Callable[[int], None]) -> None:
        """Read the file once. Raises: FileError where less than half of it is usable; ReplayError."""
        self._file, self._digest = file, summary.digest
        self._key = user_key(fresh_seed(), stream=stream.name)
        domain, audit = build_domain(stream), HeldOutAudit(stream, 1)
        self.evaluator: Evaluator = audit.evaluator
        spec = SourceSpec.of(stream, domain, key=self._key, partitions=1, rows=True)
        assert spec.bounds is not None, "the stream bounds its users"
        unbounded = replace(spec, bounds=replace(spec.bounds, max_contributions=_ALL, max_per_step=None))
        usable = Ingested(unbounded, stream.time)
        truth = Ingested(SourceSpec.held_out(stream, self.evaluator.domain, partitions=1, rows=True), stream.time)
        self.rows = 0
        for records, rows in planned(stream, file.batches(), source=summary.digest):
            for each in (usable, truth):
                each.take(records, rows)
            self.rows += rows
            progress(rows)
        self.rows_seen = usable.rows_seen
        self._check(stream)
        self.sizes = usable.sizes(domain.words)
        alive = self.evaluator.scope == "alive"
        self.compared = "after the last step" if alive else "of one step, a mean over the last third of the steps"
        self._wanted = range(len(self.sizes) - 1 if alive else 0, len(self.sizes))
        self.truths = truth.truths(audit, self._wanted)

    def _check(self, stream: Stream) -> None:
        if self.rows == 0:
            raise FileError.empty(self._file.path)
        if self.rows_seen.misfit:
            raise FileError(
                f"{self._file.path}: stream {stream.name} can use less than half of the {self.rows:,} rows: "
                f"{'; '.join(map(str, self.rows_seen.refused))}. "
                f"Fix: {self.rows_seen.seen.what_to_do()}; or name another file."
            )

    def bounded(self, stream: Stream, progress: Callable[[int], None]) -> Bounded:
        """What the bound of a stream lets through. Reads the file once more."""
        domain, audit = build_domain(stream), HeldOutAudit(stream, 1)
        both = _both(domain, audit.evaluator.domain)
        engine = Ingested(SourceSpec.of(stream, domain, key=self._key, partitions=1, rows=True), stream.time)
        kept = Ingested(SourceSpec.of(stream, both, key=self._key, partitions=1, rows=True), stream.time)
        for records, rows in planned(stream, self._file.batches(), source=self._digest):
            for each in (engine, kept):
                each.take(records, rows)
            progress(rows)
        truths = kept.truths(audit, self._wanted)
        return Bounded(engine, engine.sizes(domain.words), {step: (self.truths[step], truths[step]) for step in truths})


class Ingested:
    """The blocks of one ingest of the file, without its bounds' increments.

    Attributes:
        rows_seen: rows by what became of them.
    """

    def __init__(self, spec: SourceSpec, time: Timing) -> None:
        self._machine = PartitionIngest(spec, 0)
        self.blocks: list[tuple[Block, int]] = []
        self.rows_seen = RowsSeen(time)

    def take(self, records: Sequence[Planned], rows: int) -> None:
        """The next records, which `rows` rows became."""
        machine = self._machine
        machine.take(read_back(records, first=machine.next_offset))
        block, letters = machine.seal()
        if block is None:
            return
        machine.committed(at=len(self.blocks))
        self.rows_seen.take(records, block, letters)
        kept = Block(block.stream, block.partition, block.lo, block.hi, block.tick, block.steps, surplus=block.surplus)
        self.blocks.append((kept, rows))

    def sizes(self, words: int) -> list[int]:
        """Events of each closed step."""
        merge = BlockMerge(self._machine.spec.stream, 1, words)
        for offset, (block, _) in enumerate(self.blocks):
            merge.fold(offset, block)
        return [merge.take(step).total for step in range(merge.closed_to + 1)]

    def truths(self, audit: HeldOutAudit, wanted: range) -> dict[int, Folded]:
        """What an evaluator is to compare after the wanted steps, by step. Private."""
        for offset, (block, _) in enumerate(self.blocks):
            audit.fold(offset, block)
        found = {}
        for step in range(wanted.stop):
            audit.advance()
            if step in wanted:
                found[step] = audit.truth
        return found


@dataclass(frozen=True, slots=True)
class Bounded:
    """What one bound lets through of a file.

    Attributes:
        sizes: rows by step. truths: step -> all events and those that passed, as the evaluator takes them. Private.
    """

    ingested: Ingested
    sizes: Sequence[int]
    truths: Mapping[int, tuple[Folded, Folded]]

    def run(self, stream: Stream, progress: Callable[[int], None], draw: Callable[[], bytes]) -> ErrorSplit:
        """Release every step once, and split the error."""
        stepper, evaluator = Stepper.of(stream, 1), HeldOutAudit(stream, 1).evaluator
        metrics = metrics_of(stream)
        alive: dict[bytes, tuple[Any, ...]] = {}
        splits = []
        for offset, (block, rows) in enumerate(self.ingested.blocks):
            stepper.fold(offset, block)
            while stepper.closable:
                step = stepper.step
                candidate = stepper.compute(draw())
                added = list(_applied(candidate.payload, evaluator.fields, alive))
                if step in self.truths and stepper.release is not None and not stepper.release.gathered:
                    records = list(alive.values()) if evaluator.scope == "alive" else added
                    splits.append(compare(evaluator, metrics, *self.truths[step], _columns(evaluator.fields, records)))
            progress(rows)
        return mean(last_third(splits))


def _applied(payload: bytes, fields: Sequence[str], alive: dict[bytes, tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Let records appear and go, as a consumer does; those that appear, by the fields that are compared."""
    for record in unframe_records(payload):
        if record.channel != "synthetic":
            continue
        if record.value is None:
            alive.pop(record.key, None)
        else:
            value = orjson.loads(record.value)
            alive[record.key] = tuple(value.get(name) for name in fields)
            yield alive[record.key]


def _columns(fields: Sequence[str], records: Sequence[tuple[Any, ...]]) -> Mapping[str, list[Any]]:
    return {name: [record[index] for record in records] for index, name in enumerate(fields)}


def _timed(stream: Stream, driven: Stream) -> Stream:
    return stream.model_copy(update={"time": driven.time})


class EventsOfBoth:
    """Events that an engine's domain takes, encoded by another one: what the engine refuses charges nobody."""

    def __init__(self, engine: Domain, encoding: Domain) -> None:
        self._engine, self._encoding = engine, encoding
        self.number_fields = _united(engine.number_fields, encoding.number_fields)
        self.text_fields = _united(engine.text_fields, encoding.text_fields)
        self.value_fields = {**encoding.value_fields, **engine.value_fields}
        self.words = encoding.words

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """See `engines.core.contract.Domain`."""
        keys, reasons = self._encoding.encode(columns)
        _, refused = self._engine.encode(columns)
        return keys, np.where(refused != 0, refused, reasons)


class PointsOfBoth(EventsOfBoth):
    """The same where events are points of trips."""

    def __init__(self, engine: Domain, encoding: Domain, filled: FilledWords) -> None:
        super().__init__(engine, encoding)
        self.filled = filled


def _both(engine: Domain, encoding: Domain) -> Domain:
    if isinstance(encoding, FilledDomain):
        return PointsOfBoth(engine, encoding, encoding.filled)
    return EventsOfBoth(engine, encoding)


def _united(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
