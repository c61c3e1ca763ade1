"""`make pictures`: the pictures of README.md and docs/reports.md, made by the program from the committed examples.

Noise of the reports is seeded, so they are drawn again as they were; the demo's differs from run to run.
"""

from __future__ import annotations

import argparse
import base64
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agents.cli.demo import SHOWN as DEMO
from agents.cli.demo import play
from agents.local.offline.simulate import simulate
from agents.show.view import metrics_of
from schemas.config import ENGINES, Stream, load_config

ROOT = Path(__file__).resolve().parent.parent
IMAGES, PAGE = ROOT / "docs" / "images", ROOT / "docs" / "reports.md"
EXAMPLES = ROOT / "examples"
SEED, WIDTH = 7, 96
DATA = {name: data for name, data, _ in DEMO}
SHOWN = (
    ("taxi.toml", "Bars of the error at each scale", "report-scales"),
    ("taxi.toml", "Map of the difference", "report-difference"),
    ("departures.toml", "Lines of departures", "report-series"),
)
"""Example, beginning of a picture's text, and the name of its file."""
BEGIN, END = "<!-- figures: make pictures -->", "<!-- end of figures -->"


def glossary(streams: Sequence[Stream]) -> str:
    """A table for each engine of what its figures are called and mean."""
    parts = []
    for engine in sorted(ENGINES):
        stream = next((each for each in streams if each.engine == engine), None)
        if stream is None:
            continue
        rows = [f"| {metric.name} | {', '.join(f'`{key}`' for key in metric.keys)} | {metric.explained} |"
                for metric in metrics_of(stream)]  # fmt: skip
        head = ["| figure | in steps.csv and `<stream>.utility` | what it is |", "|---|---|---|"]
        parts.append("\n".join([f"**Engine `{engine}`**", "", *head, *rows]))
    return "\n\n".join(parts)


def shown_streams() -> list[Stream]:
    """Of every engine one: the examples, and the contract cases of engines that have no example."""
    from engines.checks.contract_case import contract_case

    found = [stream for name in DATA for stream in load_config(EXAMPLES / name).streams]
    there = {stream.engine for stream in found}
    return found + [contract_case(engine).stream("default") for engine in sorted(ENGINES) if engine not in there]


def into(page: str, content: str) -> str:
    """The page with this between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{content}\n{END}{rest.split(END)[1]}"


def reports() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for name in dict.fromkeys(example for example, _, _ in SHOWN):
            out = Path(scratch) / name
            simulate(load_config(EXAMPLES / name), EXAMPLES / DATA[name], out, seed=SEED)
            page = (out / "report.html").read_text(encoding="utf-8")
            for example, begins, target in SHOWN:
                if example == name:
                    kind, data = re.findall(rf'<img alt="{begins}[^"]*" src="data:image/([a-z]+)[^,]*,([^"]+)"', page)[
                        0
                    ]
                    path = IMAGES / f"{target}.{kind}"
                    path.write_bytes(base64.b64decode(data))
                    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    PAGE.write_text(into(PAGE.read_text(encoding="utf-8"), glossary(shown_streams())), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: figures explained anew")


def demo() -> None:
    """What the demo shows at its end on a terminal of `WIDTH` columns."""
    from rich.console import Console

    console = Console(record=True, width=WIDTH, height=60, force_terminal=True, color_system="truecolor")
    play(console, exit_when_done=True)
    console.save_svg(str(IMAGES / "demo.svg"), title="make demo")
    print("docs/images/demo.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-demo", action="store_true", help="leave the demo's picture, which needs a broker")
    parsed = parser.parse_args()
    reports()
    if not parsed.no_demo:
        demo()


if __name__ == "__main__":
    main()
