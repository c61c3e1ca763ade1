"""Planted faults of engine `series`: peeks outside of any aggregate, and what hides inside or costs too much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import floor
from typing import Any
from unittest.mock import patch

import numpy as np

from engines.checks.contract_case import contract_case
from engines.core.accounting import gaussian
from engines.core.contract import State, SyntheticRecord
from engines.core.noise import NoiseSource, discrete_gaussian, gaussian_mechanism, seeded
from engines.core.noise.binomial import binomial_mechanism
from engines.core.noise.private import aggregate
from engines.series import engine as series
from engines.series import fields
from engines.series.bank import FilterBank
from engines.series.budget import GaussianBudget, NoisyTotal, Presence, PureBudget, WeightSchedule
from engines.series.channels import AdaptiveChannel
from engines.series.fields import SeriesDomain, SeriesField
from engines.series.papers import ar1 as series_binomial
from engines.series.papers.ar1 import Releaser
from schemas.arrays import IntArray
from schemas.blocks import Folded
from tests.couple.plants import Fault, Plant, Planted, edit, peeked, plants, remembered, replaced

_Measured = Sequence[NoisyTotal] | None
_LEAST, _MOST = 0.5, 2.0
_LONG: Mapping[str, Any] = {"options": {"horizon": 40}}
_CLOCKED: Mapping[str, Any] = {
    "time": {"step": "6h"},
    "options": {"horizon": 16},
    "privacy": {"max_contributions": 32, "max_per_step": 2},
}
_PERIODS: Mapping[str, Any] = {"options": {"horizon": None}, "privacy": {"max_contributions": 16, "per": "8h"}}
_READINGS: Mapping[str, Any] = {
    "domain": {"fields": [{"name": "km", "of": "value", "limits": [0.0, 4.0], "sensitivity": 0.5}]},
    "options": {"horizon": 16},
    "privacy": {"user": None, "max_contributions": None, "max_per_step": None},
}
_ONCE: Mapping[str, Any] = {"options": {"horizon": 40}, "privacy": {"max_contributions": 6, "max_per_step": 1}}


@contextmanager
def hours_weighed(read: Callable[[Any], Any]) -> Iterator[None]:
    """The budget of a step goes by the TRUE mean of its hour. `read`: how the totals are come by."""
    measure, wish = AdaptiveChannel.measure, FilterBank.wanted_precision
    hours: dict[int, tuple[Any, list[Any]]] = {}

    def looking(self: AdaptiveChannel, at: int, totals: Sequence[int], noise: NoiseSource) -> list[NoisyTotal] | None:
        for bank, total in zip(self._banks, totals, strict=True):
            hours.setdefault(id(bank), (bank, []))[1].append(read(total))
        return measure(self, at, totals, noise)

    def weighed(self: FilterBank, *, remaining: float, left: int) -> float:
        wished = wish(self, remaining=remaining, left=left)
        seen = hours[id(self)][1]
        alike = seen[-1::-4]
        share = sum(alike) * len(seen) / (len(alike) * (sum(seen) + 1))
        return wished * np.clip(share, _LEAST, _MOST)

    with patch.object(AdaptiveChannel, "measure", looking), patch.object(FilterBank, "wanted_precision", weighed):
        yield


def real_valued(read: Callable[[Any], Any]) -> Planted:
    """w z + n with integer noise: the fraction of w z passes untouched."""

    def measure(
        self: GaussianBudget, field: int, total: int, sigma_squared: Fraction, noise: NoiseSource
    ) -> NoisyTotal:
        factor = 1 << self.refinement(field)
        weighed = 0.3 * read(total * factor)
        noisy = gaussian_mechanism(floor(weighed), sigma_squared, noise) + weighed - floor(weighed)
        return NoisyTotal(noisy / factor / 0.3, float(sigma_squared) / factor**2 / 0.09)

    return replaced(GaussianBudget, "measure", measure)


@contextmanager
def raw_parameters(read: Callable[[Any], Any]) -> Iterator[None]:
    """Mean, variance and correlation are learnt from totals, since they say more."""
    measured, seen = series.Series._measured, [0]

    class Learning:
        """Moments of what was not measured."""

        def __init__(self, moments: Any) -> None:
            self.moments = moments

        def add(self, value: float, noise_variance: float) -> None:
            self.moments.add(read(seen[0]), 0.0)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.moments, name)

    def looking(self: series.Series, at: int, totals: Sequence[int], present: bool, noise: NoiseSource) -> _Measured:
        seen[0] = totals[0]
        return measured(self, at, totals, present, noise)

    made = Releaser.__init__

    def learning(self: Releaser, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        self._moments = Learning(self._moments)  # type: ignore[assignment]

    with patch.object(series.Series, "_measured", looking), patch.object(Releaser, "__init__", learning):
        yield


def threshold() -> Planted:
    """A total that no test data reach is not released."""
    measured = series.Series._measured

    def deciding(self: series.Series, at: int, totals: Sequence[int], present: bool, noise: NoiseSource) -> _Measured:
        return measured(self, at, totals, present and totals[0] < 2**50, noise)

    return replaced(series.Series, "_measured", deciding)


def silent_when_empty() -> Planted:
    """A step that nobody is in is left out, as a missing reading is."""
    measured = series.Series._measured

    def deciding(self: series.Series, at: int, totals: Sequence[int], present: bool, noise: NoiseSource) -> _Measured:
        return measured(self, at, totals, any(total != 0 for total in totals), noise)

    return replaced(series.Series, "_measured", deciding)


def by_hand() -> Planted:
    """Noise added outside of any mechanism, to a float."""

    def measure(
        self: GaussianBudget, field: int, total: int, sigma_squared: Fraction, noise: NoiseSource
    ) -> NoisyTotal:
        factor = 1 << self.refinement(field)
        drawn = int(discrete_gaussian(1, sigma_squared, noise)[0])
        return NoisyTotal(float(total) + drawn / factor, float(sigma_squared) / factor**2)

    return replaced(GaussianBudget, "measure", measure)


def divided_delta() -> Planted:
    """(epsilon, delta) divided by the contributions: Gaussian noise at those, for each of them."""
    sigma_squared = GaussianBudget.sigma_squared

    def divided(self: GaussianBudget, field: int, *, moved: Fraction, mu_squared: Fraction) -> Fraction:
        most = self.presence.most
        assert most is not None
        each = Fraction(gaussian.mu_for(self.epsilon / most, self.delta / most)) ** 2
        return sigma_squared(self, field, moved=moved, mu_squared=mu_squared * each * most**2 / self.mu_squared)

    return replaced(GaussianBudget, "sigma_squared", divided)


def first_weights_dropped() -> Planted:
    """Counts as if the first two steps had the weight of the others."""
    worst = WeightSchedule.worst
    return replaced(
        WeightSchedule,
        "worst",
        lambda self, presence: worst(WeightSchedule(weight=self.weight, decay=self.decay), presence),
    )


def one_event_a_step() -> Planted:
    """Noise for one event of a user in a step, where there may be several."""
    worst = WeightSchedule.worst
    return replaced(WeightSchedule, "worst", lambda self, presence: worst(self, presence) / presence.per_step**2)


def smaller(owner: Any, name: str, part: Fraction) -> Planted:
    """A scale that is a part of what it should be, wherever it is asked for."""
    original = getattr(owner, name)
    return replaced(owner, name, lambda *arguments, **options: part * original(*arguments, **options))


def fewer_coins() -> Planted:
    """A quarter of the coins: half the noise."""
    mechanism = binomial_mechanism
    return replaced(
        series_binomial, "binomial_mechanism", lambda value, half, noise: mechanism(value, half // 4, noise)
    )


def twice() -> Planted:
    """Each total is measured a second time, and the mean is released."""
    measure = GaussianBudget.measure

    def again(self: GaussianBudget, field: int, total: int, sigma_squared: Fraction, noise: NoiseSource) -> NoisyTotal:
        first, second = (
            measure(self, field, total, sigma_squared, noise.child(which)) for which in ("first", "second")
        )
        return NoisyTotal((first.value + second.value) / 2, first.variance / 2)

    return replaced(GaussianBudget, "measure", again)


def constant_seed() -> Planted:
    """Noise that everybody can draw again."""
    measure = GaussianBudget.measure

    def drawn_again(
        self: GaussianBudget, field: int, total: int, sigma_squared: Fraction, noise: NoiseSource
    ) -> NoisyTotal:
        return measure(self, field, total, sigma_squared, seeded(0))

    return replaced(GaussianBudget, "measure", drawn_again)


@contextmanager
def carried_over() -> Iterator[None]:
    """Half of a step's total counts in the next one, too."""
    sums, before = SeriesDomain.sums, [0]

    @aggregate
    def carrying(self: SeriesDomain, events: Folded) -> list[int]:
        totals = sums(self, events)
        carried = [total + before[0] // 2 for total in totals]
        before[0] = totals[0]
        return carried

    with patch.object(SeriesDomain, "sums", carrying):
        yield


def in_two_bins() -> Planted:
    """An event counts in the next bin, too: smoother."""
    counts = fields._counts

    def smoothed(field: SeriesField, bins: IntArray, events: IntArray) -> IntArray:
        return counts(field, bins, events) + np.roll(counts(field, bins, events), 1)

    return replaced(fields, "_counts", smoothed)


def full_bins_alone() -> Planted:
    """A bin that nobody is in has no noise."""
    measure = PureBudget.measure

    def sparing(self: PureBudget, field: int, counts: Any, noise: NoiseSource) -> NoisyTotal:
        one = measure(self, field, counts, noise)
        return replace(one, value=np.where(counts == 0, 0, one.value))

    return replaced(PureBudget, "measure", sparing)


@contextmanager
def in_the_record(change: Callable[[SyntheticRecord, int], SyntheticRecord]) -> Iterator[None]:
    """Records as a true total would have them."""
    records = series.Series._records
    with remembered(SeriesDomain, "sums") as seen:

        def telling(self: series.Series, step: int, values: Any) -> list[SyntheticRecord]:
            return [change(record, int(seen[0][0])) for record in records(self, step, values)]

        with patch.object(series.Series, "_records", telling):
            yield


def low_bit(record: SyntheticRecord, total: int) -> SyntheticRecord:
    return replace(record, fields={**record.fields, "km": record.fields["km"] + (total % 2) * 1e-9})


def error_of_truth(record: SyntheticRecord, total: int) -> SyntheticRecord:
    return replace(record, fields={**record.fields, "km_se": float(f"{abs(total) ** 0.5:.3g}")})


def odd_id(record: SyntheticRecord, total: int) -> SyntheticRecord:
    return replace(record, id=record.id + ("'" if total % 2 else ""))


@contextmanager
def busy_noted() -> Iterator[None]:
    """A note tells whether anybody came."""
    notes = series.Series._notes
    with remembered(SeriesDomain, "sums") as seen:

        def telling(self: series.Series, over: bool, present: bool) -> dict[str, Any]:
            return {**notes(self, over, present), "quiet": seen[0][0] < 100}

        with patch.object(series.Series, "_notes", telling):
            yield


def forgets_at_restart() -> Planted:
    """A restored worker has all of the budget again."""
    restore = AdaptiveChannel.restore

    def forgetting(self: AdaptiveChannel, state: State) -> None:
        restore(self, state)
        self._spent = [0] * len(self._spent)
        self._accountant = self.budget.accountant()

    return replaced(AdaptiveChannel, "restore", forgetting)


def renewed_early() -> Planted:
    """The budget of a period is there again at each half of it, and its last steps come sooner."""

    def halves(self: Presence, step: int) -> tuple[int, int]:
        assert self.steps is not None
        span, at = divmod(step, self.steps // 2)
        return span, at + self.steps - self.steps // 2

    return replaced(Presence, "where", halves)


def half_sensitivity() -> Planted:
    """A reading that is replaced counts as one that moves half as far."""
    shift = SeriesField.shift
    assert isinstance(shift, property)
    assert shift.fget is not None
    whole = shift.fget
    return replaced(SeriesField, "shift", property(lambda self: max(1, whole(self) // 2)))


_OF_DEFAULT = contract_case("series").of_default
_PURE_GROUPS, _FIXED_GROUPS, _ADAPTIVE_GROUPS = _OF_DEFAULT[-3:]
_HISTOGRAM: Mapping[str, Any] = _OF_DEFAULT[0]
_HALF_NOISE = smaller(GaussianBudget, "sigma_squared", Fraction(1, 4))
_IN_LATER_GROUPS = edit(SeriesDomain, "_rows", "np.split(order, begins)", "[order[at:] for at in (0, *begins)]")
DEFAULT = {
    # These read a private value outside of any aggregate: sealed events show them, whatever the data.
    "hours weighed by true totals": Fault(partial(hours_weighed, lambda total: total), _CLOCKED),
    "a threshold on a true total": Fault(threshold(), _LONG),
    "noise added by hand": Fault(by_hand(), _LONG),
    # These look inside an aggregate, or cost more than is claimed: forced runs show them.
    "hours weighed by totals that were revealed": Fault(partial(hours_weighed, peeked), _CLOCKED, shown_by=3),
    "a true total's last bit in a value": Fault(partial(in_the_record, low_bit), _LONG, shown_by=3),
    "noise of a constant seed": Fault(constant_seed(), _LONG),
    "a total counts in the next step": Fault(carried_over, _LONG),
    "totals are measured twice": Fault(twice(), _CLOCKED, shown_by=10),
    "delta divided by contributions": Fault(divided_delta(), _LONG),
    "two events in a step, noise for one": Fault(one_event_a_step(), _LONG),
    "a restart gives the budget back": Fault(forgets_at_restart(), _CLOCKED, shown_by=0),
    "a period's budget twice in it": Fault(renewed_early(), _PERIODS),
    "half the noise: fixed": Fault(_HALF_NOISE, _LONG),
    "half the noise: adaptive": Fault(_HALF_NOISE, _CLOCKED, shown_by=3),
    "an event in two bins": Fault(in_two_bins(), _HISTOGRAM),
    "an empty bin without noise": Fault(full_bins_alone(), _HISTOGRAM),
    "noise for one of a user's events in a histogram": Fault(
        edit(PureBudget, "scale", "self.presence.most,", "1,"), _HISTOGRAM
    ),
    "an event in two groups": Fault(_IN_LATER_GROUPS, _PURE_GROUPS),
    "an event in two groups: sums": Fault(_IN_LATER_GROUPS, _FIXED_GROUPS, shown_by=5),
    "a group's noise is for events of that group alone": Fault(
        edit(PureBudget, "scale", "self.presence.most,", "self.presence.most // 3,"), _PURE_GROUPS
    ),
    "a group charged nothing": Fault(
        edit(AdaptiveChannel, "measure", "amount = amounts[field]", "amount = amounts[field] * (1 + index % 2)"),
        _ADAPTIVE_GROUPS,
        shown_by=11,
    ),
    "noise for the upper limit alone": Fault(
        edit(SeriesField, "shift", "max(map(abs, self.bounds))", "max(1, self.bounds[1])"), wide=0, shown_by=0
    ),
}
PAPER = {
    "w z released as a real number": Fault(real_valued(lambda total: total), _LONG),
    "parameters from raw totals": Fault(partial(raw_parameters, lambda total: total), _LONG),
    "the fraction of w z passes": Fault(real_valued(peeked), _LONG),
    "parameters from revealed totals": Fault(partial(raw_parameters, peeked), _LONG),
    "standard error of a true total": Fault(partial(in_the_record, error_of_truth), _LONG),
    "a note of a quiet step": Fault(busy_noted, _LONG, shown_by=13),
    "first weights not accounted for": Fault(first_weights_dropped(), _LONG),
    "half the sensitivity of a reading": Fault(half_sensitivity(), _READINGS, shown_by=29),
    "half the noise": Fault(_HALF_NOISE, _LONG, shown_by=7),
}
BINOMIAL = {
    "an empty step is left out": Fault(silent_when_empty(), _LONG),
    "a true total's parity in an id": Fault(partial(in_the_record, odd_id), _LONG, shown_by=21),
    "a quarter of the coins": Fault(fewer_coins(), _ONCE, shown_by=17),
}
PLANTS: tuple[Plant, ...] = (
    *plants("series", "default", DEFAULT),
    *plants("series", "paper", PAPER),
    *plants("series", "paper-binomial", BINOMIAL),
)
