"""Records of trips through ingest, blocks, the engine and out again, as `simulate` and the job run them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.stepper import Stepper
from agents.show.explain import explain
from agents.show.explain.parts import Roads
from agents.show.explain.render import render_text
from agents.show.explain.words import promise
from agents.show.view import view_of
from engines.core.contract import Release
from engines.core.registry import build_domain, build_engine
from schemas.blocks import Block
from schemas.config import Stream
from schemas.config.load import config_from_mapping
from schemas.errors import ConfigError
from schemas.events import TICK_HEADER, encode_tick
from schemas.releases import unframe_records


def stream(privacy: Mapping[str, Any] = {}, **options: Any) -> Stream:
    return Stream.model_validate(
        {
            "name": "trips",
            "engine": "trajectory",
            "source": "raw.trips",
            "privacy": {"epsilon": 1000.0, "unit": "user", "user": "u", "max_contributions": 2, **privacy},
            "time": {"field": "t", "format": "s", "start": "1970-01-01T00:00:00", "step": "1h", "clock": "replay"},
            "domain": {"kind": "trips", "trip": "n", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0], "end": "e"},
            "options": {"idle": "2h", "longest": "3h", "side": 8, **options},
        }
    )


def point(user: str, trip: object, time: int, at: float, **more: Any) -> bytes:
    return json.dumps({"u": user, "n": trip, "t": time, "x": at, "y": at, **more}).encode()


def blocks_of(values: list[list[bytes]], *, batch: int, privacy: Mapping[str, Any] = {}) -> list[Block]:
    """A partition's blocks: the records of each step, then its tick, in such batches; a new worker each step."""
    configured = stream(privacy)
    spec = SourceSpec.from_stream(configured, build_domain(configured), key=bytes(16), partitions=1)
    blocks: list[Block] = []
    offset = 0
    for step, records in enumerate(values):
        machine = PartitionIngest(spec, 0)
        for at, earlier in enumerate(blocks):
            machine.apply(Block.decode(earlier.encode()), at=at)
        tick = RawRecord(0, -1, None, b"", ((TICK_HEADER, encode_tick(step, row=0, source="t")),))
        raw = [RawRecord(0, -1, None, value) for value in records] + [tick]
        raw = [record._replace(offset=offset + at) for at, record in enumerate(raw)]
        for first in range(0, len(raw), batch):
            machine.take(raw[first : first + batch])
        offset += len(raw)
        block, _ = machine.seal()
        assert block is not None
        blocks.append(block)
    return blocks


VALUES = [
    [
        point("ann", 1, 10, 0.1),
        point("ann", 1, 20, 0.2),
        point("bob", 1, 30, 0.9),  # another user's trip of the same name
        point("ann", 2, 40, 0.5, e=True),
        point("ann", 3, 50, 0.6),  # one too many
        point("ann", "", 55, 0.6),
        point("ann", 1.5, 55, 0.6),
        point("ann", 1, 60, 7.0),
    ],
    [point("ann", 1, 3700, 0.3, e=True), point("ann", 3, 3800, 0.6), point("bob", 1, 3900, 0.8)],
    [],
    [],
]


def total(blocks: list[Block], reason: str) -> int:
    return sum(block.counts.get(reason, 0) for block in blocks)


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_trips_are_bounded_by_user_however_records_are_cut(batch: int) -> None:
    blocks = blocks_of(VALUES, batch=batch)
    assert total(blocks, "OVER_BOUND") == 2
    assert total(blocks, "WRONG_TYPE") == 2
    assert total(blocks, "OUTSIDE_DOMAIN") == 1
    names = np.concatenate([folded.keys[:, :3] for block in blocks for folded in block.steps.values()])
    assert len(np.unique(names, axis=0)) == 3
    whole = blocks_of(VALUES, batch=100)
    for left, right in zip(blocks, whole, strict=True):
        assert all(np.array_equal(left.steps[step].keys, right.steps[step].keys) for step in right.steps)


