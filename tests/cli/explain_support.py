"""Configurations to explain, and their explanation in every form."""

from __future__ import annotations

import html
import json
import re

from agents.show.explain import explain
from agents.show.explain.parts import Explanation
from agents.show.explain.render import render_page, render_text
from schemas.config import Config, parse_config

USER = 'unit = "user"\nuser = "rider"\nmax_contributions = 20'
EVENT = 'unit = "event"'


def toml(
    *,
    name: str = "rides",
    epsilon: str = "1.0",
    privacy: str = USER,
    stream: str = "",
    time: str = 'start = "now"',
    domain: str = "",
    options: str = "",
) -> str:
    return f"""
[[streams]]
name = "{name}"
engine = "spatial"
source = "raw.rides"
{stream}
[streams.privacy]
epsilon = {epsilon}
{privacy}
[streams.time]
field = "at"
step = "1h"
{time}
[streams.domain]
kind = "box"
x = "lon"
y = "lat"
bounds = [13.0, 52.0, 14.0, 53.0]
{domain}
[streams.options]
depth = 10
{options}
"""


def series(mode: str, *, privacy: str = "") -> str:
    """A stream of engine `series` with one count, of users with ten events."""
    return f"""
[[streams]]
name = "visits"
engine = "series"
source = "raw.visits"
mode = "{mode}"
[streams.privacy]
epsilon = 1.0
delta = 1e-6
unit = "user"
user = "user"
max_contributions = 10
{privacy}
[streams.time]
field = "at"
step = "1h"
start = "2026-01-01T00:00:00"
[streams.domain]
kind = "series"
fields = [{{ name = "n", of = "count" }}]
"""


def config(*streams: str) -> Config:
    return parse_config('[kafka]\nbootstrap = "localhost:9092"\n' + "".join(streams))


def explained(**changes: str) -> Explanation:
    return explain(config(toml(**changes)))


def everywhere(explanation: Explanation) -> list[str]:
    """The three renderings, each as one line of words."""
    page = html.unescape(re.sub(r"<[^>]+>", " ", render_page(explanation)))
    forms = (render_text(explanation), page, json.dumps(explanation.as_json(), ensure_ascii=False))
    return [" ".join(form.replace('\\"', '"').split()) for form in forms]
