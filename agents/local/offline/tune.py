"""`tune`: which bound on a user's contributions to choose, on a file. FOR THE OPERATOR: all figures are true values.

A small bound drops events, and nothing brings them back: bias. A large one leaves each event a small share of epsilon:
noise. The truth that the bound lets through, compared once with all of the truth and once with the release, tells the
two apart.

The file goes through an ingest once for each bound, as in `simulate`, and its blocks through a `Stepper` once for each
epsilon and run. Events that pass the bound are encoded for the evaluator too, by an ingest with the same user hash and
the same bound: that is the truth without noise.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal, InvalidOperation
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson

from agents.local.job import LocalIngest, planned
from agents.local.offline.domains import check_stream
from agents.local.offline.files import FileError, FileSummary, RowFile, private_folder, rows_for
from agents.local.offline.seen import RowsSeen
from agents.local.offline.simulate import driven_by_ticks
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.held_out import HeldOutAudit
from agents.protocol.release.stepper import Stepper
from agents.protocol.replay import Planned
from agents.protocol.userhash import user_key
from agents.show.report import error_chart, render_template, share_chart
from agents.show.view import Term, errors, metrics_of, view_of
from engines.core.contract import Columns, Domain, FilledDomain, FilledWords
from engines.core.noise import fresh_seed
from engines.core.registry import build_domain, build_evaluator
from schemas.arrays import KeyArray, ReasonArray
from schemas.blocks import Block, Folded
from schemas.config import Config, Stream
from schemas.errors import ConfigError, PrivstreamError
from schemas.releases import unframe_records

T = TypeVar("T")

NOT_COVERED = (
    "A bound that is chosen from private data is itself a function of private data, and no guarantee covers it: who "
    "knows the bound has learnt something of them. Choose it on a public file, or on an old one of people who are in "
    "no stream that it is used for."
)
TRUE_VALUES = (
    "NOT PRIVATE. For the operator only: shares and errors are TRUE values. Do not publish, send or commit them."
)
LADDER = tuple(step * 10**power for power in range(7) for step in (1, 2, 5) if step * 10**power <= 1_000_000)
"""Bounds from which the default ones are taken."""
BELOW, ABOVE = 20, 5
"""How many times smaller and larger than the configured bound a default one is at most."""
_ALL = (1 << 31) - 1
LEAST = 1e-3
"""Of the largest error of its name: where errors are multiplied with each other, smaller ones count as so large."""
APART = 2.0
"""Standard deviations of their difference by which two bounds are told apart."""


@dataclass(frozen=True, slots=True)
class ErrorSplit:
    """Errors by name, see `agents.show.view.errors`.

    Attributes:
        bias: of what the bound lets through, as if released without noise, against the whole truth.
        noise: of the release against what the bound lets through.
        total: of the release against the whole truth. Not the sum: the two parts can make good for each other.
    """

    bias: Mapping[str, float]
    noise: Mapping[str, float]
    total: Mapping[str, float]

    @property
    def known(self) -> bool:
        """Whether anything was released, and compared."""
        return any(math.isfinite(value) for value in self.total.values())


@dataclass(frozen=True, slots=True)
class TuneCell:
    """One bound at one epsilon. Shares are of usable rows, in all steps and in the first and last third of them.

    Attributes:
        runs: the errors of each run, a mean over the steps that count; empty where nothing was released.
    """

    bound: int
    epsilon: Decimal
    accepted: float
    accepted_first: float
    accepted_last: float
    runs: tuple[ErrorSplit, ...]

    @property
    def errors(self) -> ErrorSplit:
        """The mean over all runs."""
        return mean_split(self.runs)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The bound of least error at one epsilon.

    Attributes:
        bound: None where no bound gave an error to compare.
        alike: other bounds that so many runs do not tell from it.
        spread: standard deviation of a run's error near the bound, relative to it; None where there is one run of each.
        edge: "smallest" or "largest" where the bound is the first or last of several tried; never 1.
    """

    epsilon: Decimal
    bound: int | None
    alike: tuple[int, ...] = ()
    spread: float | None = None
    edge: str = ""

    def sentence(self) -> str:
        if self.bound is None:
            return f"epsilon {self.epsilon}: nothing was released and compared, so no bound can be recommended"
        text = f"epsilon {self.epsilon}: max_contributions = {self.bound} has the least error"
        if self.spread is None:
            text += " (of one run: --runs 3 tells how much runs differ)"
        elif self.alike:
            *others, last = map(str, self.alike)
            named = f"{', '.join(others)} and {last}" if others else last
            text += f", but {named} {'is' if len(self.alike) == 1 else 'are'} within what runs differ by"
            text += f" ({self.spread:.1%})"
        else:
            text += f", by more than runs differ ({self.spread:.1%})"
        if self.edge:
            text += f"; it is the {self.edge} of those tried, so try {self.edge.removesuffix('st')}r ones"
        return text


