"""docs/first-hour.md, walked with files that the project has not seen: from `init` to a live topic.

Whatever becomes of a row, it is counted: rows in = accepted + over the bound + refused, in a file, in the library and
on a topic alike, whichever client has written it.
"""

from __future__ import annotations

import asyncio
import csv
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from agents.kafka.lifecycle.refusals import Seen
from agents.local.dev import SOURCE_PARTITIONS
from agents.local.library.configure import configure
from agents.protocol.partitioner import partitions_of
from agents.protocol.userhash import IdBytes
from schemas.events import Reason
from tests.commands import call
from tests.kafka.producers import produce
from tests.start.test_dev import BEGIN, HOUR, RIDES, SECRETS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first-hour.md").read_text(encoding="utf-8")
Row = dict[str, Any]


@dataclass(frozen=True)
class Walk:
    """A file, and what a newcomer says of it.

    Attributes:
        user: the field. bound: events of a user that count; None: all, since trips count.
        settings: what `init` is told.
        refused: (reason, field) of rows with a number that is none.
    """

    name: str
    engine: str
    file: str
    rows: Sequence[Row]
    user: str
    bound: int | None
    settings: Sequence[str]
    refused: tuple[str, str] | None = None

    def user_of(self, row: Row) -> str:
        return str(flat(row)[self.user])

    def usable(self, row: Row) -> bool:
        """Whether it has no NaN, which is the one number that is not itself."""
        return all(value == value for value in flat(row).values())

    def accepted(self, rows: Sequence[Row]) -> int:
        """How many of rows count, in whichever order they come."""
        users = Counter(self.user_of(row) for row in rows if self.usable(row))
        return sum(n if self.bound is None else min(n, self.bound) for n in users.values())

    def counts(self) -> Row:
        """What becomes of the rows where each producer places its users rightly."""
        unusable = sum(not self.usable(row) for row in self.rows)
        accepted = self.accepted(self.rows)
        refused = {} if self.refused is None else {self.refused: unusable}
        over_bound = len(self.rows) - accepted - unusable
        return {"read": len(self.rows), "accepted": accepted, "over_bound": over_bound, "refused": refused}


