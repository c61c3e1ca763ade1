"""What engine `tabular` is audited on: two attributes of two values, one row common, one rare and one absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engines.auditor.cases import Case
from engines.auditor.engines import THREE_KINDS, case, faintly
from engines.auditor.features import Features
from engines.auditor.fixture import VISITED, AuditFixture, Focus
from engines.contract_case import WHOLE, Chance, EngineCase, Variant
from engines.tabular.keys import RowKeys
from schemas.blocks import Folded
from schemas.config import ENGINES, Stream

CROWD, BESIDE = 400, 30
"""Rows that both inputs gain in each step: enough for blocks to close within the scene."""

Row = Mapping[str, int]
"""Code of each attribute, by name."""
KnownRow = tuple[int, Row, int]
"""Step, row and number (negative: deleted) of events that both inputs have, so that the adversary knows them."""


def cases(mode: str) -> Iterator[Case]:
    """A table that only grows, with users of several rows, with a delta too where the mode takes one, and one whose
    rows are deleted, each by itself.
    """
    if mode in ENGINES["tabular"].facts.uses_delta:
        yield case(f"engine tabular, mode {mode}, delta", fixture(mode, delta=1e-3, epsilon=1.5))
    grown = fixture(mode, contributions=2)
    yield case(f"engine tabular, mode {mode}", grown, faint=faintly(grown.stream))
    yield case(f"engine tabular, mode {mode}, deletes", fixture(mode, op=True, epsilon=THREE_KINDS))


def table_focus(row: Row, sizes: Mapping[str, int], known: Sequence[KnownRow]) -> Focus:
    """What was measured in the cells of one row beyond the known events, all marginals of a step added up.

    One event there moves each of those cells by one, and no other measurement but the totals.
    """

    def focus(step: int, measurements: Sequence[Mapping[str, Any]]) -> Features:
        residual, found = 0.0, 0
        for measurement in measurements:
            if (names := measurement.get("marginal")) is None:
                continue
            cell = 0
            for name in names:
                cell = cell * sizes[name] + row[name]
            since = measurement.get("since", step - 1)
            there = sum(
                count
                for at, other, count in known
                if since < at <= step and all(other[name] == row[name] for name in names)
            )
            residual += float(measurement["increment"][cell] - there)
            found += 1
        return {"marginals": float(found), "residual": residual} if found else {}

    return focus


def fixture(
    mode: str,
    *,
    steps: int = VISITED,
    ttl: str | None = None,
    op: bool = False,
    contributions: int = 1,
    epsilon: float = 2.0,
    delta: float = 0.0,
) -> AuditFixture:
    """The scene of a mode; `op` where rows can be deleted, so that no event is early. With several `contributions` the
    unit is a user who has as many rows.
    """
    user = {"unit": "user", "user": "u", "max_contributions": contributions}
    domain: dict[str, Any] = {
        "kind": "table",
        "attributes": [{"field": "a", "values": [0, 1]}, {"field": "b", "values": [0, 1]}],
    }
    if ttl is not None:
        domain["ttl"] = ttl
    if op:
        domain["op"] = "op"
    stream = Stream.model_validate(
        {
            "name": "audit",
            "engine": "tabular",
            "mode": mode,
            "source": "raw.audit",
            "privacy": {"epsilon": epsilon, "delta": delta, **(user if contributions > 1 else {"unit": "event"})},
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            "domain": domain,
            "options": {"fit": "joint", "rounds": 1, "records": False},
        }
    )
    sizes = {"a": 2, "b": 2}
    keys = RowKeys(tuple(sizes.values()))
    rows = {"dense cell": {"a": 0, "b": 0}, "beside": {"a": 0, "b": 1}, "empty cell": {"a": 1, "b": 1}}

    def key(row: Row, sign: int) -> int:
        return int(keys.pack(np.array([[row["a"], row["b"]]]), np.array([sign], np.int8))[0, 0])

    # One row has epsilon over `contributions`: blocks close by as many more.
    crowd = (("dense cell", CROWD * contributions), ("beside", BESIDE * contributions))
    known = [(step, rows[name], count) for step in range(steps) for name, count in crowd]
    places = {
        name: (key(rows[name], 1), key(rows[name], -1), table_focus(rows[name], sizes, known))
        for name in ("dense cell", "empty cell")
    }
    base = Folded.of(
        np.array([[key(rows[name], 1)] for name, _ in crowd], np.uint64), np.array([count for _, count in crowd])
    )
    return AuditFixture(stream, base, places, deletes=op)


def _event(domain: Any, chance: Chance) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for attribute in domain.attributes:
        if attribute.missing and chance.random() < 0.2:
            continue
        if attribute.values is not None:
            fields[attribute.field] = chance.choice(attribute.values)
        else:
            at = chance.uniform(attribute.edges[0], attribute.edges[-1])
            fields[attribute.field] = int(at) if attribute.integer else at
    return fields


def _reach(stream: Stream) -> float:
    """Of rounds, counts have half of epsilon, and every unit uses that up. A choice costs all that it is charged only
    where a row moves one marginal towards the model and another one away from it; in a first round it moves all alike.
    `tests/couple/test_tabular_claims.py` makes tables where it does not.
    """
    return WHOLE if stream.mode == "default" else WHOLE / 2


def _wide(mode: str) -> list[Variant]:
    """In `default` more cells of one marginal than 2**16, once among more marginals than its early blocks hold, and
    once among so few, and with so much epsilon, that a crowd has them measured.
    """
    large = [{"field": f"large {at}", "values": list(range(260))} for at in range(2)] if mode == "default" else []
    small = [{"field": f"small {at}", "values": [0, 1]} for at in range(15 if mode == "default" else 9)]

    def table(attributes: Sequence[dict[str, Any]], **privacy: Any) -> Variant:
        return {
            "domain": {"attributes": attributes, "ttl": "2h"},
            "options": {"fit": None, "records": False},
            "privacy": {"max_contributions": 8, "max_per_step": 6, **privacy},
        }

    few = [table([*large, *small[:2]], epsilon=40.0)] if mode == "default" else []
    return [table([*large, *small]), *few]


CONTRACT = EngineCase(
    wide=_wide,
    engine="tabular",
    tables={
        "domain": {
            "kind": "table",
            "attributes": [
                {"field": "smokes", "values": [False, True]},
                {"field": "age", "edges": [0, 18, 65, 120], "integer": True},
                {"field": "city", "values": ["here"], "missing": True},
            ],
        },
        "options": {"fit": "joint"},
    },
    keys=lambda pick: (pick(0, 2 * 2 * 3 * 2 - 1),),
    event=_event,
    reach=_reach,
    crowd=(8,),
    foreign=(2 * 2 * 3 * 2,),
    variants=(
        {},
        {"domain": {"ttl": "1h"}},
        {"domain": {"ttl": "2h"}, "options": {"records": False}},
        {"domain": {"op": "what"}, "options": {"ways": [1, 2, 3]}},
        {"options": {"marginals": [{"of": ["age", "smokes"], "weight": 3}]}},
        {"privacy": {"delta": 1e-6, "epsilon": 8.0}},
        {"privacy": {"delta": 1e-3, "max_contributions": 3}, "domain": {"op": "what"}},
    ),
    longer=(
        {"privacy": {"delta": 1e-6, "epsilon": 8.0, "unit": "event", "user": None, "max_contributions": None}},
        {"privacy": {"max_contributions": 8}},
        {"privacy": {"max_contributions": 3, "per": "8h"}},
    ),
)