def default_bounds(configured: int, *, charge: int = 1) -> tuple[int, ...]:
    """Return those of `LADDER` that are near the configured bound, and that one, unless they let no event through."""
    near = [bound for bound in LADDER if configured <= BELOW * bound and bound <= ABOVE * configured]
    return tuple(sorted({bound for bound in (*near, configured) if bound >= charge}))


def default_epsilons(configured: Decimal) -> tuple[Decimal, ...]:
    """Return half, all and twice of the configured epsilon."""
    factors = (Decimal("0.5"), Decimal(1), Decimal(2))
    return tuple(Decimal(f"{(configured * factor).normalize():f}") for factor in factors)  # 10, and not 1E+1


def parse_bounds(text: str) -> tuple[int, ...]:
    """Return bounds from a text such as "1,2,5", each once and in order. Raises: PrivstreamError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 7 and 1 <= int(part) <= LADDER[-1] for part in parts):
        raise PrivstreamError(
            f"--bounds must be whole numbers from 1 to {LADDER[-1]:,} with commas between them. "
            "Fix: write for example --bounds 1,2,5,10,20."
        )
    return tuple(sorted({int(part) for part in parts}))


def parse_epsilons(text: str) -> tuple[Decimal, ...]:
    """Return epsilons from a text such as "0.5,1,2", each once and in order. Raises: PrivstreamError."""
    try:
        values = {Decimal(part.strip()) for part in text.split(",")}
    except InvalidOperation:
        values = {Decimal(0)}
    if not all(value.is_finite() and value > 0 for value in values):
        raise PrivstreamError(
            "--epsilons must be positive numbers with commas between them. Fix: write for example --epsilons 0.5,1,2."
        )
    return tuple(sorted(values))


def last_third(splits: Sequence[ErrorSplit]) -> Sequence[ErrorSplit]:
    """Return those steps that count: the last third of the ones in which something was compared, one at least."""
    known = [split for split in splits if split.known]
    return known[-max(1, len(known) // 3) :]


def mean_split(splits: Sequence[ErrorSplit]) -> ErrorSplit:
    """Return the mean of each error, over those in which it is known; NaN where it is in none."""
    return ErrorSplit(*(_mean([getattr(split, part) for split in splits]) for part in ("bias", "noise", "total")))


def _mean(errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for each in errors for name in each)
    found = {}
    for name in names:
        known = [each[name] for each in errors if math.isfinite(each.get(name, math.nan))]
        found[name] = math.fsum(known) / len(known) if known else math.nan
    return found


def shares(kept: Sequence[int], usable: Sequence[int]) -> tuple[float, float, float]:
    """Return the share that is kept of all rows, and of those in the first and last third of the steps; NaN of none."""
    third = max(1, len(usable) // 3)
    parts = (slice(None), slice(None, third), slice(-third, None))
    totals = [(sum(kept[part]), sum(usable[part])) for part in parts]
    all_steps, first, last = (k / n if n else math.nan for k, n in totals)
    return all_steps, first, last


def recommend(cells: Iterable[TuneCell]) -> tuple[Recommendation, ...]:
    """Return for each epsilon the bound whose total errors have the least geometric mean, over names and runs."""
    by_epsilon: dict[Decimal, list[TuneCell]] = defaultdict(list)
    for cell in cells:
        by_epsilon[cell.epsilon].append(cell)
    return tuple(_best(epsilon, some) for epsilon, some in sorted(by_epsilon.items()))


def _best(epsilon: Decimal, cells: Sequence[TuneCell]) -> Recommendation:
    tried = sorted(cell.bound for cell in cells)
    cells = sorted((cell for cell in cells if cell.runs), key=lambda cell: cell.bound)
    names = [
        name
        for name in (cells[0].errors.total if cells else ())
        if all(math.isfinite(run.total.get(name, math.nan)) for cell in cells for run in cell.runs)
    ]
    if not names:
        return Recommendation(epsilon, None)
    # Logarithms of geometric means, (bounds, runs); where nobody errs they are all alike.
    totals = np.array([[[run.total[name] for run in cell.runs] for cell in cells] for name in names], np.float64)
    largest = np.maximum(totals.max(axis=(1, 2), keepdims=True), np.finfo(np.float64).tiny)
    scores = np.log(np.maximum(totals / largest, LEAST)).mean(axis=0)
    means, runs = scores.mean(axis=1), scores.shape[1]
    best = int(np.argmin(means))
    bound = cells[best].bound
    edge = ""
    if len(tried) > 1 and bound in (tried[0], tried[-1]) and bound > 1:
        edge = "smallest" if bound == tried[0] else "largest"
    if runs == 1:
        return Recommendation(epsilon, bound, edge=edge)
    each = scores.var(axis=1, ddof=1)
    # The mean of each and its neighbours: few runs know little of their own, and distant bounds have another.
    variances = np.array([each[max(0, at - 1) : at + 2].mean() for at in range(len(each))])
    near = means - means[best] <= APART * np.sqrt((variances + variances[best]) / runs)
    alike = tuple(cell.bound for cell, close in zip(cells, near, strict=True) if close and cell.bound != bound)
    return Recommendation(epsilon, bound, alike, math.sqrt(variances[best]), edge)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What was found. True values.

    Attributes:
        configured: bound in the configuration. unit: of the errors, see `View.error_unit`.
        compared: which steps the errors are of, in words. explained: name of an error -> what it is.
        refused: rows that are not usable, by reason and configured field; in a sentence, and what to do about it.
        dropped: rows that `[streams.map]` leaves out.
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
    dropped: int
    refusals: str
    what_to_do: str
    cells: tuple[TuneCell, ...]
    recommended: tuple[Recommendation, ...]

    @property
    def problem(self) -> str:
        """Why no bound is recommended at any epsilon, and what to do; empty where one is."""
        if any(each.bound is not None for each in self.recommended):
            return ""
        return (
            f"no bound can be recommended: in {self.steps:,} steps nothing was released that could be compared. Fix: "
            "name a longer file, or configure a shorter step or fewer steps to gather before the first release."
        )


def tune(
    config: Config,
    path: Path,
    *,
    stream: str,
    bounds: Sequence[int],
    epsilons: Sequence[Decimal],
    runs: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
    draw: Callable[[], bytes] = fresh_seed,
) -> Tuned:
    """Try every bound at every epsilon.

    Args:
        stream: its name.
        bounds, epsilons: to try, in ascending order. runs: of each bound and epsilon.
        progress: called with the rows read so far and the rows to read; a row counts each time that it is read.
        draw: seeds, of 32 bytes; tests repeat runs by it.
    Raises: ConfigError for a stream that bounds nobody, or a bound or epsilon that it cannot have; FileError;
        ReplayError.
    """
    chosen = config.stream(stream)
    check_bounded(config, chosen)
    grid = {(bound, epsilon): with_bound(chosen, bound, epsilon) for bound in bounds for epsilon in epsilons}
    file = rows_for(path, chosen)
    summary = file.summary()
    if summary.rows == 0:
        raise FileError.empty(file.path)
    total = summary.rows * (1 + len(bounds) * (1 + len(epsilons) * runs))
    done = 0

    def passed(rows: int) -> None:
        nonlocal done
        done += rows
        progress(done, total)

    driven = driven_by_ticks(chosen, file)
    history = History(driven, file, summary, passed)
    cells: list[TuneCell] = []
    for bound in bounds:
        streams = [grid[bound, epsilon].model_copy(update={"time": driven.time}) for epsilon in epsilons]
        bounded = history.bounded(streams[0], passed)
        for each, epsilon in zip(streams, epsilons, strict=True):
            splits = [bounded.run(each, passed, draw) for _ in range(runs)]
            found = tuple(split for split in splits if split.known)
            accepted = shares(bounded.taken.sizes, history.sizes)
            cells.append(TuneCell(bound, epsilon, *accepted, found if len(found) == len(splits) else ()))
    cells.sort(key=lambda cell: (cell.epsilon, cell.bound))
    return Tuned(
        stream=chosen.name,
        engine=chosen.engine,
        mode=chosen.mode,
        source=file.path.name,
        contribution=chosen.contribution,
        configured=chosen.privacy.max_contributions or 0,
        runs=runs,
        unit=view_of(chosen).error_unit,
        explained={metric.name: metric.explained for metric in metrics_of(chosen) if metric.error},
        compared=history.compared,
        rows=history.rows,
        usable=sum(history.sizes),
        steps=len(history.sizes),
        refused={
            f"{reason} of {name}" if name else reason: n for (reason, name), n in history.rows_seen.seen.refused.items()
        },
        dropped=history.rows_seen.seen.dropped,
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
        raise ConfigError.of(
            f"{key}.unit",
            f'stream "{stream.name}": unit = "event" bounds nobody, so there is no bound to choose',
            'set unit = "user", user and max_contributions; or choose another stream with --stream',
        )
    raise ConfigError.of(
        f"{key}.max_contributions",
        f'stream "{stream.name}": its records name no user, so nobody is bounded',
        "choose a stream whose records name a user, with --stream",
    )


def with_bound(stream: Stream, bound: int, epsilon: Decimal) -> Stream:
    """Return the stream with another bound and epsilon, checked and built. Raises: ConfigError."""
    changed = stream.with_overrides(max_contributions=bound, epsilon=epsilon)
    check_stream(changed)
    return changed


def what_to_try(
    stream: Stream, *, bounds: Sequence[int] | None, epsilons: Sequence[Decimal] | None
) -> tuple[Sequence[int], Sequence[Decimal], Sequence[str]]:
    """Return bounds and epsilons to try, and why some of what is tried by default is left out, in sentences.

    Args:
        bounds, epsilons: None: the default ones, of which only those are tried that the stream can have.
    Raises: PrivstreamError where no default bound is one that the stream can have.
    """
    configured, left_out = stream.privacy.max_contributions or 1, list[str]()
    if epsilons is None:
        few = (configured,) if bounds is None else bounds
        epsilons = _allowed(
            "epsilon",
            default_epsilons(stream.privacy.epsilon),
            lambda epsilon: [with_bound(stream, bound, epsilon) for bound in few],
            left_out,
        )
    if bounds is None:
        tried = tuple(epsilons)
        bounds = _allowed(
            "bound",
            default_bounds(configured, charge=stream.insert_charge),
            lambda bound: [with_bound(stream, bound, epsilon) for epsilon in tried],
            left_out,
        )
    return bounds, epsilons, left_out


def _allowed(name: str, values: Sequence[T], build: Callable[[T], object], left_out: list[str]) -> list[T]:
    """Return those values that a stream can have; why it cannot have others goes to `left_out`."""
    kept, said = [], ""
    for value in values:
        try:
            build(value)
        except ConfigError as error:
            problem = error.problems[0]
            said = f"{problem.reason}. Fix: {problem.fix}; or name others with --{name}s."
            left_out.append(f"{name} {value} was left out: {problem.reason}")
        else:
            kept.append(value)
    if not kept:
        raise PrivstreamError(f"{name}s from {values[0]} to {values[-1]} cannot be tried: {said}")
    return kept


class History:
    """The file, with all that is true of it whatever the bound.

    Attributes:
        sizes: usable rows by step.
        rows_seen: the rows by what became of them, as if nobody were bounded.
        compared: in words, see `Tuned`.
        truths: all events as the evaluator takes them, after each step that is compared. Private.
    """

    def __init__(self, stream: Stream, file: RowFile, summary: FileSummary, progress: Callable[[int], None]) -> None:
        """Read the file once. Raises: FileError where less than half of it is usable; ReplayError."""
        self._file, self._digest = file, summary.digest
        self._key = user_key(fresh_seed(), stream=stream.name)
        audit = HeldOutAudit(stream, 1)
        spec = SourceSpec.from_stream(stream, build_domain(stream), key=self._key, partitions=1, rows=True)
        assert spec.bounds is not None, "the stream bounds its users"
        usable = Ingested(replace(spec, bounds=replace(spec.bounds, max_contributions=_ALL, max_per_step=None)))
        truth = LocalIngest(SourceSpec.held_out(stream, audit.evaluator.domain, partitions=1, rows=True), audit.fold)
        self.rows = 0
        self.rows_seen = RowsSeen(stream.time, mapping=spec.mapping)
        for records, rows in planned(stream, file.batches(), source=summary.digest):
            block, letters = usable.take_rows(records, rows)
            if block is not None:
                self.rows_seen.take(records, block, letters)
            truth.take_planned(records)
            self.rows += rows
            progress(rows)
        self._check(stream)
        self.sizes = usable.sizes
        alive = audit.evaluator.scope == "alive"
        self.compared = "after the last step" if alive else "of one step, a mean over the last third of the steps"
        self.truths: dict[int, Folded] = {}
        for step in range(len(self.sizes)):
            audit.advance()
            if not alive or step == len(self.sizes) - 1:
                self.truths[step] = audit.truth

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
        """Return what the bound of a stream lets through. Reads the file once more."""
        domain = build_domain(stream)
        encoding = EncodedForEvaluator(domain, build_evaluator(stream).domain)
        taken, kept = (
            Ingested(SourceSpec.from_stream(stream, each, key=self._key, partitions=1, rows=True))
            for each in (domain, encoding)
        )
        for records, rows in planned(stream, self._file.batches(), source=self._digest):
            for each in (taken, kept):
                each.take_rows(records, rows)
            progress(rows)
        return Bounded(taken, kept, self.truths)


class Ingested(LocalIngest):
    """One ingest of the file, whose blocks are kept without the increments of bounds, each with its number of rows."""

    def __init__(self, spec: SourceSpec) -> None:
        super().__init__(spec)
        self.blocks: list[tuple[Block, int]] = []

    def take_rows(self, records: Sequence[Planned], rows: int) -> tuple[Block | None, list[DeadLetter]]:
        """Take in the next records, which `rows` rows became. Returns: as `take_planned`."""
        block, letters = self.take_planned(records)
        if block is not None:
            kept = Block(
                block.stream, block.partition, block.lo, block.hi, block.tick, block.steps, surplus=block.surplus
            )
            self.blocks.append((kept, rows))
        return block, letters

    @property
    def sizes(self) -> list[int]:
        """How many events each closed step has."""
        found = Counter[int]()
        for block, _ in self.blocks:
            found.update({step: events.total for step, events in block.steps.items()})
        return [found[step] for step in range(self.blocks[-1][0].tick + 1)]


@dataclass(frozen=True, slots=True)
class Bounded:
    """What one bound lets through of a file, as the engine takes it, and, block by block, as the evaluator does; and
    all events, see `History`. Private.
    """

    taken: Ingested
    kept: Ingested
    truths: Mapping[int, Folded]

    def run(self, stream: Stream, progress: Callable[[int], None], draw: Callable[[], bytes]) -> ErrorSplit:
        """Release every step once, and split the error."""
        stepper, audit, metrics = Stepper.from_stream(stream, 1), HeldOutAudit(stream, 1), metrics_of(stream)
        evaluator, records, splits = audit.evaluator, count(), []
        for offset, ((block, rows), (events, _)) in enumerate(zip(self.taken.blocks, self.kept.blocks, strict=True)):
            stepper.fold(offset, block)
            audit.fold(offset, events)
            while stepper.closable:
                step = stepper.step
                for record in unframe_records(stepper.compute(draw()).payload):
                    if record.channel == "synthetic":
                        audit.on_synthetic(next(records), step, record.key, record.value)
                _, added = audit.advance()
                if step in self.truths and stepper.release is not None and not stepper.release.gathered:
                    columns = audit.columns(audit.points if evaluator.scope == "alive" else added)
                    whole, passed = self.truths[step], audit.truth
                    of_each = (
                        evaluator.exact(whole, passed),
                        evaluator.measure(passed, columns),
                        evaluator.measure(whole, columns),
                    )
                    splits.append(ErrorSplit(*(errors(metrics, each) for each in of_each)))
            progress(rows)
        return mean_split(last_third(splits))


class EncodedForEvaluator:
    """Events that an engine's domain takes, encoded by another one: what the engine refuses charges nobody."""

    filled: FilledWords
    """There where events are points of trips."""

    def __init__(self, engine: Domain, encoding: Domain) -> None:
        self._engine, self._encoding = engine, encoding
        self.number_fields = tuple(dict.fromkeys((*engine.number_fields, *encoding.number_fields)))
        self.text_fields = tuple(dict.fromkeys((*engine.text_fields, *encoding.text_fields)))
        self.value_fields = {**encoding.value_fields, **engine.value_fields}
        self.words = encoding.words
        if isinstance(encoding, FilledDomain):
            self.filled = encoding.filled

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """See `engines.core.contract.Domain`."""
        keys, reasons = self._encoding.encode(columns)
        _, refused = self._engine.encode(columns)
        return keys, np.where(refused != 0, refused, reasons)


