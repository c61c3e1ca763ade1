"""Counts of rows that meet a condition, from measured marginals and from the totals of every step.

Of a marginal of binary attributes only a difference is measured (`contrasts`), so a count is a sum of parts, one for
each set of the condition's binary attributes: that set's differences, weighted. Over runs in which a pair leaves rows
with usual values out (`growing.usual`) the parts are others: the rows that the pair counts, and what one-way marginals
say of those that it does not. For each run of steps that all parts were measured over, the marginals that say the same
of a part are weighted by their noise: a marginal that has both values of an attribute says something of their sum and,
with uncorrelated noise, of their difference. The part without differences is put together with the totals, by
generalised least squares: two numbers are unknown, the weighted rows and all rows, and what all cells add up to is
pulled to the totals. Noise of different marginals, blocks and of the totals is independent; that of totals of
different steps is not, and enters exactly, from the counter's matrices. What the steps or the condition cut is shared
by totals, or by width.
Privacy: post-processing of measurements.
Source: [aitken1936], as generalised least squares are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from engines.core.answers.contract import (
    Answerer,
    Asked,
    CountAnswer,
    CountQuestion,
    Measured,
    QueryError,
    Sum,
    answered,
)
from engines.core.answers.where import (
    Pieces,
    Where,
    atoms_on,
    fields_of,
    interval_pieces,
    other_pieces,
    parts_of,
    value_pieces,
)
from engines.core.counters import Counter
from engines.core.noise import DiscreteLaplace
from engines.core.registry import uncorrected_engine
from engines.tabular.domain import Attribute, Category, Discovered, Numeric, TableDomain
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.growing.usual import lacking
from schemas.arrays import FloatArray
from schemas.config import Stream

EXACT_STEPS = 3000
"""Up to so many steps the totals' covariances are exact; beyond, variances of their differences are bounded."""
Run = tuple[int, int]
"""Steps after the first up to the second."""
Usual = tuple[int | None, ...]
"""Of each attribute of a pair the place of the value whose rows it leaves out, or None."""


def answers(stream: Stream, measured: Measured, latest: int) -> Answerer:
    """Raises: QueryError in mode `paper`, which measures what it selects."""
    if stream.mode != "default":
        raise QueryError(
            f'mode "{stream.mode}" of engine {stream.engine} does not answer questions: which marginals it measures, '
            'and over which steps, depends on what it selects. Fix: mode = "default" for a new stream, or count the '
            "synthetic rows (privstream export)."
        )
    engine = uncorrected_engine(stream)
    assert isinstance(engine, GrowingBlocks)
    return TabularAnswers(engine, measured, latest, deletes=stream.domain.operation_field is not None)


@dataclass(frozen=True, slots=True)
class CountedParts:
    """What counts are of: attributes whose values are apart, and binary ones of which the difference is taken.

    usual: of attributes that are apart, the values whose rows are left out; empty where all rows are counted.
    """

    apart: tuple[str, ...]
    differences: tuple[str, ...]
    usual: Usual = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.apart, *self.differences))

    def tells(self, part: CountedParts) -> bool:
        """Whether a marginal of which these were measured says something of a part of a count."""
        taken = set(self.differences)
        if self.usual and self != part:
            return False
        return taken <= set(part.differences) and part.names - taken <= set(self.apart)


MeasuredRun = tuple[int, Mapping[CountedParts, Sequence[tuple[CountedParts, Sequence[Run]]]]]
"""In which form a count is known over a run: for each part the marginals that cover the run, and their own runs."""


@dataclass(frozen=True, slots=True, eq=False)
class MarginalBlock:
    """Noisy net counts of one marginal over a run of steps, one axis an attribute of which no difference was taken."""

    counts: FloatArray
    variance: float
    lost: float = 0.0
    """Mean square of the rows that a cell may lack, where rows were lost to pairs that leave some out."""


