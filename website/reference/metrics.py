"""Every metric, read from the sources that make them: some exist only while their worker does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from website.reference.source import cell, modules, table

MAKERS = {
    "Counter": "counter",
    "Gauge": "gauge",
    "Histogram": "histogram",
    "GaugeMetricFamily": "gauge",
    "CounterMetricFamily": "counter",
    "HistogramMetricFamily": "histogram",
}


def page() -> str:
    """Return one table, by name."""
    rows = [
        [f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), cell(text)]
        for name, kind, labels, text in sorted(found())
    ]
    return (
        "# Metrics\n\nServed at `/metrics` where `http_port` is set. For operators only: what is "
        "called PRIVATE is a count of private records, or follows from one. Counters end in `_total`. What to watch, and alerts: "
        "[operations](../operations.md#probes-and-metrics).\n\n"
        + table(["metric", "kind", "labels", "what it is"], rows)
    )


def found() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name, kind, labels and help of each."""
    for tree in modules('"privstream_'):
        for node in ast.walk(tree):
            if isinstance(node, ast.Tuple) and len(node.elts) >= 2:
                # Rows of a table from which one loop makes gauges of source partitions.
                name, text = (_constant(element) for element in node.elts[:2])
                if isinstance(name, str) and name.startswith("privstream_") and isinstance(text, str):
                    yield name, "gauge", ("stream", "partition"), text
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in MAKERS and len(node.args) >= 2:
                name, text = (_constant(argument) for argument in node.args[:2])
                if isinstance(name, str) and name.startswith("privstream_") and isinstance(text, str):
                    labels = node.args[2] if len(node.args) > 2 else None
                    labels = next((each.value for each in node.keywords if each.arg == "labels"), labels)
                    kind = MAKERS[node.func.id]  # type: ignore[attr-defined]
                    yield (f"{name}_total" if kind == "counter" else name), kind, tuple(_constant(labels) or ()), text


def _constant(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None
