"""No text names what is not there: pages, headings, files, modules, `make` targets, papers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve()
OURS = "agents|benchmarks|engines|schemas|tests"
REFERENCES = ROOT / "docs" / "references.md"

LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)">')
PAGE = re.compile(r"\bdocs/[\w/.-]*\w")
SECTION = re.compile(r"docs/(\w+)\.md,? sections? (\d+\w?)(?: and (\d+\w?))?")
QUOTED_SECTION = re.compile(r"docs/(\w+)\.md, \\?\"([^\"\\]+)\\?\"")
PLACE = re.compile(rf"`((?:{OURS}|docs|deploy|examples|requirements)/[\w/.*<>-]*\w)`")
FILE = re.compile(r"`((?:\w+/)*\w+\.py)\b")
MODULE = re.compile(rf"`((?:{OURS})(?:\.\w+)+)(?:\(\))?`")
MAKE = re.compile(r"`make ([a-z][\w-]*)")
KEY = re.compile(r"\[([a-z]+\d{4}[a-z]?)\]")
LOOSE = re.compile(r"\b[Pp]aper 0\d\d\b|\b(?:algorithms|measured|architecture|style|house)\.md section")


def tracked(*suffixes: str) -> list[str]:
    """Names of all tracked files of these kinds."""
    patterns = [f"*{suffix}" for suffix in suffixes]
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


def texts(*suffixes: str) -> Iterator[tuple[str, str]]:
    """Every tracked file of these kinds: its name and what it says."""
    for name in tracked(*suffixes):
        if (ROOT / name).is_file() and ROOT / name != HERE:
            yield name, (ROOT / name).read_text(encoding="utf-8")


def anchors(page: str) -> set[str]:
    """Of a page's headings, as code forges make them, and those set by hand."""
    found = set(ANCHOR.findall(page))
    for heading in HEADING.findall(page):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        found.add(plain.replace(" ", "-"))
    return found


def resolved(name: str) -> bool:
    """Whether a dotted name is a module, or something that its module's text has."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:cut])
        if base.with_suffix(".py").is_file() or base.is_dir():
            file = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            return all(re.search(rf"\b{re.escape(part)}\b", text) for part in parts[cut:])
    return False


def wrong_links() -> Iterator[str]:
    pages = dict(texts(".md"))
    for name, text in pages.items():
        for target in (one or other for one, other in LINK.findall(text)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (ROOT / name).parent / path if path else ROOT / name
            if not file.exists():
                yield f"{name}: {target}: no such file"
            elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
                yield f"{name}: {target}: no such heading"


def wrong_pages() -> Iterator[str]:
    """A note may be named by its number alone."""
    for name, text in texts(".md", ".py", ".toml", ".yml"):
        for page in PAGE.findall(text):
            if not (ROOT / page).exists() and not list(ROOT.glob(f"{page}*.md")):
                yield f"{name}: {page}"
        for page, *numbers in SECTION.findall(text):
            headings = HEADING.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
            for number in filter(None, numbers):
                if not any(heading.startswith(f"{number}. ") for heading in headings):
                    yield f"{name}: docs/{page}.md has no section {number}"
        for page, title in QUOTED_SECTION.findall(text):
            if "{" not in title and title not in HEADING.findall((ROOT / "docs" / f"{page}.md").read_text("utf-8")):
                yield f'{name}: docs/{page}.md has no section "{title}"'


def wrong_places() -> Iterator[str]:
    for name, text in texts(".md", ".py"):
        for place in PLACE.findall(text):
            if "<" not in place and not list(ROOT.glob(place)) and not place.startswith("examples/data"):
                yield f"{name}: {place}"
        for module in MODULE.findall(text):
            if not resolved(module):
                yield f"{name}: {module}"


def wrong_files() -> Iterator[str]:
    """Files that are named without all of their path."""
    there = [f"/{name}" for name in tracked(".py")]
    for name, text in texts(".md"):
        yield from (
            f"{name}: {file}" for file in FILE.findall(text) if not any(at.endswith(f"/{file}") for at in there)
        )


def wrong_targets() -> Iterator[str]:
    made = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for name, text in texts(".md", ".py", ".toml", ".yml"):
        yield from (f"{name}: make {target}" for target in MAKE.findall(text) if target not in made)


def wrong_papers() -> Iterator[str]:
    known, cited = set(ANCHOR.findall(REFERENCES.read_text(encoding="utf-8"))), set[str]()
    for name, text in texts(".md", ".py"):
        if ROOT / name == REFERENCES:
            continue
        keys = set(KEY.findall(text))
        cited |= keys
        yield from (f"{name}: [{key}] is not in docs/references.md" for key in sorted(keys - known))
        yield from (f"{name}: {loose}" for loose in LOOSE.findall(text))
    yield from (f"docs/references.md: nobody cites [{key}]" for key in sorted(known - cited))


@pytest.mark.parametrize("wrong", [wrong_links, wrong_pages, wrong_places, wrong_files, wrong_targets, wrong_papers])
def test_what_is_named_is_there(wrong: type[Iterator[str]]) -> None:
    found = list(wrong())
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("wrong", "planted"),
    [
        (wrong_links, "[here](nowhere.md) [there](#no-such-heading)"),
        (wrong_pages, "see docs/" + "nowhere.md and docs/guarantee.md" + " section 99"),
        (wrong_places, "`agents" + "/nowhere.py` and `agents" + ".nowhere.thing`"),
        (wrong_files, "`nowhere.py` and `held/nowhere.py:thing`"),
        (wrong_targets, "`make " + "nothing`"),
        (wrong_papers, "[nobody" + "1999]"),
    ],
)
def test_what_is_planted_is_found(monkeypatch: pytest.MonkeyPatch, wrong: type[Iterator[str]], planted: str) -> None:
    monkeypatch.setitem(globals(), "texts", lambda *_: iter([("README.md", planted)]))
    assert any("README.md" in found for found in wrong())
