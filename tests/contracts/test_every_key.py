"""Every key of a configuration is drawn by what is coupled: a new one is, or the reason stands here why it is not.

Coupled runs see only what some setting, or some combination, has: an expression of `[streams.map]` once decided by a
reading's own value, and no run had a map.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal
from unittest.mock import patch

import pytest

from agents.local.coupling.runs import settings
from engines.checks.contract_case import contract_case
from schemas.config import ENGINES, Stream
from schemas.config.values import Section
from tests.contracts.combinations import cases, combinations
from tests.contracts.drawn import places, set_by
from tests.couple.wide import wide

pytestmark = pytest.mark.seconds(0.6)

_OUTPUT = "releases are written otherwise, behind the id of a registry: tests/protocol/test_record_formats.py"
EVERYWHERE = {"output*": _OUTPUT}
"""Keys that no coupled stream has, by pattern, and why."""
_ALIKE = "no two records of it are alike, so that none has a weight"
_DATED = "its records are of one step, and say of which"
_SURPLUS = "no release is scaled by what bounds refuse"
_MEMBERS = "only members of a fixed population are replaced"
_USERS = "its noise is made for all that a user does"
_PURE = "its noise is Laplace noise, without a delta"
REFUSED = {
    "keys": {
        "records*": _ALIKE,
        "privacy.unit = event": _USERS,
        "privacy.unit = replace": _MEMBERS,
        "privacy.surplus": _SURPLUS,
        "time.records*": _DATED,
    },
    "markov": {
        "split*": "a part would lack the members who are elsewhere",
        "records*": _ALIKE,
        "privacy.delta": _PURE,
        "privacy.unit = user": "of a population that is declared, members are replaced",
        "privacy.unit = event": "of a population that is declared, members are replaced",
        "privacy.surplus": _SURPLUS,
        "time.records*": _DATED,
    },
    "series": {
        "records*": _ALIKE,
        "privacy.unit = replace": _MEMBERS,
        "privacy.surplus": _SURPLUS,
        "time.records*": _DATED,
    },
    "spatial": {"privacy.delta": _PURE, "privacy.unit = replace": _MEMBERS},
    "tabular": {"privacy.unit = replace": _MEMBERS},
    "trajectory": {
        "split*": "each part would have a piece of a trip",
        "records*": _ALIKE,
        "privacy.unit = event": _USERS,
        "privacy.unit = replace": _MEMBERS,
        "privacy.surplus": _SURPLUS,
        "time.records*": _DATED,
    },
}
"""Keys that an engine refuses whatever else is set, and why: no stream of it can have them."""


def drawn(engine: str) -> Iterator[Stream]:
    """All streams of an engine that are coupled, or of which coupled runs take some."""
    yield from (stream for _, stream in settings(engine))
    yield from (stream for _, stream in wide() if stream.engine == engine)
    for name, mode in cases():
        if name == engine:
            yield from combinations(contract_case(engine), mode)


def undrawn(engine: str) -> list[str]:
    """Keys of an engine that every coupled stream leaves to their defaults."""
    found = set_by(drawn(engine))
    return [place for place in places(engine) if place not in found]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_key_is_drawn_or_it_is_said_why_not(engine: str) -> None:
    exempt, missing = {**EVERYWHERE, **REFUSED.get(engine, {})}, undrawn(engine)
    assert [key for key in missing if not any(fnmatchcase(key, each) for each in exempt)] == []
    assert [each for each in exempt if not any(fnmatchcase(key, each) for key in missing)] == []


class NewSection(Section):
    header = "[streams.new]"

    inner: int = 0
    way: Literal["a", "b"] = "a"


class Wider(Section):
    new: NewSection | None = None


def test_a_key_that_nothing_draws_is_found() -> None:
    with patch.dict(Stream.model_fields, Wider.model_fields), patch.object(Stream, "new", None, create=True):
        missing = undrawn("markov")
    assert {"new", "new.inner", "new.way = a", "new.way = b"} <= set(missing)


def test_without_streams_whose_keys_are_set_at_all_depths_many_keys_are_missing() -> None:
    with patch(f"{combinations.__module__}.deeper", return_value=iter(())):
        missing = set(undrawn("tabular"))
    assert {
        *("map.*", "map.drop", "map.tables", "split.parts", "records.form = weighted", "partitioner = any"),
        *("time.step = CalendarLength", "domain.table.impossible.left", "domain.table.attributes.unknown = clamp"),
    } <= missing
