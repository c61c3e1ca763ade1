"""Workers are killed at random, again and again, during a replay; then every promise is checked against every byte.

    python -m tests.crash.chaos --kills 200
    python -m tests.crash.chaos --kills 200 --network
    python -m tests.crash.chaos --kills 200 --streams 40

Two workers, two streams; by the seed the second is of keys that are found, of cells of a grid, a table that finds
values, or of weighted records. Many streams, of all these kinds by turns, share four partitions and their transactions.
A life ends by SIGKILL at a random time or at a random named failpoint, or sleeps (SIGSTOP) past its session and is
woken. With `--network` the workers reach the broker through a proxy that delays, drops, cuts, holds and answers late by
a seeded plan, and now and then the broker is killed and started again, stops for a while, or is down for up to a
minute; workers' wall clocks step by up to a day, and their disks are full for a while (where this user may mount one).
Now and then the cluster is put back to an earlier moment (`tests.crash.put_back`). The last line is `kills N, faults N,
steps N, lost 0, double 0, bytes differing 0, events miscounted 0, stuck 0, put back N, stops N`, with a stop of each
stream for each time that it was put back; anything else exits with code 1. `stuck` are the streams that did not catch
up by themselves, without a kill, once all was well again; `stops` are those that the witness stopped on a cluster that
was put back. A kill takes 3 to 5 seconds on an idle machine with two cores, and a cluster that is put back half a
minute.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agents.local.broker.embedded import Broker, EmbeddedBroker
from tests.crash.field import Field
from tests.crash.machine import Disk, can_mount
from tests.crash.proxy.faults import Seeded, no_faults
from tests.crash.proxy.server import Proxy
from tests.crash.put_back import Snapshots
from tests.crash.test_crash import FAILPOINTS
from tests.crash.verify import Verdict

NAMES = ("a", "b")
PAUSE_S = 0.5
LONGEST_LIFE_S = 14.0
LONGEST_START_S = 60.0
YOUNG = 0.25  # of the lives may end before anything was done
SLEEP_S = (8.0, 14.0)  # the session ends after 6
SETTLE_S = 300.0
BROKER_EVERY_S = (60.0, 180.0)
MACHINE_EVERY_S = (5.0, 25.0)
FULL_S = (0.5, 8.0)
BROKER_KINDS = {"restart": (0.0, 0.0), "pause": (4.0, 20.0), "down": (10.0, 60.0)}


class Life:
    """What a worker was started for, and when its time comes; a calm one's never does."""

    def __init__(self, field: Field, name: str, chance: random.Random, *, calm: bool = False) -> None:
        self.kind = "calm" if calm else chance.choice(("failpoint", "failpoint", "kill", "kill", "kill", "zombie"))
        place = f"{chance.choice(FAILPOINTS).split(':')[0]}:{chance.randint(1, 3)}" if self.kind == "failpoint" else ""
        self.worker = field.start(name, failpoint=place)
        length = {"failpoint": LONGEST_LIFE_S, "kill": chance.uniform(0.5, 8.0), "zombie": chance.uniform(0.5, 6.0)}
        self._length = length.get(self.kind, float("inf"))
        # Most die at work, however slow the machine is; some while they start.
        self.until = time.monotonic() + (self._length if chance.random() < YOUNG else LONGEST_START_S)
        self._at_work = False

    @property
    def over(self) -> bool:
        return self.worker.ended is not None

    @property
    def due(self) -> bool:
        if not self._at_work and self.worker.works:
            self._at_work = True
            self.until = min(self.until, time.monotonic() + self._length)
        return time.monotonic() > self.until and self.kind != "calm"


class Chaos:
    """Counts kills; a zombie's sleep counts as one. Behind the last of `most`, workers are only started again."""

    def __init__(self, field: Field, chance: random.Random, *, most: int) -> None:
        self.field = field
        self.chance = chance
        self.most = most
        self.kills = 0
        self.crashes = 0
        self.lives: dict[str, Life] = {}
        self.begin()

    def begin(self) -> None:
        """Start everybody."""
        calm = self.kills >= self.most
        self.lives = {name: Life(self.field, name, self.chance, calm=calm) for name in NAMES}

    def end(self) -> None:
        """Kill everybody at once."""
        for life in self.lives.values():
            self.kills += not life.over
            life.worker.kill()

    def turn(self) -> None:
        """Look at both workers once."""
        for name, life in self.lives.items():
            if life.over:
                killed = life.worker.ended == -signal.SIGKILL
                self.kills, self.crashes = self.kills + killed, self.crashes + (not killed)
                self.lives[name] = Life(self.field, name, self.chance, calm=self.kills >= self.most)
            elif not life.due:
                continue
            elif life.kind == "zombie":
                life.worker.process.send_signal(signal.SIGSTOP)
                self.kills += 1
                life.kind, life.until = "asleep", time.monotonic() + self.chance.uniform(*SLEEP_S)
            elif life.kind == "asleep":
                life.worker.process.send_signal(signal.SIGCONT)
                life.kind, life.until = "woken", time.monotonic() + LONGEST_LIFE_S
            else:
                life.worker.kill()

    def wake(self) -> None:
        """No life sleeps any longer."""
        for life in self.lives.values():
            if not life.over:
                life.worker.process.send_signal(signal.SIGCONT)