class TabularAnswers:
    """Implements `engines.core.answers.contract.Answerer`.

    Args: deletes: whether events delete others, so that what comes after the last step may be negative.
    """

    series = ()
    regions = False

    def __init__(self, engine: GrowingBlocks, measured: Measured, latest: int, *, deletes: bool) -> None:
        self._deletes = deletes
        found = [each["value"] for _, told in measured for each in told.get("found", ())]
        self._table: TableDomain = engine.config.domain.with_found(found)
        self.fields = {each.name: _asked(each) for each in self._table.attributes}
        self._places = {name: index for index, name in enumerate(self._table.names)}
        self._totals = _Totals(engine.config.totals_counter, measured, latest)
        self.settled = latest
        self._lines: dict[CountedParts, dict[Run, MarginalBlock]] = {}
        lost: dict[Run, float] = {}
        for step, told in measured:
            if "lost" in told:
                lost[told["since"], step] = lacking(told["lost"], told["variance"])
        for step, told in measured:
            if "marginal" in told:
                names = tuple(told["marginal"])
                line = CountedParts((), names) if told["difference"] else CountedParts(names, (), _usual(told))
                shape = [self._table.sizes[self._places[name]] for name in line.apart]
                counts = _widened(np.array(told["increment"], np.float64), line.apart, shape, self._table)
                block = MarginalBlock(counts, float(told["variance"]), lost[told["since"], step] if line.usual else 0.0)
                self._lines.setdefault(line, {})[told["since"], step] = block

    def answer(self, question: CountQuestion) -> CountAnswer:
        if question.region is not None:
            raise QueryError("a table has no places. Fix: a condition on its attributes.")
        asked = (question.first - 1, question.last)
        pending = max(0, asked[1] - max(asked[0], self._totals.latest)) / (asked[1] - asked[0])
        if question.where is None:
            total = self._totals.sum({asked: 1.0})
            return self._answered((total, total, total), pending)
        names = tuple(sorted(fields_of(question.where), key=self._places.__getitem__))
        if not any(line.names >= set(names) for line in self._lines):
            raise QueryError(
                f"no marginal of {', '.join(names)} together has been measured so far. Fix: ask for fewer attributes "
                'at a time; for a new stream, name them in [streams.options] marginals = [{ of = ["...", "..."] }].'
            )
        parts = parts_of(question.where, {name: self._codes(name, question.where) for name in names})
        binary = [self._table.attributes[self._places[name]].binary for name in names]
        cells = [each.astype(np.float64) for each in (parts.share, parts.whole, parts.some)]
        left_out = [line.usual for line in self._lines if line.usual and line.apart == names]
        forms = [[_parts(each, names, binary, usual) for each in cells] for usual in ((), *left_out)]
        sources = []
        for three in forms:
            # Of all three, so that they speak of the same runs.
            needed = [line for line in three[0] if not all(_constant(line, each[line]) for each in three)]
            sources.append({line: {of: runs for of, runs in self._lines.items() if of.tells(line)} for line in needed})
        runs = _runs(sources, asked)
        share, whole, some = zip(*forms, strict=True)
        times = {run: self._share(run, asked) for run in runs}
        unmeasured = list(_gaps(runs, (asked[0], min(asked[1], self._totals.latest))))
        within = {run: float(share >= 1) for run, share in times.items()}
        touching = {run: float(share > 0) for run, share in times.items()}
        sums = (
            self._combined(share, runs, times, unmeasured, float(parts.share.mean())),
            self._combined(whole, runs, within, unmeasured, 0.0),
            self._combined(some, runs, touching, unmeasured, 1.0),
        )
        return self._answered(sums, pending)

    def _answered(self, sums: tuple[Sum, Sum, Sum], pending: float) -> CountAnswer:
        return answered(*sums, pending=pending, bounded=not pending, signed=self._deletes)

    def _codes(self, name: str, where: Where) -> Sequence[Pieces]:
        attribute, looking = self._table.attributes[self._places[name]], atoms_on(where, name)
        if isinstance(attribute, Discovered):
            null = value_pieces(looking, None) if attribute.missing else other_pieces(looking, attribute.other)
            return [
                other_pieces(looking, attribute.other),
                null,
                *(value_pieces(looking, value) for value in attribute.found),
            ]
        assert isinstance(attribute, Category | Numeric)
        if isinstance(attribute, Category):
            listed = [value_pieces(looking, value) for value in attribute.values]
        else:
            bins = list(zip(attribute.edges[:-1], attribute.edges[1:], strict=True))
            listed = [
                interval_pieces(looking, low, high, integer=attribute.integer, closed=index == len(bins) - 1)
                for index, (low, high) in enumerate(bins)
            ]
        others = [other_pieces(looking, attribute.other)] if attribute.unknown == "other" else []
        return [*listed, *others, *([value_pieces(looking, None)] if attribute.missing else [])]

    def _share(self, run: Run, asked: Run) -> float:
        """Return what part of a run's events is the question's: by totals where steps cut it."""
        part = (max(run[0], asked[0]), min(run[1], asked[1]))
        if part[0] >= part[1]:
            return 0.0
        if part == run:
            return 1.0
        whole, inside = self._totals.sum({run: 1.0}).value, self._totals.sum({part: 1.0}).value
        even = (part[1] - part[0]) / (run[1] - run[0])
        least = 1e-6  # it is cut, however few events there are
        return min(max(inside / whole, least), 1 - least) if whole > 0 and 0 <= inside <= whole else even

    def _combined(
        self,
        forms: Sequence[Mapping[CountedParts, FloatArray]],
        runs: Mapping[Run, MeasuredRun],
        times: Mapping[Run, float],
        unmeasured: Sequence[Run],
        of_unmeasured: float,
    ) -> Sum:
        """Return the sum over parts and runs, each run times its share.

        Args:
            forms: weights of the parts, in each form that the sum may have.
            of_unmeasured: the share of rows of runs that are in totals alone. Where it is between 0 and 1 it is for
                as long as no run is measured: then it is as in those.
        """
        value = variance = fourth = met = rows = 0.0
        on_totals: dict[Run, float] = {}
        for run, (form, parts) in runs.items():
            if times[run] <= 0:
                continue
            cells = forms[form]
            total = self._totals.sum({run: 1.0})
            said = of_total = 0.0
            noises: list[tuple[float, float]] = []
            for line, weights in cells.items():
                if _constant(line, weights):
                    of_total += float(weights.flat[0])
                else:
                    one, times_total, its_noises = self._part(line, weights, parts[line], total)
                    said, of_total = said + one, of_total + times_total
                    noises += its_noises
            value += times[run] * said
            variance += times[run] ** 2 * sum(noise for noise, _ in noises)
            fourth += times[run] ** 4 * sum(noise**2 / many for noise, many in noises)
            on_totals[run] = times[run] * of_total
            met, rows = met + said + of_total * total.value, rows + total.value
        if 0 < of_unmeasured < 1 and rows > 0:
            of_unmeasured = min(max(met / rows, 0.0), 1.0)
        for run in unmeasured:
            on_totals[run] = on_totals.get(run, 0.0) + of_unmeasured
        totals = self._totals.sum(on_totals)
        return Sum(value + totals.value, variance + totals.variance, fourth + totals.fourth)

    def _part(
        self, part: CountedParts, weights: FloatArray, sources: Sequence[tuple[CountedParts, Sequence[Run]]], total: Sum
    ) -> tuple[float, float, list[tuple[float, float]]]:
        """Return what marginals say of the weighted cells of a part over a run of so many rows: their value, how many
        times the total is added to it, and what the noise of each adds to the variance, with how many cells it
        comes from.
        """
        # Of each source what it says of the weighted cells and of all of them, and their covariance.
        said, covariances, cells = [], [], []
        for line, pieces in sources:
            blocks = [self._lines[line][piece] for piece in pieces]
            spread = _spread(weights, part, line.apart, blocks[0].counts.shape)
            counts = sum((block.counts for block in blocks), np.zeros(spread.shape))
            noise, both = sum(block.variance for block in blocks), float(spread.sum())
            # They may all be of the heaviest cell.
            lost = sum(block.lost for block in blocks) * float((spread**2).max(initial=0.0))
            said.append(np.array([float((spread * counts).sum()), float(counts.sum())]))
            covariance = noise * np.array([[float((spread**2).sum()), both], [both, float(spread.size)]])
            covariance[0, 0] += lost
            covariances.append(covariance)
            cells.append(float(np.count_nonzero(spread)))
        if part.differences or part.usual:
            # The total says nothing of differences, nor of rows some of which are left out.
            information = np.array([1 / covariance[0, 0] for covariance in covariances])
            gains = [np.array([share, 0.0]) for share in information / information.sum()]
            of_total = 0.0
        else:
            inverses = [np.linalg.inv(covariance) for covariance in covariances]
            solved = np.linalg.inv(sum(inverses, np.zeros((2, 2))) + np.diag([0.0, 1 / total.variance]))[0]
            gains = [solved @ inverse for inverse in inverses]
            of_total = float(solved[1]) / total.variance
        value = sum(float(gain @ each) for gain, each in zip(gains, said, strict=True))
        noises = [float(gain @ covariance @ gain) for gain, covariance in zip(gains, covariances, strict=True)]
        # At least as many noises as cells that are counted: no single one is heavier than this.
        return value, of_total, list(zip(noises, cells, strict=True))


