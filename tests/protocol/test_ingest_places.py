"""Streams that share a source have one offset in the group; each goes on where its own blocks end."""

from __future__ import annotations

import hashlib

import pytest

from agents.protocol.ingest.places import MOST_BYTES, NEW, OTHERS, Places, Starts, starts
from schemas.errors import GapError


def judged(committed: int | None, places: Places, beginning: int = 0, /, **ends: int | None) -> Starts:
    return starts(ends, committed=committed, places=places, beginning=beginning, where="raw-0", group="g")


@pytest.mark.parametrize("streams", [0, 1, 300])
def test_some_hundred_streams_on_one_source_are_noted(streams: int) -> None:
    places = Places({f"trips-of-district-{number:03}": 10_000_000 + 7 * number for number in range(streams)})
    text = places.encode()
    assert 0 < len(text) <= MOST_BYTES
    assert Places.decode(text) == places


def test_more_places_than_a_broker_takes_are_not_noted() -> None:
    names = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(200)]
    assert Places(dict.fromkeys(names, 0)).encode() == ""


@pytest.mark.parametrize(
    "text", [None, "", "of another program", "[1]", '{"v": 2, "next": {}}', "7", "z", "zz", "z\u00e4", "zc"]
)
def test_what_others_wrote_there_says_nothing(text: str | None) -> None:
    assert Places.decode(text) == {}


def test_a_stream_that_was_left_out_goes_on_where_it_was() -> None:
    assert judged(20, Places(a=8, b=20), a=8, b=20) == Starts({"a": 8, "b": 20}, {}, 20)


@pytest.mark.parametrize("end", [4, 7, 9, 12, 20])
def test_blocks_that_end_elsewhere_than_was_noted_are_refused_and_the_other_stream_goes_on(end: int) -> None:
    """At 20 too, where the group stands: blocks that nobody committed with it are somebody else's."""
    found = judged(20, Places(a=8, b=20), a=end, b=20)
    assert found.offsets == {"b": 20}
    assert isinstance(found.refused["a"], GapError)


def test_without_a_note_a_stream_that_stays_behind_is_refused() -> None:
    """Lost blocks look the same."""
    found = judged(20, Places(), a=8, b=20)
    assert list(found.refused) == ["a"]
    assert "Somebody changed the offsets" in str(found.refused["a"])


def test_who_is_not_named_stands_where_the_group_stood_when_places_were_first_noted() -> None:
    found = judged(20, Places({OTHERS: 8, "b": 20}), a=8, b=20)
    assert found.offsets == {"a": 8, "b": 20}


@pytest.mark.parametrize(("places", "lost"), [(Places(a=8), True), (Places(b=8), False), (Places(), True)])
def test_a_stream_without_blocks_is_new_only_where_nothing_says_that_it_had_some(places: Places, lost: bool) -> None:
    """Otherwise its users would be counted again from nothing."""
    found = judged(8, places, a=None)
    assert bool(found.refused) == lost
    assert found.offsets == ({} if lost else {"a": 8})


def test_the_first_start_begins_with_the_topic() -> None:
    assert judged(None, Places(), 5, a=None).offsets == {"a": 5}


def test_a_stream_without_blocks_goes_on_where_it_was_to_begin() -> None:
    """It stopped on its first records, and another stream went on."""
    found = judged(30, Places({NEW + "a": 4, "b": 30}), a=None, b=30)
    assert found.offsets == {"a": 4, "b": 30}


def test_one_that_is_new_beside_it_begins_where_the_others_are() -> None:
    found = judged(30, Places({NEW + "a": 4, "b": 30}), a=None, b=30, c=None)
    assert found.offsets == {"a": 4, "b": 30, "c": 30}


def test_offsets_that_have_expired_are_not_missed() -> None:
    """Nor by a stream that was left out meanwhile: each one's own blocks say where to go on."""
    found = judged(None, Places(), a=8, b=20, c=None)
    assert found == Starts({"a": 8, "b": 20, "c": 20}, {}, 20)


def test_who_was_left_out_when_offsets_expired_and_was_not_there_since_goes_on_where_its_blocks_end() -> None:
    assert judged(30, Places(b=30), a=8, b=30).offsets == {"a": 8, "b": 30}