class Weather:
    """Faults of network, broker and the workers' machines, and how many there were of each kind."""

    def __init__(self, broker: Broker, plan: Seeded, *, seed: int) -> None:
        self.plan = plan
        self.done: Counter[str] = Counter()
        self.broker_is_well = True
        self._broker = broker
        self._broker_chance = random.Random(f"broker {seed}")
        self._machine_chance = random.Random(f"machine {seed}")

    @property
    def faults(self) -> int:
        return self.plan.faults + self.done.total()

    def begin(self, field: Field, disks: Mapping[str, Disk]) -> asyncio.Task[None]:
        """Everything that is not the network's, until the task is cancelled: then broker and disks are well again."""

        async def everything() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.break_the_broker())
                group.create_task(self.break_machines(field, disks))

        return asyncio.create_task(everything())

    async def break_machines(self, field: Field, disks: Mapping[str, Disk]) -> None:
        """Clocks step, disks are full."""
        chance = self._machine_chance
        while True:
            await asyncio.sleep(chance.uniform(*MACHINE_EVERY_S))
            name, kind, full_s = chance.choice(NAMES), chance.choice(("clock", "disk")), chance.uniform(*FULL_S)
            if kind == "clock":
                field.clocks[name].step(chance)
            elif name in disks:
                disks[name].fill()
                try:
                    await asyncio.sleep(full_s)
                finally:
                    disks[name].free()
            else:
                continue
            self.done[kind] += 1

    async def break_the_broker(self) -> None:
        """Now and then, until cancelled: then it runs."""
        chance = self._broker_chance
        while True:
            await asyncio.sleep(chance.uniform(*BROKER_EVERY_S))
            kind = chance.choice(sorted(BROKER_KINDS))
            self.done[f"broker {kind}"] += 1
            self.broker_is_well = False
            (self._broker.pause if kind == "pause" else self._broker.kill)()
            try:
                await asyncio.sleep(chance.uniform(*BROKER_KINDS[kind]))
            finally:
                if kind == "pause":
                    self._broker.resume()
                else:
                    self._broker.start()  # a second or ten in which nobody else is served: it is down anyway
                self.broker_is_well = True


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    streams: int
    kills: int
    faults: int
    stuck: int
    put_back: int
    stops: int
    verdict: Verdict
    complete: bool

    @property
    def kept(self) -> bool:
        return self.verdict.kept and self.complete and not self.stuck and self.stops == self.streams * self.put_back

    def __str__(self) -> str:
        return (
            f"kills {self.kills}, faults {self.faults}, {self.verdict}, stuck {self.stuck}, "
            f"put back {self.put_back}, stops {self.stops}"
        )


async def settled(field: Field, chaos: Chaos) -> int:
    """Wait until everything is public. Returns the streams that only got there, or did not, after a kill.

    Raises: TimeoutError.
    """
    chaos.wake()
    try:
        await field.settle(timeout_s=SETTLE_S)
    except TimeoutError:
        stuck = sum(last < field.steps - 1 for last in await field.last_public())
        for life in chaos.lives.values():
            life.worker.kill()
        await field.until_public(field.steps - 1, timeout_s=SETTLE_S)
        return stuck
    return 0


def disks_of(field: Field, console: Console) -> dict[str, Disk]:
    """A small disk for each worker; none, and the reason is printed, where this user may not mount one."""
    if reason := can_mount(field.folder):
        console.print(f"no disk will be full: {reason}", markup=False)
        return {}
    return {name: Disk(field.data_folder(name)) for name in NAMES}


@contextlib.asynccontextmanager
async def weather(broker: Broker, *, network: bool, seed: int) -> AsyncIterator[tuple[Weather, str, Proxy | None]]:
    """Faults, if any are asked for, and the address that workers use."""
    wind = Weather(broker, Seeded(seed), seed=seed)
    if not network:
        yield wind, broker.bootstrap, None
        return
    async with Proxy(broker.bootstrap, plan=wind.plan) as proxy:
        yield wind, proxy.bootstrap, proxy