def _usual(told: Mapping[str, Any]) -> Usual:
    """Return the values whose rows a measured marginal leaves out; nothing if it counts all rows."""
    usual: Usual = tuple(told["usual"])
    return () if all(each is None for each in usual) else usual


def _parts(
    cells: FloatArray, names: tuple[str, ...], binary: Sequence[bool], usual: Usual = ()
) -> dict[CountedParts, FloatArray]:
    """Return weights `cells` of counts as weights of sums and differences over the binary attributes.

    Args: usual: of a pair, see `CountedParts`. Those weights that all values of one side have are left to the other.
    """
    if usual:
        left, right = usual
        across = np.zeros(cells.shape[1]) if left is None else cells[left]
        down = np.zeros(cells.shape[0]) if right is None else cells[:, right] - across[right]
        parts = {CountedParts(names, (), usual): cells - across - down[:, None]}
        for weights, place in ((across, 1), (down, 0)):
            for line, more in _parts(weights, (names[place],), (binary[place],)).items():
                parts[line] = parts.get(line, 0) + more
        return parts
    parts = {CountedParts((), ()): cells}
    for name, two in zip(names, binary, strict=True):
        wider = {}
        for line, weights in parts.items():
            axis = len(line.apart)
            if two:
                first, second = np.moveaxis(weights, axis, 0)
                wider[line] = (first + second) / 2
                wider[CountedParts(line.apart, (*line.differences, name))] = (first - second) / 2
            else:
                wider[CountedParts((*line.apart, name), line.differences)] = weights
        parts = wider
    return parts


