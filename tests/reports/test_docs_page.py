"""What docs/reports.md says of figures is what the program says, and its pictures are there and small."""

from __future__ import annotations

import re

from benchmarks.pictures import IMAGES, PAGE, SHOWN, glossary, into, shown_streams


def test_the_page_explains_figures_as_the_program_does() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert into(page, glossary(shown_streams())) == page, "run `make pictures ARGS=--no-demo`"


def test_its_pictures_are_small_and_have_words() -> None:
    shown = re.findall(r"!\[([^]]*)\]\(images/([^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert {name.partition(".")[0] for _, name in shown} == {target for _, _, target in SHOWN}
    for words, name in shown:
        assert len(words) > 30
        assert (IMAGES / name).stat().st_size < 150_000
