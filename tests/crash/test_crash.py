"""Workers die at every named place, sleep past their session, come and go; the promise is kept.

Two workers, two streams on different partitions, a replay without end. What is checked is in `verify.py`; death at any
time, and a bad network, are in `make chaos`.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.crash.field import ROOT, Field, Worker
from tests.kafka.support import WAIT_AT_MOST_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LONG_SESSION_S = 1_800  # the most that a broker allows, and far more than a test waits for

# Each is passed once for each transaction, append or save; the number says at which pass the worker dies.
FAILPOINTS = (
    "ingest_block_appended:2",
    "ingest_bounds_appended:2",
    "ingest_sent:3",
    "ingest_before_commit:2",
    "ingest_after_commit:2",
    "seed_appended:2",
    "seed_committed:2",
    "candidate_appended:2",
    "candidate_committed:2",
    "state_appended:2",
    "state_stored:2",
    "adopted:3",
    "publish_due:2",
    "publish_witnessed:2",
    "publish_appended:2",
    "publish_committed:2",
)


def run(
    bootstrap: str,
    folder: Path,
    scenario: Callable[[Field], Awaitable[None]],
    *,
    seed: int = 1,
    session_timeout_s: int = 6,
    routed: bool = False,
) -> None:
    """Play a scenario, settle, and hold the promise against what is public."""

    async def play() -> None:
        field = Field(bootstrap, folder, seed=seed, session_timeout_s=session_timeout_s, routed=routed)
        try:
            await field.open()
            await scenario(field)
            await field.settle()
            verdict = await field.verdict()
            assert verdict.kept, f"{verdict}\n" + "\n".join(verdict.notes[:20])
            assert verdict.steps == 2 * field.steps
        except BaseException:
            print(field.logs())
            raise
        finally:
            await field.close()

    asyncio.run(play())


def test_every_failpoint_in_the_program_is_tried() -> None:
    """A place that somebody adds is either in the list above or fails here. Those of a command and of an audit's
    checkpoint are in their own tests.
    """
    sources = "\n".join(path.read_text() for path in sorted((ROOT / "agents").rglob("*.py")))
    named = set(re.findall(r'failpoint\("(\w+)"\)', sources))
    named |= {f"{what}_{when}" for what in ("seed", "candidate") for when in ("appended", "committed")}
    elsewhere = set[str]()
    for prefix, file in (("partition", "test_add_partitions.py"), ("table_", "test_table.py")):
        tried = (ROOT / "tests" / "kafka" / file).read_text()
        mine = {name for name in named if name.startswith(prefix)}
        assert mine
        assert all(re.search(rf'"{name}[":]', tried) for name in mine)
        elsewhere |= mine
    assert named - elsewhere == {name.split(":")[0] for name in FAILPOINTS}
    assert set(re.findall(r'failpoint\(f"([^"]+)"\)', sources)) == {"{what}_appended", "{what}_committed"}


@pytest.mark.seconds(25)
@pytest.mark.parametrize(
    "places", [FAILPOINTS[1::6], pytest.param(FAILPOINTS, marks=pytest.mark.nightly)], ids=["some", "all"]
)
def test_killed_at_every_named_place(bootstrap: str, tmp_path: Path, places: Sequence[str]) -> None:
    async def scenario(field: Field) -> None:
        never_reached = await field.kill_at(places, timeout_s=600)
        assert not never_reached
        assert field.kills == len(places)

    run(bootstrap, tmp_path, scenario, routed=True)


@pytest.mark.seconds(30)
def test_zombies_are_fenced(bootstrap: str, tmp_path: Path) -> None:
    """Stopped in mid-transaction past their sessions, replaced one by the other, and woken together: what they then
    commit is refused.
    """

    def heard(zombie: Worker, size: int) -> bool:
        return bool(zombie.ended or zombie.log.stat().st_size > size)

    async def scenario(field: Field) -> None:
        zombies: list[Worker] = []
        try:
            for place in ("ingest_before_commit:3", "state_appended:3", "publish_appended:3"):
                zombies.append(await frozen(field, place))
            behind = field.steps
            field.start("a")
            await field.until_public(behind + 3)  # their successor answers the steps and goes on
            sizes = [zombie.log.stat().st_size for zombie in zombies]
            for zombie in zombies:
                zombie.process.send_signal(signal.SIGCONT)
            # Each is told that it is fenced and ends, or hears of the rebalance first, drops what it had open and joins
            # anew: which of both is a race. That nothing of it was committed is what `run` verifies, on all topics.
            for zombie, size in zip(zombies, sizes, strict=True):
                await until(partial(heard, zombie, size))
            await field.until_public(behind + 8)
            assert all(zombie.ended != 0 for zombie in zombies)
        finally:
            for zombie in zombies:
                zombie.kill()

    run(bootstrap, tmp_path, scenario, seed=4)


@pytest.mark.nightly
@pytest.mark.seconds(30)
def test_workers_come_and_go_and_nobody_waits_for_a_session(bootstrap: str, tmp_path: Path) -> None:
    """One joins and both work; they are killed and come back, one alone and both at once; one leaves. Without its place
    in the group each would be waited for, far longer than anybody here would.
    """

    async def scenario(field: Field) -> None:
        first = field.start("a")
        await field.until_public(2)
        second = field.start("b")
        await until(partial(share, first.log, second.log))
        for names in ("a", "ab"):
            for name in names:
                field.workers[name].kill()
            for name in names:
                field.start(name)
            await field.until_public(max(await field.last_public()) + 1)
        leaving = field.workers.pop("b")
        leaving.process.terminate()
        await ended(leaving.process.poll)
        assert leaving.ended == 0
        await field.until_public(field.steps + 3)

    run(bootstrap, tmp_path, scenario, seed=6, session_timeout_s=LONG_SESSION_S)


def settled(log: Path, *, after: int = 0) -> set[str]:
    """Streams that this worker has settled a step of, as its log says beyond its first `after` characters."""
    return set(re.findall(r"stream (\S+): step \d+ is settled", log.read_text(errors="replace")[after:]))


async def share(one: Path, other: Path) -> bool:
    """Whether two workers settle steps of different streams, once both have settled some from now on.

    Of what they settled before, nothing follows: while one joins or is slow to answer, the other may have had both.
    """
    logs = (one, other)
    now = [len(log.read_text(errors="replace")) for log in logs]
    await until(lambda: all(settled(log, after=at) for log, at in zip(logs, now, strict=True)))
    first, second = (settled(log, after=at) for log, at in zip(logs, now, strict=True))
    return not first & second


async def frozen(field: Field, place: str) -> Worker:
    """Return a worker that is stopped there; not one whose other stream writes its witness, which holds a lock."""
    while True:
        zombie = field.start(place.partition(":")[0], failpoint=place, stop=True)
        del field.workers[zombie.name]  # it is not started again
        await asleep(zombie.process.pid)
        if not any(map(is_locked, (field.folder / "witness").rglob(".*.lock"))):
            return zombie
        zombie.kill()


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


async def asleep(pid: int) -> None:
    """Wait until a process is stopped by a signal."""
    process = psutil.Process(pid)
    await until(lambda: bool(process.status() == psutil.STATUS_STOPPED))


async def ended(poll: Callable[[], int | None], *, timeout_s: float = WAIT_AT_MOST_S) -> None:
    end = time.monotonic() + timeout_s
    while poll() is None:
        assert time.monotonic() < end, "the worker did not end"
        await asyncio.sleep(0.1)