async def run(
    kills: int,
    *,
    seed: int,
    folder: Path,
    console: Console,
    network: bool = False,
    faults: int = 0,
    streams: int = 2,
    minutes: float = float("inf"),
) -> Outcome | None:
    """One run on a broker of its own, until there were so many kills and faults, or `minutes` are over.

    None if the job did not settle.
    """
    end = time.monotonic() + 60 * minutes
    # Of many streams a worker does as many steps a second as of two.
    pause_s, per_step = PAUSE_S * streams / 4 if streams > 2 else PAUSE_S, 40 if streams == 2 else 10
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[seen]}"),
    )
    with EmbeddedBroker() as broker, Progress(*columns, console=console) as progress:
        async with weather(broker, network=network, seed=seed) as (wind, bootstrap, proxy):
            field = Field(broker.bootstrap, folder, seed=seed, workers_bootstrap=bootstrap, count=streams, routed=True)
            engines = sorted(
                {f"{stream.engine} ({stream.mode}{', weighted' * stream.weighted})" for stream in field.config.streams}
            )
            console.print(f"{streams} streams: {', '.join(engines)}", markup=False)
            bar = progress.add_task("kills", total=kills, seen="")
            breaking: asyncio.Task[None] | None = None
            disks = disks_of(field, console) if network else {}
            snapshots = Snapshots(broker, field, random.Random(f"put back {seed}"))
            stuck = 0
            try:
                await field.open(pause_s=pause_s, per_step=per_step)
                chaos = Chaos(field, random.Random(seed), most=kills)
                if proxy is not None:
                    breaking = wind.begin(field, disks)
                shown = 0.0
                while (chaos.kills < kills or wind.faults < faults or snapshots.waits) and time.monotonic() < end:
                    chaos.turn()
                    if wind.broker_is_well and chaos.kills < kills:
                        snapshots.take(chaos.kills)
                    if await snapshots.due(chaos.kills, most=kills):
                        if breaking is not None:
                            breaking.cancel()
                            await asyncio.gather(breaking, return_exceptions=True)
                        await field.rest()
                        chaos.end()
                        await snapshots.use(chaos.kills)
                        if not snapshots.kept:
                            break
                        field.go_on(pause_s=pause_s, per_step=per_step)
                        chaos.begin()
                        if breaking is not None:
                            breaking = wind.begin(field, disks)
                    if breaking is not None and breaking.done():
                        breaking.result()
                    if time.monotonic() - shown > 5.0:
                        shown = time.monotonic()
                        seen = (
                            f"faults {wind.faults}, public {await field.last_public()} of {field.steps}, "
                            f"ended by themselves {chaos.crashes}"
                        )
                        progress.update(bar, completed=chaos.kills, seen=seen)
                        if chaos.crashes > 10 + 3 * (chaos.kills + wind.faults):
                            raise TimeoutError(f"workers keep ending by themselves\n{field.logs()}")
                        if not console.is_terminal:
                            console.print(f"kills {chaos.kills} of {kills}, {seen}")
                    await asyncio.sleep(0.05)
                progress.update(bar, completed=chaos.kills, seen="settling, then reading everything back")
                if breaking is not None and proxy is not None:
                    breaking.cancel()
                    await asyncio.gather(breaking, return_exceptions=True)
                    proxy.plan = no_faults
                verdict = snapshots.verdict
                if snapshots.kept:
                    stuck = await settled(field, chaos)
                    verdict += await field.verdict()
            except TimeoutError as error:
                console.print(f"[red]the job did not settle: {error}", markup=False)
                return None
            finally:
                if breaking is not None:
                    breaking.cancel()
                await field.close()
                for disk in disks.values():
                    disk.close()
    if network:
        kinds = Counter(f"{kind} {name}" for (name, kind), count in wind.plan.done.items() for _ in range(count))
        console.print(", ".join(f"{what} {count}" for what, count in sorted((kinds + wind.done).items())))
    for note in verdict.notes[:50]:
        console.print(note, markup=False)
    return Outcome(
        streams,
        chaos.kills,
        wind.faults,
        stuck,
        snapshots.put_back,
        snapshots.stops,
        verdict,
        complete=verdict.steps == streams * field.steps,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill workers at random and check every promise.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--streams", type=int, default=2, help="2, or more on four partitions")
    parser.add_argument("--network", action="store_true", help="faults of network and broker, too")
    parser.add_argument("--faults", type=int, help="with --network, at least so many; as many as kills by default")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="end then, with fewer; the last line counts"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of all that is chance; printed")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    console.print(f"seed {arguments.seed}")
    faults = 0 if not arguments.network else arguments.kills if arguments.faults is None else arguments.faults
    with tempfile.TemporaryDirectory(prefix="privstream-chaos-") as folder:
        outcome = asyncio.run(
            run(
                arguments.kills,
                seed=arguments.seed,
                folder=Path(folder),
                console=console,
                network=arguments.network,
                faults=faults,
                streams=arguments.streams,
                minutes=arguments.minutes,
            )
        )
    if outcome is None:
        return 1
    sys.stdout.write(f"{outcome}\n")
    return 0 if outcome.kept else 1


if __name__ == "__main__":
    sys.exit(main())
