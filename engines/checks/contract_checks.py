"""The engine contract as a function: `check_engine(make_engine, batches)` raises where an engine breaks it.

For your own engine, in your own tests; `tests/contracts` runs it on every registered engine and mode. Every check can
be called alone. None of them proves privacy: see `tests/spatial/test_path_loss.py` and the coupled runs for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from engines.core.accounting import gaussian
from engines.core.accounting.accountant import Accountant, paid
from engines.core.contract import Batch, Engine, Release, State
from engines.core.noise import Label, NoiseSource, seeded
from engines.core.surplus import ACCOUNT
from schemas.arrays import WordArray
from schemas.config.engines.spec import RecordFields
from schemas.errors import EngineInputError
from schemas.wire import Kind, decode, encode

MakeEngine = Callable[[], Engine]


class ContractBroken(AssertionError):  # noqa: N818 - it is a verdict, not an error of the program
    """An engine does not keep what `engines.core.contract` promises; the message says which promise."""


class SilentNoise(NoiseSource):
    """A source that may be handed on but not drawn from."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(bytes(32), "silent")

    def words(self, count: int) -> WordArray:
        raise ContractBroken("noise was drawn")

    def child(self, *labels: Label) -> SilentNoise:
        return self


class CountedNoise(NoiseSource):
    """Notes the words that it and its children give."""

    __slots__ = ("_given",)

    def __init__(self, given: list[WordArray], *labels: Label) -> None:
        super().__init__(bytes(32), *labels)
        self._given = given

    def _alike(self) -> CountedNoise:
        made = super()._alike()
        made._given = self._given
        return made

    def words(self, count: int) -> WordArray:
        self._given.append(super().words(count))
        return self._given[-1]


def _require(promise: str, kept: bool) -> None:
    if not kept:
        raise ContractBroken(promise)


def contents(release: Release) -> tuple[Any, ...]:
    """Return all that a release lets out, in a form that can be compared."""
    return (
        release.step,
        [(record.id, dict(record.fields), record.step, record.weight) for record in release.added],
        list(release.removed),
        [dict(measurement) for measurement in release.measurements],
        release.total,
        release.gathered,
        dict(release.notes),
        list(release.spans),
        release.weight,
    )


def same_state(left: State, right: State) -> bool:
    """Return whether two states have the same names, types, shapes and bytes."""
    return left.keys() == right.keys() and all(
        array.dtype == right[name].dtype
        and array.shape == right[name].shape
        and array.tobytes() == right[name].tobytes()
        for name, array in left.items()
    )


def run(engine: Engine, batches: Sequence[Batch], *, seed: int) -> list[Release]:
    """Drive an engine through its steps, each under a seed of its own."""
    return [engine.step(batch, seeded(seed).child("check", batch.step)) for batch in batches]


def check_repeatable(make_engine: MakeEngine, batches: Sequence[Batch], *, seed: int = 1) -> list[Release]:
    """Same events and seed, same releases and state; the events handed in are not changed.

    Returns: these releases.
    """
    before = [(batch.events.keys.copy(), batch.events.counts.copy()) for batch in batches]
    first, second = make_engine(), make_engine()
    releases = run(first, batches, seed=seed)
    for left, right in zip(releases, run(second, batches, seed=seed), strict=True):
        _require("same state, events and seed give the same release", contents(left) == contents(right))
    _require("same state, events and seed give the same state", same_state(first.state(), second.state()))
    for batch, (keys, counts) in zip(batches, before, strict=True):
        untouched = np.array_equal(batch.events.keys, keys) and np.array_equal(batch.events.counts, counts)
        _require("events handed in are not changed", untouched)
    return releases


def check_restores(make_engine: MakeEngine, batches: Sequence[Batch], *, cuts: Iterable[int], seed: int = 1) -> None:
    """An engine restored after any of `cuts` steps goes on as the one whose state it got, and states are copies."""
    whole, wanted = make_engine(), set(cuts)
    states: dict[int, tuple[State, State]] = {}
    releases: list[Release] = []
    for cut in range(len(batches) + 1):
        if cut in wanted:
            state = whole.state()
            check_state_is_arrays(state)
            states[cut] = state, {name: array.copy() for name, array in state.items()}
        releases += run(whole, batches[cut : cut + 1], seed=seed)
    for cut, (state, frozen) in states.items():
        _require("a state is a copy: later steps do not change it", same_state(state, frozen))
        other = make_engine()
        other.restore(decode(Kind.STATE, encode(Kind.STATE, {}, state))[1])
        _require("a restored engine has the state that it was given", same_state(other.state(), frozen))
        for left, right in zip(releases[cut:], run(other, batches[cut:], seed=seed), strict=True):
            _require("a restored engine continues identically", contents(left) == contents(right))
        _require("a restored engine ends in the same state", same_state(whole.state(), other.state()))


