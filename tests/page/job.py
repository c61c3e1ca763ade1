"""A job of every engine on the broker of the tests: examples' own streams, the first rows of each; its processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from agents.cli.demo import SHOWN, STREAMS, examples
from agents.kafka.topics import create_topics
from agents.local.offline.replay import replay
from schemas.config import Config, load_config
from schemas.topics import Topics
from tests.kafka.support import fresh_name, records_of
from tests.page.figures import images

ROWS = {
    "taxi": (2_000, 4_200),
    "departures": (30, 40),
    "evictions": (300, 400),
    "drives": (13_000, 13_000),
    "arrivals": (2_000, 4_470),
}
"""Of each stream's file: those that come before the worker is killed, and all."""
ZONES = """
[[streams]]
name = "zones"
engine = "markov"
source = "raw.zones"
[streams.privacy]
epsilon = 20.0
unit = "replace"
user = "u"
max_contributions = 10
max_per_step = 1
user_key_file = "FOLDER/user.key"
[streams.time]
field = "t"
format = "s"
start = "2020-01-01T00:00:00"
step = "1h"
clock = "replay"
[streams.domain]
kind = "states"
field = "zone"
values = ["north", "south", "centre"]
population = 90
transition = "chain.csv"
[streams.options]
horizon = 10
"""
CHAIN = "0.9,0.1,0\n0.05,0.9,0.05\n0,0.1,0.9\n"
START_S = 1_577_836_800


@dataclass(frozen=True)
class PageJob:
    """Attributes:

    names: of the streams, by the name of their example.
    """

    path: Path
    config: Config
    names: dict[str, str]
    environment: dict[str, str]

    @staticmethod
    def of(bootstrap: str, folder: Path) -> PageJob:
        here = folder / "examples"
        here.symlink_to(examples())
        texts = [(here / shown).read_text(encoding="utf-8") for shown, _, _ in SHOWN]
        # On screenshots the streams have their own names and all of their rows; that broker has no other tests.
        names = {name: name if images() else fresh_name(name) for name in (*ROWS, "zones")}
        head = f'[job]\nname = "{fresh_name("page")}"\n[kafka]\nbootstrap = "{bootstrap}"\npartitions = 2\n'
        text = head + "".join(text[text.index(STREAMS) :] for text in texts) + ZONES.replace("FOLDER", str(folder))
        for name, fresh in names.items():
            for known in (f'"{name}"', f'"raw.{name}"', f'"audit.{name}"'):
                text = text.replace(known, known.replace(name, fresh), 1)
        if not images():  # one truth is enough for the operator's view, and cheaper
            text = "\n".join(line for line in text.splitlines() if "audit." not in line or names["taxi"] in line)
        for place in ("nyc_taxi", "town"):
            text = text.replace(f'file = "{place}', f'file = "examples/{place}')
        path = folder / "page.toml"
        path.write_text(text, encoding="utf-8")
        (folder / "chain.csv").write_text(CHAIN)
        (folder / "user.key").write_bytes(b"sixteen secret bytes or more")
        (folder / "token").write_bytes(b"a secret of the page, which is long enough")
        (folder / "token").chmod(0o600)
        rows = [{"u": f"u{user}", "t": START_S + 3600 * step + user, "zone": "nsc"[(user + step) % 3]}
                for step in range(6) for user in range(90)]  # fmt: skip
        whole = {"n": "north", "s": "south", "c": "centre"}
        (folder / "zones.jsonl").write_bytes(
            b"\n".join(orjson.dumps({**row, "zone": whole[str(row["zone"])]}) for row in rows)
        )
        mine = {
            "PRIVSTREAM_JOB__DATA_DIR": str(folder / "data"),
            "PRIVSTREAM_USER_KEY_FILE": str(folder / "user.key"),
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PRIVSTREAM_")}
        return PageJob(path, load_config(path, mine), names, {**kept, **mine})

    def file(self, name: str) -> Path:
        if name == "zones":
            return self.path.parent / "zones.jsonl"
        return examples() / next(data for shown, data, _ in SHOWN if f'"raw.{name}"' in _text(shown))

    async def create(self) -> None:
        await create_topics(self.config, source_partitions=2)

    async def play(self, part: int) -> dict[str, int]:
        """Replay the first or the second part of each file. Returns the last closed step of each stream."""

        async def one(name: str, fresh: str) -> int:
            limit = ROWS[name][part] if name in ROWS and not (images() and part) else None
            stream = self.config.stream(fresh)
            return (await replay(self.config, stream, self.file(name), limit=limit)).step

        steps = await asyncio.gather(*(one(name, fresh) for name, fresh in self.names.items()))
        return dict(zip(self.names.values(), steps, strict=True))

    async def steps(self, name: str) -> int:
        """How many the public ledger has, as an ordinary consumer counts."""
        return len(await records_of(self.config.kafka.bootstrap, Topics.ledger(name)))

    @contextmanager
    def process(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command on this job; killed at the end."""
        log = self.path.parent / f"{arguments[0]}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "agents.cli", arguments[0], str(self.path), *arguments[1:]],
                env=self.environment, stdout=subprocess.PIPE, stderr=file,
            )  # fmt: skip
        try:
            yield process
        finally:
            kill(process)
            if process.stdout is not None:
                process.stdout.close()

    def log(self, name: str) -> str:
        return (self.path.parent / f"{name}.log").read_text(errors="replace")


def _text(config: str) -> str:
    return (examples() / config).read_text(encoding="utf-8")


def kill(process: subprocess.Popen[bytes]) -> None:
    """As power does."""
    process.send_signal(signal.SIGKILL)
    process.wait()


async def addresses(process: subprocess.Popen[bytes]) -> dict[str, str]:
    """What `privstream watch --json` prints once it serves."""
    assert process.stdout is not None
    line = await asyncio.to_thread(process.stdout.readline)
    told: dict[str, str] = orjson.loads(line)
    return told