def _constant(line: CountedParts, weights: FloatArray) -> bool:
    """Whether a part is a share of the total, or nothing."""
    return bool((weights == (0 if line.differences or line.usual else weights.flat[0])).all())


def _widened(counts: FloatArray, names: tuple[str, ...], shape: Sequence[int], domain: TableDomain) -> FloatArray:
    """Return a marginal as a table: of values that were found after it was measured it has no rows."""
    if domain.discovered is None or domain.discovered[1].name not in names:
        return counts.reshape(shape)
    axis = names.index(domain.discovered[1].name)
    known = counts.size // int(np.prod([size for at, size in enumerate(shape) if at != axis]))
    wide = np.zeros(shape)
    part = tuple(slice(known if at == axis else size) for at, size in enumerate(shape))
    wide[part] = counts.reshape([known if at == axis else size for at, size in enumerate(shape)])
    return wide


def _asked(attribute: Attribute) -> Asked:
    if isinstance(attribute, Discovered):
        return Asked(attribute.kinds, (*attribute.found, attribute.other), others=attribute.other)
    if isinstance(attribute, Category):
        others = (attribute.other,) if attribute.unknown == "other" else ()
        return Asked(attribute.kinds, (*attribute.values, *others))
    return Asked(attribute.kinds)


def _spread(cells: FloatArray, part: CountedParts, marginal: tuple[str, ...], shape: tuple[int, ...]) -> FloatArray:
    """Spread a part's weights over all cells of a marginal with more attributes, and both values of a difference."""
    order = [part.apart.index(name) for name in marginal if name in part.apart]
    axes = [size if name in part.apart else 1 for name, size in zip(marginal, shape, strict=True)]
    spread = np.broadcast_to(np.transpose(cells, order).reshape(axes), shape)
    for axis, name in enumerate(marginal):
        if name in part.differences:
            spread = spread * np.expand_dims([1.0, -1.0], [other for other in range(len(shape)) if other != axis])
    return spread