def flat(row: Mapping[str, Any], path: str = "") -> Row:
    """The fields of nested objects by their paths."""
    found: Row = {}
    for key, value in row.items():
        found |= flat(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
    return found


PURCHASES = Walk(
    "purchases",
    "tabular",
    "purchases.csv",
    [
        {"customer": f"{n % 20:05}", "date": 19970101 + n // 20, "quantity": 1 + n % 4, "amount": 9.5 + n}
        for n in range(120)
    ],
    user="customer",
    bound=3,
    settings=[
        "time.start=1997-01-01",
        "time.step=1 year",
        "privacy.max_contributions=3",
        'domain.attributes=[{field="quantity", values=[1, 2, 3, 4]}, {field="amount", edges=[0, 50, 200]}]',
    ],
)
"""Ids with leading zeros, and dates as numbers."""
ORDERS = Walk(
    "orders",
    "series",
    "orders.jsonl",
    [
        {
            "order": {
                "customer": {"id": f"c{n % 20:02}"},
                "total": f"{12.5 + n:.2f}",
                "weight": math.nan if n % 25 == 3 else 1.5,
            },
            "created": (1_700_000_000 + 600 * n) * 10**9 + n,
        }
        for n in range(100)
    ],
    user="order.customer.id",
    bound=4,
    settings=[
        "time.field=created",
        "partitioner=any",
        "time.start=2023-01-01",
        "time.step=1 year",
        "privacy.max_contributions=4",
        'domain.fields=[{name="order.total", of="sum", limits=[0, 200]}, '
        '{name="order.weight", of="sum", limits=[0, 10]}]',
    ],
    refused=("NOT_FINITE", "order.weight"),
)
"""Objects in objects, decimals as text, times in nanoseconds, and a number that is none in some rows. The job places
the users.
"""
STORMS = Walk(
    "storms",
    "trajectory",
    "storms.csv",
    [
        {
            "storm": f"AL{storm:02}2005",
            "year": 2005,
            "month": 8,
            "day": 1 + storm,
            "hour": 4 * n,
            "lat": 15 + storm / 2,
            "lon": -60.5 - n,
        }
        for storm in range(12)
        for n in range(6)
    ],
    user="storm",
    bound=None,
    settings=[
        "time.start=2005-01-01",
        "time.step=1 year",
        "map.at=join('-', [to_string(year), to_string(month), to_string(day), to_string(hour)])",
        "time.field=at",
        "time.format=%Y-%m-%d-%H",
        "privacy.user=storm",
        "privacy.max_contributions=1",
        "map.track=storm",
        "domain.trip=track",
        "domain.bounds=[-100, 0, 0, 60]",
    ],
)
"""The time in four columns, and one trip of each user, who has no column for it."""
WALKS = [PURCHASES, ORDERS, STORMS]


@pytest.mark.nightly
def test_the_page_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of it, with the noise of seed 1."""
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    [edit] = re.findall(r"^(sed -i .*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    shown = re.findall(r"^\$ privstream ((?:init|validate|simulate) .*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(shown) == 3
    for block in shown:
        command, _, rest = block.replace("\\\n", "").partition("\n")
        seed = ["--insecure-seed", 1] if command.startswith("simulate") else []
        printed = call(*shlex.split(command), *seed).output.splitlines()
        for line in rest.splitlines():
            words = line.removesuffix("...")
            assert any(each.startswith(words) if words != line else each == line for each in printed), line
        subprocess.run(edit, shell=True, check=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder to work in, with the files and what `init` has made of them."""
    folder = tmp_path_factory.mktemp("first-hour")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("PRIVSTREAM_BOOTSTRAP", raising=False)
        for walk in WALKS:
            write(walk)
            said = [word for setting in walk.settings for word in ("--set", setting)]
            made = call("init", "--engine", walk.engine, "--from", walk.file, "--out", f"{walk.name}.toml", *said)
            assert made.exit_code == 0, made.output
        yield folder


def write(walk: Walk) -> None:
    with Path(walk.file).open("w", newline="") as file:
        if walk.file.endswith(".csv"):
            writer = csv.DictWriter(file, walk.rows[0])
            writer.writeheader()
            writer.writerows(walk.rows)
        else:
            file.writelines(f"{json.dumps(row)}\n" for row in walk.rows)


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.name)
def test_a_file_and_the_library_count_every_row_alike(walk: Walk, place: Path) -> None:
    told = call("validate", f"{walk.name}.toml")
    assert (told.exit_code, told.output.splitlines()[0]) == (0, f"{walk.name}.toml: well. Job privstream, 1 stream.")
    simulated = call("simulate", f"{walk.name}.toml", walk.file, "--out", walk.name, "--json")
    [seen] = json.loads(simulated.stdout)["streams"]
    refused = {(each["reason"], each["name"]): each["rows"] for each in seen["refused"]}
    counts = {
        "read": seen["rows"],
        "accepted": seen["events"],
        "over_bound": seen["counts"].get("OVER_BOUND", 0),
        "refused": refused,
    }
    assert counts == walk.counts()
    for rows in (walk.rows, list(map(flat, walk.rows))):
        taken = configure(f"{walk.name}.toml").add(rows)
        of_library = {"read": taken.rows, "accepted": taken.accepted, "over_bound": taken.over_bound}
        # Of Python NaN is null, as pandas means it.
        refused = {
            ("WRONG_TYPE" if reason == "NOT_FINITE" else reason, name): n for (reason, name), n in refused.items()
        }
        assert of_library | {"refused": taken.refused} == counts | {"refused": refused}


class Dev:
    """`privstream dev`, all of whose lines are in a file."""

    def __init__(self, *arguments: str, said: Path, environment: Mapping[str, str]) -> None:
        self._said = said
        with said.open("w") as lines:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agents.cli", "dev", *arguments],
                env={**os.environ, **environment}, stdout=lines, stderr=lines, start_new_session=True,
            )  # fmt: skip

    def until(self, pattern: str) -> re.Match[str]:
        """Wait for a line that has been printed."""
        while (found := re.search(pattern, self._said.read_text(), re.MULTILINE)) is None:
            assert self._process.poll() is None, f"dev ended before {pattern}"
            time.sleep(0.2)
        return found

    def producers(self, stream: str) -> dict[str, str]:
        """Client -> how it writes to the stream's source, as printed."""
        block = self.until(rf"^stream {stream}: write (?:.*\n)+?and read$")
        return dict(re.findall(r"^  (\S+) {2,}(.+)$", block[0], re.MULTILINE))

    def end(self) -> int:
        """Ask it to end."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=120)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


async def utilities(bootstrap: str, topic: str, most: int) -> list[Row]:
    """The first records of what operators see of each step."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(60):
            return [json.loads((await consumer.getone()).value) for _ in range(most)]
    finally:
        await consumer.stop()


