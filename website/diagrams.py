"""The drawings of docs/architecture.md as SVG: a site would need a script of another host for them.

A flowchart from the top down: `a --> b & c`, and `a[label<br>label]`. A box stands one row below the lowest that leads
to it, and as near as may be to the middle of those.
"""

from __future__ import annotations

import html
import re
from statistics import fmean

LINE, ROW, GAP, PAD, LETTER = 18, 44, 26, 12, 7.6
_NODE = re.compile(r"^(\w+)(?:\[+([^\]]*)\]+)?$")


def as_svg(text: str) -> str:
    """Return a drawing as HTML, between empty lines."""
    labels: dict[str, list[str]] = {}
    edges: list[tuple[str, str]] = []
    for line in text.splitlines():
        if "-->" not in line:
            continue
        sources, _, targets = line.partition("-->")
        ends = [[_named(part, labels) for part in side.split("&")] for side in (sources, targets)]
        edges += [(source, target) for source in ends[0] for target in ends[1]]
    rows = _rows(labels, edges)
    widths = {name: 2 * PAD + LETTER * max(map(len, lines)) for name, lines in labels.items()}
    heights = {name: 2 * PAD + LINE * len(lines) - 4 for name, lines in labels.items()}
    total = max(sum(widths[name] + GAP for name in row) for row in rows) + GAP
    places: dict[str, tuple[float, float]] = {}
    top = GAP
    for row in rows:
        left = (total - sum(widths[name] + GAP for name in row) + GAP) / 2
        for name in row:
            places[name] = left + widths[name] / 2, top
            left += widths[name] + GAP
        top += max(heights[name] for name in row) + ROW
    parts = [
        f'<svg viewBox="0 0 {total:.0f} {top - ROW + GAP:.0f}" width="{total:.0f}" role="img">'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>'
    ]
    for source, target in edges:
        (x, y), (to_x, to_y) = places[source], places[target]
        y += heights[source]
        bend = (to_y - y) / 2
        parts.append(
            f'<path d="M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}" '
            'marker-end="url(#arrow)"/>'
        )
    for name, lines in labels.items():
        x, y = places[name]
        width, height = widths[name], heights[name]
        parts.append(f'<rect x="{x - width / 2:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height}" rx="5"/>')
        for number, line in enumerate(lines):
            at = y + PAD + LINE * number + 10
            parts.append(f'<text x="{x:.0f}" y="{at:.0f}" text-anchor="middle">{html.escape(line)}</text>')
    return '\n<div class="drawing">' + "".join(parts) + "</svg></div>\n\n"


def _named(part: str, labels: dict[str, list[str]]) -> str:
    found = _NODE.match(part.strip())
    assert found is not None, f"a drawing with {part!r} in it, which website/diagrams.py cannot draw"
    if found[2] or found[1] not in labels:
        labels[found[1]] = (found[2] or found[1]).split("<br>")
    return found[1]


def _rows(names: dict[str, list[str]], edges: list[tuple[str, str]]) -> list[list[str]]:
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for source, target in edges:
            depth[target] = max(depth[target], depth[source] + 1)
    rows = [[name for name in names if depth[name] == row] for row in range(max(depth.values()) + 1)]
    place = {name: number / max(1, len(row) - 1) for row in rows for number, name in enumerate(row)}
    for row in rows[1:]:
        row.sort(key=lambda name: fmean([place[source] for source, target in edges if target == name] or [0.5]))
        place.update({name: (number + 0.5) / len(row) for number, name in enumerate(row)})
    return rows
