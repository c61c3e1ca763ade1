"""Engine `keys`: from a stream to its domain, its engine and its evaluator."""

from __future__ import annotations

from fractions import Fraction

from engines.core.accounting.promise import UnitEvents
from engines.core.contract import Evaluator
from engines.keys.domain import KeysDomain, key_of
from engines.keys.engine import Keys, KeysConfig
from engines.keys.selection import KeySelection
from schemas.config import Stream
from schemas.config.keys import LISTING_SHARE, PUBLIC, KeysDomainSection, KeysOptions


def domain(stream: Stream) -> KeysDomain:
    section = stream.domain
    assert isinstance(section, KeysDomainSection)
    one_in = KeysOptions.from_stream(stream).one_in
    listed = tuple(key_of(values) for values in section.public_keys)
    return KeysDomain(fields=section.field, max_bytes=section.max_key_bytes, one_in=one_in, listed=listed)


def selection(stream: Stream) -> KeySelection:
    """The tests of a period, or of all steps to the horizon."""
    privacy, options, public = stream.privacy, KeysOptions.from_stream(stream), stream.mode == PUBLIC
    return KeySelection(
        epsilon=privacy.epsilon_fraction,
        delta=float(privacy.delta),
        share=Fraction(0) if public else LISTING_SHARE,
        contributions=UnitEvents.from_stream(stream).most,
        tests=stream.period_steps or options.horizon or 1,
        least_count=0 if public else options.least_count,
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
    return KeysEvaluator(PeopleDomain(domain(stream), stream.privacy.user), needed)