def check_words_are_used_once(make_engine: MakeEngine, batches: Sequence[Batch]) -> None:
    """No word of noise comes twice: noise that is used twice cancels.

    Of n words two are equal by chance with probability n^2 / 2^65: below 10^-12 for a million.
    """
    engine, given = make_engine(), list[WordArray]()
    for batch in batches:
        engine.step(batch, CountedNoise(given, "counted", batch.step))
    words = np.concatenate(given) if given else np.zeros(0, np.uint64)
    _require("no words of noise are drawn twice", np.unique(words).size == words.size)


def check_state_is_arrays(state: Mapping[str, Any]) -> None:
    """States go over the wire as plain arrays: no objects, which would need pickle, and no number in fewer than eight
    bytes, which a larger stream would outgrow. What has one byte is text, or true and false.
    """
    for name, array in state.items():
        _require("state holds arrays of numbers only", isinstance(array, np.ndarray) and array.dtype.kind in "biuf")
        text = array.dtype == np.uint8 and name.rpartition("/")[2] in _TEXTS
        _require("state holds numbers of eight bytes", text or array.dtype.kind == "b" or array.dtype.itemsize == 8)


_TEXTS = ("identity", "accountant")
_FEW = 8
_EXTREMES: Mapping[str, tuple[float, ...]] = {
    # None of them fits into fewer bytes, or through a number of another kind.
    "i": (2**53 + 1, -(2**53) - 1),
    "u": (2**63 + 2**53 + 1,),
    "f": (1e300 / 3,),
}


def check_state_is_kept(make_engine: MakeEngine, state: State) -> int:
    """What is stored is what is read: a state with a number at the end of its range is kept to the last bit or refused.

    No engine need make such numbers for it: each array of a state gets them in turn.

    Returns: how many such states were kept.
    """
    engine, kept = make_engine(), 0
    for name, array in state.items():
        extremes = _EXTREMES.get(array.dtype.kind, ())
        if array.dtype.itemsize < 8:
            continue
        # Few numbers may mean something else each, and so may those of a row.
        few = array.size if array.size <= _FEW else min(array[-1].size, _FEW)
        for at in range(array.size)[array.size - few :]:
            changed = {each: other.copy() for each, other in state.items()}
            changed[name].flat[at] = extremes[at % len(extremes)]
            try:
                engine.restore(changed)
                found = engine.state()
            except Exception:  # noqa: S112 - whatever it says, the state is refused
                continue
            _require(f"{name} of a state is read as it was stored", same_state(found, changed))
            kept += 1
    return kept


def check_releases_add_up(releases: Sequence[Release]) -> None:
    """Applying all releases in order gives the synthetic data: no id comes twice or goes without having come, but that
    of a record whose weight changes.
    """
    alive: dict[str, int | None] = {}
    for release in releases:
        removed, added = list(release.removed), {record.id: record.weight for record in release.added}
        _require("an id is withdrawn once, and only while it is alive", len(set(removed)) == len(removed))
        _require("only what is alive can be withdrawn", alive.keys() >= set(removed))
        for name in removed:
            del alive[name]
        again = alive.keys() & added.keys()
        _require(
            "an id appears once, or with another weight",
            len(added) == len(release.added) and all(alive[name] != added[name] for name in again),
        )
        _require(
            "no id has a NUL, which tables of fixed width drop at its end", not any("\0" in name for name in added)
        )
        alive.update(added)
        _require("total is the number of records alive", release.total == len(alive))
        weights = [weight for weight in alive.values() if weight is not None]
        _require("all records are weighted, or none is", len(weights) in (0, len(alive)))
        _require("a record stands for one event at least", all(weight >= 1 for weight in weights))
        _require("weights are those of the events", not alive or release.weight == (sum(weights) if weights else None))
        if release.gathered:
            _require("a gathering step releases nothing", not (added or removed or release.measurements))


KINDS = {str: "text", float: "number", int: "integer", bool: "boolean", type(None): "null"}


def check_record_fields(releases: Sequence[Release], fields: RecordFields) -> None:
    """Records have the fields that the engine's spec names, with values of the kinds that it names: typed outputs hold
    nothing else.
    """
    for release in releases:
        for record in release.added:
            _require("records have no field that the spec does not name", record.fields.keys() <= fields.keys())
            for name, kinds in fields.items():
                kind = KINDS.get(type(record.fields.get(name)))
                _require(
                    f"field {name} of records holds what the spec says",
                    kind in kinds or (kind == "integer" and "number" in kinds),
                )


def check_records_are_dated(releases: Sequence[Release]) -> bool:
    """Every record says which step it stands for, and that is over; or none does, and spans say when what is new came.

    Returns: whether they say it; False where there are no records.
    """
    said = {record.step for release in releases for record in release.added}
    _require("either every record says its step, or none does", None not in said or said == {None})
    for release in releases:
        steps = [record.step for record in release.added if record.step is not None]
        _require("a record stands for a step that is over", all(0 <= step <= release.step for step in steps))
        _require("spans begin before their step", all(-1 <= since < release.step for since, _ in release.spans))
    return bool(said - {None})


