"""Small streams with known events, run by their engines, and what their answers are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engines.core.answers.contract import RECORDS, Answerer, CountQuestion
from engines.core.answers.where import Atom, Both
from engines.core.contract import Batch, Columns, Engine
from engines.core.noise import seeded
from engines.core.registry import build_domain, build_engine, part
from schemas.blocks import Folded
from schemas.config import Stream

Events = Mapping[str, np.ndarray]
"""Fields, and `step`, `(events,)` each."""


def configured(engine: str, domain: Mapping[str, Any], **tables: Any) -> Stream:
    time = {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"}
    privacy = {"epsilon": 1.0, "unit": "event"}
    document = {"name": "s", "engine": engine, "source": "raw.s", "privacy": privacy, "time": time, "domain": domain}
    return Stream.model_validate(document | tables)


@dataclass(frozen=True)
class Known:
    """A stream and its events; `asked` are questions whose answers are cut nowhere, and which events each counts."""

    stream: Stream
    events: Events
    steps: int
    asked: Sequence[tuple[CountQuestion, Callable[[Events], np.ndarray]]]

    def batches(self) -> list[Folded]:
        domain = build_domain(self.stream)
        found = []
        for step in range(self.steps):
            rows = self.events["step"] == step
            columns = Columns(
                {name: self.events[name][rows].astype(np.float64) for name in domain.number_fields},
                {name: self.events[name][rows].tolist() for name in domain.text_fields},
                np.ones(int(rows.sum()), np.int8),
                {name: self.events[name][rows].tolist() for name in domain.value_fields},
            )
            keys, reasons = domain.encode(columns)
            assert not reasons.any()
            found.append(Folded.from_keys(keys))
        return found

    def runs(self, seeds: Sequence[int]) -> Iterator[tuple[Engine, Answerer]]:
        batches = self.batches()
        for seed in seeds:
            engine = build_engine(self.stream)
            measured: list[tuple[int, Mapping[str, Any]]] = []
            for step, batch in enumerate(batches):
                release = engine.step(Batch(step, batch), seeded(1000 * seed + step))
                measured += [(step, told) for told in release.measurements]
                if self.stream.facts.records_are_counts:
                    measured.append((step, {RECORDS: [dict(record.fields) for record in release.added]}))
            yield engine, part(self.stream.engine, "answers")(self.stream, measured, self.steps - 1)

    def truth(self, question: CountQuestion, counts: Callable[[Events], np.ndarray]) -> float:
        steps = self.events["step"]
        return float((counts(self.events) * ((steps >= question.first) & (steps <= question.last))).sum())


def table_rows(seed: int = 1, *, steps: int = 1, **tables: Any) -> Known:
    """Four attributes, steps of 400 rows; marginals of step 0 are never cut."""
    chance = np.random.default_rng(seed)
    size = steps * 400
    a, n = chance.choice(["x", "y", "z"], size, p=[0.6, 0.3, 0.1]), chance.integers(0, 80, size)
    events = {
        "a": a,
        "n": n,
        "b": chance.random(size) < 0.2 + 0.3 * (a == "x"),
        "c": chance.random(size) < 0.4,
        "step": np.repeat(np.arange(steps), 400),
    }
    attributes = [
        {"field": "a", "values": ["x", "y", "z"]},
        {"field": "n", "edges": [0, 10, 20, 40, 80], "integer": True},
        *({"field": field, "values": [False, True]} for field in "bc"),
    ]
    x, low, true = Atom("a", "=", ("x",)), Atom("n", "<", (20,)), Atom("b", "=", (True,))
    asked: list[tuple[CountQuestion, Callable[[Events], np.ndarray]]] = [
        (CountQuestion(0, 0, x), lambda of: of["a"] == "x"),
        (CountQuestion(0, 0, low), lambda of: of["n"] < 20),
        (CountQuestion(0, 0, true), lambda of: of["b"]),
        (CountQuestion(0, 0, Both((x, true))), lambda of: (of["a"] == "x") & of["b"]),
        (CountQuestion(0, 0, Both((true, Atom("c", "=", (True,))))), lambda of: of["b"] & of["c"]),
        (CountQuestion(0, 0), lambda of: np.ones(len(of["step"]))),
    ]
    return Known(configured("tabular", {"kind": "table", "attributes": attributes}, **tables), events, steps, asked)


def seldom_rows(seed: int = 1, *, crowded: float = 0.0) -> Known:
    """A zone and nine flags that few rows have; pairs of step 1 leave out what is usual by those of step 0.

    Args: crowded: share of rows that have all flags.
    """
    chance = np.random.default_rng(seed)
    size = np.array([1000, 3000])
    flags = [f"f{number}" for number in range(9)]
    rows = int(size.sum())
    events = {flag: chance.random(rows) < 0.08 for flag in flags}
    events |= {"zone": chance.choice(["x", "y", "z"], rows), "step": np.repeat(np.arange(2), size)}
    events["f1"] |= events["f0"] & (events["zone"] == "y")
    for flag in flags[2:]:  # so few that no row is lost
        events[flag] &= sum(events[other] for other in flags[:2]) + sum(events[other] for other in flags[2:]) < 3
    everything = chance.random(rows) < crowded
    events |= {flag: events[flag] | everything for flag in flags}
    attributes = [
        {"field": "zone", "values": ["x", "y", "z"]},
        *({"field": flag, "values": [False, True]} for flag in flags),
    ]
    privacy = {"epsilon": 10.0, "unit": "event"}
    stream = configured("tabular", {"kind": "table", "attributes": attributes}, privacy=privacy)
    zone, set0 = Atom("zone", "=", ("y",)), Atom("f0", "=", (True,))
    unset, set1 = Atom("f1", "=", (False,)), Atom("f1", "=", (True,))
    asked: list[tuple[CountQuestion, Callable[[Events], np.ndarray]]] = [
        (CountQuestion(1, 1, zone), lambda of: of["zone"] == "y"),
        (CountQuestion(1, 1, set0), lambda of: of["f0"]),
        (CountQuestion(1, 1, Both((zone, set1))), lambda of: (of["zone"] == "y") & of["f1"]),
        (CountQuestion(1, 1, Both((zone, unset))), lambda of: (of["zone"] == "y") & ~of["f1"]),
        (CountQuestion(1, 1, Both((set0, set1))), lambda of: of["f0"] & of["f1"]),
        (CountQuestion(0, 1, Both((set0, unset))), lambda of: of["f0"] & ~of["f1"]),
    ]
    return Known(stream, events, 2, asked)


def counts_of_states(seed: int = 1) -> Known:
    chance = np.random.default_rng(seed)
    states = [f"s{number}" for number in range(40)]
    size, steps = 4000, 12
    events = {"zone": chance.choice(states, size), "step": chance.integers(0, steps, size)}
    privacy = {"epsilon": 1.0, "unit": "replace", "user": "u", "max_contributions": steps, "max_per_step": 1}
    domain = {"kind": "states", "field": "zone", "values": states, "population": 4000}
    stream = configured("markov", domain, privacy=privacy, options={"horizon": steps})

    def question(state: str) -> tuple[CountQuestion, Callable[[Events], np.ndarray]]:
        return CountQuestion(2, 7, Atom("zone", "in", (state,))), lambda of: of["zone"] == state

    return Known(stream, events, steps, [question(state) for state in states])


def counted_visits(seed: int = 1, **tables: Any) -> Known:
    chance = np.random.default_rng(seed)
    steps, size = 60, 6000
    events = {"km": np.round(chance.exponential(5.0, size), 2).clip(0, 30), "step": chance.integers(0, steps, size)}
    domain = {
        "kind": "series",
        "fields": [{"name": "visits", "of": "count"}, {"name": "km", "of": "sum", "limits": [0, 32]}],
    }
    privacy = {"epsilon": 1.0, "delta": 1e-6, "unit": "event"}
    options = {"options": {"horizon": steps}}
    stream = configured("series", domain, **({"privacy": privacy} | options | tables))
    asked: list[tuple[CountQuestion, Callable[[Events], np.ndarray]]] = []
    for first in range(0, steps, 2):
        asked += [
            (CountQuestion(first, first + 1, series="visits"), lambda of: np.ones(len(of["step"]))),
            (CountQuestion(first, first + 1, series="km"), lambda of: of["km"]),
        ]
    return Known(stream, events, steps, asked)


def people_of_pages(seed: int = 1, *, public: bool = False, steps: int = 6, per: str | None = None) -> Known:
    """Pages that many people have, far above the threshold, and some that few have: an event is a new person."""
    chance = np.random.default_rng(seed)
    names = [f"p{number}" for number in range(40)] + ["rare", "no one's"][: 1 if not public else 2]
    pages = np.repeat(names[:40], 600)
    pages = np.concatenate((chance.permutation(pages), np.repeat("rare", 6)))
    events = {"page": pages, "step": np.concatenate((chance.integers(0, steps, 24_000), np.arange(6) % steps))}
    events["step"][: 40 * steps] = np.tile(np.arange(steps), 40)
    privacy: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": "user", "user": "u", "max_contributions": 2}
    domain: dict[str, Any] = {"kind": "keys", "field": "page"} | ({"keys": names} if public else {})
    tables: dict[str, Any] = {"mode": "public"} if public else {}
    tables |= {"privacy": privacy | ({"per": per} if per else {})} | ({} if per else {"options": {"horizon": steps}})

    def page(name: str) -> tuple[CountQuestion, Callable[[Events], np.ndarray]]:
        return CountQuestion(0, steps - 1, Atom("page", "=", (name,))), lambda of: of["page"] == name

    return Known(configured("keys", domain, **tables), events, steps, [page(name) for name in names[:40]])
