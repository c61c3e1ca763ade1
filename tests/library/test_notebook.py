"""The notebook of examples/ runs from its first cell to its last, and shows what it showed when it was committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = [
    pytest.mark.seconds(8),
    # Of zmq and the kernel's own shutdown, in whichever test the collector runs.
    pytest.mark.filterwarnings("ignore:.*(zmq|Proactor|kernel):RuntimeWarning"),
]


def shown(notebook: Any) -> list[list[set[str]]]:
    """Kinds of what each cell of code shows. What it says changes with the noise."""
    return [
        [set(output.get("data", {output.get("name"): ""})) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_the_notebook_runs() -> None:
    # They take seconds to load: not whenever tests are collected.
    import nbformat
    from nbclient import NotebookClient

    committed = nbformat.read(EXAMPLES / "library.ipynb", as_version=4)
    nbformat.validate(committed)
    run = nbformat.read(EXAMPLES / "library.ipynb", as_version=4)
    for cell in run.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    NotebookClient(run, timeout=120, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    assert shown(run) == shown(committed)
    assert sum(map(len, shown(run))) >= 9
    said = nbformat.writes(run)
    assert "step 0 is released, and a step has one answer" in said