def streams(place: Path, walk: Walk) -> str:
    """Its table; with longer steps, of which fewer are over and released empty."""
    text = (place / f"{walk.name}.toml").read_text()
    assert 'step = "1 year"' in text
    return text[text.index("[[streams]]") :].replace('step = "1 year"', 'step = "10 years"')


def misplaced(walk: Walk) -> list[Row]:
    """Rows that librdkafka puts elsewhere than Java does, each at its default."""
    ids = IdBytes.from_ids([walk.user_of(row) for row in walk.rows])
    theirs, ours = (partitions_of(ids, partitioner=p, partitions=SOURCE_PARTITIONS) for p in ("crc32", "murmur2"))
    return [row for row, wrong in zip(walk.rows, (theirs != ours).tolist(), strict=True) if wrong]


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.seconds(25)
def test_dev_plays_a_file_takes_in_live_events_and_leaves_nothing_behind(place: Path) -> None:
    """One job: a file with a clock on the wall, a start "now" and a cluster that does not exist; and three live topics,
    each with another client at its own default.
    """
    folder = place / "live"
    scratch, said = folder / "scratch", folder / "said.txt"
    scratch.mkdir(parents=True)
    rides = RIDES.replace("epsilon = 0.1", "epsilon = 20.0")
    (folder / "job.toml").write_text("".join([SECRETS, rides, *(streams(place, walk) for walk in WALKS)]))
    lines = [f"{BEGIN + HOUR * step + n},u{n},0.{n},0.5" for step in range(3) for n in range(1, 9)]
    (folder / "rides.csv").write_text("\n".join(["at,user_id,lon,lat", *lines, f"{BEGIN + 3 * HOUR},u1,7,7"]) + "\n")
    dev = Dev(
        str(folder / "job.toml"), str(folder / "rides.csv"), "--stream", "rides", said=said,
        environment={"TMPDIR": str(scratch), "PRIVSTREAM_BOOTSTRAP": "kafka.invalid:1"},
    )  # fmt: skip
    try:
        config = dev.until(r"^status +privstream status (\S+)$")[1]
        bootstrap = dev.until(r"^Kafka +(\S+)$")[1]
        dev.until(r"^rides: step 2 ")
        truths = asyncio.run(utilities(bootstrap, "rides.utility", 3))
        # At its own default kcat, and what else stands on librdkafka, has users elsewhere; then as dev has printed it.
        client = "kcat" if shutil.which("kcat") else "confluent-kafka"
        printed = {walk.name: dev.producers(walk.name) for walk in WALKS}
        plain = re.sub(r' -X partitioner=\w+|, "partitioner": "\w+"', "", printed["purchases"][client])
        assert plain != printed["purchases"][client]
        send(PURCHASES, plain, folder)
        wrong = len(misplaced(PURCHASES))
        found = read(config, PURCHASES)
        assert (found.refused, found.producers) == ({("WRONG_PARTITION", "customer"): wrong}, "crc32")
        send(PURCHASES, printed["purchases"][client], folder)
        # The job places their users, so producers need not agree.
        send(ORDERS, printed["orders"][client], folder, slice(0, None, 2))
        send(ORDERS, printed["orders"]["aiokafka"], folder, slice(1, None, 2))
        send(STORMS, printed["storms"]["Java"], folder)
        seen = {walk.name: read(config, walk, 2 if walk is PURCHASES else 1) for walk in WALKS}
        code = dev.end()
    finally:
        dev.kill()
    text = said.read_text()
    assert code == 0, text
    for walk in WALKS:
        expected = walk.counts()
        if walk is PURCHASES:
            expected["read"] *= 2
            expected["over_bound"] = expected["read"] - expected["accepted"] - wrong
            expected["refused"] = {("WRONG_PARTITION", "customer"): wrong}
        found = seen[walk.name]
        counted = {"accepted": found.count(Reason.ACCEPTED), "over_bound": found.count(Reason.OVER_BOUND)}
        assert {"read": found.read, **counted, "refused": found.refused} == expected
    assert re.search(r"What to do about WRONG_PARTITION: (\d+) of \1 are where crc32 puts their user, as kcat", text)
    assert re.findall(r"^rides: step (\d+) ", text, re.MULTILINE) == ["0", "1", "2"]
    assert [truth["events_total"] for truth in truths] == [8, 16, 24], "the rows are the truth, too"
    for line in (
        "ATTENTION: stream rides: epsilon above 10 promises little",
        "Here it is audit.rides, so that operators see errors",
        'stream rides: clock is "wall" in the file',
        'stream rides: start is "now" in the file',
        "1 refused: OUTSIDE_DOMAIN of lon and",
        "rides: in all 25 records read, 24 accepted, 0 over the bound, 1 refused: OUTSIDE_DOMAIN of lon and",
        "; 3 steps published",
        "rides.synthetic",
    ):
        assert line in text
    assert text.count("What to do about OUTSIDE_DOMAIN: ") == 1
    assert text.splitlines()[-1] == "stopped; nothing is left behind"
    assert "Unclosed" not in text
    assert not list(scratch.iterdir())
    assert not any(walk.user_of(row) in text for walk in (PURCHASES, STORMS) for row in walk.rows)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq, which makes lines for kcat, is not installed")