# --- as words, a table, JSON and a page -------------------------------------------------------------------------------

WARNINGS = (NOT_COVERED, TRUE_VALUES)
_PARTS = {"bias": "bias", "noise": "noise", "error": "total"}
"""What a part of an error is called in pictures, and in an `ErrorSplit`."""


def warnings(tuned: Tuned) -> tuple[str, ...]:
    """What whoever reads the figures must know; first, where there are any, which rows are in none of them and why."""
    end = "" if tuned.what_to_do.endswith("?") else "."
    unused = f"Of {tuned.rows:,} rows {tuned.refusals}."
    if tuned.refused:
        unused += f" What to do: {tuned.what_to_do}{end}"
    return (*([unused] if tuned.refused or tuned.dropped else []), *WARNINGS)


def explanation(tuned: Tuned) -> tuple[str, str]:
    """Return what the figures are, in two sentences."""
    unit = f", in {tuned.unit}" if tuned.unit not in ("", "%") else ""
    return (
        f"Errors{unit} are {tuned.compared}, of the release against the whole truth. In brackets: bias, of what the "
        "bound lets through, without noise, against the whole truth; and noise, of the release against what the bound "
        "lets through. The two do not add up to the error.",
        f"A contribution is one {tuned.contribution}. Accepted is the share of usable rows, of all steps and of the "
        "first and last third of them. * stands at the bound that errs least.",
    )


