"""Series: one number, or several, per step, released with a standard error.

A step's total is put on a public lattice of integers, gets exact noise there (`channels`), and what is released is made
of the noisy totals alone. The default is a filter bank with an adaptive budget; beside it there is the paper's releaser
(`papers`). Of a histogram every bin is such a total (`histograms`).
Guarantee: (epsilon, delta)-DP, of histograms without a delta epsilon-DP, for one unit over a span (the horizon, or each
    aligned period), whatever its events, up to the bounds of `Presence`. Beyond the horizon nothing is released any
    more. Proofs: docs/engines/sequence.md.
Source: [zhang2022]; the default is ours.
Units: released values are in the raw field's units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engines.core.contract import Batch, Release, State, SyntheticRecord
from engines.core.intervals import NORMAL_90
from engines.core.noise import NoiseSource
from engines.core.state import check_step, head, numbers_of, reading
from engines.series.budget import NoisyTotal
from engines.series.config import SeriesConfig
from engines.series.fields import SeriesField, Total
from engines.series.histograms import NoisyHistogram
from schemas.arrays import below, under
from schemas.config.engines.series import SUFFIXES
from schemas.guarantee import Guarantee


def _notes(config: SeriesConfig) -> list[str]:
    presence = config.presence
    notes = []
    if config.domain.readings:
        notes.append(
            "A reading is aggregated upstream: the promise is for readings that differ by the declared sensitivity at "
            "most, and WHETHER a reading came is taken as public."
        )
    if presence.most_steps == 1:
        notes.append("One unit is in one step at most, whichever it is, which costs epsilon.")
    elif presence.most_steps is not None and presence.most_steps == presence.steps:
        notes.append(f"One unit may be in all {presence.steps} steps of a span; all of them together cost epsilon.")
    elif presence.most_steps is not None:
        notes.append(
            f"One unit is in at most {presence.most_steps} steps, whichever they are; all together cost epsilon."
        )
    else:
        notes.append("One unit may be in every step for ever; weights that decay make the sum finite.")
    if config.horizon is not None:
        notes.append(f"After {config.horizon} steps nothing is released any more.")
    return notes


STATE_FORMAT = 1
_DIGITS = 9


class Series:
    """See the module; implements `engines.core.contract.Engine`.

    | case | what happens |
    |---|---|
    | a step without events | a value: its total is 0; no mean and no percentile where noise says that there is none |
    | a step without a reading (`of = "value"`) | no record; the note says so; nothing is made up |
    | beyond the horizon | empty releases with a note, no noise |

    >>> import numpy as np
    >>> from fractions import Fraction
    >>> from engines.core.noise import seeded
    >>> from engines.series.fields import SeriesDomain
    >>> from engines.series.budget import Presence
    >>> from schemas.blocks import Folded
    >>> domain = SeriesDomain((SeriesField(name="visits"),))
    >>> once = Presence(events=1)
    >>> engine = Series(SeriesConfig(name="docs", domain=domain, epsilon=Fraction(1), delta=1e-6, presence=once))
    >>> release = engine.step(Batch(0, Folded(np.array([[1]], np.uint64), np.array([500]))), seeded(1))
    >>> abs(release.added[0].fields["visits"] - 500) < 40
    True
    """

    def __init__(self, config: SeriesConfig) -> None:
        self.config = config
        self._channel, self._estimators = config.build()
        self._next = self._alive = 0

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        check_step(batch, self._next)
        totals, present = self.config.domain.totals(batch.events)
        measured = self._measured(batch.step, totals, present, noise)
        over = measured is None
        values = [self._released(index, one) for index, one in enumerate(measured or ())]
        self._next += 1
        added = self._records(batch.step, values) if values else []
        self._alive += len(added)
        return Release(
            step=batch.step,
            added=added,
            removed=(),
            measurements=[self._measurement(batch.step, index, one) for index, one in enumerate(measured or ())],
            total=self._alive,
            # A step that lets nothing out after others did is an empty release, not a gathering one.
            gathered=not (values or over or self._alive),
            notes=self._notes(over, present),
        )

    def _measured(
        self, step: int, totals: Sequence[Total], present: bool, noise: NoiseSource
    ) -> Sequence[NoisyTotal] | None:
        """Return a noisy total for each part of the domain; none where no reading came; None beyond the budget."""
        if self._over(step):
            return None
        if not present:
            for estimator in self._estimators:
                estimator.skip()
            return ()
        return self._channel.measure(step, totals, noise)

    def _over(self, step: int) -> bool:
        horizon = self.config.horizon
        return (horizon is not None and step >= horizon) or self.config.presence.over(step)

    def _notes(self, over: bool, present: bool) -> dict[str, Any]:
        if over:
            return {"over": "the horizon is reached and the budget used up: nothing is released any more"}
        return {} if present else {"missing": "no reading came in this step"}

    def _released(self, index: int, one: NoisyTotal) -> Mapping[str, float | None]:
        """Return what is released of a noisy total, by the names of a record's fields."""
        field, _ = self.config.domain.parts[index]
        if field.edges is not None:
            return _of_histogram(field.name, NoisyHistogram(field.edges, one.value, one.variance))
        estimate, variance = self._estimators[index].update(one.value, one.variance)
        return _of_number(field, estimate, max(variance, 0.0) ** 0.5)

    def _records(self, step: int, values: Sequence[Mapping[str, float | None]]) -> list[SyntheticRecord]:
        """Return a record for each group. Args: values: by part, what is released of it."""
        domain, records = self.config.domain, []
        for number, group in enumerate(domain.groups):
            fields: dict[str, Any] = {"step": step}
            if domain.by is not None:
                fields[domain.by.field] = group
            for each in values[number :: len(domain.groups)]:
                fields |= each
            records.append(SyntheticRecord(str(step) if group is None else f"{step}.{group}", fields, step))
        return records

    def _measurement(self, step: int, index: int, one: NoisyTotal) -> dict[str, Any]:
        """Return a noisy total as it is published, in the raw field's units."""
        field, group = self.config.domain.parts[index]
        place = {"field": field.name, **({} if group is None else {"group": group}), "of_step": step}
        if field.edges is not None:
            return {
                **place,
                "edges": list(field.edges),
                "counts": one.value.tolist(),
                "variance": one.variance,
            }
        value, variance = field.real(one.value), one.variance * field.unit**2
        measurement = {**place, "value": value, "variance": variance}
        return measurement if one.share is None else {**measurement, "budget_share": one.share}

    def state(self) -> State:
        """See `engines.core.contract.Engine.state`. In mode default some 0.5 MB for each field with a clock."""
        state = head(STATE_FORMAT, self.config.identity, self._next, self._alive)
        state |= under("mode/", self._channel.arrays())
        for index, estimator in enumerate(self._estimators):
            state |= under(f"mode/field/{index}/", estimator.arrays())
        return state

    def restore(self, state: State) -> None:
        channel, estimators = self.config.build()
        step, alive = numbers_of(state, STATE_FORMAT, self.config.identity, count=2)
        with reading():
            channel.restore(below("mode/", state))
            for index, estimator in enumerate(estimators):
                estimator.restore(below(f"mode/field/{index}/", state))
        self._channel, self._estimators = channel, estimators
        self._next, self._alive = step, alive

    def guarantee(self) -> Guarantee:
        """See `engines.core.contract.Engine.guarantee`: of one unit over a span, since one event is not the unit
        here.
        """
        config = self.config
        return Guarantee(
            epsilon=config.epsilon,
            delta=config.delta,
            mechanisms=config.mechanisms(),
            neighbouring="replace" if config.domain.readings else "add_remove",
            note=" ".join(_notes(config)),
        )