def test_lines_for_kcat_are_made_as_printed(tmp_path: Path) -> None:
    rows = [{"rider_id": rider, "note": note} for rider, note in (("007", 'a\ttab and "quotes"'), ("zoë", None))]
    (tmp_path / "rides.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    [command] = re.findall(r"^jq .*$", PAGE, re.MULTILINE)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    lines = [line.split("\t") for line in (tmp_path / "events.txt").read_text().splitlines()]
    assert [(user, json.loads(event)) for user, event in lines] == [(row["rider_id"], row) for row in rows]


def send(walk: Walk, line: str, folder: Path, part: slice = slice(None)) -> None:
    events = [(walk.user_of(row), json.dumps(row)) for row in walk.rows[part]]
    asyncio.run(produce(line, f"raw.{walk.name}", events, folder))


def read(config: str, walk: Walk, times: int = 1) -> Seen:
    """What `status` says of a stream's records, once so often all rows have come."""
    while True:
        streams = {each["stream"]: each for each in json.loads(call("status", config, "--json").stdout)["streams"]}
        assert set(streams) == {"rides", *(walk.name for walk in WALKS)}
        records = Seen.of(streams[walk.name]["totals"])
        if records.read >= times * len(walk.rows):
            return records
        time.sleep(0.5)


# --- the page's own example ---------------------------------------------------------------------------------------


def test_the_page_goes_through_the_commands_in_their_order() -> None:
    assert re.findall(r"^## \d\. .*: `privstream (\w+)`", PAGE, re.MULTILINE) == ["init", "validate", "simulate", "dev"]


def test_the_page_says_what_the_storms_need() -> None:
    [command] = re.findall(r"^privstream (init --engine trajectory .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    _, *words = shlex.split(command.replace("\\\n", ""))
    said = dict(zip(words[::2], words[1::2], strict=True))
    settings = [value for option, value in zip(words[::2], words[1::2], strict=True) if option == "--set"]
    assert (said["--engine"], said["--from"], set(settings)) == (STORMS.engine, STORMS.file, set(STORMS.settings))


def test_what_the_page_prints_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`init`, the editing and `validate` as they stand there; "..." stands for what is left out."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for verb in ("init", "validate"):
        [block] = re.findall(rf"^```\n\$ privstream ({verb} .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        command, *printed = block.replace("\\\n", "").splitlines()
        said = call(*shlex.split(command)).output
        assert printed
        for line in filter(str.strip, printed):
            assert re.search(re.escape(line.strip()).replace(re.escape("..."), ".*"), said), line
        if verb == "init":
            [edit] = re.findall(r"^```\n(sed .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
            subprocess.run(["bash", "-c", edit], check=True)
