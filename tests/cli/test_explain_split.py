"""`explain` of a split stream: one stream as it is configured, with its parts and one total."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from agents.cli.output import chosen_stream
from agents.protocol.partitioner import home_partition
from agents.show.explain import explain
from agents.show.explain.render import render_page, render_text
from schemas.config import Config, parse_config
from schemas.errors import PrivstreamError
from tests.schemas.test_config_split import EVENT, SPLIT, USER, config, written

SCALE = Path(__file__).parents[2] / "docs" / "scale.md"


def test_it_is_one_stream_with_its_parts() -> None:
    explanation = explain(config(written(), written(name="other", split="")))
    assert [stream.name for stream in explanation.streams] == ["taxi", "other"]
    split = explanation.streams[0].split
    assert split is not None
    assert split.parts == {"taxi-manhattan": ("Manhattan",), "taxi-rest": ("Bronx", "Queens")}
    assert explanation.streams[1].split is None
    # Beside another stream of the topic the parts count once for an event.
    assert [shared.names for shared in explanation.shared] == [("taxi", "other")]
    text = render_text(explanation)
    for said in ("Bronx, Queens", "all parts together cost one event epsilon = 1 for ever"):
        assert said in re.sub(r"\s+", " ", text)
        assert said in render_page(explanation)


@pytest.mark.parametrize(
    ("privacy", "told", "parts"),
    [
        (EVENT, "cost one event epsilon = 1 for ever", 1),
        (USER, "cost one user epsilon = 2 for ever", 2),
        (f'{USER}\nper = "30d"', "cost one user epsilon = 2 in one aligned period, epsilon = 4 in any 30d in a row", 2),
    ],
)
def test_the_total_is_that_of_the_unit_over_all_parts(privacy: str, told: str, parts: int) -> None:
    explanation = explain(config(written(privacy=privacy)))
    [stream] = explanation.streams
    assert told in stream.alerts[0]
    assert ("pays in each" if parts > 1 else "An event is in one of the 2 parts of taxi") in stream.promise
    assert stream.split is not None
    assert stream.split.price.epsilon == parts * stream.budget.unit_epsilon == Fraction(parts)
    assert explanation.as_json()["streams"][0]["split"]["disjoint"] == (parts == 1)


def test_a_split_stream_is_chosen_by_its_own_name() -> None:
    """Where its parts are alike: what is explained, and the source that is written. Elsewhere a part is a stream."""
    split = config(written())
    for name in (None, "taxi", "taxi-rest"):
        assert chosen_stream(split, name, as_configured=True).name == "taxi-manhattan"
    assert chosen_stream(split, "taxi-rest").name == "taxi-rest"
    for name, streams in (("taxi", split), (None, split), (None, config(written(), written(name="other", split="")))):
        with pytest.raises(PrivstreamError, match="taxi-manhattan, taxi-rest"):
            chosen_stream(streams, name)
    with pytest.raises(PrivstreamError, match="one of taxi, other"):
        chosen_stream(config(written(), written(name="other", split="")), None, as_configured=True)


def test_parts_that_share_a_partition_are_named() -> None:
    [stream] = explain(config(written(SPLIT.replace('rest = ["Bronx"', 'far = ["Harlem"], rest = ["Bronx"')))).streams
    split = stream.split
    assert split is not None
    homes = [home_partition(name, 4) for name in split.parts]
    crowded = {name for name, home in zip(split.parts, homes, strict=True) if homes.count(home) > 1}
    said = split.crowded() or ""
    assert {name for name in split.parts if name in said} == crowded


def example() -> Config:
    """The stream of docs/scale.md that is split."""
    [block] = [each for each in re.findall(r"```toml\n(.*?)```", SCALE.read_text(), re.DOTALL) if "split = " in each]
    return parse_config('[kafka]\nbootstrap = "localhost:9092"\n' + block)


def test_the_example_of_the_documentation_is_one() -> None:
    [stream] = explain(example()).streams
    assert stream.split is not None
    assert stream.split.price.epsilon == 1
    assert stream.split.crowded() is None, "its parts have partitions, and cores, of their own"
