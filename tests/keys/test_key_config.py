"""What a configuration of keys is refused for, in words that say what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engines.checks.contract_case import contract_case
from engines.core.registry import build_engine
from engines.keys.engine import Keys
from schemas.errors import ConfigError

PLAIN = replace(contract_case("keys"), in_mode=lambda mode, variant: variant)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"domain": {"op": "action"}}, "domain.op: would delete events, .* counts that do not fall"),
        ({"domain": {"ttl": "2h"}}, "domain.ttl: would delete events, .* counts that do not fall"),
        ({"domain": {"other": 1}}, "domain.other: unknown key"),
        ({"domain": {"field": []}}, "domain.field: has too few entries"),
        ({"domain": {"field": ["a", "a"]}}, "already serves as"),
        ({"domain": {"max_key_bytes": 1025}}, "must be at most 1024"),
        ({"privacy": {"delta": None}}, "privacy.delta: .* no guarantee without a delta"),
        ({"privacy": {"unit": "event", "user": None, "max_contributions": None}}, 'use unit = "user"'),
        (
            {"privacy": {"per": "4h"}, "options": {"horizon": 30}},
            "options.horizon: is for streams whose bound does not renew",
        ),
        ({"options": {"horizon": None}}, "options.horizon: missing"),
        ({"options": {"horizon": None}, "privacy": {"per": "1001h"}}, "has 1,001 steps"),
        ({"options": {"sample": "2/3"}}, 'write sample = "1/16"'),
        ({"options": {"least_count": 0}}, "options.least_count"),
        ({"domain": {"value": {"field": "price", "limits": [5, 5]}}}, "domain.value.limits: are inverted or empty"),
        ({"domain": {"value": {"field": "page", "limits": [0, 5]}}}, "already serves as"),
        ({"domain": {"value": {"field": "price"}}}, "domain.value.limits: missing"),
        (
            {"domain": {"field": "mean", "value": {"field": "price", "limits": [0, 5]}}},
            'domain.field: field "mean" of synthetic records would be a part of the key',
        ),
        ({"options": {"max_per_key": 0}}, "options.max_per_key: must be at least 1"),
        ({"domain": {"keys": ["a"]}}, '(?s)domain.keys: is a public list.*set mode = "public"'),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        contract_case("keys").stream("default", changes)


def test_a_period_or_the_horizon_says_how_many_tests_there_are() -> None:
    of_period = {"privacy": {"per": "4h"}, "options": {"horizon": None}}
    for changes, tests, renews in ((of_period, 4, True), ({"options": {"horizon": 7}}, 7, False)):
        engine = build_engine(contract_case("keys").stream("default", changes))
        assert isinstance(engine, Keys)
        assert (engine.config.selection.tests, engine.config.renews) == (tests, renews)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"domain": {"keys": None}}, r'(?s)domain.keys: missing.*write keys = \["a", "b"\]'),
        ({"domain": {"keys": ["caf\u00e9", "cafe\u0301"]}}, "domain.keys: name one key twice"),
        ({"domain": {"keys": [1, 1.0]}}, "domain.keys: name one key twice"),
        ({"domain": {"keys": [["a", "b"]]}}, "domain.keys: have another number of values"),
        ({"domain": {"keys": ["123456789"]}}, "domain.keys: have one of 9 bytes, above max_key_bytes = 8"),
        ({"domain": {"keys": ["a\0"]}}, "domain.keys: have a value that no record can have"),
        ({"options": {"least_count": 6}}, "options.least_count: is for keys that nobody listed"),
        ({"options": {"sample": "1/2"}}, "options.sample: is for keys that nobody listed"),
    ],
)
def test_a_public_list_is_refused_where_it_cannot_be(changes: dict[str, Any], problem: str) -> None:
    listed: dict[str, dict[str, Any]] = {"domain": {"keys": [1, True, "1", 1.5]}, "options": {"least_count": None}}
    document = {table: {**listed.get(table, {}), **changes.get(table, {})} for table in listed}
    with pytest.raises(ConfigError, match=problem):
        PLAIN.stream("public", document)
    assert PLAIN.stream("public", listed).domain
