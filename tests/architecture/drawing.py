"""Draw how the rooms stand above each other: `make drawing` writes it into docs/architecture.md, from the imports.

A room is a folder or module of `agents` or `engines`, or all of `schemas`. An arrow means "imports". One that others
imply is left out: where a room reaches a lower one through a third, the direct arrow would only hide the order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping

from tests.architecture.rules import ROOT, imports, ours

PAGE = ROOT / "docs" / "architecture.md"
DRAWINGS = ("agents", "engines")
"""What is drawn room by room, each in a drawing of its own; what stands below it is one box."""

Arrows = Mapping[str, set[str]]
"""Room -> the rooms that it imports."""


def room_of(module: str, *, drawn: str) -> str:
    """The box of a module in the drawing of `drawn`: the name of its first room."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == drawn else parts[0]


def arrows(edges: Iterable[tuple[str, str]], *, drawn: str) -> dict[str, set[str]]:
    """Between boxes, of imports between modules: of all that `drawn` and what stands below it have."""
    found: dict[str, set[str]] = {}
    for importer, imported in edges:
        upper, lower = room_of(importer, drawn=drawn), room_of(imported, drawn=drawn)
        found.setdefault(upper, set()).update({lower} - {upper})
    start = {room for room in found if room.startswith(f"{drawn}.")}
    shown = start.union(*(reach(room, found) for room in start))
    return {room: lower for room, lower in found.items() if room in shown}


def reach(room: str, direct: Arrows) -> set[str]:
    """Every room below this one."""
    seen: set[str] = set()
    waiting = [room]
    while waiting:
        new = direct.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return seen


def height(room: str, direct: Arrows) -> int:
    """How many rooms stand below one another under this one."""
    return max((1 + height(low, direct) for low in direct.get(room, ())), default=0)


def reduced(direct: Arrows) -> dict[str, set[str]]:
    """Without the arrows that others imply. Raises: ValueError if rooms import each other in a circle."""
    if circle := sorted(room for room in direct if room in reach(room, direct)):
        raise ValueError(f"imported in a circle: {', '.join(circle)}")
    return {
        room: {low for low in lower if not any(low in reach(other, direct) for other in lower)}
        for room, lower in direct.items()
    }


def mermaid(direct: Arrows) -> str:
    """A drawing as text that code forges render: one line for each room, from the top down."""
    arrows_left = reduced(direct)
    order = sorted({*direct, *(low for lower in direct.values() for low in lower)})
    order.sort(key=lambda room: -height(room, direct))
    lines, named = ["flowchart TD"], set[str]()

    def box(room: str) -> str:
        """With its label, where it differs from the name, at its first mention. Whole packages have another shape."""
        name = room.rsplit(".", maxsplit=1)[-1]
        if room in named:
            return name
        named.add(room)
        return name if "." in room else f"{name}[[{name}]]"

    for room in order:
        upper, lower = box(room), arrows_left.get(room, set())
        if lower:
            lines.append(f"    {upper} --> {' & '.join(map(box, sorted(lower, key=order.index)))}")
        elif upper != room.rsplit(".", maxsplit=1)[-1]:
            lines.append(f"    {upper}")
    return "\n".join(lines)


def drawings() -> dict[str, str]:
    """Name -> drawing, of the tree as it is."""
    graph = imports()
    modules = ours()
    edges = [(upper, lower) for upper in modules for lower in graph.find_modules_directly_imported_by(upper)]
    inside = [(upper, lower) for upper, lower in edges if lower in set(modules)]
    return {drawn: mermaid(arrows(inside, drawn=drawn)) for drawn in DRAWINGS}


def drawn_into(page: str, new: Mapping[str, str]) -> str:
    """The page with these drawings between its marks. Raises: ValueError if it lacks a mark."""
    for name, drawing in new.items():
        begin, end = f"<!-- drawing of {name}: make drawing -->\n", f"<!-- end of {name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"no place for the drawing of {name}: {begin}... {end}")
        page = f"{before}{begin}```mermaid\n{drawing}\n```\n{end}{after}"
    return page


def main() -> Iterator[str]:
    """Write the drawings, and say what changed."""
    before = PAGE.read_text(encoding="utf-8")
    after = drawn_into(before, drawings())
    PAGE.write_text(after, encoding="utf-8")
    yield f"{PAGE.relative_to(ROOT)}: {'as it was' if after == before else 'drawn anew'}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in main())
