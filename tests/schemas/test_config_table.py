"""`kind = "table"` in a configuration: what is understood, what is refused and how, and JSON Schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engines.core.registry import build_domain, build_engine
from engines.tabular.domain import Category, Numeric, TableDomain
from schemas.config import Config, Stream, config_from_mapping
from schemas.config.engines.tabular import attributes_of_schema
from schemas.errors import ConfigError

SEX: dict[str, Any] = {"field": "sex", "values": ["f", "m"]}
AGE: dict[str, Any] = {"field": "age", "edges": [0, 18, 65, 120], "integer": True, "missing": True}


def document(domain: dict[str, Any], options: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "job": {"name": "j"},
        "kafka": {"bootstrap": "localhost:9092"},
        "streams": [
            {
                "name": "s",
                "engine": "tabular",
                "source": "raw.s",
                "privacy": {"epsilon": 1.0, "unit": "event"},
                "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
                "domain": {"kind": "table", **domain},
                "options": options or {},
            }
        ],
    }


def stream(domain: dict[str, Any], options: dict[str, Any] | None = None, folder: Path | None = None) -> Stream:
    config: Config = config_from_mapping(document(domain, options), folder=folder)
    return config.streams[0]


def test_a_table_is_built_as_it_is_written() -> None:
    made = stream(
        {
            "attributes": [SEX, AGE],
            "impossible": [{"left": "age", "left_values": [70], "right": "sex", "right_values": ["m"]}],
        },
        {"marginals": [{"of": ["sex", "age"], "weight": 2}]},
    )
    domain = build_domain(made)
    assert isinstance(domain, TableDomain)
    assert isinstance(domain.attributes[0], Category)
    assert isinstance(domain.attributes[1], Numeric)
    assert domain.sizes == (2, 4)
    assert domain.possible_pairs(0, 1).tolist() == [[True] * 4, [True, True, False, True]]
    assert made.domain.fields == ("sex", "age")
    assert build_engine(made).guarantee().epsilon == 1


def test_fingerprints_tell_tables_apart() -> None:
    first = {"attributes": [{"field": "a", "values": [0, 1]}, AGE]}
    prints = {
        json.dumps(stream(domain).fingerprint_fields(), sort_keys=True)
        for domain in (
            first,
            {"attributes": [{"field": "a", "values": [False, True]}, AGE]},
            {"attributes": [{"field": "a", "values": ["0", "1"]}, AGE]},
            {"attributes": [{"field": "a", "values": [1, 0]}, AGE]},
            {"attributes": [{"field": "a", "values": [0, 1], "missing": True}, AGE]},
            {**first, "ttl": "2h"},
        )
    }
    assert len(prints) == 6


@pytest.mark.parametrize(
    ("domain", "options", "key", "words"),
    [
        ({}, {}, "domain.attributes", "1 to 50"),
        ({"attributes": [SEX, SEX]}, {}, "domain.attributes", "twice"),
        ({"attributes": [{"field": "x"}]}, {}, "attributes[0].values", "values or edges"),
        ({"attributes": [{**SEX, "edges": [0, 1]}]}, {}, "attributes[0].values", "either values or edges"),
        ({"attributes": [{"field": "x", "values": []}]}, {}, "attributes[0].values", "empty"),
        ({"attributes": [{"field": "x", "values": [1, 1.0]}]}, {}, "attributes[0].values", "twice"),
        ({"attributes": [{"field": "x", "values": [float("nan")]}]}, {}, "attributes[0].values", "not a text, number"),
        ({"attributes": [{"field": "x", "values": ["x", None]}]}, {}, "attributes[0].values", "not a text, number"),
        ({"attributes": [{"field": "x", "edges": [0, 2**60], "integer": True}]}, {}, "attributes[0].edges", "2**53"),
        ({"attributes": [{"field": "x", "edges": [0, float("inf")]}]}, {}, "attributes[0].edges", "finite"),
        ({"attributes": [{"field": f"f{i}", "values": [1]} for i in range(51)]}, {}, "domain.attributes", "1 to 50"),
        ({"attributes": [{"field": "x", "values": list(range(1001))}]}, {}, "attributes[0].values", "1000"),
        ({"attributes": [{**SEX, "unknown": "clamp"}]}, {}, "attributes[0].unknown", "bins"),
        ({"attributes": [{**SEX, "unknown": "other", "other": "m"}]}, {}, "attributes[0].other", "listed"),
        ({"attributes": [{**SEX, "integer": True}]}, {}, "attributes[0].integer", "no effect"),
        ({"attributes": [{**SEX, "decimals": 2}]}, {}, "attributes[0].decimals", "no effect"),
        ({"attributes": [{**AGE, "decimals": 2}]}, {}, "attributes[0].decimals", "no effect with integer"),
        ({"attributes": [{"field": "x", "edges": [0, 1], "points": [0.5], "decimals": 1}]}, {}, "decimals", "points"),
        ({"attributes": [{"field": "x", "edges": [0, 1], "decimals": 0}]}, {}, "attributes[0].decimals", "at least 1"),
        (
            {"attributes": [{"field": "x", "edges": [0, 2**50], "decimals": 2}]},
            {},
            "attributes[0].edges",
            "lower decimals",
        ),
        ({"attributes": [{"field": "x", "edges": [0.01, 0.09], "decimals": 1}]}, {}, "attributes[0].edges", "decimals"),
        ({"attributes": [{**AGE, "edges": [0, 0]}]}, {}, "attributes[0].edges", "ascending"),
        ({"attributes": [{**AGE, "edges": [0.1, 0.9]}]}, {}, "attributes[0].edges", "whole number"),
        ({"attributes": [{**AGE, "points": [9, 40]}]}, {}, "attributes[0].points", "one number in each bin"),
        ({"attributes": [{**AGE, "points": [9, 40, 70.5]}]}, {}, "attributes[0].points", "one number in each bin"),
        (
            {
                "attributes": [SEX, AGE],
                "impossible": [{"left": "sex", "left_values": ["m"], "right": "x", "right_values": [1]}],
            },
            {},
            "impossible[0].right",
            "not an attribute",
        ),
        ({"attributes": [SEX, AGE], "op": "sex"}, {}, "domain", "sex"),
        ({"attributes": [SEX, AGE], "op": "o", "ttl": "2h"}, {}, "domain.ttl", "op and ttl"),
        ({"attributes": [SEX, AGE]}, {"ways": [4]}, "options.ways", "1 to 3"),
        ({"attributes": [SEX, AGE]}, {"churn": 2}, "options.churn", "between 0 and 1"),
        (
            {"attributes": [SEX, AGE]},
            {"marginals": [{"of": ["sex", "x"]}]},
            "options.marginals[0].of",
            "not an attribute",
        ),
        ({"attributes": [SEX, AGE]}, {"marginals": [{"of": ["sex", "sex"]}]}, "marginals[0].of", "twice"),
        ({"attributes": [SEX, AGE]}, {"marginals": [{"of": ["sex"], "weight": 0}]}, "weight", "above 0"),
        ({"attributes": [SEX, AGE]}, {"counter": "simple", "horizon": 5}, "options.horizon", "no horizon"),
        ({"attributes": [SEX, AGE]}, {"counter": "block8"}, "options.counter", "default"),
        ({"attributes": [SEX, AGE]}, {"max_cells": 10}, "options.max_cells", "3 marginals have 14 cells"),
    ],
)
def test_refused_with_the_key_and_the_reason(
    domain: dict[str, Any], options: dict[str, Any], key: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        stream(domain, options)
    assert key in str(caught.value)
    assert words in str(caught.value)


def test_fifty_attributes_of_a_thousand_values_are_refused_at_once() -> None:
    attributes = [{"field": f"f{i}", "values": list(range(1000))} for i in range(50)]
    with pytest.raises(ConfigError, match=r"1,225,050,000 cells, about 112,156 MiB"):
        stream({"attributes": attributes})


SCHEMA = {
    "type": "object",
    "required": ["sex", "smokes", "income"],
    "properties": {
        "sex": {"enum": ["f", "m"]},
        "smokes": {"type": "boolean"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "children": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 4},
        "income": {"type": "number", "minimum": 0, "maximum": 1e5},
        "country": {"const": "us"},
    },
}


def test_a_json_schema_is_read(tmp_path: Path) -> None:
    (tmp_path / "person.json").write_text(json.dumps(SCHEMA))
    made = stream(
        {"schema_file": "person.json", "attributes": [{"field": "age", "edges": [0, 50, 99]}]}, folder=tmp_path
    )
    domain = build_domain(made)
    assert isinstance(domain, TableDomain)
    assert domain.names == ("age", "sex", "smokes", "children", "income", "country")
    assert domain.sizes == (2, 2, 2, 5, 20, 2)


@pytest.mark.parametrize("last", [50, 51, 120, 1000])
def test_whole_numbers_of_a_schema_are_all_in_some_bin(last: int) -> None:
    rule = {"properties": {"n": {"type": "integer", "minimum": -3, "maximum": last}}, "required": ["n"]}
    (keys,), problems = attributes_of_schema(json.dumps(rule).encode())
    assert not problems
    attribute = Numeric(field="n", edges=keys["edges"], integer=True) if "edges" in keys else None
    if attribute is None:
        assert keys["values"] == tuple(range(-3, last + 1))
    else:
        codes, reasons = attribute.encode(list(range(-3, last + 1)))
        assert not reasons.any()
        assert sorted(set(codes.tolist())) == list(range(20))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "no properties"),
        (json.dumps({"properties": {"name": {"type": "string"}}}), 'finite set of values of "name"'),
        (json.dumps({"properties": {"n": {"type": "number", "minimum": 1}}}), 'finite set of values of "n"'),
        (json.dumps({"properties": {"n": {"enum": [None]}}}), 'finite set of values of "n"'),
        (json.dumps({"properties": {"n": {"enum": [[1]]}}}), 'finite set of values of "n"'),
    ],
)
def test_a_json_schema_that_says_too_little_is_refused(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(ConfigError) as caught:
        stream({"schema_file": "s.json"}, folder=tmp_path)
    assert words in str(caught.value)