def explained(tuned: Tuned) -> list[Term]:
    """Return what the errors in a table or a picture are, and what they are split in."""
    return [Term(name, meaning) for name, meaning in tuned.explained.items()] + [
        Term(
            "bias", "The error of what the bound lets through, without any noise: it drops events of users with many."
        ),
        Term("noise", "The error of the release against what the bound lets through."),
        Term("max_contributions", "The bound: how many contributions of one user count. Further ones are dropped."),
        Term("epsilon", "The price in privacy of one user: the less, the more is hidden, and the more noise there is."),
    ]


def by_epsilon(tuned: Tuned) -> Iterator[tuple[Recommendation, Sequence[TuneCell]]]:
    """Yield the recommendation of each epsilon, and its cells in the order of their bounds."""
    for recommended in tuned.recommended:
        yield recommended, [cell for cell in tuned.cells if cell.epsilon == recommended.epsilon]


def table_head(tuned: Tuned) -> list[str]:
    return ["bound", "accepted", "first third", "last third", *error_names(tuned)]


def error_names(tuned: Tuned) -> list[str]:
    """Return the names of the errors."""
    return list(dict.fromkeys(name for cell in tuned.cells for name in cell.errors.total))


def table_rows(tuned: Tuned, recommended: Recommendation, cells: Sequence[TuneCell]) -> Iterator[list[str]]:
    """Yield a line of the table for each bound; "*" stands at the recommended one."""
    for cell in cells:
        errors = cell.errors
        shown = (cell.accepted, cell.accepted_first, cell.accepted_last)
        yield [
            f"{cell.bound:,}{' *' if cell.bound == recommended.bound else ''}",
            *("-" if math.isnan(share) else f"{share:.0%}" for share in shown),
            *(_three(errors, name, tuned.unit) for name in error_names(tuned)),
        ]