def _runs(
    sources: Sequence[Mapping[CountedParts, Mapping[CountedParts, Mapping[Run, MarginalBlock]]]], asked: Run
) -> dict[Run, MeasuredRun]:
    """Return runs of steps that do not overlap and over which every part of some form is known.

    The longest of those that lie in `asked`, then the shortest of those that it cuts.

    Args: sources: for each part of each form the marginals that say something of it.
    """
    every = (lines for form in sources for lines in form.values())
    everything = sorted({run for lines in every for runs in lines.values() for run in runs})
    within = [run for run in everything if asked[0] <= run[0] and run[1] <= asked[1]]
    cut = [run for run in everything if run not in within and run[0] < asked[1] and asked[0] < run[1]]
    order = [
        *sorted(within, key=lambda run: run[0] - run[1]),
        *sorted(cut, key=lambda run: run[1] - run[0]),
    ]
    found: dict[Run, MeasuredRun] = {}
    for run in order:
        if any(run[0] < other[1] and other[0] < run[1] for other in found):
            continue
        for form, known in enumerate(sources):
            parts = {part: _covering(lines, run) for part, lines in known.items()}
            if all(parts.values()):
                found[run] = form, parts
                break
    return found


def _covering(
    lines: Mapping[CountedParts, Mapping[Run, MarginalBlock]], run: Run
) -> list[tuple[CountedParts, list[Run]]]:
    """Return marginals that were measured over all of a run, and their own runs."""
    covers = []
    for line, runs in lines.items():
        inside = sorted(piece for piece in runs if run[0] <= piece[0] and piece[1] <= run[1])
        if sum(piece[1] - piece[0] for piece in inside) == run[1] - run[0]:
            covers.append((line, inside))
    return covers


def _gaps(runs: Iterable[Run], asked: Run) -> Iterator[Run]:
    """Yield steps of a question that no run covers."""
    at = asked[0]
    for begin, end in sorted(runs):
        if begin > at:
            yield at, min(begin, asked[1])
        at = max(at, end)
    if at < asked[1]:
        yield at, asked[1]


class _Totals:
    """Net rows of runs of steps, from the noisy running sums of inserts and deletes."""

    def __init__(self, counter: Counter, measured: Measured, latest: int) -> None:
        self._counter = counter
        self.latest = latest
        self._sums = {-1: 0.0}
        self._alone = {-1: 0.0}
        for step, told in measured:
            if "totals" in told:
                self._sums[step] = float(told["totals"]["inserts"] - told["totals"]["deletes"])
                self._alone[step] = float(told["variance"])
        self._steps = max(self._sums) + 1
        self._nodes: tuple[FloatArray, FloatArray] | None = None

    def sum(self, weights: Mapping[Run, float]) -> Sum:
        """Return the weighted sum of these runs' net rows. A run beyond the last step ends there."""
        at: dict[int, float] = {}
        for (begin, end), weight in weights.items():
            begin, end = min(begin, self._steps - 1), min(end, self._steps - 1)
            at[end] = at.get(end, 0.0) + weight
            at[begin] = at.get(begin, 0.0) - weight
        value = sum(weight * self._sums[step] for step, weight in at.items())
        noises = self._noises(at)
        return Sum(value, float(noises.sum()), float((noises**2).sum()))

    def _noises(self, at: Mapping[int, float]) -> FloatArray:
        """Return what each node's noise adds to the variance; of inserts and deletes, both."""
        known = {step: weight for step, weight in at.items() if step >= 0 and weight}
        if self._steps > EXACT_STEPS:
            bound = sum(abs(weight) * self._alone[step] ** 0.5 for step, weight in known.items()) ** 2
            return np.array([2 * bound])
        if self._nodes is None:
            variance: Callable[[Fraction], float] = float
            if self._counter.measure == "epsilon":
                variance = lambda scale: DiscreteLaplace(scale).variance  # noqa: E731
            each = {noise: variance(noise) for noise in set(self._counter.node_noise(self._steps))}
            noise = np.array([each[scale] for scale in self._counter.node_noise(self._steps)])
            self._nodes = self._counter.decoder(self._steps), noise
        decoder, noise = self._nodes
        mixed = sum((weight * decoder[step] for step, weight in known.items()), np.zeros(len(noise)))
        rounding = 0.0 if self._counter.resolution == 1 else sum(weight**2 for weight in known.values()) / 12
        own: FloatArray = mixed**2 * noise
        return np.concatenate([own, own, [rounding, rounding]])
