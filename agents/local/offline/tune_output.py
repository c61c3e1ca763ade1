"""What `tune` found, as words, a table, JSON, CSV and a page. All of it holds true values."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agents.local.offline.rows.files import FileError
from agents.local.offline.tune import NOT_COVERED, TRUE_VALUES, ErrorSplit, Recommendation, TuneCell
from agents.local.offline.tune_run import Tuned
from agents.show.report import ErrorCurves, TunePage, render_tune
from agents.show.view import Term

WARNINGS = (NOT_COVERED, TRUE_VALUES)
_PARTS = ("bias", "noise", "total")


def warnings(tuned: Tuned) -> tuple[str, ...]:
    """What whoever reads the figures must know; first, where there are any, which rows are in none of them and why."""
    end = "" if tuned.what_to_do.endswith("?") else "."
    refused = f"Of {tuned.rows:,} rows {tuned.refusals}. What to do: {tuned.what_to_do}{end}"
    return (*([refused] if tuned.refused else []), *WARNINGS)


def about(tuned: Tuned) -> tuple[str, str]:
    """What the figures are, in two sentences."""
    unit = f", in {tuned.unit}" if tuned.unit not in ("", "%") else ""
    return (
        f"Errors{unit} are {tuned.compared}, of the release against the whole truth. In brackets: bias, of what the "
        "bound lets through, without noise, against the whole truth; and noise, of the release against what the bound "
        "lets through. The two do not add up to the error.",
        f"A contribution is one {tuned.contribution}. Accepted is the share of usable rows, of all steps and of the "
        "first and last third of them.",
    )


def explained(tuned: Tuned) -> list[Term]:
    """What the errors in a table or a picture are, and what they are split in."""
    return [Term(name, meaning) for name, meaning in tuned.explained.items()] + [
        Term(
            "bias", "The error of what the bound lets through, without any noise: it drops events of users with many."
        ),
        Term("noise", "The error of the release against what the bound lets through."),
        Term("max_contributions", "The bound: how many contributions of one user count. Further ones are dropped."),
        Term("epsilon", "The price in privacy of one user: the less, the more is hidden, and the more noise there is."),
    ]


def by_epsilon(tuned: Tuned) -> Iterator[tuple[Recommendation, Sequence[TuneCell]]]:
    """The recommendation of each epsilon, and its cells in the order of their bounds."""
    for recommended in tuned.recommended:
        yield recommended, [cell for cell in tuned.cells if cell.epsilon == recommended.epsilon]


def head(tuned: Tuned) -> list[str]:
    return ["bound", "accepted", "first third", "last third", *(f"{name} (bias, noise)" for name in names(tuned))]


def names(tuned: Tuned) -> list[str]:
    """Of the errors."""
    return list(dict.fromkeys(name for cell in tuned.cells for name in cell.errors.total))


def lines(tuned: Tuned, recommended: Recommendation, cells: Sequence[TuneCell]) -> Iterator[list[str]]:
    """A line of the table for each bound; "*" stands at the recommended one."""
    for cell in cells:
        errors = cell.errors
        shown = (cell.accepted, cell.accepted_first, cell.accepted_last)
        yield [
            f"{cell.bound:,}{' *' if cell.bound == recommended.bound else ''}",
            *("-" if math.isnan(share) else f"{share:.0%}" for share in shown),
            *(_three(errors, name, tuned.unit) for name in names(tuned)),
        ]


def _three(errors: ErrorSplit, name: str, unit: str) -> str:
    bias, noise, total = (_number(getattr(errors, part).get(name, math.nan), unit) for part in _PARTS)
    return f"{total} ({bias}, {noise})"


def _number(value: float, unit: str) -> str:
    if math.isnan(value):
        return "-"
    value, sign = (100 * value, "%") if unit == "%" else (value, "")
    return f"{value:,.0f}{sign}" if value >= 1000 else f"{value:.3g}{sign}"


def as_json(tuned: Tuned) -> dict[str, Any]:
    """For machines. Errors of shares are shares, not percent; what is not known is null."""
    document = asdict(tuned)
    document["cells"] = [
        {
            "epsilon": float(cell.epsilon),
            "bound": cell.bound,
            "accepted": _known(cell.accepted),
            "accepted_first_third": _known(cell.accepted_first),
            "accepted_last_third": _known(cell.accepted_last),
            **_parts(cell.errors),
            "runs": [_parts(run) for run in cell.runs],
        }
        for cell in tuned.cells
    ]
    document["recommended"] = [
        {**asdict(each), "epsilon": float(each.epsilon), "sentence": each.sentence()} for each in tuned.recommended
    ]
    return {"ok": True, "private": False, "warnings": list(warnings(tuned)), **document}


def _parts(errors: ErrorSplit) -> dict[str, dict[str, float | None]]:
    return {part: {name: _known(value) for name, value in getattr(errors, part).items()} for part in _PARTS}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def write(tuned: Tuned, folder: Path) -> Path:
    """tune.csv and tune.html, for this user of the machine only; returns the page. Raises: FileError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        with (folder / "tune.csv").open("w", encoding="utf-8", newline="") as target:
            writer = csv.writer(target, lineterminator="\n")
            writer.writerow(
                ["epsilon", "bound", "accepted", "accepted_first_third", "accepted_last_third", "error_of", *_PARTS]
            )
            writer.writerows(_rows(tuned))
        page = folder / "tune.html"
        page.write_text(render_tune(_page(tuned)), encoding="utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FileError(f"{folder}: {reason}. Fix: name a folder that this user may write to.") from None
    return page


def _rows(tuned: Tuned) -> Iterator[list[Any]]:
    """A line of the CSV for each epsilon, bound and name of an error."""
    for cell in tuned.cells:
        errors = cell.errors
        shown = [_cell(share) for share in (cell.accepted, cell.accepted_first, cell.accepted_last)]
        for name in names(tuned):
            parts = [_cell(getattr(errors, part).get(name, math.nan)) for part in _PARTS]
            yield [cell.epsilon, cell.bound, *shown, name, *parts]


def _cell(value: float) -> float | str:
    return value if math.isfinite(value) else ""


def _page(tuned: Tuned) -> TunePage:
    sections = [_curves(tuned, recommended, cells) for recommended, cells in by_epsilon(tuned)]
    some = [cell for cell in tuned.cells if cell.epsilon == tuned.recommended[0].epsilon]
    return TunePage(
        name=tuned.stream,
        sub=f"engine {tuned.engine}, mode {tuned.mode}, from {tuned.source}",
        warnings=warnings(tuned),
        about=about(tuned),
        tiles=[
            (f"{tuned.usable:,}", f"usable of {tuned.rows:,} rows"),
            (f"{tuned.steps:,}", "steps"),
            (f"{tuned.configured:,}", "max_contributions as configured"),
            (f"{tuned.runs:,}", "runs of each bound and epsilon"),
        ],
        explained=explained(tuned),
        bounds=[cell.bound for cell in some],
        shares={
            "all steps": [cell.accepted for cell in some],
            "first third": [cell.accepted_first for cell in some],
            "last third": [cell.accepted_last for cell in some],
        },
        unit=tuned.unit,
        epsilons=sections,
    )


def _curves(tuned: Tuned, recommended: Recommendation, cells: Sequence[TuneCell]) -> ErrorCurves:
    parts: Mapping[str, dict[str, list[float]]] = {
        name: {"bias": [], "noise": [], "error": []} for name in names(tuned)
    }
    for cell in cells:
        errors = cell.errors
        for name, lists in parts.items():
            for part, source in zip(lists, _PARTS, strict=True):
                lists[part].append(getattr(errors, source).get(name, math.nan))
    bounds = [cell.bound for cell in cells]
    return ErrorCurves(
        heading=f"Epsilon {recommended.epsilon}",
        sentence=recommended.sentence(),
        bounds=bounds,
        parts=parts,
        best=recommended.bound,
        head=head(tuned),
        rows=list(lines(tuned, recommended, cells)),
        mark=[bounds.index(recommended.bound)] if recommended.bound is not None else [],
    )
