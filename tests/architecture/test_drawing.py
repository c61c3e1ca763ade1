"""The drawing in docs/architecture.md is that of the imports. Part of `make check`."""

from __future__ import annotations

import pytest

from tests.architecture import drawing
from tests.architecture.rules import imports


def test_the_page_shows_the_tree_as_it_is() -> None:
    page = drawing.PAGE.read_text(encoding="utf-8")
    assert drawing.drawn_into(page, drawing.drawings()) == page, "run `make drawing`, and look at what it draws"


def test_every_room_is_drawn_and_described() -> None:
    page = drawing.PAGE.read_text(encoding="utf-8")
    drawn = drawing.drawings()
    for package in drawing.DRAWINGS:
        for room in imports().find_children(package):
            name = room.rsplit(".", maxsplit=1)[-1]
            assert name in drawn[package].replace("<br>", " ").replace("[", " ").replace("]", " ").split(), room
            assert f"`{package}/{name}`" in page or f"`{package}/{name}.py`" in page, f"{room} has no line in the page"


def test_an_arrow_that_others_imply_is_left_out() -> None:
    direct = {"a.top": {"a.middle", "a.low"}, "a.middle": {"a.low"}}
    assert drawing.reduced(direct) == {"a.top": {"a.middle"}, "a.middle": {"a.low"}}
    with pytest.raises(ValueError, match=r"in a circle: a\.low, a\.middle"):
        drawing.reduced({**direct, "a.low": {"a.middle"}})


def test_a_planted_import_changes_the_drawing() -> None:
    edges = [("agents.kafka.clients", "schemas.topics"), ("agents.show.charts", "agents.show.text")]
    before = drawing.mermaid(drawing.arrows(edges, drawn="agents"))
    planted = ("agents.kafka.clients", "agents.show.text")
    after = drawing.mermaid(drawing.arrows([*edges, planted], drawn="agents"))
    assert before != after
    assert "kafka --> show & schemas" in after


def test_a_page_without_a_place_for_a_drawing_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the drawing of agents"):
        drawing.drawn_into("nothing", {"agents": "flowchart TD"})