def _three(errors: ErrorSplit, name: str, unit: str) -> str:
    bias, noise, total = (_number(getattr(errors, part).get(name, math.nan), unit) for part in _PARTS.values())
    return f"{total} ({bias}, {noise})"


def _number(value: float, unit: str) -> str:
    if math.isnan(value):
        return "-"
    value, sign = (100 * value, "%") if unit == "%" else (value, "")
    return f"{value:,.0f}{sign}" if value >= 1000 else f"{value:.3g}{sign}"


def as_json(tuned: Tuned) -> dict[str, Any]:
    """Return the document of `--json`. Errors of shares are shares, not percent; what is not known is null."""
    cells = [{**asdict(cell), "errors": asdict(cell.errors)} for cell in tuned.cells]
    recommended = [{**asdict(each), "sentence": each.sentence()} for each in tuned.recommended]
    document = {**asdict(tuned), "cells": cells, "recommended": recommended}
    found = {"ok": not tuned.problem, "private": False, "warnings": warnings(tuned), **document}
    plain: dict[str, Any] = orjson.loads(orjson.dumps(found, default=float))
    return plain


def write_page(tuned: Tuned, folder: Path) -> Path:
    """Write tune.html for this user of the machine only. Returns its path. Raises: FileError."""
    page = folder / "tune.html"
    with private_folder(folder):
        page.write_text(_page(tuned), encoding="utf-8")
    return page


