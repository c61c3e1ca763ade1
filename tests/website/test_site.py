"""The site builds without a warning, from the pages as they are, and needs nothing of another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "mkdocs.yml"
LARGEST_PICTURE = 150_000
"""Bytes of a picture that is made for the site."""

pytestmark = pytest.mark.seconds(1)


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", site],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(CONFIG, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


class Loaded(HTMLParser):
    """Addresses that a page loads by itself, which links for people are not."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (name in ("src", "srcset", "data", "poster") or (name == "href" and tag in ("link", "use"))):
                self.found.append(value)


def loaded(text: str) -> list[str]:
    parser = Loaded()
    parser.feed(text)
    return parser.found


def foreign(addresses: list[str]) -> list[str]:
    return [address for address in addresses if re.match(r"(?:[a-z]+:)?//", address)]


def pages(site: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(site.rglob("*.html")):
        yield path.relative_to(site).as_posix(), path.read_text(encoding="utf-8")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = {name: foreign(loaded(text)) for name, text in pages(site)}
    assert len(found) > 40
    assert {name: addresses for name, addresses in found.items() if addresses} == {}
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert not any(re.search(r"url\(['\"]?(?:https?:)?//|@import", style) for style in styles)


def test_what_a_page_loads_is_there(site: Path) -> None:
    lacking = [
        (name, address)
        for name, text in pages(site)
        for address in loaded(text)
        if not address.startswith(("data:", "#")) and not address.startswith("/")
        if not (site / name).parent.joinpath(address.partition("?")[0]).is_file()
    ]
    assert lacking == []


def test_every_page_is_in_the_search_and_search_needs_no_server(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = ")
    lacking = [name for name, _ in pages(site) if name != "404.html" and f'"location":"{name}' not in index]
    assert lacking == []


def test_every_page_of_the_docs_is_in_the_site(site: Path) -> None:
    docs = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {page.as_posix() for page in docs if not (site / page).is_file()} == set()


def test_pictures_of_the_site_are_small() -> None:
    pictures = list((ROOT / "docs" / "images").rglob("*.png"))
    assert {path.name: path.stat().st_size for path in pictures if path.stat().st_size > LARGEST_PICTURE} == {}


FAULTS = {"gone.md": "[gone](gone.md)", "#no-such-part": "[part](#no-such-part)", "none.png": "![picture](none.png)"}


def test_broken_links_are_caught(tmp_path: Path) -> None:
    """The same settings, of one page without hooks."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Begin\n\n" + "\n\n".join(FAULTS.values()) + "\n")
    settings = re.sub(r"hooks:\n.*?\n\n", "", CONFIG.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "mkdocs.yml").write_text(settings.replace("extra_css:\n  - website.css\n", ""))
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    told = [line for line in (done.stdout + done.stderr).splitlines() if "WARNING" in line]
    assert [fault for fault in FAULTS if not any(fault in line for line in told)] == []


def test_what_is_loaded_from_elsewhere_is_found() -> None:
    text = (
        '<script src="https://a.example/x.js"></script><link href="//b.example/y.css"><a href="https://c.example">c</a>'
    )
    assert foreign(loaded(text)) == ["https://a.example/x.js", "//b.example/y.css"]
