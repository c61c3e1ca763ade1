"""Keys that change under a running stream, of every engine, mode and section: either the fingerprint has them, so that
the change is refused, or they are known to be free, and a stream goes on with what it has stored.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from agents.local.coupling.runs import settings
from agents.protocol.fingerprint import Fingerprint
from engines.checks.contract_case import contract_case
from engines.core.contract import Batch
from engines.core.noise import seeded
from engines.core.registry import build_domain, build_engine
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.config.values import Section
from schemas.errors import ConfigError
from tests.contracts.combinations import values_of

FREE = {
    *("allow_compacted", "audit", "publish_delay", "grace", "user_key_file"),
    *("churn", "max_cells", "max_keys"),
}
"""Keys that may change. A new key that no fingerprint has is refused here until somebody has thought about it."""
BY_WHAT_IS_MADE_OF_THEM = {"records", "path", "reach_m"}
"""Not by themselves: of `time.records` a stream pins what it comes to, of a file what is in it, and of the reach of a
map nothing where there is no map."""
MOST = 4
"""Other values of a key."""
Change = tuple[str, Section]


def changes(section: Section, tried: set[tuple[str, str]]) -> Iterator[Change]:
    """Yield a key and the section with another value for it, of this section and of those in it; each key of a model
    once in `tried`.
    """
    for key, field in type(section).model_fields.items():
        value, place = getattr(section, key), (type(section).__name__, key)
        if isinstance(value, Section):
            yield from ((name, section.model_copy(update={key: other})) for name, other in changes(value, tried))
        elif isinstance(value, tuple) and any(isinstance(each, Section) for each in value):
            for at, each in enumerate(value):
                for name, other in changes(each, tried):
                    yield name, section.model_copy(update={key: (*value[:at], other, *value[at + 1 :])})
        elif place not in tried:
            for taken in islice(_taken(section, key, (*alike(value), *values_of(field))), MOST):
                tried.add(place)
                yield key, section.model_copy(update={key: taken})


def _taken(section: Section, key: str, others: Sequence[Any]) -> Iterator[Any]:
    """Yield what of these a section takes for a key, as it reads them."""
    for other in others:
        with contextlib.suppress(ConfigError):
            taken = getattr(section.revised(**{type(section).model_fields[key].alias or key: other}), key)
            if repr(taken) != repr(getattr(section, key)):
                yield taken


def alike(value: Any) -> Iterator[Any]:
    """Yield values that Python may take for this one, or that are near it."""
    match value:
        case bool():
            yield from (not value, int(value))
        case int() | float():
            yield from (value + 1, value / 2, str(value), bool(value))
        case str():
            yield from (f"{value}x", value.upper())
        case tuple():
            yield from (value[::-1], value[:-1])
            for at, each in enumerate(value):
                yield from ((*value[:at], other, *value[at + 1 :]) for other in alike(each))


def fingerprint(stream: Stream) -> Fingerprint:
    return Fingerprint.decode(Fingerprint(stream.name, stream.fingerprint_fields(), "2020-01-01T00:00:00").encode())


LISTED = contract_case("keys").stream("public", {"options": {"horizon": 3}})
ODD = LISTED.model_copy(update={"domain": LISTED.domain.revised(keys=[True, False, "1", 2, "x"])})
"""A public list of values that Python takes for others."""


def test_every_key_is_in_the_fingerprint_or_known_to_be_free() -> None:
    unseen, tried = set(), dict[tuple[str, str], set[tuple[str, str]]]()
    for stream in (*(stream for _, stream in settings()), ODD):
        before = fingerprint(stream)
        seen = set() if stream is ODD else tried.setdefault((stream.engine, stream.domain.kind), set())
        for key, changed in changes(stream, seen):
            assert isinstance(changed, Stream)
            if not before.differing(fingerprint(changed)):
                unseen.add(key)
    assert unseen - BY_WHAT_IS_MADE_OF_THEM == FREE


def test_the_guarantee_names_what_is_free() -> None:
    text = (Path(__file__).parents[2] / "docs/guarantee.md").read_text()
    found = re.search(r"Free to\s+change:(.*?)and all of `\[job\]`", text, re.DOTALL)
    assert found is not None
    assert set(re.findall(r"`(\w+)`", found[1])) == FREE


OTHERS = {"churn": 0.5, "max_cells": 5_000_000, "max_keys": 2_000_000}


@pytest.mark.parametrize("name", ["keys/default/0", "tabular/default/0", "tabular/default/12", "tabular/paper/0"])
def test_a_stream_goes_on_where_a_free_key_of_its_engine_has_changed(name: str) -> None:
    """Else one that a full table has stopped would never go on."""
    stream = dict(settings())[name]
    before, words = build_engine(stream), build_domain(stream).words
    before.step(Batch(0, Folded.empty(words)), seeded(0))
    for section in ("domain", "options"):
        for changed in freed(getattr(stream, section)):
            other = stream.model_copy(update={section: changed})
            assert not fingerprint(stream).differing(fingerprint(other))
            after = build_engine(other)
            after.restore(before.state())
            after.step(Batch(1, Folded.empty(words)), seeded(1))


def freed(section: Section) -> Iterator[Section]:
    """Yield the section with another value for each free key of it, and of those in it."""
    for key in type(section).model_fields:
        value = getattr(section, key)
        if key in OTHERS:
            with contextlib.suppress(ConfigError):  # a key of values that are found, of an attribute with others
                yield section.revised(**{key: OTHERS[key]})
        elif isinstance(value, tuple):
            for at, each in enumerate(value):
                for other in freed(each) if isinstance(each, Section) else ():
                    yield section.model_copy(update={key: (*value[:at], other, *value[at + 1 :])})