def _page(tuned: Tuned) -> str:
    some = [cell for cell in tuned.cells if cell.epsilon == tuned.recommended[0].epsilon]
    shares = {
        "all steps": [cell.accepted for cell in some],
        "first third": [cell.accepted_first for cell in some],
        "last third": [cell.accepted_last for cell in some],
    }
    return render_template(
        "tune.html",
        name=tuned.stream,
        sub=f"engine {tuned.engine}, mode {tuned.mode}, from {tuned.source}",
        warnings=warnings(tuned),
        about=explanation(tuned),
        all_tiles=[
            (f"{tuned.usable:,}", f"usable of {tuned.rows:,} rows"),
            (f"{tuned.steps:,}", "steps"),
            (f"{tuned.configured:,}", "max_contributions as configured"),
            (f"{tuned.runs:,}", "runs of each bound and epsilon"),
        ],
        explained=explained(tuned),
        share_plot=share_chart([cell.bound for cell in some], shares),
        epsilons=[_curves(tuned, recommended, cells) for recommended, cells in by_epsilon(tuned)],
    )


def _curves(tuned: Tuned, recommended: Recommendation, cells: Sequence[TuneCell]) -> dict[str, Any]:
    bounds, errors = [cell.bound for cell in cells], [cell.errors for cell in cells]
    parts = {
        name: {part: [getattr(each, kept).get(name, math.nan) for each in errors] for part, kept in _PARTS.items()}
        for name in error_names(tuned)
    }
    return {
        "heading": f"Epsilon {recommended.epsilon}",
        "sentence": recommended.sentence(),
        "plot": error_chart(bounds, parts, unit=tuned.unit, best=recommended.bound),
        "head": table_head(tuned),
        "rows": list(table_rows(tuned, recommended, cells)),
        "mark": [bounds.index(recommended.bound)] if recommended.bound is not None else [],
    }