def _of_number(field: SeriesField, estimate: float, deviation: float) -> dict[str, float | None]:
    """Return the released value of a field, its standard error and its 90 % interval. Args: in lattice steps."""
    low, high = field.range
    middle, width = field.real(estimate), NORMAL_90 * deviation * field.unit
    value, *ends = (min(max(number, low), high) for number in (middle, middle - width, middle + width))
    return _fields(field.name, value, deviation * field.unit, *ends)


def _of_histogram(field: str, histogram: NoisyHistogram) -> dict[str, float | None]:
    """Return the released numbers of a histogram, each with its standard error and its 90 % interval."""
    released: dict[str, float | None] = {}
    for what, one in histogram.numbers(NORMAL_90).items():
        released |= _fields(f"{field}_{what}", one.value, one.error, one.low, one.high)
    return released


def _fields(name: str, *numbers: float | None) -> dict[str, float | None]:
    """Return the fields of a released number. Args: numbers: value, standard error and interval, as of `SUFFIXES`."""
    return {
        name + suffix: None if number is None else _short(number)
        for suffix, number in zip(SUFFIXES, numbers, strict=True)
    }


def _short(number: float) -> float:
    """Return a number without digits that are noise, and make records long."""
    return float(f"{number:.{_DIGITS}g}")
