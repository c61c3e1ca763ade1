"""Places for a witness, by their real libraries against a server on loopback, and the keeper of one stream's."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.kafka import stop_log
from agents.kafka.lifecycle.stops import Stop
from agents.kafka.lifecycle.vitals import Pulse
from agents.kafka.status import witness_state
from agents.kafka.witness import places, streams
from agents.kafka.witness.places import ChangedError, Folder, Noted, Store, prove, within
from agents.kafka.witness.streams import StreamWitness, store_of
from agents.protocol.release.publisher import StreamPublisher
from agents.protocol.release.witness import Mark
from schemas.config import Config
from schemas.errors import BrokerError, WitnessAwayError, WitnessError
from tests.agents.witness_server import Documents, serving
from tests.kafka.support import job_config, stream_table

KINDS = ["folder", "http", "s3"]
CHAINS = [f"{number:064x}" for number in range(9)]


def configured(kind: str, folder: Path, documents: Documents, monkeypatch: pytest.MonkeyPatch) -> Config:
    places = {"folder": str(folder), "http": f"{documents.url}/below", "s3": "s3://bucket/below", "own": None}
    for name, value in {
        "AWS_ENDPOINT_URL": documents.url,
        "AWS_REGION": "here",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "name",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    config = job_config("localhost:1", folder, streams=[stream_table("a")], partitions=1, job="j")
    return config.model_copy(update={"job": config.job.model_copy(update={"witness": places[kind]})})


@asynccontextmanager
async def playing(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Config, Documents]]:
    async with serving() as documents:
        yield configured(kind, folder, documents, monkeypatch), documents


@pytest.mark.parametrize("kind", KINDS)
async def test_of_two_who_read_the_same_one_replaces_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with playing(kind, tmp_path, monkeypatch) as (config, _):
        first, second = store_of(config.job), store_of(config.job)
        await prove(first)
        await prove(second)
        nothing = await first.read("a")
        assert nothing.data is None
        one = await first.write("a", b"1", nothing)
        with pytest.raises(ChangedError):
            await second.write("a", b"2", nothing)
        assert (await second.read("a")).data == b"1"
        two = await second.write("a", b"22", await second.read("a"))
        with pytest.raises(ChangedError):
            await first.write("a", b"3", one)
        await first.write("a", b"333", two)
        assert (await second.read("a")).data == b"333"
        assert (await second.read("b")).data is None


@pytest.mark.parametrize("kind", ["http", "s3"])
async def test_a_server_that_heeds_no_conditions_is_no_witness(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with playing(kind, tmp_path, monkeypatch) as (config, documents):
        documents.heeds = False
        with pytest.raises(WitnessAwayError, match="on a condition that does not hold"):
            await prove(store_of(config.job))
        documents.heeds, documents.tags = True, False
        for path in ("/below/j/a.json", "/bucket/below/j/a.json"):
            documents.stored[path] = b"{}"
        with pytest.raises(WitnessAwayError, match=r"gives no (strong )?ETag"):
            await store_of(config.job).read("a")


@pytest.mark.parametrize("kind", KINDS)
async def test_what_cannot_be_reached_is_away_and_never_empty(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with playing(kind, tmp_path, monkeypatch) as (config, documents):
        place = store_of(config.job)
        if kind == "folder":
            place = store_of(config.job.model_copy(update={"witness": str(tmp_path / "not mounted")}))
        documents.fails = 503
        for work in (lambda: place.read("a"), lambda: place.write("a", b"1", Noted(None)), lambda: prove(place)):
            with pytest.raises(WitnessAwayError, match=str(place.place)):
                await within(work(), place.place)
        if kind != "folder":
            documents.fails, documents.hangs = None, asyncio.Event()
            monkeypatch.setattr(places, "TIMEOUT_S", 0.2)
            with pytest.raises(WitnessAwayError, match="does not answer"):
                await within(place.read("a"), place.place)
            documents.hangs.set()
        else:
            assert not (tmp_path / "not mounted").exists()


async def test_secret_headers_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = tmp_path / "headers"
    headers.write_text("authorization=Bearer%20abc\n")

    async with playing("http", tmp_path, monkeypatch) as (config, documents):
        place = store_of(config.job.model_copy(update={"witness_headers_file": headers}))
        await place.read("a")
        assert documents.asked == ["Bearer abc"]


async def no_step(_: int) -> str | None:
    return None


def publisher(public: int) -> StreamPublisher:
    """One that has read a ledger of so many steps."""
    machine = StreamPublisher("a")
    for step in range(public):
        machine.last_step, machine.chain, machine._chains[step] = step, CHAINS[step], CHAINS[step]
    return machine


def kept(config: Config, place: Store | None = None, *, trusted: int | None = None) -> StreamWitness:
    return StreamWitness(config, "a", place or store_of(config.job), Pulse("publisher"), trusted=trusted)


@pytest.mark.parametrize("kind", [*KINDS, "own"])
async def test_a_stream_goes_on_while_its_witness_agrees(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with playing(kind, tmp_path, monkeypatch) as (config, _):
        own = kind == "own"
        assert await witness_state(config, "a", -1) == (None if own else "waits for the first step")
        first = kept(config)
        await first.open(publisher(0), no_step)
        for step in range(3):
            await first.note(step, CHAINS[step])
        assert await witness_state(config, "a", 2) == (None if own else "step 2")
        second = kept(config)
        await second.open(publisher(3), no_step)
        await second.note(3, CHAINS[3])
        with pytest.raises(BrokerError, match="another worker has written its witness"):
            await first.note(3, CHAINS[3].replace("0", "f"))

        async def logged(step: int) -> str | None:
            return CHAINS[step]

        await kept(config).open(publisher(3), logged)  # a crash between mark and commit
        for trusted in (None, 2):
            with pytest.raises(WitnessError, match="was answered, and the cluster knows its steps up to 2 only"):
                await kept(config, trusted=trusted).open(publisher(3), no_step)
        with pytest.raises(WitnessError, match="was answered"):  # all topics are lost
            await kept(config).open(publisher(0), no_step)


async def test_a_ledger_without_a_witness_is_trusted_by_a_person_or_where_none_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with playing("folder", tmp_path, monkeypatch) as (config, _):
        for trusted in (None, 1, 3):
            with pytest.raises(WitnessError, match="--trust-ledger a=2"):
                await kept(config, trusted=trusted).open(publisher(3), no_step)
        assert await witness_state(config, "a", 2) == "has never seen this stream"
        await kept(config, trusted=2).open(publisher(3), no_step)
        assert "taken on the ledger's word; on --trust-ledger" in caplog.text
        told = await witness_state(config, "a", 2)
        assert told == "step 2, since step 3: what was before is taken on the ledger's word"
        await kept(config).open(publisher(3), no_step)
        with pytest.raises(WitnessError, match="ends at step 2"):  # a worker ran without it
            await kept(config).open(publisher(5), no_step)
        own = config.model_copy(update={"job": config.job.model_copy(update={"witness": None})})
        await kept(own).open(publisher(3), no_step)
        assert "no [job] witness is configured" in caplog.text
        await kept(own).open(publisher(5), no_step)  # as after other workers
        with pytest.raises(WitnessError, match="was answered"):
            await kept(own).open(publisher(4), no_step)


async def test_an_answer_that_was_lost_is_no_other_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing("http", tmp_path, monkeypatch) as (config, documents):
        monkeypatch.setattr(streams, "AGAIN_S", 0.01)
        monkeypatch.setattr(stop_log, "record", nothing_recorded)
        mine = kept(config)
        await mine.open(publisher(0), no_step)
        for step in range(2):
            documents.forgetful = True
            await mine.note(step, CHAINS[step])
        assert Mark.decode(documents.stored["/below/j/a.json"], stream="a", place="").step == 1


async def nothing_recorded(*_: Any) -> None:
    pass


async def test_a_witness_that_is_away_is_waited_for_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorded: list[Stop] = []
    said = asyncio.Event()

    async def record(_: Config, stops: list[Stop]) -> None:
        recorded.extend(stops)
        said.set()

    monkeypatch.setattr(streams, "AGAIN_S", 0.01)
    monkeypatch.setattr(stop_log, "record", record)
    async with playing("http", tmp_path, monkeypatch) as (config, documents):
        mine, pulse = kept(config), Pulse("publisher")
        mine._pulse = pulse
        await mine.open(publisher(0), no_step)
        documents.fails = 500
        noting = asyncio.ensure_future(mine.note(0, CHAINS[0]))
        await said.wait()
        assert not noting.done()
        assert pulse.doing.startswith("waits for its witness: ")
        assert pulse.limit_s is None
        documents.fails = None
        await noting
    [stop] = recorded
    assert (stop.stream, stop.part, stop.step) == ("a", "publish", 0)
    assert "answers a PUT with status 500" in stop.reason
    assert "WAITING for its witness" in caplog.text
    assert "its witness answers again" in caplog.text


async def test_a_folder_is_not_written_while_another_process_writes(tmp_path: Path) -> None:
    """Without the lock two could both find the record that they replace. A try in vain leaves nothing behind."""
    place = Folder(tmp_path, "j")
    first = await place.write("a", b"1", Noted(None))
    with (tmp_path / "j" / ".a.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            await place.write("a", b"2", first)
        assert (await place.read("a")).data == b"1"
    await place.write("a", b"2", first)
    assert {path.name for path in (tmp_path / "j").iterdir()} == {"a.json", ".a.lock"}


async def test_a_worker_that_is_stopped_while_it_writes_is_named_as_the_reason(tmp_path: Path) -> None:
    """It said "Resource temporarily unavailable", for as long as the other one slept."""
    place = Folder(tmp_path, "j")
    first = await place.write("s", b"1", Noted(None))
    with (tmp_path / "j" / ".s.lock").open("rb") as sleeper:
        fcntl.flock(sleeper, fcntl.LOCK_EX)
        with pytest.raises(WitnessAwayError, match=r"another worker.*paused.*must go on, or be ended"):
            await within(place.write("s", b"2", first), place.place)
    assert await within(place.write("s", b"2", first), place.place) == Noted(b"2")
