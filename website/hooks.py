"""What MkDocs runs while it builds the site: adds pages from the code, and files beside docs/ that pages link to.

Pages stay plain Markdown that a code forge shows as well. What differs is made alike here: links that leave docs/
lead to a copy below repository/, and lists that follow a line at once get the empty line that Python-Markdown needs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from website import index, reference  # noqa: E402
from website.diagrams import as_svg  # noqa: E402
from website.navigation import navigation  # noqa: E402

COPIES = "repository"
_LINK = re.compile(r"(!?\[[^\]\n]*\]\()([^)\s]+)(\))")
_FENCE = re.compile(r"^( *)(```|~~~)")
_MARKED = re.compile(r"^(```\w+) .*$", re.MULTILINE)
"""A fence with words for the tests that run it, such as the name of its file; the site's Markdown takes it for none."""
_ITEM = re.compile(r"^ {0,3}(?:[-*+]|\d+[.)]) +\S")
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add generated pages, the site's own style sheet, and copies of what pages link to outside of docs/."""
    for name, text in {**reference.pages(), "index.md": index.page()}.items():
        files.append(File.generated(config, name, content=text))
    for name, own in (("website.css", "website.css"), ("assets/iframe-worker.js", "iframe-worker.js")):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / "website" / own)))
    queue = [(f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    queue.append(("README.md", "[](CONTRIBUTING.md) [](CHANGELOG.md)"))
    copied: set[str] = set()
    while queue:
        page, text = queue.pop()
        for target in _outside(page, text):
            if target in copied:
                continue
            copied.add(target)
            path = ROOT / target
            if path.suffix == ".md":
                content = path.read_text(encoding="utf-8")
                files.append(File.generated(config, f"{COPIES}/{target}", content=content))
                queue.append((target, content))
            else:
                files.append(File.generated(config, f"{COPIES}/{target}", abs_src_path=str(path)))
    config.nav = navigation(file.src_uri for file in files.documentation_pages())
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page as Python-Markdown has to see it."""
    source = page.file.src_uri
    place = source.removeprefix(f"{COPIES}/") if source.startswith(f"{COPIES}/") else f"docs/{source}"
    markdown = _LINK.sub(lambda found: _seen(place, source, found), markdown)
    markdown = _DIAGRAM.sub(lambda found: as_svg(found[1]), markdown)
    markdown = _MARKED.sub(r"\1", markdown)
    return "\n".join(_with_lists(markdown.splitlines())) + "\n"


def _outside(page: str, text: str) -> Iterator[str]:
    """Yield files outside of docs/ that a page links to, by their place in the repository."""
    for found in _LINK.finditer(text):
        target = _place(page, found[2])
        if target is not None and not target.startswith("docs/") and (ROOT / target).is_file():
            yield target


def _place(page: str, link: str) -> str | None:
    """Return the file of the repository to which a link in one of its files leads; None where it leads elsewhere."""
    if re.match(r"[a-z]+:|#|/", link):
        return None
    path = os.path.normpath(os.path.join(os.path.dirname(page), link.partition("#")[0]))  # noqa: PTH118, PTH120
    return None if path.startswith("..") else path


def _seen(place: str, source: str, found: re.Match[str]) -> str:
    """Return a link as the site has it. A folder is nothing to open there, so its name alone is left."""
    link = found[2]
    target = _place(place, link)
    if target is None or not (ROOT / target).exists():
        return found[0]
    if (ROOT / target).is_dir():
        return found[1].removeprefix("[").removesuffix("](")
    inside = target.removeprefix("docs/") if target.startswith("docs/") else f"{COPIES}/{target}"
    anchor = link.partition("#")[1] + link.partition("#")[2]
    return found[1] + os.path.relpath(inside, os.path.dirname(source) or ".") + anchor + found[3]  # noqa: PTH120


def _with_lists(lines: list[str]) -> Iterator[str]:
    """Yield the lines with an empty one before a list that begins right below a paragraph."""
    fenced, before = False, ""
    for line in lines:
        fenced ^= bool(_FENCE.match(line))
        text = before.strip() and not before.startswith((" ", "|", "#", ">", "<")) and not _ITEM.match(before)
        if not fenced and text and _ITEM.match(line):
            yield ""
        yield line
        before = line


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Any) -> dict[str, Any]:
    """Leave out the link to a forge to edit a page: the site is built from a checkout, wherever that is."""
    page.edit_url = None
    return context
