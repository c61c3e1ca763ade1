"""The order of the site. A page that nobody placed here appears under "More", so nothing is lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

HEADINGS: dict[str, tuple[str, ...]] = {
    "Begin": ("first-hour.md", "choosing.md", "library.md"),
    "Guides": (
        "consumers.md",
        "operations.md",
        "privacy-officer.md",
        "formats.md",
        "time.md",
        "reports.md",
        "live-page.md",
        "security.md",
        "scale.md",
    ),
    "Engines": ("engines/",),
    "The guarantee": ("guarantee.md",),
    "Reference": ("reference/",),
    "Inside": ("architecture.md", "notes/", "references.md", "repository/"),
}
"""Heading -> pages, and folders with all that is in them, in this order."""
FOLDERS = {"notes/": "Choices", "repository/": "Beside the docs"}
"""Folders that are a heading of their own below theirs."""


def navigation(pages: Iterable[str]) -> list[Any]:
    """Return the tree as `nav` of mkdocs.yml has it. Args: pages: all there are, by their place below docs/."""
    left = sorted(set(pages) - {"index.md"})
    tree: list[Any] = ["index.md"]
    for heading, places in HEADINGS.items():
        below: list[Any] = []
        for place in places:
            found = [page for page in left if page == place or (place.endswith("/") and page.startswith(place))]
            left = [page for page in left if page not in found]
            if found:
                below += [{FOLDERS[place]: found}] if place in FOLDERS else found
        if below:
            tree.append({heading: below[0] if len(below) == 1 and isinstance(below[0], str) else below})
    return [*tree, *([{"More": left}] if left else [])]