def check_order(make_engine: MakeEngine, batches: Sequence[Batch], *, seed: int = 1) -> None:
    """A step that is not the next one is refused, before it changes anything."""
    engine = make_engine()
    run(engine, batches[:1], seed=seed)
    state = engine.state()
    for step in (batches[0].step, batches[0].step + 2, -1):
        try:
            engine.step(Batch(step, batches[0].events), seeded(seed))
        except EngineInputError:
            _require("a refused step changes nothing", same_state(engine.state(), state))
        else:
            raise ContractBroken("a step out of order is refused with EngineInputError")


def check_pays_for_noise(make_engine: MakeEngine, batches: Sequence[Batch], *, seed: int = 1) -> None:
    """After each step something is spent exactly if noise was drawn or something measured, then or before; gathering
    steps draw none but that of a surplus, which they say.
    """
    engine, paying = make_engine(), False
    for batch in batches:
        twin = make_engine()
        twin.restore(engine.state())
        release = engine.step(batch, seeded(seed).child("check", batch.step))
        try:
            twin.step(batch, SilentNoise())
            silent = True
        except ContractBroken:
            silent = False
        if release.gathered:
            _require("a gathering step draws no noise but that of a surplus", silent != (ACCOUNT in release.notes))
        # Where too few people have a key for any noise, whether there is one is private: the release is paid for.
        paying = paying or not silent or bool(release.measurements)
        spent = paid(Accountant.kept(engine.state()).values())
        _require("accountants are charged where noise is drawn, and nowhere else", (spent > 0) == paying)


def check_guarantee(make_engine: MakeEngine) -> None:
    """The mechanisms of a pure guarantee add up to no more than its epsilon, exactly."""
    guarantee = make_engine().guarantee()
    _require("epsilon is positive", guarantee.epsilon > 0)
    if guarantee.delta == 0:
        _require("mechanisms add up to epsilon at most", guarantee.spent <= guarantee.epsilon)


def check_charges(make_engine: MakeEngine, batches: Sequence[Batch], *, seed: int = 1) -> None:
    """What accountants may spend, and have spent after these steps, is what the guarantee claims."""
    engine = make_engine()
    guarantee = engine.guarantee()
    releases = run(engine, batches, seed=seed)
    measuring = any(release.measurements or ACCOUNT in release.notes for release in releases)
    accountants = Accountant.kept(engine.state()).values()
    _require("accountants are in the state", bool(accountants))
    if guarantee.delta == 0:
        # A claim may be above what the mechanisms cost, as for a table of which nothing is to be learnt.
        least, held = guarantee.spent, sum(accountant.epsilon for accountant in accountants)
    else:
        # One (epsilon, delta) is promised: accountants of Gaussian noise each hold it, and spend it together.
        least, held = guarantee.epsilon, max(accountant.epsilon for accountant in accountants)
        spent = sum(accountant.spent.mu_squared for accountant in accountants)
        most = Fraction(gaussian.mu_for(guarantee.epsilon, guarantee.delta)) ** 2
        _require("accountants of one promise together spend no more than it allows", spent <= most)
    _require("budgets hold what the mechanisms cost, and no more than is claimed", least <= held <= guarantee.epsilon)
    _require("budgets have the delta that is claimed", {a.delta for a in accountants} == {guarantee.delta})
    _require("whoever is measured is charged", (paid(accountants) > 0) == measuring)
    if guarantee.delta == 0:
        _require("what is charged is what the mechanisms are said to cost", paid(accountants) <= guarantee.spent)


def check_engine(
    make_engine: MakeEngine, batches: Sequence[Batch], *, fields: RecordFields | None = None, seed: int = 1
) -> None:
    """Run every check on these steps.

    Args:
        make_engine: gives a new engine before its first step, the same each time.
        batches: steps 0, 1, ... in order; at least one. Try empty ones and such with deletes only, too.
        fields: what `EngineSpec.records` says of the stream's records; None where no spec is at hand.
    Raises: ContractBroken, naming the promise.
    """
    check_guarantee(make_engine)
    check_charges(make_engine, batches, seed=seed)
    releases = check_repeatable(make_engine, batches, seed=seed)
    check_restores(make_engine, batches, cuts=range(len(batches) + 1), seed=seed)
    check_releases_add_up(releases)
    check_records_are_dated(releases)
    if fields is not None:
        check_record_fields(releases, fields)
    check_order(make_engine, batches, seed=seed)
    check_words_are_used_once(make_engine, batches)
    check_pays_for_noise(make_engine, batches, seed=seed)