def released(configured: Stream, blocks: list[Block]) -> list[tuple[Release, list[dict[str, Any]]]]:
    stepper = Stepper.from_stream(configured, 1)
    for offset, block in enumerate(blocks):
        stepper.fold(offset, block)
    out = []
    for step in range(len(blocks)):
        candidate = stepper.compute(bytes([step]) * 32)
        records = [
            json.loads(r.value) for r in unframe_records(candidate.payload) if r.channel == "synthetic" and r.value
        ]
        assert stepper.release is not None
        out.append((stepper.release, records))
    return out


def test_a_trip_is_released_in_the_step_in_which_it_closes_with_the_raw_field_names() -> None:
    """At so large an epsilon numbers of trips are right."""
    steps = released(stream(), blocks_of(VALUES, batch=3))
    trips = [{record["n"] for record in records} for _, records in steps]
    assert [len(names) for names in trips] == [1, 1, 0, 1]
    assert all(set(record) == {"n", "point", "x", "y", "t"} for _, records in steps for record in records)
    for _, records in steps:
        for name in {record["n"] for record in records}:
            order = [record["point"] for record in records if record["n"] == name]
            assert order == list(range(len(order)))
    assert not trips[0] & trips[1]


def test_only_measurements_where_no_records_are_wanted() -> None:
    for release, records in released(stream(records=False), blocks_of(VALUES, batch=3)):
        assert not records
        assert release.measurements


def test_a_cap_on_steps_counts_trips_and_what_it_refuses_is_counted() -> None:
    """Of three trips that begin in step 0 the last one is refused, and begins in step 1; the others go on."""
    values = [[point("ann", trip, 10, 0.1) for trip in (1, 2, 3, 1, 3)], [point("ann", 3, 3700, 0.1)]]
    for cap, refused in ((None, 0), (2, 2)):
        blocks = blocks_of(values, batch=2, privacy={"max_contributions": 9, "max_per_step": cap})
        assert total(blocks, "OVER_BOUND") == refused
        assert sum(block.users[:, 2].tolist().count(1) for block in blocks) == (1 if cap else 0)


def test_a_delta_is_for_the_default_mode() -> None:
    document = stream().model_dump()
    document["privacy"]["delta"] = 1e-6
    assert build_engine(Stream.model_validate(document)).guarantee().delta == 1e-6
    with pytest.raises(ConfigError, match="uses no delta"):
        Stream.model_validate({**document, "mode": "paper"})


def test_both_roads_are_shown_and_which_has_less_noise() -> None:
    """With one trip a user, moves have less noise without a delta; with many of which few begin in a step, none has."""
    for most, cap, less in ((1, None, "pure"), (30, 1, "gaussian")):
        roads = Roads.of(stream({"epsilon": 1.0, "max_contributions": most, "max_per_step": cap}))
        assert roads is not None
        found = {name: roads.less(name) for name in roads.answers}
        assert found["one way out"] == less
        assert any("would give less noise everywhere" in told for told in roads.sentences()) == (cap is not None)


def test_a_delta_without_a_cap_on_steps_is_told_what_a_cap_would_do() -> None:
    for cap in (None, 1):
        configured = stream({"delta": 1e-6, "max_per_step": cap})
        told = " ".join(view_of(configured).remarks(configured))
        assert ("With max_per_step" in told) == (cap is None)


def test_small_data_are_warned_of_and_trips_are_called_trips() -> None:
    configured = stream()
    assert any("too small" in remark for remark in view_of(configured).remarks(configured))
    assert "at most 2 trips" in promise(configured)


def test_an_explanation_of_trips_speaks_of_trips() -> None:
    document = {"job": {"name": "j"}, "kafka": {"bootstrap": "nowhere:1"}, "streams": [stream().model_dump()]}
    text = render_text(explain(config_from_mapping(document)))
    assert "each trip 500" in text
    assert "by one trip" in text
    assert "too small" in text
    assert not re.search("(?i)event", text)
