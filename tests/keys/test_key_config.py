"""What a configuration of keys is refused for, in words that say what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.checks.contract_case import contract_case
from engines.core.registry import build_engine
from engines.keys.engine import Keys
from schemas.config.engines.keys import KeysDomainSection
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
    ],
)
def test_a_public_list_is_refused_where_it_cannot_be(changes: dict[str, Any], problem: str) -> None:
    listed: dict[str, dict[str, Any]] = {"domain": {"keys": [1, True, "1", 1.5]}, "options": {"least_count": None}}
    document = {table: {**listed.get(table, {}), **changes.get(table, {})} for table in listed}
    with pytest.raises(ConfigError, match=problem):
        PLAIN.stream("public", document)
    assert PLAIN.stream("public", listed).domain


GRID = {"x": "lon", "y": "lat", "bounds": [0.0, 0.0, 6.0, 1.0], "columns": 3, "rows": 2}


@pytest.mark.parametrize(
    ("domain", "problem"),
    [
        ({"grid": GRID}, "domain.field: would be a part of the key beside the coordinates"),
        ({"field": None, "keys": ["a"]}, '(?s)domain.field: missing.*field = "page"'),
        ({"field": None, "grid": GRID, "keys": [["a", "b"]]}, "domain.grid: is named beside keys"),
        ({"field": None, "grid": {**GRID, "columns": 90_000}}, "domain.grid.columns: and rows make 180,000 cells"),
        ({"field": None, "grid": {**GRID, "rows": 0}}, "domain.grid.rows: must be at least 1"),
        ({"field": None, "grid": {**GRID, "bounds": [6, 0, 0, 1]}}, "domain.grid.bounds: are inverted"),
        ({"field": None, "grid": {**GRID, "x": "step"}}, 'domain.grid: field "step" of synthetic records'),
        ({"field": None, "grid": {**GRID, "x": "lat"}}, "already serves as"),
        ({"file": "nowhere.json"}, "domain.file: cannot be read"),
    ],
)
def test_public_keys_are_named_in_one_way(domain: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        PLAIN.stream("public", {"domain": domain, "options": {"least_count": None}})


@pytest.mark.parametrize(
    ("content", "field", "keys"),
    [
        ('["a", 7, true, "caf\u0065\u0301"]', "page", [("a",), (7,), (True,), ("caf\u00e9",)]),
        ('[["a", 1], ["a", 2]]', ["page", "n"], [("a", 1), ("a", 2)]),
        (
            '{"type": "FeatureCollection", "features": [{"properties": {"name": "north"}, "geometry": null}, '
            '{"properties": {"name": "north"}, "geometry": null}, {"properties": {"name": 7}, "geometry": null}]}',
            "zone",
            [("north",), ("7",)],
        ),
    ],
)
def test_a_file_lists_keys_as_the_configuration_would(
    content: str, field: Any, keys: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    (tmp_path / "keys.json").write_text(content)
    domain = {"field": field, "file": str(tmp_path / "keys.json")}
    stream = PLAIN.stream("public", {"domain": domain, "options": {"least_count": None}})
    assert isinstance(stream.domain, KeysDomainSection)
    assert list(stream.domain.public_keys) == keys
    engine = build_engine(stream)
    assert isinstance(engine, Keys)
    assert sorted(map(str, engine.config.domain.decode(engine.config.domain.public))) == sorted(map(str, keys))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a, b", "domain.file: is not JSON"),
        ("[]", "domain.file: is not a list of 1 to 100,000 keys"),
        ('["a", null]', "domain.file: is not a list of 1 to 100,000 keys"),
        ('["a", "a"]', "domain.file: name one key twice"),
        ('{"type": "FeatureCollection", "features": []}', "domain.file: holds no features"),
        (
            '{"type": "FeatureCollection", "features": [{"properties": {"id": 1}, "geometry": null}]}',
            'domain.name_property: no feature of the file has a text in "name"',
        ),
        (
            '{"type": "FeatureCollection", "features": [{"properties": {"name": "a"}, "geometry": null}, '
            '{"properties": {"id": 1}, "geometry": null}]}',
            'domain.name_property: 1 features of the file have no text in "name"',
        ),
    ],
)
def test_a_file_without_a_list_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(content)
    domain = {"file": str(tmp_path / "keys.json")}
    with pytest.raises(ConfigError, match=problem):
        PLAIN.stream("public", {"domain": domain, "options": {"least_count": None}})
