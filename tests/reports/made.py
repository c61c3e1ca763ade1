"""Streams of every engine, small and made up, simulated: what their reports are tried on."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser
from pathlib import Path

import orjson

from agents.local.offline.simulate import Simulated, simulate
from engines.checks.contract_case import Variant, contract_case
from schemas.config import Stream, load_config

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS, EACH = 12, 40
ONE_AN_HOUR = 1_577_836_800
"""2020-01-01 UTC, where streams of contract cases start."""


def stream_of(engine: str, variant: Variant) -> Stream:
    return contract_case(engine).stream("default", variant)


def simulated(stream: Stream, folder: Path, *, steps: int = STEPS, usable: bool = True) -> Simulated:
    """Some hundred events of a contract case, through the whole of `simulate`; or as many that say nothing."""
    case, chance = contract_case(stream.engine), random.Random(5)
    with (folder / "rows.jsonl").open("wb") as file:
        for step in range(steps):
            for user in range(EACH):
                event = {"u": f"u{step // 2 * EACH + user}", "t": ONE_AN_HOUR + 3600 * step + user}
                said = case.event(stream.domain, chance) if usable else {}
                file.write(orjson.dumps({**said, **event}) + b"\n")
    config = load_config(EXAMPLES / "taxi.toml").model_copy(update={"streams": (stream,)})
    (done,) = simulate(config, folder / "rows.jsonl", folder / "out", seed=3)
    return done


class Page(HTMLParser):
    """A page as somebody reads it who sees no picture: `text` in order, `alts` of pictures, `terms` of the glossary."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.alts: list[str] = []
        self.titles: list[str] = []
        self.terms: dict[str, str] = {}
        self.tables, self.pictures, self._within = 0, 0, ""
        self._term, self._text = "", [""]
        self.feed(content)
        self.text = re.sub(r"\s+", " ", "".join(self._text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._within = tag
        if tag == "dt":
            self._term = ""
        if tag == "table":
            self.tables += 1
        if tag == "img":
            self.pictures += 1
            self.alts.append(found.get("alt") or "")
        if (title := found.get("title")) is not None:
            self.titles.append(title)

    def handle_endtag(self, tag: str) -> None:
        if self._within == tag:
            self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "style":
            return
        self._text.append(data)
        if self._within == "dt":
            self._term += data
        elif self._within == "dd":
            self.terms[self._term] = self.terms.get(self._term, "") + data
