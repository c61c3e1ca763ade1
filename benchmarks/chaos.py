"""Workers are killed at random, again and again, during a replay; then every promise is checked against every byte.

    python -m benchmarks.chaos --kills 200

Two workers, two streams. A life ends by SIGKILL at a random time or at a random named failpoint, or sleeps (SIGSTOP)
past its session and is woken. The last line is `kills N, steps N, lost 0, double 0, bytes differing 0, events
miscounted 0`; anything else exits with code 1. A kill takes 3 to 5 seconds here.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agents.broker import broker_from_env
from tests.crash.field import Field
from tests.crash.test_crash import FAILPOINTS

NAMES = ("a", "b")
PAUSE_S = 0.5
LONGEST_LIFE_S = 14.0
SLEEP_S = (8.0, 14.0)  # the session ends after 6


class Life:
    """What a worker was started for, and when its time comes."""

    def __init__(self, field: Field, name: str, chance: random.Random) -> None:
        self.kind = chance.choice(("failpoint", "failpoint", "kill", "kill", "kill", "zombie"))
        place = f"{chance.choice(FAILPOINTS).split(':')[0]}:{chance.randint(1, 3)}" if self.kind == "failpoint" else ""
        self.worker = field.start(name, failpoint=place)
        at = {"failpoint": LONGEST_LIFE_S, "kill": chance.uniform(0.5, 8.0), "zombie": chance.uniform(3.0, 6.0)}
        self.until = time.monotonic() + at[self.kind]

    @property
    def over(self) -> bool:
        return self.worker.ended is not None

    @property
    def due(self) -> bool:
        return time.monotonic() > self.until


class Chaos:
    """Counts kills; a zombie's sleep counts as one."""

    def __init__(self, field: Field, chance: random.Random) -> None:
        self.field = field
        self.chance = chance
        self.kills = 0
        self.crashes = 0
        self.lives = {name: Life(field, name, chance) for name in NAMES}

    def turn(self) -> None:
        """Look at both workers once."""
        for name, life in self.lives.items():
            if life.over:
                killed = life.worker.ended == -signal.SIGKILL
                self.kills, self.crashes = self.kills + killed, self.crashes + (not killed)
                self.lives[name] = Life(self.field, name, self.chance)
            elif life.due and life.kind == "zombie":
                life.worker.process.send_signal(signal.SIGSTOP)
                self.kills += 1
                life.kind, life.until = "asleep", time.monotonic() + self.chance.uniform(*SLEEP_S)
            elif life.due and life.kind == "asleep":
                life.worker.process.send_signal(signal.SIGCONT)
                life.kind, life.until = "woken", time.monotonic() + LONGEST_LIFE_S
            elif life.due:
                life.worker.kill()


async def run(kills: int, *, seed: int, folder: Path, console: Console) -> bool:
    """One run on a broker of its own. Returns whether every promise was kept."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[seen]}"),
    )
    with broker_from_env() as broker, Progress(*columns, console=console) as progress:
        field = Field(broker.bootstrap, folder, seed=seed)
        bar = progress.add_task("kills", total=kills, seen="")
        try:
            await field.open(pause_s=PAUSE_S)
            chaos = Chaos(field, random.Random(seed))
            shown = 0.0
            while chaos.kills < kills:
                chaos.turn()
                if time.monotonic() - shown > 5.0:
                    shown = time.monotonic()
                    seen = f"public {await field.last_public()} of {field.steps}, ended by themselves {chaos.crashes}"
                    progress.update(bar, completed=chaos.kills, seen=seen)
                    if chaos.crashes > 10 + 2 * chaos.kills:
                        raise TimeoutError(f"workers keep ending by themselves\n{field.logs()}")
                    if not console.is_terminal:
                        console.print(f"kills {chaos.kills} of {kills}, {seen}")
                await asyncio.sleep(0.05)
            progress.update(bar, completed=chaos.kills, seen="settling, then reading everything back")
            for life in chaos.lives.values():
                life.worker.kill()
            await field.settle(timeout_s=300.0)
            verdict = await field.verdict()
        except TimeoutError as error:
            console.print(f"[red]the job did not settle: {error}", markup=False)
            return False
        finally:
            await field.close()
    for note in verdict.notes[:50]:
        console.print(note, markup=False)
    sys.stdout.write(f"kills {chaos.kills}, {verdict}\n")
    return verdict.kept and verdict.steps == 2 * field.steps


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill workers at random and check every promise.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the killer; printed, to be repeated")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    console.print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="privstream-chaos-") as folder:
        kept = asyncio.run(run(arguments.kills, seed=arguments.seed, folder=Path(folder), console=console))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
