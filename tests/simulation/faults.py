"""What goes wrong, by a seeded plan: nothing that a machine, a network or a broker would not do."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.network import NAMES, Trap
from tests.simulation.oracle import shown
from tests.simulation.timeline import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

FAILPOINTS = (
    "ingest_block_appended", "ingest_bounds_appended", "ingest_sent", "ingest_before_commit", "ingest_after_commit",
    "seed_appended", "seed_committed", "candidate_appended", "candidate_committed", "state_appended",
    "state_stored", "adopted", "table_chunk", "table_before_head", "table_after_head",
    "publish_due", "publish_witnessed", "publish_appended", "publish_committed", "frame",
)  # fmt: skip
TRANSACTIONAL = (22, 24, 25, 26, 28)
KINDS = {
    "kill": 4, "arm_failpoint": 6, "zombie": 4, "isolate": 2, "trap": 6, "broker": 2, "clock": 1, "compact": 2,
    "restart": 1, "slow": 1, "disk": 1, "late": 8,
}  # fmt: skip
FORGOTTEN = 4  # times, in a seed where ids are forgotten
RATES = (2.0, 5.0, 12.0)  # of a seed, in an hour


SENT_ONCE = importlib.util.find_spec("agents.kafka.transactions") is not None


@dataclass(frozen=True)
class Switches:
    """Faults that are known to break something, or that a user would have to cause.

    Attributes:
        late_end: EndTxn may arrive late (KAFKA-17754): where producers send it once, as `agents.kafka.transactions`.
        retention: private topics may lose what the job did not delete itself.
        put_back: the whole cluster is put back to an earlier moment, raw topics included; the witness is not.
        faults: mean number of faults in an hour; None: one of `RATES`, and only some kinds of faults, by the seed.
    """

    late_end: bool = SENT_ONCE
    retention: bool = False
    put_back: bool = False
    faults: float | None = None


class Plan:
    """The faults of one seed. Told of the world's processes; acts on them, on the network and on the broker."""

    def __init__(self, world: World, chance: random.Random, switches: Switches) -> None:
        self.world = world
        self.chance = chance
        self.switches = switches
        self.done: list[str] = []
        self._active = True
        self._rate, self._kinds = switches.faults, dict(KINDS)
        if self._rate is None:
            # A few kinds of faults, often: what takes two of a kind in a row is rare where everything happens.
            self._rate = chance.choice(RATES)
            self._kinds = {kind: weight for kind, weight in KINDS.items() if chance.random() < 0.5} or self._kinds
            if chance.random() < 0.2:
                self._rate, self._kinds = 2 * RATES[-1], {"late": 1}

    def arm(self, until_s: float) -> None:
        """Spread faults over the time to `until_s`."""
        at = 0.0
        while self._rate:
            at += self.chance.expovariate(self._rate / 3600)
            if at >= until_s:
                break
            self.world.timeline.at(at, self._strike)
        # By a chance of its own: no other seed is another one for it.
        chance = random.Random(f"forgotten {self.world.seed}")
        for _ in range(FORGOTTEN if chance.random() < 0.25 and self._rate else 0):
            self.world.timeline.at(chance.uniform(0.0, until_s), self._forget)
        if self.switches.retention:
            self.world.timeline.at(self.chance.uniform(0.4, 0.9) * until_s, self._forbidden)
        if self.switches.put_back:
            for _ in range(self.chance.choice((1, 1, 2))):
                taken = self.chance.uniform(0.1, 0.8) * until_s
                self.world.timeline.at(taken, self._take_snapshot, self.chance.uniform(taken, until_s))

    def _forget(self) -> None:
        """The coordinator forgets every id with nothing under way (transactional.id.expiration.ms)."""
        known = self.world.broker.transactions.known
        for name in [name for name, each in known.items() if each.state not in ("ongoing", "ending")]:
            del known[name]
        self._note("every transactional id at rest is forgotten")

    def disarm(self) -> None:
        self._active = False
        self.world.network.traps.clear()
        self.world.network.isolated.clear()
        for process in self.world.workers.values():
            process.armed, process.skew_s = None, 0.0
            process.thread_s = type(process).thread_s.__get__(process)  # type: ignore[method-assign]
        if not self.world.network.up:
            self.world.network.come_up()

    def born(self, process: Process) -> None:
        """A process starts; some are born to die soon."""
        if self._active and "arm_failpoint" in self._kinds and self.chance.random() < 0.3:
            self._arm(process)

    def _note(self, what: str) -> None:
        self.done.append(f"{self.world.timeline.now:.1f} {what}")

    def _strike(self) -> None:
        if self._active:
            kinds = list(self._kinds)
            getattr(self, f"_{self.chance.choices(kinds, list(self._kinds.values()))[0]}")()

    def _victim(self) -> Process | None:
        alive = [process for process in self.world.workers.values() if process.alive]
        return self.chance.choice(alive) if alive else None

    def _kill(self) -> None:
        if process := self._victim():
            self._note(f"kill {process.name}")
            process.kill()

    def _arm_failpoint(self) -> None:
        if process := self._victim():
            self._arm(process)

    def _arm(self, process: Process) -> None:
        place = self.chance.choice(FAILPOINTS)
        act = self.chance.choice(("kill", "kill", "stop"))
        process.armed = self._failpoint(place, act, self.chance.choice((1, 1, 2, 5)))

    def _failpoint(self, place: str, act: str, hits: int):  # type: ignore[no-untyped-def]
        until = self.chance.choice((5.0, 30.0, 400.0, 900.0))

        def happens(process: Process) -> None:
            self._note(f"{act} {process.name} at {place}")
            if act == "kill":
                process.kill()
            else:
                process.stop_until(self.world.timeline.now + until)

        return place, hits, happens

    def _zombie(self) -> None:
        if process := self._victim():
            asleep = self.chance.choice((2.0, 12.0, 60.0, 350.0, 700.0, 1500.0))
            self._note(f"stop {process.name} for {asleep:.0f} s")
            process.stop_until(self.world.timeline.now + asleep)

    def _isolate(self) -> None:
        if process := self._victim():
            length = self.chance.choice((5.0, 20.0, 120.0, 600.0))
            self._note(f"isolate {process.name} for {length:.0f} s")
            self.world.network.isolated[process.name] = self.world.timeline.now + length

    def _trap(self) -> None:
        kinds = ("hold", "mute", "cut")
        api = self.chance.choice((*TRANSACTIONAL, 26, 26, 0, 0, *NAMES))
        kind = self.chance.choice(kinds)
        delay = self.chance.choice((0.5, 4.0, 9.0, 12.0, 30.0, 90.0))
        if api == 26 and kind == "hold" and not self.switches.late_end:
            kind = "mute"
        self.world.network.traps.append(Trap(api, kind, delay, self.chance.choice((0, 0, 1, 3))))
        self._note(f"{kind} the next {NAMES[api]} for {delay:.0f} s")

    def _late(self) -> None:
        """A transactional request arrives behind one that its client sent later, over another connection."""
        api = self.chance.choice((26, 26, 26, *TRANSACTIONAL))
        if api == 26 and not self.switches.late_end:
            return
        until = self.chance.choice((0, 0, 0, 0, 24, 26))
        hits = self.chance.choice((0, 1, 1, 2, 3))  # frames until the client dies of it, 0: it lives

        def then(process: Process) -> None:
            if hits and self._active:
                process.armed = self._failpoint("frame", "kill", hits)

        delay = self.chance.choice((90.0, 900.0, 900.0))
        self.world.network.traps.append(Trap(api, "hold", delay, until=until, then=then))
        self._note(f"hold the next {NAMES[api]} until a later {NAMES[until]}")

    def _broker(self) -> None:
        network = self.world.network
        if network.up:
            away = self.chance.choice((1.0, 10.0, 60.0, 400.0))
            self._note(f"broker away for {away:.0f} s")
            network.go_down()
            self.world.timeline.after(away, lambda: None if network.up else network.come_up())

    def _clock(self) -> None:
        if process := self._victim():
            process.skew_s = self.chance.choice((-30.0, -5.0, 5.0, 20.0))
            self._note(f"clock of {process.name} {process.skew_s:+.0f} s")

    def _compact(self) -> None:
        self._note("compact")
        for (topic, _), log in self.world.broker.logs.items():
            if topic.endswith((".bounds", "-changelog", ".synthetic", ".ledger", ".utility")):
                log.compact()

    def _restart(self) -> None:
        """A polite restart: SIGTERM."""
        if (process := self._victim()) and process.name in self.world.stops:
            self._note(f"restart {process.name}")
            process.receive(self.world.stops[process.name].set)

    def _slow(self) -> None:
        if process := self._victim():
            length = self.chance.choice((20.0, 200.0))
            self._note(f"threads of {process.name} take {length:.0f} s")
            process.thread_s = lambda: length  # type: ignore[method-assign]

    def _disk(self) -> None:
        """A machine comes back without its state store."""
        if process := self._victim():
            self._note(f"kill {process.name}, which loses its disk")
            process.kill()
            self.world.disks.pop(process.name, None)

    def _take_snapshot(self, back_at_s: float) -> None:
        self._note(f"snapshot, put back at {back_at_s:.1f}")
        self.world.timeline.at(back_at_s, self._put_back, self.world.broker.snapshot())

    def _put_back(self, restore: Callable[[], None]) -> None:
        """The cluster goes down, and comes up as it was; of the workers some are killed, some live through it."""
        network, observed = self.world.network, self.world.observed
        if network.up:
            network.go_down()
        self._note("the cluster is put back")

        def comes_up() -> None:
            observed.abandoned.append(shown(self.world.broker))
            restore()
            network.come_up()
            for process in [each for each in self.world.workers.values() if each.alive]:
                if self.chance.random() < 0.7:
                    process.kill()
                    if self.chance.random() < 0.8:  # its state tables would tell
                        self.world.disks.pop(process.name, None)

        self.world.timeline.after(1.0, comes_up)  # markers that were under way are written before

    def _forbidden(self) -> None:
        """Somebody sets retention on a private topic, and everything that was in memory must be read again."""
        topic = self.chance.choice(("blocks", "releases", "bounds"))
        for (name, partition), log in self.world.broker.logs.items():
            if name == f"sim.{topic}" and log.end > log.start + 1:
                log.delete_below(log.start + 1 + self.chance.randrange(log.end - log.start))
                self.world.observed.forbidden.append(f"{name}-{partition} below {log.start}")
        self._note(f"retention on {topic}, and every worker starts again")
        for process in [each for each in self.world.workers.values() if each.alive]:
            process.kill()
