"""Engine `keys`: from a stream to its domain, its engine and its evaluator."""

from __future__ import annotations

from fractions import Fraction

from engines.core.accounting.promise import UnitEvents
from engines.core.contract import Evaluator
from engines.keys.domain import KeysDomain, key_of
from engines.keys.engine import Keys, KeysConfig
from engines.keys.grid import KeyGrid
from engines.keys.selection import KeySelection
from engines.keys.values import BoundedValue
from schemas.config import Stream
from schemas.config.engines.keys import LISTING_SHARE, PUBLIC, VALUE_SHARE, KeysDomainSection, KeysOptions


def domain(stream: Stream) -> KeysDomain:
    section = KeysDomainSection.from_stream(stream)
    one_in = KeysOptions.from_stream(stream).one_in
    listed = tuple(key_of(values) for values in section.public_keys)
    value, grid = section.value, section.grid
    return KeysDomain(
        fields=section.key_fields,
        max_bytes=section.max_key_bytes,
        one_in=one_in,
        listed=listed,
        grid=None
        if grid is None
        else KeyGrid(x=grid.x, y=grid.y, bounds=grid.bounds, columns=grid.columns, rows=grid.rows),
        value=None if value is None else BoundedValue(field=value.field, low=value.limits[0], high=value.limits[1]),
    )


def selection(stream: Stream) -> KeySelection:
    """Return the tests of a period, or of all steps to the horizon."""
    section = KeysDomainSection.from_stream(stream)
    privacy, options, public = stream.privacy, KeysOptions.from_stream(stream), stream.mode == PUBLIC
    return KeySelection(
        epsilon=privacy.epsilon_fraction,
        delta=float(privacy.delta),
        share=Fraction(0) if public else LISTING_SHARE,
        contributions=UnitEvents.from_stream(stream).most // stream.pair_events,
        tests=stream.period_steps or options.horizon or 1,
        least_count=0 if public else options.least_count,
        together=stream.pair_events,
        value_share=VALUE_SHARE if section.value is not None else Fraction(0),
    )


def build(stream: Stream) -> Keys:
    return Keys(
        KeysConfig(
            name=stream.name,
            domain=domain(stream),
            selection=selection(stream),
            renews=stream.period_steps is not None,
            most=KeysOptions.from_stream(stream).max_keys,
        )
    )


def evaluator(stream: Stream) -> Evaluator:
    from engines.keys.evaluator import KeysEvaluator, PeopleDomain

    tests = selection(stream)
    assert stream.privacy.user is not None  # the engine's only unit is a user
    needed = None if tests.public else tests.threshold(tests.tests)
    keys = domain(stream)
    return KeysEvaluator(
        PeopleDomain(keys, stream.privacy.user), needed, events=stream.pair_events > 1, value=keys.value
    )
